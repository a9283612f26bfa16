//! The tools, and their parameters.

use anyhow::{Result, bail};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tracehound_api::functions::GroupBy;
use tracehound_api::{Metric, Unit};

use super::super::misuse;
use super::shelf::Shelf;
use super::{answers, paging};
use crate::query_params;

/// Which blocks of a recording, as all questions about blocks take it; texts as on the command line.
#[derive(Debug, Default, Deserialize)]
pub struct AskedBlocks {
    pub from: Option<String>,
    pub to: Option<String>,
    pub at: Option<String>,
    focus: Option<String>,
    ignore: Option<String>,
    module: Option<String>,
    thread: Option<String>,
    min_size: Option<String>,
    max_size: Option<String>,
    lifetime: Option<String>,
}

impl AskedBlocks {
    pub fn window(&self, metric: Metric) -> Result<tracehound_query::Window> {
        let window = query_params::window(self.from.as_deref(), self.to.as_deref(), self.at.as_deref());
        let window = window.map_err(misuse)?;
        query_params::instant_is_for(metric, &window).map_err(misuse)?;
        Ok(window)
    }

    pub fn filter(&self) -> Result<tracehound_query::Filter> {
        let filter = query_params::filter(|name| {
            match name {
                "focus" => &self.focus,
                "ignore" => &self.ignore,
                "module" => &self.module,
                "thread" => &self.thread,
                "min_size" => &self.min_size,
                "max_size" => &self.max_size,
                "lifetime" => &self.lifetime,
                _ => &None,
            }
            .as_deref()
        });
        filter.map_err(misuse)
    }
}

const PART: [(&str, &str); 10] = [
    ("from", "only what was allocated from this time on: 1.5s, 200ms, 50%, peak, end, capture:N, a mark's label"),
    ("to", "only what happened before this time"),
    ("at", "one instant in place of a window, for what was live then"),
    ("focus", "regular expression: only blocks with a matching function or source file on their stack"),
    ("ignore", "regular expression: only blocks whose stack has no match"),
    ("module", "regular expression: only blocks whose stack has a frame in a matching module"),
    ("thread", "only blocks that this thread (name or id) allocated"),
    ("min_size", "only blocks of at least this size: 64k, 1MiB"),
    ("max_size", "only blocks of at most this size"),
    ("lifetime", "only blocks of this class: leaked, temporary, freed"),
];

#[derive(Deserialize)]
pub struct OfRecording {
    pub recording: Option<String>,
}

#[derive(Deserialize)]
pub struct OfLeaks {
    pub recording: Option<String>,
    #[serde(default)]
    pub full: bool,
    #[serde(flatten)]
    pub part: AskedBlocks,
}

#[derive(Deserialize)]
pub struct OfTop {
    pub recording: Option<String>,
    #[serde(default)]
    pub metric: Metric,
    #[serde(default)]
    pub unit: Unit,
    #[serde(default)]
    pub by: GroupBy,
    #[serde(default)]
    pub cumulative: bool,
    #[serde(flatten)]
    pub part: AskedBlocks,
}

#[derive(Deserialize)]
pub struct OfTree {
    pub recording: Option<String>,
    #[serde(default)]
    pub metric: Metric,
    #[serde(default)]
    pub unit: Unit,
    pub root: Option<u64>,
    #[serde(default)]
    pub inverted: bool,
    #[serde(flatten)]
    pub part: AskedBlocks,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PinsShown {
    #[default]
    None,
    Function,
    Site,
    Age,
    Thread,
}

#[derive(Deserialize)]
pub struct OfMemory {
    pub recording: Option<String>,
    pub at: Option<String>,
    #[serde(default)]
    pub pins: PinsShown,
}

#[derive(Deserialize)]
pub struct OfCompare {
    pub before: Vec<String>,
    #[serde(default)]
    pub after: Vec<String>,
    pub from: Option<String>,
    pub to: Option<String>,
    #[serde(default)]
    pub metric: Metric,
    #[serde(default)]
    pub unit: Unit,
    #[serde(default)]
    pub normalize: bool,
}

#[derive(Deserialize)]
pub struct OfSql {
    #[serde(default)]
    pub recordings: Vec<String>,
    pub query: Option<String>,
}

struct Tool {
    name: &'static str,
    title: &'static str,
    description: &'static str,
    properties: fn() -> Value,
    required: &'static [&'static str],
    call: fn(&mut Shelf, Value) -> Result<String>,
}

fn recording() -> Value {
    json!({"type": "string", "description": "name of a recording, or its beginning, as `recordings` lists them; may be left out if there is one only"})
}

