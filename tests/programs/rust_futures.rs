//! A hand-made executor over boxed futures: tasks wake one another, values are moved between stacks.

mod counted;

use std::collections::VecDeque;
use std::future::Future;
use std::hint::black_box;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

type Task = Pin<Box<dyn Future<Output = usize> + Send>>;

struct Ready(Mutex<VecDeque<usize>>);

struct Signal {
    task: usize,
    ready: Arc<Ready>,
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.ready.0.lock().unwrap().push_back(self.task);
    }
}

struct Yield(bool);

impl Future for Yield {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

#[inline(never)]
fn across_await(size: usize) -> Vec<u8> {
    black_box(vec![1; size])
}

async fn work(turns: usize) -> usize {
    let mut sum = 0;
    for _ in 0..turns {
        let block = across_await(1800);
        Yield(false).await;
        sum += block.len();
    }
    sum
}

fn main() {
    counted::say_counted_at_exit();
    let ready = Arc::new(Ready(Mutex::new((0..200).collect())));
    let mut tasks: Vec<Option<Task>> = (0..200).map(|i| Some(Box::pin(work(i % 10)) as Task)).collect();
    let mut sum = 0;
    while let Some(number) = { ready.0.lock().unwrap().pop_front() } {
        let Some(task) = tasks[number].as_mut() else { continue };
        let waker = Waker::from(Arc::new(Signal { task: number, ready: Arc::clone(&ready) }));
        if let Poll::Ready(value) = task.as_mut().poll(&mut Context::from_waker(&waker)) {
            sum += value;
            tasks[number] = None;
        }
    }
    println!("sum {sum}");
    println!("truth function across_await 900 {}", 900 * 1800);
    println!("truth leaked across_await 0 0");
}
