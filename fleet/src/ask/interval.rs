//! An interval of the clock, by minutes: which rows of `site_minutes` a question is about.

use anyhow::{Result, bail};

use super::day_of;

/// Nanoseconds of a minute.
const MINUTE: i64 = 60_000_000_000;

/// From a minute on, up to another.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
pub struct Interval {
    /// What was allocated and freed in this minute (UTC) and later
    #[arg(long, value_name = "YYYY-MM-DDTHH:MM", value_parser = minute)]
    from: Option<i64>,
    /// What was allocated and freed before this minute (UTC)
    #[arg(long, value_name = "YYYY-MM-DDTHH:MM", value_parser = minute)]
    to: Option<i64>,
}

impl Interval {
    /// Whether there is one.
    pub const fn is_given(&self) -> bool {
        self.from.is_some() || self.to.is_some()
    }

    /// Makes sure that a minute can lie in it.
    ///
    /// # Errors
    /// When it ends before it begins.
    pub fn check(&self) -> Result<()> {
        if let (Some(from), Some(to)) = (self.from, self.to)
            && from >= to
        {
            bail!("--to {} is not behind --from {}", text(to), text(from));
        }
        Ok(())
    }

    /// Whether the minute that begins at a time since 1970 lies in it.
    pub fn has(&self, minute_unix_ns: i64) -> bool {
        let minute = minute_unix_ns.div_euclid(MINUTE);
        self.from.is_none_or(|from| minute >= from) && self.to.is_none_or(|to| minute < to)
    }

    /// Its two ends, as they are given.
    pub fn ends(&self) -> [Option<String>; 2] {
        [self.from.map(text), self.to.map(text)]
    }
}

/// A minute, counted from 1970, by day and time in UTC.
fn minute(given: &str) -> Result<i64, String> {
    let fits = || {
        let (day, time) = given.trim_end_matches('Z').split_once(['T', ' '])?;
        let (hour, minute) = time.split_once(':')?;
        let number = |digits: &str| {
            (digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit()))
                .then(|| digits.parse::<i64>().ok())?
        };
        let (hour, minute) = (number(hour).filter(|&hour| hour < 24)?, number(minute).filter(|&minute| minute < 60)?);
        let year: i64 = day.get(..4)?.parse().ok().filter(|year| (1970..2200).contains(year))?;
        // The day is found by its name, beginning with the year's first.
        let first = (year - 1970) * 365;
        let day = (first..first + 440).find(|&number| day_of(number.cast_unsigned()) == day)?;
        Some((day * 24 + hour) * 60 + minute)
    };
    fits().ok_or_else(|| "a minute in UTC, such as 2026-11-22T14:05".to_owned())
}

fn text(minute: i64) -> String {
    let (day, of_day) = (minute.div_euclid(1440), minute.rem_euclid(1440));
    format!("{}T{:02}:{:02}", day_of(day.cast_unsigned()), of_day / 60, of_day % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_are_those_of_the_clock() {
        for (given, number) in
            [("1970-01-01T00:00", 0), ("2026-11-22T14:05", 29_922_605), ("2024-02-29 23:59Z", 28_487_519)]
        {
            assert_eq!(minute(given), Ok(number), "{given}");
        }
        assert_eq!(text(29_922_605), "2026-11-22T14:05");
        for wrong in ["2026-11-22", "2026-02-30T00:00", "2026-11-22T24:00", "2026-11-22T1:00", "9999-01-01T00:00", "T:"]
        {
            assert!(minute(wrong).is_err(), "{wrong}");
        }
        let hour = Interval { from: minute("2026-11-22T14:00").ok(), to: minute("2026-11-22T15:00").ok() };
        let at = |given: &str| hour.has(minute(given).unwrap() * MINUTE);
        assert!(at("2026-11-22T14:00") && at("2026-11-22T14:59") && !at("2026-11-22T15:00") && !at("2026-11-22T13:59"));
        assert!(hour.check().is_ok() && Interval { to: hour.from, ..hour }.check().is_err());
    }
}