fn one_of(description: &str, values: &[&str]) -> Value {
    json!({"type": "string", "enum": values, "default": values[0], "description": description})
}

fn metric() -> Value {
    let about = "live: at `at`, else at the end; peak: when most was live; leaked: never freed; grown: allocated in the window and alive at its end, less older blocks that were freed; temporary: freed at once";
    one_of(about, &["live", "peak", "leaked", "allocated", "freed", "grown", "temporary"])
}

fn unit() -> Value {
    one_of("what is added up", &["bytes", "count"])
}

fn with_part(mut properties: Value) -> Value {
    if let Value::Object(map) = &mut properties {
        for (name, about) in PART {
            map.insert(name.into(), json!({"type": "string", "description": about}));
        }
    }
    properties
}

const TOOLS: [Tool; 8] = [
    Tool {
        name: "recordings",
        title: "List recordings",
        description: "Lists the recordings that can be queried: program, duration, peak, leaks, end.",
        properties: || json!({}),
        required: &[],
        call: |shelf, _| answers::recordings(shelf),
    },
    Tool {
        name: "summary",
        title: "Summary of a recording",
        description: "The first query: the peak and its holders, leaks and growth, temporary allocations, and what was not recorded.",
        properties: || json!({"recording": recording()}),
        required: &[],
        call: |shelf, arguments| answers::summary(shelf, &read(arguments)?),
    },
    Tool {
        name: "leaks",
        title: "Leaks",
        description: "What was never freed, largest first: backtrace, and a verdict over its whole history (growing with its rate, bounded, one-time) with the reason. Also what grew and was freed at exit only.",
        properties: || {
            with_part(json!({
                "recording": recording(),
                "full": {"type": "boolean", "description": "all frames, those of libraries too"},
            }))
        },
        required: &[],
        call: |shelf, arguments| answers::leaks(shelf, &read(arguments)?),
    },
    Tool {
        name: "top",
        title: "Who has the memory",
        description: "A table of functions (or files, modules, threads, sites): flat is allocated by the function itself, cum by it and all that it called.",
        properties: || {
            let groups = ["function", "program", "file", "module", "thread", "site"];
            let by = "what a row is; program: allocations by wrappers and libraries are added to their callers";
            with_part(json!({
                "recording": recording(), "metric": metric(), "unit": unit(), "by": one_of(by, &groups),
                "cumulative": {"type": "boolean", "description": "sort by cum"},
            }))
        },
        required: &[],
        call: |shelf, arguments| answers::top(shelf, &read(arguments)?),
    },
    Tool {
        name: "tree",
        title: "Call tree",
        description: "A call tree with shares, pruned to what is large: from the program's entry down, or inverted: from allocating functions up to their callers. `[id]` of a row can be given as `root` to open it.",
        properties: || {
            with_part(json!({
                "recording": recording(), "metric": metric(), "unit": unit(),
                "root": {"type": "integer", "description": "id of a row of this tree (same metric, filter and direction): only what is below it"},
                "inverted": {"type": "boolean", "description": "allocating functions first, their callers below"},
            }))
        },
        required: &[],
        call: |shelf, arguments| answers::tree(shelf, &read(arguments)?),
    },
    Tool {
        name: "memory",
        title: "Resident memory",
        description: "The parts of resident memory: rows that add up to it (live blocks, holes, free pages, files …). With `pins`: the code whose blocks hold pages that would be given back otherwise.",
        properties: || {
            json!({
                "recording": recording(),
                "at": {"type": "string", "description": "the instant: 1.5s, 50%, peak, end, a mark's label; the end if left out"},
                "pins": one_of("also the blocks that hold pages, grouped by this", &["none", "function", "site", "age", "thread"]),
            })
        },
        required: &[],
        call: |shelf, arguments| answers::memory(shelf, &read(arguments)?),
    },
    Tool {
        name: "compare",
        title: "Compare",
        description: "What changed, by backtrace: between two recordings; between two instants of one (from, to); or between groups of recordings, where differences that may be chance are folded away (at least two a side).",
        properties: || {
            let list = |about: &str| json!({"type": "array", "items": {"type": "string"}, "description": about});
            json!({
                "before": list("names of recordings"), "after": list("names of recordings; empty: two instants of the first"),
                "from": {"type": "string", "description": "first instant of one recording; its start if left out"},
                "to": {"type": "string", "description": "second instant; the end if left out"},
                "metric": metric(), "unit": unit(),
                "normalize": {"type": "boolean", "description": "scale the first side to the total of the second: what changed in shares"},
            })
        },
        required: &["before"],
        call: |shelf, arguments| answers::compare(shelf, &read(arguments)?),
    },
    Tool {
        name: "sql",
        title: "SQL",
        description: "One SELECT (SQLite) over recordings, numbered from 1 in column `recording`. Without a query: the tables, functions and columns.",
        properties: || {
            json!({
                "query": {"type": "string", "description": "for instance SELECT function, flat_bytes FROM functions('peak') ORDER BY 2 DESC LIMIT 10"},
                "recordings": {"type": "array", "items": {"type": "string"}, "description": "names; may be left out if there is one only"},
            })
        },
        required: &[],
        call: |shelf, arguments| answers::sql(shelf, &read(arguments)?),
    },
];

