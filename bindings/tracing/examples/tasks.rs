//! A thousand tasks of ten endpoints on four workers. Each allocates, waits, goes on where a worker is free, and frees
//! half of what it has; what each endpoint allocated and kept is printed.

use std::collections::BTreeMap;
use std::sync::Mutex;

use tracing::{Instrument, info_span};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// By endpoint: blocks and bytes allocated, blocks and bytes kept.
static SUMS: Mutex<BTreeMap<String, [usize; 4]>> = Mutex::new(BTreeMap::new());

/// Sizes that nobody else asks for: a multiple of 1 MiB plus the number of the endpoint.
fn block(endpoint: usize) -> Vec<u8> {
    std::hint::black_box(Vec::with_capacity((1 << 20) + endpoint))
}

fn note(endpoint: usize, kept: bool, bytes: usize) {
    let mut sums = SUMS.lock().unwrap();
    let sum = sums.entry(format!("request /items/{endpoint}")).or_default();
    (sum[0], sum[1]) = (sum[0] + 1, sum[1] + bytes);
    if kept {
        (sum[2], sum[3]) = (sum[2] + 1, sum[3] + bytes);
    }
}

async fn handle(endpoint: usize) {
    for turn in 0..4 {
        let bytes = block(endpoint);
        note(endpoint, turn == 3, bytes.capacity());
        tokio::task::yield_now().await;
        part(endpoint).instrument(info_span!("part")).await;
        if turn == 3 {
            std::mem::forget(bytes);
        }
    }
}

async fn part(endpoint: usize) {
    let bytes = block(endpoint);
    note(endpoint, false, bytes.capacity());
    tokio::task::yield_now().await;
    drop(bytes);
}

#[tokio::main(flavor = "multi_thread", worker_threads = 4)]
async fn main() {
    let layer = tracehound_tracing::RequestLayer::of_spans("request", &["endpoint"]);
    tracing_subscriber::registry().with(layer).init();
    let request = |number: usize| {
        let endpoint = number % 10;
        let span = info_span!("request", endpoint = format!("/items/{endpoint}"), number);
        tokio::spawn(handle(endpoint).instrument(span))
    };
    let tasks: Vec<_> = (0..1000).map(request).collect();
    for task in tasks {
        task.await.unwrap();
    }
    for (name, [count, bytes, kept, kept_bytes]) in SUMS.lock().unwrap().iter() {
        println!("{count} {bytes} {kept} {kept_bytes} {name}");
    }
}
