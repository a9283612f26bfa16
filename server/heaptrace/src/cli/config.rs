//! `heaptrace.toml`: defaults for options, so that a project need not repeat them.
//!
//! ```toml
//! color = "never"                        # options of every command
//! debug-dir = ["/srv/debug"]
//!
//! [leaks]                                # options of one command, by their long names
//! suppressions = ["tests/leaks.supp"]
//! sites = 20
//! full = true
//! ```
//! The file is the one that `HEAPTRACE_CONFIG` names, else `heaptrace.toml` in the current folder, else
//! `heaptrace/heaptrace.toml` in the user's configuration folder. What the command line says goes first.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::parser::ValueSource;
use clap::{ArgMatches, Command};
use toml::{Table, Value};

use super::Misuse;

/// The command line with the defaults of the configuration file put in.
///
/// # Errors
/// When the file cannot be read or names an option that there is not.
pub fn with_defaults(command: Command, arguments: Vec<OsString>) -> Result<Vec<OsString>> {
    let Some((path, table)) = read()? else { return Ok(arguments) };
    // Errors of the command line are reported by clap, for the arguments as they were given.
    let Ok(matches) = command.clone().try_get_matches_from(&arguments) else { return Ok(arguments) };
    let named = path.display().to_string();
    apply(command, &matches, &table, arguments).map_err(|why| Misuse(format!("{named}: {why}")).into())
}

fn read() -> Result<Option<(PathBuf, Table)>> {
    let chosen = std::env::var_os("HEAPTRACE_CONFIG");
    let path = match &chosen {
        Some(path) if path.is_empty() => return Ok(None),
        Some(path) => PathBuf::from(path),
        None => {
            let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".config"));
            let user = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).or_else(home);
            let user = user.map(|folder| folder.join("heaptrace/heaptrace.toml"));
            match [Some(PathBuf::from("heaptrace.toml")), user].into_iter().flatten().find(|path| path.is_file()) {
                Some(path) => path,
                None => return Ok(None),
            }
        }
    };
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let wrong = |error| Misuse(format!("{} is no configuration: {}", path.display(), mistake(&text, &error)));
    let table = text.parse::<Table>().map_err(wrong)?;
    Ok(Some((path, table)))
}

/// What is wrong with a TOML file, and in which line.
pub fn mistake(text: &str, error: &toml::de::Error) -> String {
    let line = error.span().map_or(1, |span| 1 + text[..span.start.min(text.len())].matches('\n').count());
    format!("line {line}: {}", error.message().trim_end().replace('\n', ", "))
}

fn apply(
    command: Command,
    matches: &ArgMatches,
    table: &Table,
    arguments: Vec<OsString>,
) -> Result<Vec<OsString>, String> {
    let (mut global, mut own) = (Vec::new(), Vec::new());
    let running = matches.subcommand();
    for (key, value) in table {
        match value {
            Value::Table(options) => {
                let Some(sub) = command.find_subcommand(key) else {
                    return Err(format!("there is no command `{key}`"));
                };
                for (key, value) in options {
                    let option = option(sub, key).map_err(|why| format!("[{}] {why}", sub.get_name()))?;
                    if let Some((name, matches)) = running
                        && name == sub.get_name()
                        && !is_given(matches, &option)
                    {
                        own.extend(words(key, value)?);
                    }
                }
            }
            value => {
                let option = option(&command, key)?;
                // Options of every command may stand behind the command, too.
                let given = is_given(matches, &option) || running.is_some_and(|(_, sub)| is_given(sub, &option));
                if !given {
                    global.extend(words(key, value)?);
                }
            }
        }
    }
    let Some((name, _)) = running else { return Ok(arguments) };
    let Some(at) = position(&command, &arguments, name) else { return Ok(arguments) };
    let mut all = arguments;
    all.splice(at + 1..at + 1, own);
    all.splice(1..1, global);
    Ok(all)
}

/// The id of an option by its long name.
fn option(command: &Command, key: &str) -> Result<String, String> {
    let option = command.get_arguments().find(|argument| argument.get_long() == Some(key));
    option.map(|option| option.get_id().to_string()).ok_or_else(|| format!("there is no option `--{key}`"))
}

fn is_given(matches: &ArgMatches, id: &str) -> bool {
    let known = matches.try_contains_id(id).is_ok();
    known && matches.value_source(id) == Some(ValueSource::CommandLine)
}

fn words(key: &str, value: &Value) -> Result<Vec<OsString>, String> {
    let word = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        other => Err(format!("`{key}` cannot be {}", other.type_str())),
    };
    match value {
        Value::Boolean(true) => Ok(vec![format!("--{key}").into()]),
        Value::Boolean(false) => Ok(Vec::new()),
        Value::Array(values) => values.iter().map(|value| Ok(format!("--{key}={}", word(value)?).into())).collect(),
        value => Ok(vec![format!("--{key}={}", word(value)?).into()]),
    }
}

/// Where the name of the command is: the first word that is neither an option nor an option's value.
fn position(command: &Command, arguments: &[OsString], name: &str) -> Option<usize> {
    let takes_value = |word: &str| {
        let long = word.strip_prefix("--");
        let option =
            command.get_arguments().find(|argument| argument.get_long().is_some() && argument.get_long() == long);
        option.is_some_and(|option| option.get_action().takes_values())
    };
    let mut at = 1;
    while let Some(word) = arguments.get(at).map(|word| word.to_string_lossy()) {
        if word == name {
            return Some(at);
        }
        at += if takes_value(&word) { 2 } else { 1 };
    }
    None
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn applied(table: &str, arguments: &[&str]) -> Result<Vec<String>, String> {
        let command = crate::cli::Cli::command();
        let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
        let matches = command.clone().try_get_matches_from(&arguments).unwrap();
        let all = apply(command, &matches, &table.parse().unwrap(), arguments)?;
        Ok(all.into_iter().map(|word| word.into_string().unwrap()).collect())
    }

    #[test]
    fn defaults_stand_where_options_do_and_the_command_line_wins() {
        let table = "color = 'never'\n[leaks]\nsites = 3\nfull = true\nsuppress = ['a', 'b']\n[run]\nchildren = true\n";
        let all = applied(table, &["heaptrace", "leaks", "x.dat"]).unwrap();
        assert_eq!(
            all,
            ["heaptrace", "--color=never", "leaks", "--full", "--sites=3", "--suppress=a", "--suppress=b", "x.dat"]
        );
        let all = applied(table, &["heaptrace", "leaks", "-n", "5", "--color", "always", "x.dat"]).unwrap();
        assert!(!all.iter().any(|word| word == "--sites=3" || word == "--color=never"), "{all:?}");
        let all = applied(table, &["heaptrace", "--color", "auto", "run", "--", "leaks"]).unwrap();
        assert_eq!(all, ["heaptrace", "--color", "auto", "run", "--children", "--", "leaks"]);
        assert_eq!(applied(table, &["heaptrace", "info", "x.dat"]).unwrap().len(), 4);
    }

    #[test]
    fn mistakes_are_named() {
        for (table, words) in [
            ("[leeks]\nsites = 1", "no command `leeks`"),
            ("[leaks]\nsights = 1", "[leaks] there is no option `--sights`"),
            ("colour = 'never'", "no option `--colour`"),
            ("[leaks]\nsites = {a = 1}", "cannot be"),
        ] {
            let error = applied(table, &["heaptrace", "leaks", "x.dat"]).unwrap_err();
            assert!(error.contains(words), "{table}: {error}");
        }
    }
}
