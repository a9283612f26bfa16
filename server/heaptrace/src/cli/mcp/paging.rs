//! Answers of at most so many tokens, and how to ask for the rest.

/// Tokens of an answer, unless the question says otherwise.
pub const DEFAULT_TOKENS: usize = 2000;
/// Most tokens of an answer.
pub const MOST_TOKENS: usize = 20_000;
/// Bytes of a token: 4 in English prose, fewer in names, figures and paths.
const TOKEN_BYTES: usize = 3;
/// Room for the words at the end.
const TAIL_BYTES: usize = 240;
/// Longest line; what is longer says so.
const LONGEST_LINE: usize = 1500;

/// The lines of `text` from line `offset` on that fit into `tokens`; if there are more, a last line says how to ask.
pub fn page(text: &str, offset: usize, tokens: Option<usize>) -> String {
    let budget = tokens.unwrap_or(DEFAULT_TOKENS).clamp(200, MOST_TOKENS) * TOKEN_BYTES - TAIL_BYTES;
    let lines: Vec<&str> = text.trim_end().lines().collect();
    if offset >= lines.len() && offset > 0 {
        return format!("The answer has {} lines; there is nothing from line {offset} on.", lines.len());
    }
    let mut out = String::new();
    let mut next = offset;
    for line in &lines[offset.min(lines.len())..] {
        let line = line.trim_end();
        let mut end = LONGEST_LINE.min(budget / 2).min(line.len());
        while !line.is_char_boundary(end) {
            end -= 1;
        }
        let shown = &line[..end];
        let cut = if shown.len() < line.len() {
            format!("… ({} bytes more)", line.len() - shown.len())
        } else {
            String::new()
        };
        if out.len() + shown.len() + cut.len() + 1 > budget {
            break;
        }
        out.push_str(shown);
        out.push_str(&cut);
        out.push('\n');
        next += 1;
    }
    let left = lines.len() - next;
    if left > 0 {
        out.push_str(&format!(
            "… {left} more lines: ask again with \"offset\": {next}, or with a larger \"budget\" (tokens, at most {MOST_TOKENS}), or narrow the question.\n"
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_bounded_and_make_up_the_whole() {
        let text: String = (0..3000).map(|i| format!("line {i} of the answer\n")).collect();
        let (mut offset, mut whole) = (0, String::new());
        loop {
            let page = page(&text, offset, None);
            assert!(page.len() <= DEFAULT_TOKENS * TOKEN_BYTES);
            let lines: Vec<&str> = page.lines().filter(|line| !line.starts_with('…')).collect();
            assert!(!lines.is_empty());
            offset += lines.len();
            lines.iter().for_each(|line| {
                whole.push_str(line);
                whole.push('\n');
            });
            if !page.contains("more lines") {
                break;
            }
            assert!(page.contains(&format!("\"offset\": {offset},")), "{page}");
        }
        assert_eq!(whole, text);
    }

    #[test]
    fn an_endless_line_is_cut_and_says_so() {
        let page = page(&"ü".repeat(100_000), 0, None);
        assert!(page.len() < DEFAULT_TOKENS * TOKEN_BYTES && page.contains("bytes more"), "{}", page.len());
        assert!(super::page("a\n", 5, None).contains("1 lines"));
    }
}
