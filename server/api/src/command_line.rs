//! What `heaptrace-fleet describe` prints: its commands and options, of which `heaptrace` makes completions and manual pages
//! that are whole.

use serde::{Deserialize, Serialize};

/// A command with what is below it. Hidden ones are left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandDescription {
    /// Its name.
    pub name: String,
    /// What it does, in a sentence.
    pub about: String,
    /// What its help ends with.
    pub after_help: String,
    /// Options and arguments.
    pub args: Vec<ArgDescription>,
    /// Commands below.
    pub commands: Vec<CommandDescription>,
}

/// An option or an argument.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArgDescription {
    /// Its name in the program.
    pub id: String,
    /// The name after two dashes; none of an argument.
    pub long: Option<String>,
    /// The letter after a dash.
    pub short: Option<char>,
    /// What it is for.
    pub help: String,
    /// The heading that it is listed under.
    pub heading: Option<String>,
    /// Names of its values; none of a switch.
    pub values: Vec<String>,
    /// Words that it accepts, where it accepts no others.
    pub words: Vec<String>,
    /// The value where none is given.
    pub default: Option<String>,
    /// Whether it must be given.
    pub required: bool,
    /// Whether it takes several values, or may be given several times.
    pub repeated: bool,
    /// What its values are, as clap calls it.
    pub hint: String,
}
