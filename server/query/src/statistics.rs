//! Tests of significance: the difference of two means (Welch), and which of many differences count (Benjamini and
//! Hochberg).

/// Count, sum and sum of squares of numbers: what databases add up, and all that a test of means needs.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Moments {
    /// How many numbers; zeros among them need not be added.
    pub count: f64,
    /// Their sum.
    pub sum: f64,
    /// The sum of their squares.
    pub squares: f64,
}

impl Moments {
    /// Of a list.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut moments = Self::default();
        values.into_iter().for_each(|value| {
            moments.count += 1.0;
            moments.add(value);
        });
        moments
    }

    /// One of the numbers that `count` has counted.
    pub fn add(&mut self, value: f64) {
        self.sum += value;
        self.squares += value * value;
    }

    /// The mean; 0 of none.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.sum / self.count.max(1.0)
    }

    /// Variance of the mean.
    #[must_use]
    pub fn spread(&self) -> f64 {
        if self.count < 2.0 {
            return 0.0;
        }
        let squares = self.squares - self.sum * self.sum / self.count;
        // What is left of equal numbers by rounding is no variance.
        if squares <= self.squares * 1e-12 { 0.0 } else { squares / (self.count - 1.0) / self.count }
    }
}

/// Two-sided p-value of the difference of two means, whose variances may differ (Welch 1947). Numbers that are the same
/// in every run of a side have no variance: then any difference is one.
#[must_use]
pub fn welch(a: &Moments, b: &Moments) -> f64 {
    let (difference, va, vb) = (b.mean() - a.mean(), a.spread(), b.spread());
    let variance = va + vb;
    if variance <= 0.0 {
        return if difference == 0.0 { 1.0 } else { 0.0 };
    }
    let t = difference / variance.sqrt();
    let freedom = variance.powi(2) / (va.powi(2) / (a.count - 1.0) + vb.powi(2) / (b.count - 1.0));
    incomplete_beta(freedom / (freedom + t * t), freedom / 2.0, 0.5)
}

/// How many of the smallest p-values are no chance, if a part `rate` of those may be: the largest rank whose p-value is
/// below its part of the rate (Benjamini and Hochberg 1995). `sorted` is ascending.
#[must_use]
pub fn discoveries(sorted: &[f64], rate: f64) -> usize {
    let count = sorted.len() as f64;
    sorted
        .iter()
        .zip(1_usize..)
        .filter(|&(p, rank)| *p <= rate * rank as f64 / count)
        .map(|(_, rank)| rank)
        .max()
        .unwrap_or(0)
}

/// The 95 % quantile of Student's distribution, two-sided: a mean is within so many of its errors.
#[must_use]
pub fn student_95(freedom: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1e3);
    for _ in 0..80 {
        let t = f64::midpoint(low, high);
        if incomplete_beta(freedom / (freedom + t * t), freedom / 2.0, 0.5) > 0.05 {
            low = t;
        } else {
            high = t;
        }
    }
    high
}

/// The regularised incomplete beta function, by its continued fraction (Abramowitz and Stegun 26.5.8).
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    // The fraction converges fast on one side of the mean.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(1.0 - x, b, a);
    }
    let front = (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp() / a;
    let tiny = 1e-300;
    let (mut c, mut d) = (1.0, 1.0 - (a + b) * x / (a + 1.0));
    d = 1.0 / if d.abs() < tiny { tiny } else { d };
    let mut fraction = d;
    for i in 1..300 {
        let m = f64::from(i);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut step = 1.0;
        for term in [even, odd] {
            d = 1.0 + term * d;
            d = 1.0 / if d.abs() < tiny { tiny } else { d };
            c = 1.0 + term / c;
            c = if c.abs() < tiny { tiny } else { c };
            step = c * d;
            fraction *= step;
        }
        if (step - 1.0).abs() < 1e-12 {
            break;
        }
    }
    (front * fraction).clamp(0.0, 1.0)
}

/// Logarithm of the gamma function for positive numbers (Lanczos 1964).
fn ln_gamma(x: f64) -> f64 {
    const G: [f64; 6] = [
        76.180_091_729_471_46,
        -86.505_320_329_416_77,
        24.014_098_240_830_91,
        -1.231_739_572_450_155,
        0.120_865_097_386_617_9e-2,
        -0.539_523_938_495_3e-5,
    ];
    let base = x + 5.5;
    let series = G.iter().zip(1..).fold(1.000_000_000_190_015, |sum, (g, i)| sum + g / (x + f64::from(i)));
    (x + 0.5) * base.ln() - base + (2.506_628_274_631_000_5 * series / x).ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[i32]) -> Moments {
        Moments::of(values.iter().map(|&value| f64::from(value)))
    }

    #[test]
    fn p_values_are_those_of_the_tables() {
        // t = 2.776 with 4 degrees of freedom, t = 2.228 with 10: five percent.
        for (t, freedom) in [(2.776_445_f64, 4.0), (2.228_139, 10.0), (12.706_205, 1.0)] {
            let p = incomplete_beta(freedom / (freedom + t * t), freedom / 2.0, 0.5);
            assert!((p - 0.05).abs() < 1e-6, "{t} {freedom}: {p}");
            assert!((student_95(freedom) - t).abs() < 1e-4, "{freedom}");
        }
        assert_eq!(welch(&of(&[5, 5, 5]), &of(&[5, 5, 5])), 1.0);
        assert_eq!(welch(&of(&[5, 5, 5]), &of(&[6, 6, 6])), 0.0);
        assert!(welch(&of(&[100, 110, 90, 105, 95]), &of(&[102, 108, 93, 104, 96])) > 0.5);
        assert!(welch(&of(&[100, 110, 90, 105, 95]), &of(&[200, 210, 190, 205, 195])) < 0.001);
    }

    #[test]
    fn discoveries_are_held_to_the_rate() {
        assert_eq!(discoveries(&[0.01, 0.02, 0.03, 0.5], 0.05), 3);
        assert_eq!(discoveries(&[0.04, 0.5, 0.6, 0.7], 0.05), 0);
        assert_eq!(discoveries(&[], 0.05), 0);
    }
}
