//! The statistics that verdicts rest on: trends by ranks, which no outlier bends, and slopes with their intervals.

/// Kendall's tau of the values against their order, and the two-sided p-value of there being no trend (normal
/// approximation with the correction for ties; Mann 1945, Kendall 1975).
#[must_use]
pub fn mann_kendall(values: &[i64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mut s = 0_i64;
    for (i, a) in values.iter().enumerate() {
        s += values[i + 1..].iter().map(|b| (b.cmp(a)) as i64).sum::<i64>();
    }
    let (variance, ties) = variance(values);
    let pairs = n * (n - 1.0) / 2.0;
    let untied = pairs - ties;
    if variance <= 0.0 || untied <= 0.0 {
        return (0.0, 1.0);
    }
    let z = (s as f64 - (s.signum()) as f64) / variance.sqrt();
    (s as f64 / (pairs * untied).sqrt(), 2.0 * upper_tail(z.abs()))
}

/// Variance of Kendall's S, and the number of tied pairs.
fn variance(values: &[i64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let ties: Vec<f64> = sorted.chunk_by(|a, b| a == b).map(|run| run.len() as f64).collect();
    let term = |f: fn(f64) -> f64| ties.iter().map(|&t| f(t)).sum::<f64>();
    let variance = (n * (n - 1.0) * (2.0 * n + 5.0) - term(|t| t * (t - 1.0) * (2.0 * t + 5.0))) / 18.0;
    (variance, term(|t| t * (t - 1.0) / 2.0))
}

/// Probability that a standard normal variable is above `z` (Abramowitz and Stegun 26.2.17, error below 1e-7).
fn upper_tail(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.231_641_9 * z);
    let series = [0.319_381_530, -0.356_563_782, 1.781_477_937, -1.821_255_978, 1.330_274_429];
    let polynomial = series.iter().rev().fold(0.0, |sum, c| (sum + c) * t);
    ((-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt() * polynomial).clamp(0.0, 0.5)
}

/// A slope with the interval that holds it with 95 % confidence.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Slope {
    /// Bytes a second.
    pub rate: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Median of the slopes between all pairs of moments, bytes a second, and its interval from the variance of Kendall's S
/// (Theil 1950, Sen 1968).
#[must_use]
pub fn theil_sen(curve: &[(u64, i64)]) -> Slope {
    let mut slopes = Vec::new();
    for (i, a) in curve.iter().enumerate() {
        for b in &curve[i + 1..] {
            if b.0 > a.0 {
                slopes.push((b.1 - a.1) as f64 / ((b.0 - a.0) as f64 / 1e9));
            }
        }
    }
    slopes.sort_unstable_by(f64::total_cmp);
    let Some(last) = slopes.len().checked_sub(1) else { return Slope::default() };
    let values: Vec<i64> = curve.iter().map(|&(_, value)| value).collect();
    let reach = 1.959_964 * variance(&values).0.max(0.0).sqrt();
    let middle = slopes.len() as f64 / 2.0;
    let at = |rank: f64| slopes[(rank.round().max(0.0) as usize).min(last)];
    Slope { rate: at(middle.floor()), low: at(middle - reach / 2.0), high: at(middle + reach / 2.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_right() {
        assert!((upper_tail(1.959_964) - 0.025).abs() < 1e-6);
        assert!((upper_tail(0.0) - 0.5).abs() < 1e-6);
    }

    #[test]
    fn slopes_have_intervals_that_hold_them() {
        let line: Vec<_> = (0..32).map(|i| (i * 1_000_000_000, i as i64 * 100)).collect();
        let slope = theil_sen(&line);
        assert_eq!((slope.rate, slope.low, slope.high), (100.0, 100.0, 100.0));
        let noisy: Vec<_> = line.iter().map(|&(t, y)| (t, y + ((t / 1_000_000_000 * 7919) % 13) as i64 * 20)).collect();
        let slope = theil_sen(&noisy);
        assert!(slope.low < 100.0 && slope.high > 100.0 && slope.low > 80.0, "{slope:?}");
        assert_eq!(theil_sen(&[]), Slope::default());
        assert_eq!(mann_kendall(&[5, 5, 5, 5]), (0.0, 1.0));
    }
}
