//! Transforms of backtraces: each takes frames out of them, cuts them, or leaves some out, one after the other, over the
//! whole tree. What is left is added up anew, so that every total stays exact.
//!
//! ```text
//! merge-function F               F's frames go; what they allocated is their callers'
//! merge-node R                   the one frame of row R goes
//! drop-function F                backtraces with F do not count
//! collapse-function F            what F calls goes; F has allocated it
//! collapse-module M              of frames of M that follow each other the outermost stays
//! collapse-recursion F           from the outermost F to the innermost one F stays, all between goes
//! collapse-direct-recursion F    the same of F's that follow each other
//! focus-function F               what calls the outermost F goes; backtraces without F do not count
//! focus-inverted F               what the innermost F calls goes; backtraces without F do not count
//! focus-subtree R                what calls row R goes; backtraces that do not begin with R's do not count
//! ```
//! F is a name, or `name@file@module` where a name alone means several functions; M the file name of a module, or its path; R a row's
//! id in a flame graph of the filter and the transforms before. Both recursions without F are about every function.

use std::fmt;
use std::str::FromStr;

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transform {
    /// What is done.
    pub kind: TransformKind,
    /// With what.
    pub target: TransformTarget,
}

/// What a transform does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransformKind {
    /// Takes frames out.
    MergeFunction,
    /// Takes one frame of one path out.
    MergeNode,
    /// Leaves backtraces out.
    DropFunction,
    /// Cuts below the outermost.
    CollapseFunction,
    /// Keeps the outermost of frames that follow each other.
    CollapseModule,
    /// Keeps one of a function's frames.
    CollapseRecursion,
    /// Keeps one of a function's frames that follow each other.
    CollapseDirectRecursion,
    /// Cuts above the outermost.
    FocusFunction,
    /// Cuts below the innermost.
    FocusInverted,
    /// Cuts above one row.
    FocusSubtree,
}

/// What a transform is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TransformTarget {
    /// A function by name or identity, or a module by file name.
    Named(String),
    /// A row of the frame tree.
    Row(u32),
    /// Every function.
    All,
}

/// Names on the wire.
const KINDS: [(&str, TransformKind); 10] = [
    ("merge-function", TransformKind::MergeFunction),
    ("merge-node", TransformKind::MergeNode),
    ("drop-function", TransformKind::DropFunction),
    ("collapse-function", TransformKind::CollapseFunction),
    ("collapse-module", TransformKind::CollapseModule),
    ("collapse-recursion", TransformKind::CollapseRecursion),
    ("collapse-direct-recursion", TransformKind::CollapseDirectRecursion),
    ("focus-function", TransformKind::FocusFunction),
    ("focus-inverted", TransformKind::FocusInverted),
    ("focus-subtree", TransformKind::FocusSubtree),
];

/// A stack of transforms is this long at most: each is a pass over the whole tree.
pub const MOST_TRANSFORMS: usize = 32;

impl TransformKind {
    /// Whether backtraces may be left out.
    #[must_use]
    pub const fn drops(self) -> bool {
        matches!(self, Self::DropFunction | Self::FocusFunction | Self::FocusInverted | Self::FocusSubtree)
    }

    const fn is_recursion(self) -> bool {
        matches!(self, Self::CollapseRecursion | Self::CollapseDirectRecursion)
    }
}

impl fmt::Display for TransformKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(KINDS.iter().find(|(_, kind)| kind == self).map_or("", |(name, _)| name))
    }
}

impl FromStr for Transform {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, target) = text.split_once(':').unwrap_or((text, ""));
        let Some(&(_, kind)) = KINDS.iter().find(|(known, _)| *known == name) else {
            let names: Vec<&str> = KINDS.iter().map(|(name, _)| *name).collect();
            return Err(format!("`{name}` is none of {}", names.join(", ")));
        };
        let target = match (kind, target) {
            (TransformKind::FocusSubtree | TransformKind::MergeNode, id) => {
                let row = id.parse().map_err(|_| format!("`{id}` is no row of a flame graph that is not inverted"))?;
                TransformTarget::Row(row)
            }
            (kind, "") if kind.is_recursion() => TransformTarget::All,
            (_, "") => return Err(format!("{name} wants what it is about, as in `{name}:main`")),
            (_, named) => TransformTarget::Named(named.into()),
        };
        Ok(Self { kind, target })
    }
}

/// Reads a stack of transforms, one a line.
///
/// # Errors
/// When a line is none, or there are too many.
pub fn read_all(text: &str) -> Result<Vec<Transform>, String> {
    let lines = text.lines().filter(|line| !line.is_empty());
    let read: Vec<Transform> = lines.map(str::parse).collect::<Result<_, _>>()?;
    if read.len() > MOST_TRANSFORMS {
        return Err(format!("{} transforms are more than {MOST_TRANSFORMS}", read.len()));
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_a_line_and_names_may_hold_anything_else() {
        let read = read_all("merge-function:~A::B()@src/a.c@app\n\ncollapse-recursion\nfocus-subtree:17\n").unwrap();
        let named = TransformTarget::Named("~A::B()@src/a.c@app".into());
        assert_eq!(read[0], Transform { kind: TransformKind::MergeFunction, target: named });
        assert_eq!(read[1], Transform { kind: TransformKind::CollapseRecursion, target: TransformTarget::All });
        assert_eq!(read[2], Transform { kind: TransformKind::FocusSubtree, target: TransformTarget::Row(17) });
        assert_eq!(read_all(""), Ok(Vec::new()));
    }

    #[test]
    fn what_is_none_is_refused_by_name() {
        for (text, why) in [
            ("merge:main", "`merge` is none of"),
            ("merge-function", "wants what it is about"),
            ("drop-function:", "wants what it is about"),
            ("focus-subtree:-1", "no row"),
            ("focus-subtree:4294967296", "no row"),
        ] {
            assert!(read_all(text).unwrap_err().contains(why), "{text}");
        }
        assert!(read_all(&"collapse-recursion\n".repeat(33)).unwrap_err().contains("more than 32"));
    }
}
