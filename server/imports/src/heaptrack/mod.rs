//! heaptrack's recordings, versions 1 to 3 of its text format, as `heaptrack` leaves them (`.gz`, `.zst`, or plain).
//!
//! heaptrack keeps neither addresses of blocks nor threads, and times in milliseconds. A free names a kind of
//! allocation (size and backtrace), not a block: the youngest block of that kind is taken, as heaptrack itself does to
//! find temporary ones. Blocks get addresses of their own. Names are in the file, and become a bundle.

mod lines;
mod state;

use std::io::{Read, Write};

use super::writer::ImportWriter;
use super::{ImportError, Imported};
use lines::{Fields, Lines, missing_bytes};
use state::{ImportState, LineError};
use tracehound_symbols::Bundle;

/// Versions that are understood.
const VERSIONS: std::ops::RangeInclusive<u64> = 1..=3;

/// Reads a recording from `input` and writes it to `out`; names go to the bundle.
///
/// # Errors
/// When it is no heaptrack recording, one of an unknown version or of raw data, when a line makes no sense, or when
/// reading or writing fails.
pub fn import(input: impl Read, out: impl Write) -> Result<(Imported, Bundle), ImportError> {
    let mut input = Lines::new(input)?;
    let version = match input.next()? {
        Some(line) if line.first() == Some(&b'v') => {
            let mut fields = Fields(&line[1..]);
            let heaptrack = fields.number().ok_or_else(no_recording)?;
            // 1.2 forgot to write the version of its format.
            fields.number().or((heaptrack == 0x01_02_00).then_some(1)).unwrap_or(0)
        }
        _ => return Err(no_recording()),
    };
    if !VERSIONS.contains(&version) {
        let why = format!("version {version} of heaptrack's format is not understood; known are 1 to 3");
        return Err(ImportError::Format(why));
    }
    // The recording's identity must be known before its first byte is written, so it is that of the first lines.
    let mut state = ImportState::new(ImportWriter::new(out, input.id())?, version);
    while let Some(mut line) = input.next()? {
        // A sized string may hold newlines.
        if version >= 3 && line.first() == Some(&b's') {
            while let Some(missing) = missing_bytes(&line) {
                let Some(more) = input.next()? else { break };
                line.push(b'\n');
                line.extend_from_slice(&more[..more.len().min(missing)]);
            }
        }
        state.line(&line).map_err(|why| match why {
            LineError::Means(why) => ImportError::Line { line: input.number, why },
            LineError::Other(error) => error,
        })?;
    }
    state.finish(input.is_whole)
}

fn no_recording() -> ImportError {
    ImportError::Format("this is no heaptrack recording: it does not begin with its version".into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use tracehound_format::meta::EndReason;

    fn done(text: &str) -> Result<Imported, ImportError> {
        import(text.as_bytes(), std::io::sink()).map(|(done, _)| done)
    }

    #[test]
    fn versions_and_mistakes_are_told_apart() {
        let body =
            "X app\nI 1000 10\ns 4 main\ns 3 app\ni 1000 2 1 0 7\nt 1 0\na 0 0\na 10 1\nc 5\n+ 1\n+ 1\n- 1\nR 5\n";
        let new = done(&format!("v 10400 3\n{body}")).unwrap();
        assert_eq!((new.allocs, new.frees, new.unmatched, new.skipped), (2, 1, 0, 0));
        let old = done("v 10000 1\nX app\ns main\ns app\ni 1000 2 1 0 7\nt 1 0\na 10 1\n+ 0\n- 0\n- 0\n").unwrap();
        assert_eq!((old.allocs, old.frees, old.unmatched, old.skipped), (1, 1, 1, 0));
        for (text, words) in [
            ("", "no heaptrack"),
            ("hello\n", "no heaptrack"),
            ("v 10400 4\n", "version 4"),
            ("v 10400 3\nx /bin/app\n", "raw data"),
            ("v 10400 3\n+ 0\n", "line 2"),
            ("v 10400 3\nt 1 0\n", "line 2"),
            ("v 10400 3\ni 1 9\n", "a string that does not exist"),
        ] {
            let error = done(text).unwrap_err().to_string();
            assert!(error.contains(words), "{text:?}: {error}");
        }
        // A string with a newline.
        assert!(done("v 10400 3\ns 5 a\nb c\ni 1 1\nt 1 0\na 1 1\n+ 0\n").is_ok());
    }

    #[test]
    fn the_end_of_a_program_is_not_the_end_of_a_file() {
        let whole = "v 10400 3\nX app\ns 4 main\ni 1000 0 1\nt 1 0\na 10 1\nc 5\n+ 0\n+ 0\nc 9\nR 5\n\n# strings: 1\n# ips: 1\n";
        let ended = done(whole).unwrap();
        assert_eq!((ended.allocs, ended.end), (2, Some(EndReason::Exit)));
        // What was killed did not write its last time.
        let killed = done(&whole.replace("c 9\nR 5\n", "")).unwrap();
        assert_eq!((killed.allocs, killed.end), (2, Some(EndReason::Killed)));
        for len in whole.find("+ 0").unwrap()..whole.find("# strings: 1\n").unwrap() + 13 {
            assert_eq!(done(&whole[..len]).unwrap().end, None, "{len}");
        }
        // Half a line has half a number.
        assert_eq!(done(&whole[..whole.find("+ 0\n+ 0").unwrap() + 7]).unwrap().allocs, 1);
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        std::io::Write::write_all(&mut packed, whole.as_bytes()).unwrap();
        let packed = packed.finish().unwrap();
        assert_eq!(import(&packed[..], std::io::sink()).unwrap().0, ended);
        let cut = import(&packed[..packed.len() - 9], std::io::sink()).unwrap().0;
        assert!(cut.end.is_none() || cut == ended, "{cut:?}");
        assert!(import(&packed[..12], std::io::sink()).is_err(), "nothing of it can be read");
    }

    proptest! {
        #[test]
        fn hostile_lines_are_refused_or_read(lines in prop::collection::vec("[vXIsitacR+\\-]? ?[0-9a-f]{0,17} ?[0-9a-f]{0,4} ?[a-z]{0,3}", 0..40)) {
            let _ = done(&format!("v 10400 3\n{}\n", lines.join("\n")));
        }
    }
}
