//! Looks at this very process.

use tracehound_format::look::{LookReason, MappingClass, PageLook, PageState};

use super::{LookRequest, PageLooks};
use tracehound_shared::sys;

const MIB: usize = 1 << 20;

/// A mapping between two pages that nobody may touch, so that the kernel does not make one of it and its neighbour.
fn mapped(bytes: usize, protection: i32) -> *mut u8 {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping where the kernel likes, of which the inner part gets another protection.
    unsafe {
        let all = libc::mmap(core::ptr::null_mut(), bytes + 2 * 4096, libc::PROT_NONE, flags, -1, 0);
        assert_ne!(all, libc::MAP_FAILED);
        let at = all.byte_add(4096);
        assert_eq!(libc::mprotect(at, bytes, protection), 0);
        at.cast()
    }
}

/// Pages of each state in a range.
fn states(looks: &[PageLook], start: *mut u8, bytes: usize) -> [u64; 5] {
    let (from, to) = (start as u64, (start as usize + bytes) as u64);
    let mut found = [0; 5];
    for look in looks {
        for run in look.page_runs().expect("the recorder's own runs") {
            let (a, b) = (run.start.max(from), (run.start + run.len).min(to));
            if a < b {
                found[run.state as usize] += (b - a) / 4096;
            }
        }
    }
    found
}

fn anonymous(looks: &[PageLook]) -> u64 {
    let runs = looks.iter().flat_map(|look| look.page_runs().expect("the recorder's own runs"));
    runs.filter(|run| run.state == PageState::Anonymous).map(|run| run.len).sum()
}

#[test]
fn pages_are_seen_as_they_are() {
    let written = mapped(20 * MIB, libc::PROT_READ | libc::PROT_WRITE);
    let only_read = mapped(8 * MIB, libc::PROT_READ | libc::PROT_WRITE);
    let vast = mapped(1 << 40, libc::PROT_NONE);
    let sparse = mapped(1 << 38, libc::PROT_READ | libc::PROT_WRITE);
    for page in 0..20 * MIB / 4096 {
        if page % 3 == 0 {
            // SAFETY: inside the mapping.
            unsafe { written.add(page * 4096).write_volatile(1) };
        }
    }
    for page in 0..8 * MIB / 4096 {
        // SAFETY: inside the mapping.
        assert_eq!(unsafe { only_read.add(page * 4096).read_volatile() }, 0);
    }
    // At the starts of some GiB, at odd places of the others, and close together.
    let places = (0..256_usize)
        .map(|gib| (gib << 30) + gib % 3 * 12_345 * 4096)
        .chain((0..300).map(|page| (5 << 30) + page * 8192));
    for place in places {
        // SAFETY: inside the mapping.
        unsafe { sparse.add(place).write_volatile(1) };
    }
    let mut looks = PageLooks::new();
    // Other tests map and unmap memory at the same time: one look of many must meet none of that.
    const TRIES: usize = 200;
    for filtered in [false, true] {
        if filtered {
            // A thousand GiB are not read page by page here.
            // SAFETY: nobody uses the range any more.
            unsafe { libc::munmap(sparse.cast(), 1 << 38) };
        }
        let look = |looks: &mut PageLooks| {
            looks.look(
                LookRequest { reason: LookReason::Asked, label: b"x".to_vec(), most_reading: None },
                || 7,
                &[],
                filtered,
            )
        };
        // Pages of zeros are noticed by the kernel's counters, among which another test's memory can hide them.
        let all_zeros = |found: &[PageLook]| states(found, only_read, 8 * MIB) == [0, 0, 0, 0, 2048];
        let mut found = look(&mut looks);
        for _ in 1..if filtered { 1 } else { TRIES } {
            if all_zeros(&found) {
                break;
            }
            found = look(&mut looks);
        }
        let pages = (20 * MIB / 4096).div_ceil(3) as u64;
        assert_eq!(states(&found, written, 20 * MIB), [5120 - pages, pages, 0, 0, 0], "filtered: {filtered}");
        if !filtered {
            assert!(all_zeros(&found), "pages of zeros: {:?}", states(&found, only_read, 8 * MIB));
            assert_eq!(states(&found, sparse, 1 << 38), [(1 << 26) - 556, 556, 0, 0, 0]);
            assert_eq!(states(&found, sparse.wrapping_add((1 << 30) + 12_345 * 4096), 4096)[1], 1);
        }
        assert_eq!(states(&found, vast, 1 << 40)[1], 0);
        assert!(found.iter().all(|look| look.tick == 7 && look.page_bytes == 4096));
        assert!(found.last().is_some_and(|look| look.last) && found[0].label == b"x");
        let differences = (0..TRIES).map(|_| {
            let found = looks.look(LookRequest::default(), || 7, &[], filtered);
            found[0].after.anonymous.abs_diff(anonymous(&found))
        });
        assert!(filtered || differences.into_iter().any(|difference| difference < 1 << 20));
    }
    for (at, bytes) in [(written, 20 * MIB), (only_read, 8 * MIB), (vast, 1 << 40)] {
        // SAFETY: nobody uses the ranges any more.
        unsafe { libc::munmap(at.cast(), bytes) };
    }
}

