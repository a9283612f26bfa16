//! Why memory stays, in one sentence.

use super::{HeapFacts, LedgerSums};
use tracehound_api::units::{bytes as size, percent};
use tracehound_index::block_extents::AllocatorModel;

/// What the sentence about the allocator's free memory rests on.
#[derive(Debug, Clone, Copy)]
pub struct AllocatorWords<'a> {
    /// The allocator.
    pub model: AllocatorModel,
    /// Whether all live blocks are known.
    pub knows_all: bool,
    /// Whether mappings were recorded.
    pub knows_mappings: bool,
    /// Bytes that `malloc_trim(0)` would give back, where that is known.
    pub trim: Option<u64>,
    /// The regions of the heap.
    pub heaps: &'a [HeapFacts],
}

/// The sentence for the largest part that is not live.
pub fn why(sums: &LedgerSums, rss: u64, allocator: &AllocatorWords<'_>) -> String {
    let free = sums.bytes("free_pages") + sums.bytes("free_top");
    let parts = [
        ("live", sums.bytes("live") + sums.bytes("rounding")),
        ("holes", sums.bytes("holes")),
        ("free", free),
        ("mappings", sums.bytes("mappings")),
        ("runtime_heaps", sums.bytes("runtime_heaps")),
        ("files", sums.bytes("files")),
        ("modules", sums.bytes("modules")),
        ("stacks", sums.bytes("stacks")),
        ("recorder", sums.bytes("recorder")),
        ("other", sums.bytes("other")),
        ("unexplained", sums.bytes("unexplained")),
    ];
    let Some((largest, bytes)) = parts.into_iter().max_by_key(|(_, bytes)| *bytes).filter(|(_, bytes)| *bytes > 0)
    else {
        return "Nothing is resident.".into();
    };
    let amount = format!("{} ({})", size(bytes), percent(bytes.cast_signed(), rss.cast_signed()));
    match largest {
        "live" => format!(
            "Live blocks with their rounding are the largest part, {amount}: less memory means fewer or smaller blocks."
        ),
        "holes" => {
            format!("{amount} are holes in pages that live blocks pin: `heaptrace pins` says whose blocks they are.")
        }
        "free" if !allocator.knows_all => {
            // Only glibc's heaps can be listed from outside.
            let way = if allocator.model == AllocatorModel::Glibc {
                " (`heaptrace attach --existing` lists them)"
            } else {
                ""
            };
            format!(
                "{amount} are pages of the heap without a block that was recorded: free, or with blocks from before recording \
                 began or from when it was off, which are not known{way}."
            )
        }
        "free" => free_words(&amount, allocator),
        "mappings" => format!("{amount} are mappings that the program made itself, beside the allocator."),
        "runtime_heaps" => format!("{amount} are the heap of the program's language, which its runtime manages."),
        "files" => {
            format!(
                "{amount} are files and shared memory: the kernel takes back unchanged pages of files when it needs memory; \
                 shared memory without a file stays, or goes to swap."
            )
        }
        "modules" => modules_words(&amount, bytes, sums),
        "stacks" => format!("{amount} are stacks of threads."),
        "other" if !allocator.knows_mappings => {
            format!(
                "{amount} are memory without a file: who mapped it is not known, since mappings were not recorded \
                 (TRACEHOUND_MAPPINGS=0)."
            )
        }
        "other" => format!(
            "{amount} are memory without a file that nobody was seen to map: by system calls that pass the C library by, or \
             before recording began."
        ),
        "unexplained" => {
            format!("{amount} are counted by the kernel, and no page that was looked at has them: there is no answer.")
        }
        _ => format!("{amount} are the recorder's own; without it they are not there."),
    }
}

/// Variables of modules are memory of the program's own, code is the files'.
fn modules_words(amount: &str, bytes: u64, sums: &LedgerSums) -> String {
    let variables = sums.children("modules", "data");
    let all: u64 = variables.iter().map(|(_, bytes)| bytes).sum();
    match variables.iter().max_by_key(|(_, bytes)| *bytes) {
        Some((name, most)) if all >= bytes / 2 => format!(
            "{amount} are code and data of modules: {} of it are static variables, most of them {name}'s ({}).",
            size(all),
            size(*most)
        ),
        _ => format!("{amount} are code and data of modules: the program uses little memory of its own."),
    }
}