fn read<T: DeserializeOwned>(arguments: Value) -> Result<T> {
    Ok(serde_json::from_value(arguments)?)
}

/// The tools, as the protocol lists them.
pub fn list() -> Vec<Value> {
    TOOLS
        .iter()
        .map(|tool| {
            json!({
                "name": tool.name,
                "title": tool.title,
                "description": tool.description,
                "inputSchema": {
                    "type": "object", "properties": properties(tool), "required": tool.required,
                    "additionalProperties": false,
                },
                "annotations": {"readOnlyHint": true, "idempotentHint": true, "openWorldHint": false},
            })
        })
        .collect()
}

/// What a tool takes, with what all take.
fn properties(tool: &Tool) -> Map<String, Value> {
    let Value::Object(mut properties) = (tool.properties)() else { return Map::new() };
    let offset = "line of the answer to begin with, as the answer before said";
    let budget = format!("most tokens of the answer, {} unless asked otherwise", paging::DEFAULT_TOKENS);
    properties.insert("offset".into(), json!({"type": "integer", "minimum": 0, "description": offset}));
    let budget = json!({"type": "integer", "minimum": 200, "maximum": paging::MOST_TOKENS, "description": budget});
    properties.insert("budget".into(), budget);
    properties
}

/// Asks a tool; `None` if there is none of this name.
pub fn call(shelf: &mut Shelf, name: &str, arguments: Value) -> Option<Result<String>> {
    let tool = TOOLS.iter().find(|tool| tool.name == name)?;
    Some(answer(tool, shelf, arguments))
}

fn answer(tool: &Tool, shelf: &mut Shelf, arguments: Value) -> Result<String> {
    let Value::Object(mut arguments) = arguments else { bail!("arguments are an object") };
    let known = properties(tool);
    if let Some(name) = arguments.keys().find(|name| !known.contains_key(*name)) {
        let all: Vec<&str> = known.keys().map(String::as_str).collect();
        bail!("`{}` takes no {name:?}; it takes: {}", tool.name, all.join(", "));
    }
    let mut number = |name: &str| -> Result<Option<usize>> {
        match arguments.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_u64().and_then(|value| usize::try_from(value).ok()) {
                Some(value) => Ok(Some(value)),
                None => bail!("{name:?} is a whole number"),
            },
        }
    };
    let (offset, budget) = (number("offset")?, number("budget")?);
    // What was left open is as if it were not there.
    arguments.retain(|_, value| !value.is_null());
    let text = (tool.call)(shelf, Value::Object(arguments))?;
    Ok(paging::page(&text, offset.unwrap_or(0), budget))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_describes_itself() {
        for tool in list() {
            let (name, about) = (&tool["name"], tool["description"].as_str().unwrap());
            assert!(about.len() > 40, "{name}");
            let properties = tool["inputSchema"]["properties"].as_object().unwrap();
            assert!(properties.contains_key("budget") && properties.contains_key("offset"), "{name}");
            assert!(properties.values().all(|property| property["type"].is_string()), "{name}");
        }
        // All descriptions are in the context of every conversation.
        assert!(serde_json::to_string(&list()).unwrap().len() < 14_000);
    }

    #[test]
    fn what_is_not_taken_is_named() {
        let mut shelf = Shelf::default();
        let said = call(&mut shelf, "leaks", json!({"recordings": "x"})).unwrap().unwrap_err().to_string();
        assert!(said.contains("`leaks` takes no \"recordings\"; it takes: "), "{said}");
        let said = call(&mut shelf, "leaks", json!({"offset": -1})).unwrap().unwrap_err().to_string();
        assert!(said.contains("whole number"), "{said}");
        assert!(call(&mut shelf, "leak", json!({})).is_none());
    }
}
