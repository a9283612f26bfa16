//! Text output: standard output with colour and width if it is a terminal, plain and unlimited if it is not.
//!
//! Names come from files that may be hostile: what is printed for people passes through [`clean`], so that a symbol
//! cannot send control sequences to the terminal.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::io::{self, BufWriter, IsTerminal, StdoutLock};

use unicode_width::UnicodeWidthStr;

/// When to use colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum ColorChoice {
    /// On a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// What a piece of text is, from which its looks follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextRole {
    /// Ordinary text.
    Plain,
    /// A heading or a total.
    Strong,
    /// Of less interest: units, paths, modules.
    Faint,
    /// A function.
    Name,
    /// A figure that deserves a look.
    Hot,
    /// Something is wrong.
    Bad,
    /// Something is fine.
    Good,
}

impl TextRole {
    const fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Strong => "1",
            Self::Faint => "2",
            Self::Name => "36",
            Self::Hot => "33",
            Self::Bad => "31",
            Self::Good => "32",
        }
    }
}

/// Capabilities of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Style {
    /// Colours are understood and wanted.
    pub color: bool,
    /// Columns, if it is a terminal.
    pub width: Option<usize>,
}

impl Style {
    /// Looks at standard output and the environment.
    pub fn of_stdout(choice: ColorChoice) -> Self {
        let stdout = io::stdout();
        let is_terminal = stdout.is_terminal();
        let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let color = match choice {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => is_terminal && !set("NO_COLOR") && !dumb,
        };
        Self { color, width: is_terminal.then(|| window_width(&stdout)).flatten() }
    }

    /// `text` in the looks of `role`.
    pub fn paint<T: fmt::Display>(self, role: TextRole, text: T) -> Painted<T> {
        Painted { text, role: if self.color { role } else { TextRole::Plain } }
    }
}

/// Standard output, buffered; whoever writes flushes it at the end, to see the errors.
pub fn stdout() -> BufWriter<Stdout> {
    BufWriter::with_capacity(1 << 16, Stdout(io::stdout().lock()))
}

/// Standard output, named in its errors.
pub struct Stdout(StdoutLock<'static>);

impl io::Write for Stdout {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(|error| cannot_write("standard output", &error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(|error| cannot_write("standard output", &error))
    }
}

/// An error of an output with its name; its kind stays.
pub fn cannot_write(name: impl fmt::Display, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write {name}: {error}"))
}

/// Text with its looks.
pub struct Painted<T> {
    text: T,
    role: TextRole,
}

impl<T: fmt::Display> fmt::Display for Painted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.role.code() {
            "" => self.text.fmt(f),
            code => write!(f, "\x1b[{code}m{}\x1b[0m", self.text),
        }
    }
}

fn window_width(stdout: &io::Stdout) -> Option<usize> {
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let window = || rustix::termios::tcgetwinsize(stdout).ok().map(|size| usize::from(size.ws_col));
    columns.or_else(window).filter(|&width| width > 0)
}

/// `text` with every character that could move the cursor, change colours or reverse the direction made visible.
pub fn clean(text: &str) -> Cow<'_, str> {
    let harmful = |c: char| {
        c.is_control() || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if !text.contains(harmful) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if harmful(c) {
            let _ = write!(out, "{}", c.escape_default());
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// Columns that `text` takes.
pub fn width(text: &str) -> usize {
    text.width()
}

/// The front of `text`, with an ellipsis if it is wider than `columns`.
pub fn truncate(text: &str, columns: usize) -> Cow<'_, str> {
    if width(text) <= columns {
        return Cow::Borrowed(text);
    }
    let mut out = String::new();
    let mut used = 0;
    for c in text.chars() {
        let next = unicode_width::UnicodeWidthChar::width(c).unwrap_or(0);
        if used + next + 1 > columns {
            break;
        }
        used += next;
        out.push(c);
    }
    out.push('…');
    Cow::Owned(out)
}

/// The end of `text`, with an ellipsis if it is wider than `columns`: of a path the file and the line.
pub fn truncate_front(text: &str, columns: usize) -> Cow<'_, str> {
    if width(text) <= columns {
        return Cow::Borrowed(text);
    }
    let mut from = text.len();
    let mut used = 0;
    for (at, c) in text.char_indices().rev() {
        used += unicode_width::UnicodeWidthChar::width(c).unwrap_or(0);
        if used + 1 > columns {
            break;
        }
        from = at;
    }
    Cow::Owned(format!("…{}", &text[from..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_steer_the_terminal() {
        assert_eq!(clean("main"), "main");
        assert_eq!(clean("a\x1b[2Jb\n"), "a\\u{1b}[2Jb\\n");
        assert_eq!(clean("x\u{202e}y"), "x\\u{202e}y");
        assert_eq!(clean("größe→"), "größe→");
    }

    #[test]
    fn truncation_counts_columns() {
        assert_eq!(truncate("abcdef", 6), "abcdef");
        assert_eq!(truncate("abcdefg", 6), "abcde…");
        assert_eq!(width(&truncate("日本語日本語", 6)), 5);
        assert_eq!(truncate_front("src/a.c:12", 10), "src/a.c:12");
        assert_eq!(truncate_front("long/src/a.c:12", 10), "…rc/a.c:12");
        assert_eq!(truncate_front("日本語日本語", 6), "…本語");
    }
}
