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
use crate::query_params::{self, filter_texts};

/// Which blocks count, and how their stacks are changed; texts as on the command line.
#[derive(Debug, Default, Deserialize)]
pub struct AskedFilter {
    focus: Option<String>,
    ignore: Option<String>,
    hide: Option<String>,
    show: Option<String>,
    show_from: Option<String>,
    transform: Option<String>,
    module: Option<String>,
    thread: Option<String>,
    context: Option<String>,
    freed_by: Option<String>,
    min_size: Option<String>,
    max_size: Option<String>,
    min_lifetime: Option<String>,
    max_lifetime: Option<String>,
    lifetime: Option<String>,
    address: Option<String>,
}

filter_texts!(AskedFilter);

/// Which blocks of a recording, as all questions about blocks take it.
#[derive(Debug, Default, Deserialize)]
pub struct AskedBlocks {
    pub from: Option<String>,
    pub to: Option<String>,
    pub at: Option<String>,
    #[serde(flatten)]
    pub filter: AskedFilter,
}

impl AskedBlocks {
    pub fn window(&self, metric: Metric) -> Result<tracehound_query::Window> {
        let window = query_params::window(self.from.as_deref(), self.to.as_deref(), self.at.as_deref());
        let window = window.map_err(misuse)?;
        query_params::instant_is_for(metric, &window).map_err(misuse)?;
        Ok(window)
    }
}

const TIMES: [(&str, &str); 3] = [
    ("from", "start of the window: 1.5s, 200ms, 50%, peak, end, capture:N, a mark's label"),
    ("to", "its end"),
    ("at", "an instant in place of a window, for `live`"),
];

/// The filters of the command line, in few words: which blocks count. RE is a regular expression.
const FILTERS: [(&str, &str); 16] = [
    ("focus", "RE (regular expression): a function or file on the stack matches"),
    ("ignore", "RE: none on the stack matches"),
    ("hide", "RE: functions to leave out"),
    ("show", "RE: the only functions to keep"),
    ("show_from", "RE: stacks begin at the outermost match"),
    ("transform", "as --transform, one a line"),
    ("module", "RE: a frame's module matches"),
    ("thread", "name or id of the allocating thread"),
    ("context", "RE or id of a request context"),
    ("freed_by", "RE: the freeing stack matches"),
    ("min_size", "64k, 1MiB"),
    ("max_size", "64k, 1MiB"),
    ("min_lifetime", "200ms, 2s"),
    ("max_lifetime", "200ms, 2s"),
    ("lifetime", "leaked, temporary or freed"),
    ("address", "0xA..0xB"),
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
    #[serde(flatten)]
    pub filter: AskedFilter,
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

/// Parameters of a tool, and texts beside them.
fn with(mut properties: Value, texts: &[(&str, &str)]) -> Value {
    if let Value::Object(map) = &mut properties {
        for (name, about) in texts {
            map.insert((*name).into(), json!({"type": "string", "description": about}));
        }
    }
    properties
}

fn with_part(properties: Value) -> Value {
    with(with(properties, &TIMES), &FILTERS)
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
            let own = json!({
                "before": list("names of recordings"), "after": list("names of recordings; empty: two instants of the first"),
                "from": {"type": "string", "description": "first instant of one recording; its start if left out"},
                "to": {"type": "string", "description": "second instant; the end if left out"},
                "metric": metric(), "unit": unit(),
                "normalize": {"type": "boolean", "description": "scale the first side to the total of the second: what changed in shares"},
            });
            with(own, &FILTERS)
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
    // What was left open is as if it were not there.
    arguments.retain(|_, value| !value.is_null());
    for (name, value) in &arguments {
        let (fits, kind) = match known[name]["type"].as_str() {
            Some("integer") => (value.is_u64(), "a whole number"),
            Some("boolean") => (value.is_boolean(), "true or false"),
            Some("array") => (value.is_array(), "a list"),
            _ => (value.is_string(), "a text"),
        };
        if !fits {
            bail!("{name:?} is {kind}");
        }
    }
    let mut number = |name: &str| arguments.remove(name).and_then(|value| usize::try_from(value.as_u64()?).ok());
    let (offset, budget) = (number("offset"), number("budget"));
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
        for (tool, arguments, words) in [
            ("leaks", json!({"offset": -1}), "\"offset\" is a whole number"),
            ("memory", json!({"pins": true}), "\"pins\" is a text"),
            ("top", json!({"cumulative": 1}), "\"cumulative\" is true or false"),
            ("sql", json!({"recordings": "a.dat"}), "\"recordings\" is a list"),
        ] {
            let said = call(&mut shelf, tool, arguments).unwrap().unwrap_err().to_string();
            assert!(said.contains(words), "{said}");
        }
        assert!(call(&mut shelf, "leak", json!({})).is_none());
    }
}
