//! The program's description of itself: help, completions for shells, manual pages.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgAction, Command, CommandFactory, Error, ValueHint};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use tracehound_api::command_line::{ArgDescription, CommandDescription};

use super::{Cli, fleet};

/// Commands that look no name up: the options that say where names lie are of no use to them.
const WITHOUT_SYMBOLS: [&str; 12] = [
    "run",
    "attach",
    "detach",
    "import",
    "ctl",
    "collect",
    "fleet",
    "push",
    "libraries",
    "openapi",
    "completions",
    "man",
];

/// Headings that say in brackets how a value is written, and that value's name.
const HEADINGS: [(&str, &str); 2] = [("Time", "TIME"), ("Filters", "RE")];

/// The command line, whole.
pub fn command() -> Command {
    let mut command = Cli::command();
    // Only then does every command have the options that all share.
    command.build();
    for name in WITHOUT_SYMBOLS {
        command = command.mut_subcommand(name, without_symbols);
    }
    command
}

fn without_symbols(mut command: Command) -> Command {
    let below: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    for name in below.iter().filter(|name| *name != "help") {
        command = command.mut_subcommand(name, without_symbols);
    }
    let of_symbols = |arg: &Arg| arg.get_help_heading() == Some("Symbols");
    command.mut_args(|arg| if of_symbols(&arg) { arg.hide(true) } else { arg })
}

/// A word that the recorder understands or refuses, with the words that a shell may propose.
#[derive(Clone)]
pub struct Proposed(pub &'static [&'static str]);

impl TypedValueParser for Proposed {
    type Value = OsString;

    fn parse_ref(&self, _: &Command, _: Option<&Arg>, value: &OsStr) -> Result<OsString, Error> {
        Ok(value.to_owned())
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.0.iter().map(PossibleValue::new)))
    }
}

/// The same with what is below the commands of `heaptrace-fleet`, where it lies beside this program.
fn command_with_fleet() -> Command {
    let mut command = command();
    for described in fleet::describe().map(|fleet| fleet.commands).unwrap_or_default() {
        if command.find_subcommand(&described.name).is_some() {
            command = command.mut_subcommand(described.name.clone(), |_| from_description(described, &["heaptrace"]));
        }
    }
    command
}

/// clap keeps names as long as the program lives.
fn kept(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

/// `above` are the names of the commands above, which clap sets only once.
fn from_description(described: CommandDescription, above: &[&str]) -> Command {
    let path = [above, &[&described.name]].concat();
    let mut command = Command::new(kept(described.name.clone())).bin_name(path.join(" ")).display_name(path.join("-"));
    command = command.about(described.about).after_help(described.after_help).disable_help_subcommand(true);
    command = command.args(described.args.into_iter().map(arg_from_description));
    command.subcommands(described.commands.into_iter().map(|below| from_description(below, &path)))
}

fn arg_from_description(described: ArgDescription) -> Arg {
    let mut arg = Arg::new(kept(described.id)).help(described.help).required(described.required);
    arg = arg.short(described.short).long(described.long.map(kept)).help_heading(described.heading.map(kept));
    if described.values.is_empty() {
        return arg.action(ArgAction::SetTrue);
    }
    arg = arg.value_names(described.values.into_iter().map(kept)).default_value(described.default.map(kept));
    if described.repeated {
        arg = arg.action(ArgAction::Append);
    }
    if let Ok(hint) = described.hint.parse::<ValueHint>() {
        arg = arg.value_hint(hint);
    }
    if !described.words.is_empty() {
        arg = arg.value_parser(PossibleValuesParser::new(described.words.into_iter().map(kept)));
    }
    arg
}

/// The completion script for a shell.
pub fn completions(shell: clap_complete::Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command_with_fleet(), "heaptrace", &mut script);
    script
}

