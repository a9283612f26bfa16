//! Families of allocators: found by their names, and proved.

use super::names::*;
use super::*;

fn find_in(names: &[&str]) -> Allocators {
    let mut finder = Finder::default();
    for (at, name) in names.iter().enumerate() {
        finder.symbol(name.as_bytes(), at as u64 * 64, at as u64 * 64 + 40, true);
    }
    finder.finish()
}

fn names(found: &Allocators) -> Vec<&str> {
    found.functions.iter().map(|found| std::str::from_utf8(&found.name).unwrap()).collect()
}

#[test]
fn jemalloc_with_any_prefix_is_found_once_it_is_proved() {
    let found = find_in(&["_rjem_malloc", "_rjem_sdallocx", "_rjem_mallctl", "unrelated_malloc", "_rjem_je_arena_new"]);
    assert_eq!(names(&found), ["_rjem_malloc", "_rjem_sdallocx"]);
    assert_eq!(found.families(), [Family::Jemalloc]);
    assert_eq!(names(&find_in(&["my_malloc", "my_free"])), [""; 0]);
    let other = ["a_b_malloc", "a_b_xallocx"];
    assert_eq!(names(&find_in(&other)), [""; 0]);
    assert_eq!(names(&find_in(&[other[0], other[1], "a_b_mallctl"])), other);
    // A wrapper's name, and what tcmalloc has of it.
    assert_eq!(names(&find_in(&["by_mallocx", "by_malloc", "nallocx", "sdallocx"])), [""; 0]);
}

#[test]
fn standard_names_count_when_malloc_and_free_are_both_there_and_visible() {
    assert_eq!(names(&find_in(&["malloc", "free", "strdup", "_Znwm"])), ["malloc", "free", "_Znwm"]);
    assert_eq!(names(&find_in(&["free", "_Znwm", "_ZdlPv"])), [""; 0]);
    let mut finder = Finder::default();
    finder.symbol(b"malloc", 0, 8, false);
    finder.symbol(b"free", 16, 24, false);
    assert_eq!(finder.finish(), Allocators::default());
    // Hidden in the object, but jemalloc's.
    let mut finder = Finder::default();
    finder.symbol(b"malloc", 0, 8, false);
    finder.symbol(b"mallocx", 16, 24, false);
    assert_eq!(finder.finish().functions.len(), 2);
}

#[test]
fn what_is_offered_beside_the_standard_names() {
    for (name, family) in [
        ("mallocx", Family::Jemalloc),
        ("je_malloc", Family::Jemalloc),
        ("_rjem_sdallocx", Family::Jemalloc),
        ("mi_heap_malloc", Family::Mimalloc),
        ("tc_newarray", Family::Tcmalloc),
    ] {
        assert_eq!(beside_standard(name.as_bytes()), Some(family), "{name}");
    }
    for name in ["malloc", "free", "mi_version", "je_tsd_get", "_Znwm", "mallctl"] {
        assert_eq!(beside_standard(name.as_bytes()), None, "{name}");
    }
}

#[test]
fn mimalloc_takes_heaps_and_knows_its_own_code() {
    let mut list = vec!["mi_malloc", "mi_heap_malloc_aligned", "mi_free", "mi_thread_init", "mi_strdup", "mi_realpath"];
    assert_eq!(names(&find_in(&list)), [""; 0]);
    list.extend(["_mi_malloc_generic", "_mi_os_alloc", "_mi_page_malloc"]);
    let found = find_in(&list);
    assert_eq!(names(&found), ["mi_malloc", "mi_heap_malloc_aligned", "mi_free", "mi_strdup"]);
    assert_eq!(
        found.functions[1].function,
        AllocatorFunction { shape: CallShape::Alloc(1), arguments: 3, kind: Kind::OtherAlloc }
    );
    let is_inside = |at: u64| found.inside.iter().any(|range| (range.0..range.1).contains(&at));
    assert!(is_inside(3 * 64) && is_inside(6 * 64) && !is_inside(5 * 64));
}

#[test]
fn one_function_with_two_names_is_hooked_once() {
    let mut finder = Finder::default();
    for name in ["tc_malloc", "malloc", "tc_free", "free", "tc_new", "_Znwm"] {
        let at = if name.ends_with("malloc") {
            16
        } else if name.ends_with("free") {
            32
        } else {
            48
        };
        finder.symbol(name.as_bytes(), at, at + 8, true);
    }
    let found = finder.finish();
    assert_eq!(names(&found), ["tc_malloc", "tc_free", "tc_new"]);
    assert_eq!(found.inside, [(16, 56)]);
}

#[test]
fn a_sanitizer_is_noticed() {
    assert!(find_in(&["malloc", "free", "__asan_init"]).sanitizer);
}

#[test]
fn every_name_is_interesting_also_behind_another_ones_beginning() {
    let rows =
        |prefix: &'static str, rows: &'static [NameRow]| rows.iter().map(move |row| format!("{prefix}{}", row.0));
    let all = rows("", STANDARD)
        .chain(rows("je_", STANDARD))
        .chain(rows("", JEMALLOC))
        .chain(rows("mi_heap_", MIMALLOC))
        .chain(rows("tc_", TCMALLOC))
        .chain(rows("tc_", STANDARD))
        .chain(JEMALLOC_PROOF.iter().copied().flatten().chain(SANITIZERS).map(|name| (*name).to_owned()));
    for name in all {
        assert!(is_interesting(name.as_bytes()), "{name}");
        assert!(is_interesting(format!("other{name}").as_bytes()), "{name}");
    }
    assert!(OPERATORS.iter().all(|(name, _)| is_interesting(name.as_bytes())));
    assert!(!is_interesting(b"main") && !is_interesting(b"_ZN3std2io5stdio6_print17h"));
}

#[test]
fn arguments_named_by_shapes_exist() {
    for rows in [STANDARD, JEMALLOC, MIMALLOC, TCMALLOC] {
        for (name, shape, arguments, _) in rows {
            let last = match shape {
                CallShape::Alloc(at) | CallShape::Copy(at) => *at,
                CallShape::AllocOfProduct(at)
                | CallShape::CopyAtMost(at)
                | CallShape::Resize(at)
                | CallShape::ResizeOrFree(at) => at + 1,
                CallShape::ResizeToProduct(at) => at + 2,
                CallShape::PosixMemalign => 2,
                CallShape::ResizeInPlace => 3,
                CallShape::Expand => 1,
                CallShape::Free => 0,
                CallShape::Books => continue,
            };
            assert!(last < *arguments, "{name}");
        }
    }
}
