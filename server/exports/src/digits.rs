//! Numbers as text, appended to a line: exports of events write hundreds of millions of them.

/// Appends a number in decimal digits.
pub fn put_decimal(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends a number in lower-case hexadecimal digits, without a prefix.
pub fn put_hex(out: &mut Vec<u8>, number: u64) {
    let digits = (67 - number.leading_zeros()).max(4) / 4;
    for digit in (0..digits).rev() {
        let value = (number >> (4 * digit) & 15) as u8;
        out.push(if value < 10 { b'0' + value } else { b'a' + value - 10 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_the_standard_library() {
        let powers = (0..64).flat_map(|bit| [(1_u64 << bit) - 1, 1 << bit, (1 << bit) + 1]);
        for number in powers.chain([0, 9, 10, 15, 16, 255, 256, u64::MAX]) {
            let mut out = Vec::new();
            put_hex(&mut out, number);
            out.push(b' ');
            put_decimal(&mut out, number);
            assert_eq!(out, format!("{number:x} {number}").as_bytes());
        }
    }
}
