//! The note in the file of a program that has the recorder linked into it: `heaptrace run` looks for it.

/// Owner name of the note; in the file a zero follows.
pub const NOTE_NAME: &str = "Tracehound";
/// The only kind of note there is. Its content is a word: [`NOTE_VERSION`].
pub const NOTE_TYPE: u32 = 1;
/// Version of the agreement between the recorder and `heaptrace run`.
pub const NOTE_VERSION: u32 = 1;