fn free_words(amount: &str, allocator: &AllocatorWords<'_>) -> String {
    let &AllocatorWords { model, trim, heaps, .. } = allocator;
    if model != AllocatorModel::Glibc {
        let name = model.name();
        return format!(
            "{amount} are pages without a live block that {name} has: what is in one slab with a live block cannot be given back \
             (`heaptrace pins --unit slab` says whose those are), and the rest {name} keeps for later."
        );
    }
    // Heaps that keep much of what they have because of a block near their end.
    let arenas: Vec<&HeapFacts> = heaps.iter().filter(|heap| heap.resident > 0 && heap.blocks > 0).collect();
    let held: Vec<&&HeapFacts> = arenas.iter().filter(|heap| heap.free >= heap.resident / 4).collect();
    let largest_last = held.iter().map(|heap| heap.last_block).max().unwrap_or(0);
    let above = held.iter().map(|heap| heap.top).max().unwrap_or(0);
    let trim = trim.map_or_else(String::new, |bytes| format!(" malloc_trim(0) would give back {}.", size(bytes)));
    if held.is_empty() {
        return format!("{amount} are free pages that glibc keeps for later.{trim}");
    }
    format!(
        "{amount} are free pages: glibc gives back only what lies above the last live block of a heap, and in {} of {} \
         heaps a block of at most {} lies within {} of the end of what is resident.{trim}",
        held.len(),
        arenas.len(),
        size(largest_last),
        size(above.max(4096)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_part_has_the_word() {
        let mut sums = LedgerSums::default();
        sums.add("live", 10 << 20, "heap", "main heap");
        sums.add("free_pages", 90 << 20, "heap", "main heap");
        let heap = HeapFacts {
            name: "main heap".into(),
            resident: 100 << 20,
            top: 4096,
            free: 90 << 20,
            blocks: 9,
            last_block: 64,
        };
        let heaps = std::slice::from_ref(&heap);
        let trim = Some(90 << 20);
        let glibc = AllocatorWords { model: AllocatorModel::Glibc, knows_all: true, knows_mappings: true, trim, heaps };
        let text = why(&sums, 100 << 20, &glibc);
        assert!(text.starts_with("90.0 MiB (90.0%) are free pages"), "{text}");
        assert!(
            text.contains("in 1 of 1 heaps a block of at most 64 B") && text.ends_with("give back 90.0 MiB."),
            "{text}"
        );
        let late = why(&sums, 100 << 20, &AllocatorWords { knows_all: false, trim: None, ..glibc });
        assert!(late.contains("blocks from before recording began") && late.contains("--existing"), "{late}");
        let other = AllocatorWords { model: AllocatorModel::Jemalloc, knows_all: false, trim: None, ..glibc };
        assert!(!why(&sums, 100 << 20, &other).contains("--existing"));
        let mut sums = LedgerSums::default();
        sums.add("modules", 6 << 20, "code", "libbig.so");
        let nothing = AllocatorWords { trim: None, heaps: &[], ..glibc };
        let said = |sums: &LedgerSums| why(sums, 100 << 20, &nothing);
        assert!(said(&sums).ends_with("the program uses little memory of its own."), "{}", said(&sums));
        sums.add("modules", 60 << 20, "data", "app");
        sums.add("modules", 1 << 20, "data", "libbig.so");
        assert!(
            said(&sums).ends_with("61.0 MiB of it are static variables, most of them app's (60.0 MiB)."),
            "{}",
            said(&sums)
        );
        sums.add("other", 90 << 20, "mapping", "0x1000");
        assert!(said(&sums).starts_with("90.0 MiB (90.0%) are memory without a file that nobody"), "{}", said(&sums));
        let unknown = why(&sums, 100 << 20, &AllocatorWords { knows_mappings: false, ..nothing });
        assert!(unknown.contains("mappings were not recorded") && !unknown.contains("nobody"), "{unknown}");
        assert_eq!(why(&LedgerSums::default(), 0, &nothing), "Nothing is resident.");
    }
}