#[test]
fn tens_of_thousands_of_mappings_make_several_records() {
    let range = mapped(160_000 * 4096, libc::PROT_READ);
    for page in (0..40_000).step_by(2) {
        // SAFETY: inside the mapping.
        unsafe { libc::mprotect(range.add(page * 4 * 4096).cast(), 4096, libc::PROT_READ | libc::PROT_WRITE) };
        // SAFETY: inside the mapping.
        unsafe { range.add(page * 4 * 4096).write_volatile(1) };
    }
    let mut looks = PageLooks::new();
    let found = looks.look(LookRequest::default(), || 1, &[], false);
    assert_eq!(states(&found, range, 160_000 * 4096)[1], 20_000);
    assert!(found.iter().map(|look| look.mappings.len()).sum::<usize>() > 40_000);
    // SAFETY: nobody uses the range any more.
    unsafe { libc::munmap(range.cast(), 160_000 * 4096) };
}

#[test]
fn our_own_memory_is_told_apart_and_the_main_stack_found() {
    let ours = sys::map_memory(3 * MIB).expect("there is memory");
    for page in 0..3 * MIB / 4096 {
        // SAFETY: inside the mapping.
        unsafe { ours.add(page * 4096).write_volatile(1) };
    }
    let local = 0_u8;
    let threads = [(&raw const local as usize, 5)];
    let found = PageLooks::new().look(LookRequest::default(), || 1, &threads, false);
    let class_at = |address: usize| {
        found.iter().find_map(|look| {
            let ranges = look.ranges().zip(&look.mappings);
            let mut around = ranges.filter(|((start, len), _)| (address as u64).wrapping_sub(*start) < *len);
            around.next().map(|(_, mapping)| (mapping.class, mapping.thread))
        })
    };
    assert_eq!(class_at(ours as usize), Some((MappingClass::Recorder, 0)));
    // A test runs on a thread of its own: a stack above a guard.
    assert_eq!(class_at(&raw const local as usize), Some((MappingClass::Stack, 5)));
    assert_eq!(class_at(PageLooks::new as *const () as usize).map(|class| class.0), Some(MappingClass::Recorder));
    // SAFETY: nobody uses the range any more.
    unsafe { sys::unmap(ours, 3 * MIB) };
}

#[test]
fn looks_come_with_changes_and_stay_within_their_time() {
    let mut looks = PageLooks::new();
    let now = sys::clock(libc::CLOCK_MONOTONIC);
    assert!(looks.due(now, 10 << 20, 0, 0).is_some(), "the first resident set is a change");
    assert!(looks.due(now, 10 << 20, 10 << 20, 0).is_none(), "all of it is the recorder's");
    looks.recorder = 0;
    looks.look(LookRequest::default(), || 1, &[], false);
    looks.last_rss = 100 << 20;
    looks.highest_rss = 100 << 20;
    // Other tests have tens of thousands of mappings at the same time.
    looks.cost = 1_000_000;
    let later = looks.last + 30_000_000;
    (looks.began, looks.earned_at, looks.credit) = (looks.last, later, 10_000_000);
    assert!(looks.due(later, 101 << 20, 0, 0).is_none(), "one in a hundred");
    assert!(looks.due(later, 103 << 20, 0, 0).is_some() && looks.due(later, 97 << 20, 0, 0).is_some());
    assert!(looks.due(later, 130 << 20, 30 << 20, 0).is_none(), "the recorder has grown");
    assert!(looks.due(later, 130 << 20, 20 << 20, 0).is_some(), "both have grown");
    assert!(looks.due(looks.last + 10_000_000, 103 << 20, 0, 0).is_none(), "too soon");
    looks.cost = 6_000_000;
    assert!(looks.due(later, 103 << 20, 0, 0).is_none(), "none would be left for the end");
    looks.credit = 0;
    looks.cost = 40_000_000;
    assert!(looks.due(later, 103 << 20, 0, 0).is_none(), "too dear");
    assert!(looks.due(later + 100_000_000, 100 << 20, 0, 50_000_000).is_some(), "a period was asked for");
    assert!(looks.has_time(later));
}

#[test]
fn a_look_at_very_many_mappings_waits_until_there_is_time() {
    const PAGES: usize = 40_000;
    let range = mapped(PAGES * 4096, libc::PROT_READ);
    for page in (0..PAGES).step_by(2) {
        // SAFETY: inside the mapping.
        unsafe { libc::mprotect(range.add(page * 4096).cast(), 4096, libc::PROT_READ | libc::PROT_WRITE) };
    }
    let mut looks = PageLooks::new();
    let began = sys::clock(libc::CLOCK_MONOTONIC);
    let request = looks.due(began, 10 << 20, 0, 0).expect("there is credit for a small one");
    assert_eq!(request.most_reading, Some((super::MOST_CREDIT_NS / 50) as u64));
    let shorter = LookRequest { most_reading: Some(1000), ..request };
    assert!(looks.look(shorter, || 1, &[], false).is_empty(), "a microsecond is enough for all mappings");
    assert!(looks.was_put_off);
    let needed = looks.needed();
    assert!(needed >= 3 * super::MOST_CREDIT_NS / 10, "only {needed} ns are to be saved up");
    assert!(looks.credit < super::MOST_CREDIT_NS / 10, "reading was free");
    // What a long look needs can be saved up, however long that is.
    looks.cost = 10 * super::MOST_CREDIT_NS as u64;
    let later = looks.last + 2 * super::SHARE * looks.cost;
    let request = looks.due(later, 10 << 20, 0, 0).expect("the time is saved up");
    let found = looks.look(request, || 1, &[], false);
    assert!(found.iter().map(|look| look.mappings.len()).sum::<usize>() > PAGES);
    // SAFETY: nobody uses the range any more.
    unsafe { libc::munmap(range.cast(), PAGES * 4096) };
}
