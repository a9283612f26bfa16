//! Numbers for people, wherever a command or an answer has them in a text: bytes in binary units, counts with separators,
//! durations, percentages. The page writes the same.

/// `512 B`, `1.50 KiB`, `12.3 MiB`: three significant digits, binary units.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    // 1023.5 and above would be printed with four digits.
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{} {}", three_digits(value), UNITS[unit])
}

/// As [`bytes`], with a sign.
pub fn signed_bytes(value: i64) -> String {
    if value < 0 { format!("-{}", bytes(value.unsigned_abs())) } else { bytes(value.unsigned_abs()) }
}

/// `1 block`, `1,234 blocks`.
pub fn plural(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

/// `1,234,567`.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// As [`count`], with a sign.
pub fn signed_count(value: i64) -> String {
    if value < 0 { format!("-{}", count(value.unsigned_abs())) } else { count(value.unsigned_abs()) }
}

/// `450 ns`, `12.3 ms`, `1.50 s`, `2 min 05 s`, `3 h 07 min`.
pub fn duration(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..999_500 => format!("{} µs", three_digits(ns as f64 / 1e3)),
        999_500..999_500_000 => format!("{} ms", three_digits(ns as f64 / 1e6)),
        _ if seconds < 100 => format!("{} s", three_digits(ns as f64 / 1e9)),
        _ if seconds < 3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// `12.3%` of `whole`; an empty whole has no share.
pub fn percent(part: i64, whole: i64) -> String {
    fraction(if whole == 0 { 0.0 } else { part as f64 / whole as f64 })
}

/// `0.123` as `12.3%`: three significant digits, at most two decimals.
pub fn fraction(fraction: f64) -> String {
    let share = fraction * 100.0;
    match share.abs() {
        0.0 => "0%".to_owned(),
        ..0.01 => if share < 0.0 { "> -0.01%" } else { "< 0.01%" }.to_owned(),
        _ => format!("{}%", three_digits(share)),
    }
}

fn three_digits(value: f64) -> String {
    if value.abs() < 9.995 {
        format!("{value:.2}")
    } else if value.abs() < 99.95 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page is held to the same list, in `web/tests/unit/format.test.ts`.
    #[test]
    fn numbers_are_written_as_the_page_writes_them() {
        let cases = include_str!("../../../web/tests/unit/number-formats.json");
        let cases: std::collections::BTreeMap<String, Vec<(u64, String)>> = serde_json::from_str(cases).unwrap();
        for (kind, write) in [
            ("bytes", bytes as fn(u64) -> String),
            ("counts", count),
            ("durations", duration),
            ("millionths", millionths),
        ] {
            assert!(cases[kind].len() > 4);
            for (value, text) in &cases[kind] {
                assert_eq!(&write(*value), text, "{kind}");
            }
        }
    }

    fn millionths(part: u64) -> String {
        percent(part.cast_signed(), 1_000_000)
    }

    #[test]
    fn extremes_and_signs() {
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
        assert_eq!(signed_bytes(-2048), "-2.00 KiB");
        assert_eq!(signed_bytes(i64::MIN), "-8.00 EiB");
        assert_eq!(signed_count(-1000), "-1,000");
    }

    #[test]
    fn shares() {
        for (part, whole, text) in
            [(0, 0, "0%"), (1, 3, "33.3%"), (3, 3, "100%"), (-1, 2, "-50.0%"), (-1, 100_000, "> -0.01%")]
        {
            assert_eq!(percent(part, whole), text);
        }
    }
}
