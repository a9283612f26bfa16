//! The lines of a recording, decompressed, and the numbers in them.

use std::io::{BufRead, BufReader, Read};

use flate2::read::MultiGzDecoder;
use sha2::{Digest, Sha256};

use super::super::ImportError;

/// Longest line: names of templates are long, but not that long.
const LONGEST_LINE: u64 = 16 << 20;

/// Begins the last lines of a file.
const TRAILER: &[u8] = b"# strings:";

/// Decompresses what is compressed.
fn plain<'a>(input: impl Read + 'a) -> std::io::Result<Box<dyn BufRead + 'a>> {
    let mut input = BufReader::with_capacity(1 << 16, input);
    let start = input.fill_buf()?;
    Ok(if start.starts_with(&[0x1f, 0x8b]) {
        Box::new(BufReader::with_capacity(1 << 16, MultiGzDecoder::new(input)))
    } else if start.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        Box::new(BufReader::with_capacity(1 << 16, zstd::stream::read::Decoder::with_buffer(input)?))
    } else {
        Box::new(input)
    })
}

/// Lines, counted from 1.
pub(super) struct Lines<'a> {
    reader: Box<dyn BufRead + 'a>,
    line: Vec<u8>,
    /// Of the line that came last.
    pub(super) number: u64,
    /// The comments that heaptrack writes behind everything else have been seen.
    pub(super) is_whole: bool,
    id: Sha256,
}

impl<'a> Lines<'a> {
    pub(super) fn new(input: impl Read + 'a) -> std::io::Result<Self> {
        Ok(Self { reader: plain(input)?, line: Vec::new(), number: 0, is_whole: false, id: Sha256::new() })
    }

    /// What the first lines that were read are known by.
    pub(super) fn id(&self) -> [u8; 16] {
        let mut id = [0; 16];
        id.copy_from_slice(&self.id.clone().finalize()[..16]);
        id
    }

    /// The next line that is not empty and no comment.
    pub(super) fn next(&mut self) -> Result<Option<Vec<u8>>, ImportError> {
        loop {
            self.line.clear();
            let read = match (&mut self.reader).take(LONGEST_LINE).read_until(b'\n', &mut self.line) {
                // A compressed file that is cut.
                Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof && self.number > 0 => 0,
                result => result?,
            };
            if read == 0 {
                return Ok(None);
            }
            self.number += 1;
            if self.line.last() == Some(&b'\n') {
                self.line.pop();
            } else if read as u64 == LONGEST_LINE {
                return Err(ImportError::Line { line: self.number, why: "it is far too long" });
            } else {
                // Half a line has half a number.
                return Ok(None);
            }
            self.is_whole |= self.line.starts_with(TRAILER);
            if self.number <= 64 {
                self.id.update(&self.line);
            }
            if !self.line.is_empty() && self.line[0] != b'#' {
                return Ok(Some(std::mem::take(&mut self.line)));
            }
        }
    }
}

/// Hexadecimal numbers between spaces.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl Fields<'_> {
    pub(super) fn number(&mut self) -> Option<u64> {
        let rest = self.0.trim_ascii_start();
        let end = rest.iter().position(|&byte| byte == b' ').unwrap_or(rest.len());
        let text = std::str::from_utf8(&rest[..end]).ok()?;
        self.0 = &rest[end..];
        (!text.is_empty()).then(|| u64::from_str_radix(text, 16).ok()).flatten()
    }
}

/// How many bytes a sized string's line lacks.
pub(super) fn missing_bytes(line: &[u8]) -> Option<usize> {
    let mut fields = Fields(&line[1..]);
    let len = usize::try_from(fields.number()?).ok().filter(|&len| len as u64 <= LONGEST_LINE)?;
    let text = fields.0.strip_prefix(b" ").unwrap_or_default();
    // The newline that ended the line is one of the bytes.
    len.checked_sub(text.len()).filter(|&missing| missing > 0).map(|missing| missing - 1)
}
