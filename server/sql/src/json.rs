//! An answer as a JSON document, which commands print and the server sends.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::ops::ControlFlow;

use rusqlite::types::Value;
use serde_json::json;

use super::process::hex;
use super::{RowSink, SqlError};

/// Writes `{"schema": …, "columns": […], "rows": [{…}, …], "row_count": …, "truncated": …}` as it comes: a
/// [`SqlAnswer`](tracehound_api::sql::SqlAnswer). After a failure between two rows, `"error"` says in place of
/// `"truncated"` why there are no more; after one before the first row nothing is written.
pub struct JsonRows<'a> {
    out: &'a mut dyn Write,
    /// `"name":` for each column.
    members: Vec<String>,
    rows: u64,
    bytes: u64,
    most_rows: u64,
    most_bytes: u64,
    truncated: bool,
}

impl<'a> JsonRows<'a> {
    /// All rows.
    pub fn new(out: &'a mut dyn Write) -> Self {
        Self::limited(out, u64::MAX, u64::MAX)
    }

    /// The first rows: so many, and so many bytes of them.
    pub fn limited(out: &'a mut dyn Write, most_rows: u64, most_bytes: u64) -> Self {
        Self { out, members: Vec::new(), rows: 0, bytes: 0, most_rows, most_bytes, truncated: false }
    }

    /// Ends the document.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn finish(&mut self, failure: Option<&SqlError>) -> io::Result<()> {
        if self.members.is_empty() {
            return Ok(());
        }
        let (end, count) = (if self.rows > 0 { "\n" } else { "" }, self.rows);
        match failure {
            None => writeln!(self.out, "{end}],\"row_count\":{count},\"truncated\":{}}}", self.truncated)?,
            // The reader has closed the output.
            Some(SqlError::Output(_)) => return Ok(()),
            Some(error) => {
                writeln!(self.out, "{end}],\"row_count\":{count},\"error\":{}}}", json!(error.to_string()))?;
            }
        }
        self.out.flush()
    }
}

impl RowSink for JsonRows<'_> {
    fn columns(&mut self, names: &[String]) -> io::Result<()> {
        let names = unlike(names);
        let member = |name: &String| Ok(format!("{}:", serde_json::to_string(name)?));
        self.members = names.iter().map(member).collect::<serde_json::Result<_>>()?;
        let columns = serde_json::to_string(&names)?;
        write!(self.out, "{{\"schema\":\"heaptrace.sql/1\",\"columns\":{columns},\"rows\":[")
    }

    fn row(&mut self, values: &[Value]) -> io::Result<ControlFlow<()>> {
        if self.rows >= self.most_rows {
            self.truncated = true;
            return Ok(ControlFlow::Break(()));
        }
        let mut text = String::from(if self.rows > 0 { ",\n{" } else { "\n{" });
        for (at, (member, value)) in self.members.iter().zip(values).enumerate() {
            let value = match value {
                Value::Null => serde_json::Value::Null,
                Value::Integer(number) => json!(number),
                Value::Real(number) => json!(number),
                Value::Text(text) => json!(text),
                Value::Blob(bytes) => json!(hex(bytes)),
            };
            if at > 0 {
                text.push(',');
            }
            text.push_str(member);
            text.push_str(&value.to_string());
        }
        text.push('}');
        if self.bytes + text.len() as u64 > self.most_bytes {
            self.truncated = true;
            return Ok(ControlFlow::Break(()));
        }
        self.out.write_all(text.as_bytes())?;
        self.rows += 1;
        self.bytes += text.len() as u64;
        Ok(ControlFlow::Continue(()))
    }
}

/// The names, with numbers where one is repeated: two columns of one name would be one member.
fn unlike(names: &[String]) -> Vec<String> {
    let mut taken = HashSet::new();
    let mut numbers: HashMap<&str, u32> = HashMap::new();
    let mut own_names = Vec::with_capacity(names.len());
    for name in names {
        let number = numbers.entry(name.as_str()).or_insert(0);
        loop {
            *number += 1;
            let own = if *number == 1 { name.clone() } else { format!("{name}:{number}") };
            if taken.insert(own.clone()) {
                own_names.push(own);
                break;
            }
        }
    }
    own_names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(most_rows: u64, most_bytes: u64, failure: Option<&SqlError>) -> serde_json::Value {
        let mut out = Vec::new();
        let mut rows = JsonRows::limited(&mut out, most_rows, most_bytes);
        rows.columns(&["a".into(), "b\"".into(), "a".into()]).unwrap();
        for number in 0..4 {
            if rows.row(&[Value::Integer(number), Value::Null, Value::Real(0.5)]).unwrap().is_break() {
                break;
            }
        }
        rows.finish(failure).unwrap();
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn a_document_says_how_many_rows_it_has_and_whether_there_are_more() {
        let all = written(4, u64::MAX, None);
        assert_eq!(all["columns"], json!(["a", "b\"", "a:2"]));
        assert_eq!(all["rows"][3], json!({"a": 3, "b\"": null, "a:2": 0.5}));
        assert_eq!((&all["row_count"], &all["truncated"]), (&json!(4), &json!(false)));
        for few in [written(3, u64::MAX, None), written(9, 100, None)] {
            let count = few["rows"].as_array().unwrap().len();
            assert_eq!((&few["row_count"], &few["truncated"]), (&json!(count), &json!(true)));
            assert_eq!(count, 3, "{few}");
        }
        let failed = written(2, u64::MAX, Some(&SqlError::ReadOnly));
        assert_eq!((&failed["row_count"], failed.get("truncated")), (&json!(2), None));
        assert!(failed["error"].as_str().unwrap().contains("only SELECT"));
    }

    #[test]
    fn columns_of_one_name_get_numbers() {
        let names = |names: &[&str]| unlike(&names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
        assert_eq!(names(&["a", "a", "a:2", "a"]), ["a", "a:2", "a:2:2", "a:3"]);
        assert_eq!(unlike(&vec!["x".to_owned(); 2000]).last().map(String::as_str), Some("x:2000"));
    }
}
