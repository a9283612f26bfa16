//! Text inside XML and HTML: one escape for pictures, reports and test results.

use std::fmt::{self, Write};

/// Text between tags or in a quoted attribute: markup is escaped, and characters that XML 1.0 has no way to write are
/// replaced by U+FFFD.
pub struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                '\n' | '\t' => f.write_char(c)?,
                c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => f.write_char('\u{fffd}')?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_breaks_out_of_markup() {
        let text = "<b a=\"x\" b='y'>&\u{1b}\u{0}\u{ffff}\n\tц";
        let escaped = Escaped(text).to_string();
        assert_eq!(escaped, "&lt;b a=&quot;x&quot; b=&#39;y&#39;&gt;&amp;\u{fffd}\u{fffd}\u{fffd}\n\tц");
    }
}
