//! The commands and options of this program, for the completions and manual pages of `heaptrace`.

use clap::builder::ValueHint;
use clap::{Arg, ArgAction, Command};
use tracehound_api::command_line::{ArgDescription, CommandDescription};

/// Of a command and all below it.
pub fn describe(command: &Command) -> CommandDescription {
    let text = |text: Option<&clap::builder::StyledStr>| text.map(ToString::to_string).unwrap_or_default();
    let is_own = |arg: &&Arg| !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str());
    let below = command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help");
    CommandDescription {
        name: command.get_name().to_owned(),
        about: text(command.get_about()),
        after_help: text(command.get_after_help()),
        args: command.get_arguments().filter(is_own).map(arg).collect(),
        commands: below.map(describe).collect(),
    }
}

fn arg(arg: &Arg) -> ArgDescription {
    let takes_values = matches!(arg.get_action(), ArgAction::Set | ArgAction::Append);
    let names = arg.get_value_names().unwrap_or_default().iter().map(ToString::to_string);
    let words = arg.get_possible_values().into_iter().map(|word| word.get_name().to_owned());
    ArgDescription {
        id: arg.get_id().to_string(),
        long: arg.get_long().map(str::to_owned),
        short: arg.get_short(),
        help: arg.get_help().map(ToString::to_string).unwrap_or_default(),
        heading: arg.get_help_heading().map(str::to_owned),
        values: names.filter(|_| takes_values).collect(),
        words: words.filter(|_| takes_values).collect(),
        default: arg
            .get_default_values()
            .first()
            .filter(|_| takes_values)
            .and_then(|value| value.to_str())
            .map(str::to_owned),
        required: arg.is_required_set(),
        repeated: matches!(arg.get_action(), ArgAction::Append)
            || arg.get_num_args().is_some_and(|range| range.max_values() > 1),
        hint: match arg.get_value_hint() {
            ValueHint::Unknown => String::new(),
            hint => format!("{hint:?}"),
        },
    }
}
