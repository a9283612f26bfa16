//! Sums by request context: what it allocated, what is still live, and who frees it.

use super::Result;
use tracehound_api::contexts::{Contexts, RequestContext};
use tracehound_index::{Cancel, Trace};

/// Events between two looks at the cancel flag.
const CHECK: u64 = 1 << 16;

/// Lists the contexts of a recording.
///
/// # Errors
/// When cancelled.
pub fn run(trace: &Trace, cancel: &Cancel) -> Result<Contexts> {
    let mut contexts: Vec<RequestContext> = trace.context_ids().iter().map(|&id| empty(trace, id)).collect();
    let end = if contexts.is_empty() { 0 } else { trace.alloc_count() + trace.free_count() };
    let (mut row, mut ordinal) = (0, 0);
    for event in 0..end {
        if event.is_multiple_of(CHECK) {
            cancel.check()?;
        }
        if trace.is_free(event) {
            let block = trace.row_of_free(ordinal);
            let number = trace.context_of_alloc(block);
            if let Some(context) = of(&mut contexts, number) {
                let size = trace.size_of_free(ordinal);
                context.live.count = context.live.count.saturating_sub(1);
                context.live.bytes = context.live.bytes.saturating_sub(size);
                if trace.context_of_free(ordinal) != number {
                    context.freed_elsewhere.count += 1;
                    context.freed_elsewhere.bytes += size;
                }
            }
            ordinal += 1;
        } else {
            if let Some(context) = of(&mut contexts, trace.context_of_alloc(row)) {
                let size = trace.size_of(row);
                for amount in [&mut context.allocations, &mut context.live] {
                    amount.count += 1;
                    amount.bytes += size;
                }
                context.peak_bytes = context.peak_bytes.max(context.live.bytes);
            }
            row += 1;
        }
    }
    contexts.sort_by_key(|context| {
        (std::cmp::Reverse((context.live.bytes, context.allocations.bytes, context.allocations.count)), context.id)
    });
    Ok(Contexts { schema: "heaptrace.contexts/1".into(), contexts, exactness: trace.exactness() })
}

fn of(contexts: &mut [RequestContext], number: u32) -> Option<&mut RequestContext> {
    contexts.get_mut((number as usize).checked_sub(1)?)
}

fn empty(trace: &Trace, id: u64) -> RequestContext {
    RequestContext {
        id,
        name: trace.context_name(id).map(str::to_owned),
        allocations: Default::default(),
        live: Default::default(),
        freed_elsewhere: Default::default(),
        peak_bytes: 0,
    }
}