/// Writes one page for the program and one for each command.
///
/// # Errors
/// When the folder or a page cannot be written.
pub fn write_pages(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let root = command_with_fleet();
    let pages = pages(&root, &[]);
    for (name, page) in &pages {
        let path = folder.join(format!("{name}.1"));
        fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Pages of a command and all below it, by name.
fn pages(command: &Command, above: &[&str]) -> Vec<(String, Vec<u8>)> {
    let mut path = above.to_vec();
    path.push(command.get_name());
    let name = path.join("-");
    let mut found = vec![(name.clone(), page(command, &name, &path))];
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
        found.extend(pages(sub, &path));
    }
    found
}

fn page(command: &Command, name: &str, path: &[&str]) -> Vec<u8> {
    let mut values: Vec<(&'static str, String)> = Vec::new();
    // A heading such as `Time (1.5s, …)` is written in capitals: what is in brackets has a section of its own.
    let mut short = command.clone().mut_args(|arg| {
        let heading = arg.get_help_heading().and_then(|heading| heading.split_once(" ("));
        let known = heading.and_then(|(head, _)| HEADINGS.iter().find(|known| known.0 == head).copied());
        let (Some((_, what)), Some((head, value))) = (heading, known) else { return arg };
        if values.iter().all(|(known, _)| *known != value) {
            let what = what.trim_end_matches(')');
            values.push((value, what.strip_prefix("RE is ").unwrap_or(what).to_owned()));
        }
        arg.help_heading(head)
    });
    if short.find_subcommand("help").is_some() {
        short = short.mut_subcommand("help", |help| help.hide(true));
    }
    let man = Man::new(short).title(name).source(concat!("heaptrace ", env!("CARGO_PKG_VERSION"))).manual("Tracehound");
    let mut out = Vec::new();
    let written = man
        .render_title(&mut out)
        .and_then(|()| man.render_name_section(&mut out))
        .and_then(|()| man.render_synopsis_section(&mut out))
        .and_then(|()| man.render_description_section(&mut out))
        .and_then(|()| man.render_options_section(&mut out));
    let subcommands = command.get_subcommands().any(|sub| sub.get_name() != "help");
    let written = written.and_then(|()| if subcommands { man.render_subcommands_section(&mut out) } else { Ok(()) });
    let written = written.and_then(|()| sections(command, &values, path).to_writer(&mut out));
    debug_assert!(written.is_ok(), "memory takes everything");
    out
}

/// What the options' types mean, examples, and where else to look.
fn sections(command: &Command, values: &[(&'static str, String)], path: &[&str]) -> Roff {
    let mut roff = Roff::new();
    if !values.is_empty() {
        roff.control("SH", ["VALUES"]);
        for (head, what) in values {
            roff.control("TP", []);
            roff.text([bold(*head)]);
            roff.text([roman(what.as_str())]);
        }
    }
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let mut rest = Vec::new();
    for part in help.split("\n\n") {
        match part.strip_prefix("Examples:\n").or_else(|| part.strip_prefix("Example:\n")) {
            Some(lines) => {
                roff.control("SH", ["EXAMPLES"]);
                roff.control("nf", []);
                for line in lines.lines() {
                    roff.text([roman(line.trim_start())]);
                }
                roff.control("fi", []);
            }
            None if !part.is_empty() => rest.push(part),
            None => {}
        }
    }
    if !rest.is_empty() {
        roff.control("SH", ["NOTES"]);
        for part in rest {
            roff.control("PP", []);
            roff.text([roman(part)]);
        }
    }
    if path.len() == 1 {
        let list = |roff: &mut Roff, title: &str, rows: &[(&str, &str)]| {
            roff.control("SH", [title]);
            for (head, what) in rows {
                roff.control("TP", []);
                roff.text([bold(*head)]);
                roff.text([roman(*what)]);
            }
        };
        list(&mut roff, "ENVIRONMENT", &ENVIRONMENT);
        list(&mut roff, "FILES", &FILES);
        list(&mut roff, "EXIT STATUS", &EXIT_STATUS);
    } else {
        roff.control("SH", ["SEE ALSO"]);
        let above = path.iter().take(path.len() - 1).copied().collect::<Vec<_>>().join("-");
        roff.text([bold(above), roman("(1)")]);
    }
    roff
}

const ENVIRONMENT: [(&str, &str); 6] = [
    ("NO_COLOR", "No colours, unless --color always is given."),
    ("HEAPTRACE_CONFIG", "The file with defaults for options; empty: none."),
    ("HEAPTRACE_TOKEN", "The secret of `heaptrace server`."),
    ("HEAPTRACE_PUSH_TOKEN", "The bearer token that `heaptrace push` sends."),
    ("DEBUGINFOD_URLS", "The servers that --debuginfod asks for debug files."),
    ("TRACEHOUND_*", "Options of the recorder, for `heaptrace run` and for programs that preload libtracehound.so."),
];

const FILES: [(&str, &str); 3] = [
    ("heaptrace.toml", "Defaults for options, in the current folder or in ~/.config/heaptrace."),
    ("memory-PROGRAM-PID.dat", "A recording."),
    ("memory-PROGRAM-PID.dat.idx", "Its index, made when it is first opened; it can be deleted at any time."),
];

const EXIT_STATUS: [(&str, &str); 3] = [
    ("0", "Success."),
    ("1", "Something failed, or `heaptrace check` found a limit exceeded."),
    ("2", "Wrong usage, on the command line or in the environment."),
];

/// The script or the document, to standard output.
pub fn print(text: &[u8]) -> Result<()> {
    let mut out = super::terminal::stdout();
    out.write_all(text).and_then(|()| out.flush()).context("standard output")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_offered_where_names_are_looked_up() {
        let mut command = command();
        Cli::command().debug_assert();
        let shown = |command: &mut Command, name: &str| {
            let help = command.find_subcommand_mut(name).unwrap().render_long_help().to_string();
            help.contains("--sysroot")
        };
        for name in WITHOUT_SYMBOLS {
            assert!(!shown(&mut command, name), "{name}");
        }
        for name in ["info", "leaks", "server", "export", "bundle", "dump"] {
            assert!(shown(&mut command, name), "{name}");
        }
    }

    #[test]
    fn every_command_has_a_page_with_examples() {
        let root = command();
        let pages = pages(&root, &[]);
        let mut names: Vec<_> = root.get_subcommands().map(|sub| format!("heaptrace-{}", sub.get_name())).collect();
        names.retain(|name| name != "heaptrace-help");
        for name in names {
            let (_, page) =
                pages.iter().find(|(page, _)| *page == name).unwrap_or_else(|| panic!("{name} has no page"));
            let page = String::from_utf8(page.clone()).unwrap();
            for section in
                [".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION", ".SH OPTIONS", ".SH EXAMPLES", ".SH \"SEE ALSO\""]
            {
                assert!(page.contains(section), "{name} has no {section}:\n{page}");
            }
            assert!(!page.contains("heaptrace\\-help") && !page.contains("EXTRA") && !page.contains("1.5S"), "{name}");
        }
    }

    #[test]
    fn shells_propose_values() {
        for (shell, word) in [
            (clap_complete::Shell::Bash, "frame-pointer"),
            (clap_complete::Shell::Zsh, "frame-pointer"),
            (clap_complete::Shell::Fish, "frame-pointer"),
            (clap_complete::Shell::Bash, "temporary"),
            (clap_complete::Shell::Bash, "speedscope"),
        ] {
            let script = String::from_utf8(completions(shell)).unwrap();
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
}
