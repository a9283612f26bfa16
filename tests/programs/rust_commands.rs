//! Child processes by std::process, with pipes in both directions and a closure before exec (which means fork).

mod counted;

use std::hint::black_box;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

#[inline(never)]
fn mine(size: usize) -> Vec<u8> {
    black_box(vec![b'x'; size])
}

fn main() {
    counted::say_counted_at_exit();
    let output = Command::new("sh").args(["-c", "echo out; echo err >&2; exit 9"]).output().unwrap();
    println!("{:?} {:?} {:?}", output.status.code(), output.stdout, output.stderr);
    let mut sort = Command::new("sort").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    sort.stdin.take().unwrap().write_all(b"b\na\nc\n").unwrap();
    println!("{:?}", sort.wait_with_output().unwrap().stdout);
    let mut forked = Command::new("sh");
    forked.args(["-c", "exit 4"]);
    unsafe { forked.pre_exec(|| Ok(())) };
    println!("{:?}", forked.status().unwrap().code());
    println!("{:?}", Command::new("/nonexistent").spawn().unwrap_err().kind());
    let kept = mine(6543);
    println!("{} letters", kept.len());
    println!("truth function mine 1 6543");
}
