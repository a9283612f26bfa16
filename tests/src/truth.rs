//! What a line of ground truth means, and whether a recording agrees with it.
//!
//! The lines that a program prints (`tests/programs/truth.h`):
//!
//! ```text
//! truth total ALLOCS BYTES FREES REALLOCS LIVE LIVE_BYTES   of the whole process
//! truth own   ALLOCS BYTES FREES REALLOCS LIVE LIVE_BYTES   of blocks that the executable itself asked for
//! truth counted ALLOCS BYTES FREES REALLOCS LIVE LIVE_BYTES of blocks that passed through the allocator of
//! `counted.rs`
//! truth function NAME COUNT BYTES     allocations with NAME in their backtrace
//! truth leaked NAME COUNT BYTES       of these, what lives at the end
//! truth frees NAME COUNT              frees with NAME in their backtrace
//! truth size SIZE COUNT               allocations of that size
//! truth stack SIZE NAME NAME…         allocations of that size have these callers, leaf first, one right after the other
//! truth callers SIZE NAME NAME…       the same, anywhere in the backtrace
//! truth recursion SIZE NAME COUNT     allocations of that size have so many frames of NAME
//! truth name SIZE NAME                allocations of that size are by a thread of that name
//! truth threads COUNT                 threads that made an event
//! truth event KIND SIZE COUNT         map, unmap and remap events of that length
//! truth events KIND COUNT             events of that kind
//! truth mark LABEL                    the recording has that mark
//! ```

use serde_json::Value;

use crate::ledger::{Block, Ledger, is_called, sum};
use crate::number;

/// Checks one line of ground truth, split into words.
pub(crate) fn check(ledger: &Ledger, info: &Value, module: &str, words: &[&str]) -> Result<(), String> {
    let number_at = |at: usize| -> u64 {
        let word = words.get(at).unwrap_or_else(|| panic!("word {at} is missing in {words:?}"));
        word.parse().unwrap_or_else(|_| panic!("{word} is no number in {words:?}"))
    };
    let same = |found: &[u64], from: usize| {
        let expected: Vec<u64> = (from..words.len()).map(number_at).collect();
        if found == expected { Ok(()) } else { Err(format!("the recording says {found:?}")) }
    };
    let sized = || ledger.blocks.iter().filter(|block| block.size == number_at(1));
    let stack = |block: &Block| &ledger.stacks[block.stack];
    match words[0] {
        scope @ ("total" | "own" | "counted") => {
            let is_mine = |block: &&Block| match scope {
                "own" => stack(block).frames.first().is_some_and(|leaf| leaf.module == module),
                "counted" => stack(block).mentions("counted::Counted"),
                _ => true,
            };
            let mine: Vec<&Block> = ledger.blocks.iter().filter(is_mine).collect();
            let (count, bytes) = sum(mine.iter().copied());
            let (live, live_bytes) = sum(mine.iter().copied().filter(|block| block.live));
            let reallocs = mine.iter().filter(|block| block.by_realloc).count() as u64;
            let freed = mine.iter().filter(|block| !block.live && !block.ended_by_realloc).count() as u64;
            same(&[count, bytes, freed, reallocs, live, live_bytes], 1)
        }
        "function" => {
            let (count, bytes) = ledger.through(words[1]);
            same(&[count, bytes], 2)
        }
        "leaked" => {
            let (count, bytes) = sum(ledger.live().filter(|block| stack(block).count(words[1]) > 0));
            same(&[count, bytes], 2)
        }
        "frees" => {
            let through = ledger.frees.iter().filter(|&&free| ledger.stacks[free].count(words[1]) > 0);
            same(&[through.count() as u64], 2)
        }
        "size" => same(&[sized().count() as u64], 2),
        place @ ("stack" | "callers") => every(sized(), |block| {
            let names = stack(block).names();
            let callers = &words[2..];
            let fits = |names: &[&str]| names.iter().zip(callers).all(|(name, wanted)| is_called(name, wanted));
            let mut places = names.windows(callers.len());
            let found = if place == "stack" { places.next().is_some_and(fits) } else { places.any(fits) };
            if found { Ok(()) } else { Err(names) }
        }),
        "recursion" => every(sized(), |block| {
            let depth = stack(block).count(words[2]) as u64;
            if depth == number_at(3) { Ok(()) } else { Err(format!("{depth} frames")) }
        }),
        "name" => every(sized(), |block| {
            let name = ledger.names.get(&block.thread);
            if name.is_some_and(|name| *name == words[2..].join(" ")) { Ok(()) } else { Err(name) }
        }),
        "threads" => same(&[number(info, "/threads")], 1),
        "event" => {
            let key = (words[1].to_owned(), number_at(2));
            same(&[ledger.mapped.get(&key).copied().unwrap_or(0)], 3)
        }
        "events" => same(&[ledger.kinds.get(words[1]).copied().unwrap_or(0)], 2),
        "mark" => {
            let label = words[1..].join(" ");
            if ledger.marks.contains(&label) { Ok(()) } else { Err(format!("the marks are {:?}", ledger.marks)) }
        }
        other => panic!("the harness knows no truth about {other}"),
    }
}

/// All blocks, of which there must be some, pass the test.
fn every<'a, E: std::fmt::Debug>(
    blocks: impl Iterator<Item = &'a Block>,
    test: impl Fn(&Block) -> Result<(), E>,
) -> Result<(), String> {
    let mut tested = 0;
    for block in blocks {
        test(block).map_err(|found| format!("one of the blocks has {found:?}"))?;
        tested += 1;
    }
    if tested == 0 { Err("there is no such block".to_owned()) } else { Ok(()) }
}
