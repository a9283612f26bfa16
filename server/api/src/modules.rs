//! `GET recordings/{id}/modules`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Exactness;

/// All modules that were ever loaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Modules {
    /// `heaptrace.modules/1`.
    pub schema: String,
    /// In the order of loading.
    pub modules: Vec<Module>,
    /// How far the figures can be trusted.
    pub exactness: Exactness,
}

/// One module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Module {
    /// Id.
    pub id: u32,
    /// Path at the time of recording.
    pub path: String,
    /// Build id, hexadecimal; `null` if it has none.
    pub build_id: Option<String>,
    /// First address, `0x…`.
    pub start: String,
    /// Bytes from the first to the last address.
    pub size: u64,
    /// Loaded.
    pub loaded_ns: u64,
    /// Unloaded, if it was.
    pub unloaded_ns: Option<u64>,
    /// Where names come from.
    pub symbols: Symbols,
    /// Call-tree addresses in this module.
    pub addresses: u64,
    /// Of them with a name.
    pub named: u64,
    /// Why there are no symbols, in words.
    pub note: Option<String>,
}

/// Where a module's names come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Symbols {
    /// Debug information: lines and inlined functions.
    Debug,
    /// A symbol table only.
    Table,
    /// Nothing.
    None,
    /// The file on this machine is another one than the recorded one.
    Mismatch,
    /// The file is not on this machine.
    Missing,
}
