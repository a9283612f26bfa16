//! What the code of the hooks may not hold on its way from the call to the return
//! (`docs/decisions/0012-malloc-to-return.md`).

use std::process::Command;

use tracehound_tests::library;

/// The instructions of every function whose name ends with `part`, by name.
fn functions(code: &str, part: &str) -> Vec<(String, Vec<String>)> {
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    let mut inside = false;
    for line in code.lines() {
        if let Some(name) = line.split_once(" <").and_then(|(_, rest)| rest.strip_suffix(">:")) {
            inside = name.ends_with(part);
            if inside {
                found.push((name.to_owned(), Vec::new()));
            }
        } else if inside
            && let Some((_, instruction)) = line.split_once(":\t")
            && let Some((_, instructions)) = found.last_mut()
        {
            instructions.push(instruction.trim().to_owned());
        }
    }
    found
}

#[test]
fn malloc_and_free_neither_lock_nor_enter_the_kernel() {
    let output = Command::new("objdump")
        .args(["-d", "--no-show-raw-insn", "-C"])
        .arg(library())
        .output()
        .expect("objdump of the package binutils runs");
    let code = String::from_utf8_lossy(&output.stdout);
    for hook in ["hooks::malloc_body", "hooks::free_body", "StackTrie::recall_any"] {
        let functions = functions(&code, hook);
        assert!(!functions.is_empty(), "there is no {hook} in the library");
        for (name, instructions) in functions {
            assert!(instructions.len() > 40, "{name} has {} instructions", instructions.len());
            for instruction in &instructions {
                let operation = instruction.split_whitespace().next().unwrap_or_default();
                let is_shared =
                    ["lock", "xchg", "xacquire", "mfence"].contains(&operation) && !instruction.contains("%ax,%ax");
                assert!(!is_shared, "{name}: {instruction}");
                assert!(!["syscall", "int", "sysenter"].contains(&operation), "{name}: {instruction}");
                assert!(!instruction.contains("tls_get_addr"), "{name}: {instruction}");
            }
            if hook == "hooks::malloc_body" {
                assert!(instructions.iter().any(|line| line.starts_with("rdtscp")), "{name} reads no clock");
            }
        }
    }
}
