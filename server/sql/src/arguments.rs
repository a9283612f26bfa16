//! Parameters of functions and conditions on columns, as SQLite hands them over.

use rusqlite::types::Value;
use rusqlite::vtab::{IndexConstraintOp, IndexInfo};
use serde::de::DeserializeOwned;
use tracehound_api::Metric;
use tracehound_api::functions::GroupBy;
use tracehound_query::{QueryError, TimeExpr, Window};

/// Whether `value <operator> bound` is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SqlComparison {
    /// `=`
    Equal,
    /// `>` or `>=`: SQLite looks at the bound itself again.
    AtLeast,
    /// `<` or `<=`, in the same way.
    AtMost,
}

impl SqlComparison {
    fn of(operator: IndexConstraintOp) -> Option<Self> {
        match operator {
            IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_EQ => Some(Self::Equal),
            IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_GT | IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_GE => {
                Some(Self::AtLeast)
            }
            IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_LT | IndexConstraintOp::SQLITE_INDEX_CONSTRAINT_LE => {
                Some(Self::AtMost)
            }
            _ => None,
        }
    }

    const fn letter(self) -> char {
        match self {
            Self::Equal => '=',
            Self::AtLeast => '>',
            Self::AtMost => '<',
        }
    }

    const fn from_letter(letter: &str) -> Self {
        match letter.as_bytes() {
            b">" => Self::AtLeast,
            b"<" => Self::AtMost,
            _ => Self::Equal,
        }
    }
}

/// A condition that goes down to a table: its column, and how that is compared.
pub type Condition = (usize, SqlComparison);

/// Chooses what goes down: equality for each of the hidden columns from `parameters` on, and what `wanted` accepts of the
/// others. `None`: a parameter is not known in this plan, which cannot work.
pub fn plan(
    info: &mut IndexInfo,
    parameters: usize,
    wanted: impl Fn(usize, SqlComparison) -> bool,
) -> Option<Vec<Condition>> {
    let mut chosen: Vec<(usize, Condition)> = Vec::new();
    for (at, constraint) in info.constraints().enumerate() {
        let Ok(column) = usize::try_from(constraint.column()) else { continue };
        let comparison = SqlComparison::of(constraint.operator());
        if column >= parameters {
            if comparison != Some(SqlComparison::Equal) {
                continue;
            }
            if !constraint.is_usable() {
                return None;
            }
            chosen.push((at, (column, SqlComparison::Equal)));
        } else if let Some(comparison) = comparison.filter(|&comparison| wanted(column, comparison))
            && constraint.is_usable()
        {
            chosen.push((at, (column, comparison)));
        }
    }
    for (argument, &(at, (column, _))) in (1..).zip(&chosen) {
        let mut usage = info.constraint_usage(at);
        usage.set_argv_index(argument);
        // SQLite need not check parameters again; it checks all other conditions.
        usage.set_omit(column >= parameters);
    }
    let conditions: Vec<Condition> = chosen.into_iter().map(|(_, condition)| condition).collect();
    let text: Vec<String> =
        conditions.iter().map(|(column, comparison)| format!("{}{column}", comparison.letter())).collect();
    info.set_idx_str(&text.join(","));
    Some(conditions)
}

/// The conditions that [`plan`] has encoded, with their values.
pub fn conditions(plan: Option<&str>, values: Vec<Value>) -> Vec<(Condition, Value)> {
    let parts = plan.unwrap_or_default().split(',').filter(|part| !part.is_empty());
    let condition = |part: &str| {
        let (letter, column) = part.split_at_checked(1)?;
        Some((column.parse().ok()?, SqlComparison::from_letter(letter)))
    };
    parts.map_while(condition).zip(values).collect()
}

/// A bound on a column of integers; `None`: SQLite compares by itself.
pub fn bound(value: &Value) -> Option<i64> {
    match value {
        Value::Integer(number) => Some(*number),
        // Rounded towards zero: one more or less is looked at again by SQLite.
        #[allow(clippy::cast_possible_truncation)] // saturates
        Value::Real(number) if number.is_finite() => Some(*number as i64),
        _ => None,
    }
}

/// The values of a function's parameters, in their order; `None` for those that were not given.
pub struct Arguments<'a>(pub &'a [Option<Value>]);

impl Arguments<'_> {
    fn get(&self, at: usize) -> Option<&Value> {
        self.0.get(at)?.as_ref().filter(|value| !matches!(value, Value::Null))
    }

    /// A time: a text as everywhere, or nanoseconds.
    pub fn time(&self, at: usize, name: &str) -> Result<Option<TimeExpr>, QueryError> {
        match self.get(at) {
            None => Ok(None),
            Some(Value::Text(text)) => text.parse().map(Some).map_err(|why: String| QueryError::bad(name, why)),
            Some(Value::Integer(ns)) if *ns >= 0 => Ok(Some(TimeExpr::Ns(ns.cast_unsigned()))),
            Some(_) => Err(QueryError::bad(name, "a time is a text such as '1.5s' or 'peak', or nanoseconds")),
        }
    }

    /// A window whose start and end are the parameters at these places.
    pub fn window(&self, from: usize, to: usize) -> Result<Window, QueryError> {
        Ok(Window { from: self.time(from, "from_time")?, to: self.time(to, "to_time")?, at: None })
    }

    /// A whole number.
    pub fn number(&self, at: usize, name: &str) -> Result<Option<i64>, QueryError> {
        match self.get(at) {
            None => Ok(None),
            Some(Value::Integer(number)) => Ok(Some(*number)),
            Some(_) => Err(QueryError::bad(name, "a whole number is expected")),
        }
    }

    /// A metric.
    pub fn metric(&self, at: usize) -> Result<Metric, QueryError> {
        self.word(at, "metric", "a metric is one of live, peak, leaked, allocated, freed, grown, temporary")
    }

    /// What a row is.
    pub fn group(&self, at: usize) -> Result<GroupBy, QueryError> {
        self.word(at, "grouped_by", "rows are grouped by function, program, file, module, thread, site or size_class")
    }

    /// One of a few words, as everywhere; the usual one where none was given.
    fn word<T: DeserializeOwned + Default>(&self, at: usize, name: &str, known: &str) -> Result<T, QueryError> {
        let Some(value) = self.get(at) else { return Ok(T::default()) };
        let parsed = match value {
            Value::Text(text) => serde_json::from_value(serde_json::Value::String(text.clone())).ok(),
            _ => None,
        };
        parsed.ok_or_else(|| QueryError::bad(name, known))
    }
}
