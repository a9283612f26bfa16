//! Corpus of histories that programs have, one function each, and the verdicts that are right.

use crate::heap::{Block, Heap, TURNS};

/// A history, and what may be said of it.
pub struct Label {
    pub name: &'static str,
    pub run: fn(&mut Heap),
    /// The right `kind`s; `none` if no site needs to be named.
    pub kinds: &'static [&'static str],
}

const fn label(name: &'static str, run: fn(&mut Heap), kinds: &'static [&'static str]) -> Label {
    Label { name, run, kinds }
}

const LEAK: &[&str] = &["growing"];
const LEVEL: &[&str] = &["bounded"];
/// No growth; whether it is worth naming is a matter of taste.
const QUIET: &[&str] = &["bounded", "one_time", "unclear", "none"];

pub const CORPUS: [Label; 31] = [
    label("linear_leak", linear_leak, LEAK),
    label("leak_of_one_in_1000", leak_of_one_in_1000, LEAK),
    label("leak_below_a_queue", leak_below_a_queue, LEAK),
    label("leak_beside_a_cache", leak_beside_a_cache, LEAK),
    label("leak_below_a_big_cache", leak_below_a_big_cache, LEAK),
    label("leak_in_bursts", leak_in_bursts, LEAK),
    label("leak_that_starts_late", leak_that_starts_late, LEAK),
    label("faster_and_faster", faster_and_faster, LEAK),
    label("freed_at_exit", freed_at_exit, LEAK),
    label("freed_at_slow_exit", freed_at_slow_exit, LEAK),
    label("batches_that_keep_some", batches_that_keep_some, LEAK),
    label("batches_that_keep_nothing", batches_that_keep_nothing, QUIET),
    label("shrinking", shrinking, QUIET),
    label("lru_cache", lru_cache, LEVEL),
    label("cache_of_random_victims", cache_of_random_victims, LEVEL),
    label("cache_of_any_size", cache_of_any_size, LEVEL),
    label("slow_cache", slow_cache, LEVEL),
    label("warm_up_then_flat", warm_up_then_flat, LEVEL),
    label("table_grows_slower", table_grows_slower, LEVEL),
    label("stops_at_four_fifths", stops_at_four_fifths, LEVEL),
    label("leaks_in_one_phase", leaks_in_one_phase, LEVEL),
    label("waves_of_load", waves_of_load, QUIET),
    label("restarts", restarts, QUIET),
    label("sawtooth_queue", sawtooth_queue, QUIET),
    label("arena", arena, QUIET),
    label("pool_of_threads", pool_of_threads, QUIET),
    label("constant_churn", constant_churn, LEVEL),
    label("one_time", one_time, &["one_time"]),
    label("steps_with_marks", steps_with_marks, &["bounded", "unclear"]),
    label("doubling_vector", doubling_vector, &["bounded", "unclear", "growing"]),
    label("nothing_left", nothing_left, &["none"]),
];

fn linear_leak(heap: &mut Heap) {
    heap.turns(|heap, _| {
        heap.subject(100);
    });
}

fn leak_of_one_in_1000(heap: &mut Heap) {
    heap.turns(|heap, i| {
        for request in 0..50 {
            let block = heap.subject(256);
            if (i * 50 + request) % 1000 != 500 {
                heap.free(block);
            }
        }
    });
}

/// The queue swings between nothing and a hundred thousand bytes, and loses one block in two hundred.
fn leak_below_a_queue(heap: &mut Heap) {
    let (mut queue, mut target) = (Vec::new(), 0);
    heap.turns(|heap, _| {
        for _ in 0..20 {
            if queue.len() == target {
                target = heap.below(800) as usize;
            }
            if queue.len() < target {
                let block = heap.subject(128);
                if heap.below(200) > 0 {
                    queue.push(block);
                }
            } else if let Some(block) = queue.pop() {
                heap.free(block);
            }
        }
    });
    queue.into_iter().for_each(|block| heap.free(block));
}

/// Keeps `most` blocks of `size()`; a new one pushes a random one out.
fn replace(heap: &mut Heap, cache: &mut Vec<Block>, most: usize, size: u64) {
    let block = heap.subject(size);
    if cache.len() < most {
        cache.push(block);
    } else {
        let victim = heap.below(most as u64) as usize;
        heap.free(std::mem::replace(&mut cache[victim], block));
    }
}

/// 500 bytes a second beside 10 MiB that are replaced all the time.
fn leak_beside_a_cache(heap: &mut Heap) {
    let mut cache = Vec::new();
    heap.turns(|heap, _| {
        for _ in 0..20 {
            replace(heap, &mut cache, 640, 16 << 10);
        }
        heap.subject(250);
    });
}

/// 500 bytes a second below 100 MiB whose sizes differ by more than what leaks.
fn leak_below_a_big_cache(heap: &mut Heap) {
    let mut cache = Vec::new();
    heap.turns(|heap, _| {
        for _ in 0..40 {
            let size = (32 << 10) + heap.below(64 << 10);
            replace(heap, &mut cache, 1600, size);
        }
        heap.subject(250);
    });
}

fn leak_in_bursts(heap: &mut Heap) {
    heap.turns(|heap, i| {
        if i % (TURNS / 20) == 7 {
            for _ in 0..40 {
                heap.subject(100);
            }
        }
    });
}

fn leak_that_starts_late(heap: &mut Heap) {
    heap.turns(|heap, i| {
        if i > TURNS / 2 {
            heap.subject(100);
        }
    });
}

fn faster_and_faster(heap: &mut Heap) {
    heap.turns(|heap, i| {
        for _ in 0..i / 100 {
            heap.subject(64);
        }
    });
}

fn freed_at_exit(heap: &mut Heap) {
    let mut kept = Vec::new();
    heap.turns(|heap, _| kept.push(heap.subject(150)));
    kept.into_iter().for_each(|block| heap.free(block));
}

/// The machine makes no progress for a while in the middle of what frees.
fn freed_at_slow_exit(heap: &mut Heap) {
    let mut kept = Vec::new();
    heap.turns(|heap, _| kept.push(heap.subject(150)));
    for (at, block) in kept.into_iter().enumerate() {
        if at == TURNS as usize / 2 {
            heap.pause(TURNS / 10);
        }
        heap.free(block);
    }
}

fn batches_that_keep_some(heap: &mut Heap) {
    batches(heap, 10);
}

fn batches_that_keep_nothing(heap: &mut Heap) {
    batches(heap, 0);
}

/// Six equal batches; the first blocks of each stay for ever.
fn batches(heap: &mut Heap, keep: usize) {
    let mut batch: Vec<Block> = Vec::new();
    heap.turns(|heap, i| {
        for _ in 0..6 {
            batch.push(heap.subject(1000));
        }
        if i % (TURNS / 6) == TURNS / 6 - 1 {
            batch.drain(..).skip(keep).for_each(|block| heap.free(block));
        }
    });
}

fn shrinking(heap: &mut Heap) {
    let mut blocks: Vec<Block> = (0..TURNS).map(|_| heap.subject(500)).collect();
    heap.turns(|heap, i| {
        if i % 10 != 0
            && let Some(block) = blocks.pop()
        {
            heap.free(block);
        }
    });
}

/// Keys are drawn unevenly; the least recently used entry goes when the cache is full.
fn lru_cache(heap: &mut Heap) {
    let mut entries: Vec<(u64, Block)> = Vec::new();
    heap.turns(|heap, _| {
        for _ in 0..8 {
            let most = 1 + heap.below(2000);
            let key = heap.below(most);
            if let Some(at) = entries.iter().position(|entry| entry.0 == key) {
                let entry = entries.remove(at);
                entries.push(entry);
                continue;
            }
            let size = 200 + heap.below(100);
            let block = heap.subject(size);
            entries.push((key, block));
            if entries.len() > 300 {
                let (_, oldest) = entries.remove(0);
                heap.free(oldest);
            }
        }
    });
}

fn cache_of_random_victims(heap: &mut Heap) {
    let mut cache = Vec::new();
    heap.turns(|heap, _| (0..10).for_each(|_| replace(heap, &mut cache, 400, 4096)));
}

fn cache_of_any_size(heap: &mut Heap) {
    let mut cache = Vec::new();
    heap.turns(|heap, _| {
        for _ in 0..10 {
            let size = 100 + heap.below(20_000);
            replace(heap, &mut cache, 400, size);
        }
    });
}

/// Full after a fifth of the run; from then on it is replaced only once.
fn slow_cache(heap: &mut Heap) {
    let mut cache = Vec::new();
    heap.turns(|heap, _| {
        let size = 500 + heap.below(1000);
        replace(heap, &mut cache, TURNS as usize / 5, size);
    });
}

fn warm_up_then_flat(heap: &mut Heap) {
    heap.turns(|heap, i| {
        if i < TURNS / 4 {
            heap.subject(500);
        }
    });
}

/// Every word of a text goes into a table: new ones become rare.
fn table_grows_slower(heap: &mut Heap) {
    let mut known = vec![false; 3000];
    heap.turns(|heap, _| {
        for _ in 0..10 {
            let most = 1 + heap.below(3000);
            let word = heap.below(most) as usize;
            if !std::mem::replace(&mut known[word], true) {
                heap.subject(80);
            }
        }
    });
}

fn stops_at_four_fifths(heap: &mut Heap) {
    heap.turns(|heap, i| {
        if i < TURNS * 4 / 5 {
            heap.subject(100);
        }
    });
}

fn leaks_in_one_phase(heap: &mut Heap) {
    heap.turns(|heap, i| {
        if (TURNS / 3..TURNS / 2).contains(&i) {
            heap.subject(100);
        }
    });
}

/// Two and a quarter waves of connections, each with a buffer.
fn waves_of_load(heap: &mut Heap) {
    let mut open = Vec::new();
    heap.turns(|heap, i| {
        let phase = i as f64 / TURNS as f64 * 2.25 * std::f64::consts::TAU;
        let wanted = (200.0 * (1.2 - phase.cos())) as usize;
        while open.len() < wanted {
            open.push(heap.subject(4096));
        }
        while open.len() > wanted {
            let at = heap.below(open.len() as u64) as usize;
            heap.free(open.swap_remove(at));
        }
    });
}

/// A worker that leaks is replaced now and then, and what it had is freed.
fn restarts(heap: &mut Heap) {
    let mut kept = Vec::new();
    heap.turns(|heap, i| {
        kept.push(heap.subject(100));
        if i % (TURNS / 6) == TURNS / 6 - 30 {
            kept.drain(..).for_each(|block| heap.free(block));
        }
    });
}

fn sawtooth_queue(heap: &mut Heap) {
    let mut queue = Vec::new();
    heap.turns(|heap, i| {
        queue.push(heap.subject(300));
        if i % 50 == 49 {
            queue.drain(..).for_each(|block| heap.free(block));
        }
    });
}

/// Chunks that are all given back at the end of a round; the last round is under way when the program ends.
fn arena(heap: &mut Heap) {
    let mut chunks = Vec::new();
    heap.turns(|heap, i| {
        if i % 10 == 0 {
            chunks.push(heap.subject(65_536));
        }
        if i % 170 == 169 {
            chunks.drain(..).for_each(|block| heap.free(block));
        }
    });
}

/// Each of four threads fills a buffer of its own when it first works.
fn pool_of_threads(heap: &mut Heap) {
    heap.turns(|heap, i| {
        if [3, 5, 9, 40].contains(&i) {
            for _ in 0..20 {
                heap.subject(1000);
            }
        }
    });
}

fn constant_churn(heap: &mut Heap) {
    let mut block = heap.subject(4096);
    heap.turns(|heap, _| {
        let next = heap.subject(4096);
        heap.free(std::mem::replace(&mut block, next));
    });
}

fn one_time(heap: &mut Heap) {
    for _ in 0..10 {
        heap.subject(1000);
    }
    heap.turns(|_, _| {});
}

fn steps_with_marks(heap: &mut Heap) {
    heap.turns(|heap, i| {
        if i == TURNS / 6 || i == TURNS / 2 {
            heap.mark(if i == TURNS / 6 { "load" } else { "serve" });
            for _ in 0..100 {
                heap.subject(1000);
            }
        }
    });
}

fn doubling_vector(heap: &mut Heap) {
    let mut room = 1024;
    let mut block = heap.subject(room);
    let mut used = 0;
    heap.turns(|heap, _| {
        used += 800;
        if used > room {
            room *= 2;
            block = heap.grow(block, room);
        }
    });
}

fn nothing_left(heap: &mut Heap) {
    heap.turns(|heap, _| {
        let block = heap.subject(64);
        heap.free(block);
    });
}
