//! Medians and quartiles of a few numbers.

/// The middle and the two quarters of a sample.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// First quartile.
    pub low: f64,
    /// Median.
    pub median: f64,
    /// Third quartile.
    pub high: f64,
}

impl Spread {
    /// Of all `values`; `None` without any.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        Some(Self { low: at(&values, 0.25)?, median: at(&values, 0.5)?, high: at(&values, 0.75)? })
    }
}

/// The value at `part` of sorted `values`, between two neighbours by their distance.
fn at(values: &[f64], part: f64) -> Option<f64> {
    let place = part * values.len().checked_sub(1)? as f64;
    let below = values.get(place.floor() as usize)?;
    let above = values.get(place.ceil() as usize)?;
    Some(below + (above - below) * place.fract())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_lie_between_neighbours() {
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([3.0]), Some(Spread { low: 3.0, median: 3.0, high: 3.0 }));
        assert_eq!(Spread::of([4.0, 1.0, 3.0, 2.0]), Some(Spread { low: 1.75, median: 2.5, high: 3.25 }));
    }
}
