//! Processes: whatever a program does to make, replace, leave or end a process, it does as without us, and the
//! recording of the first process is its own alone.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;
use tracehound_tests::ground_truth::{Case, agrees};
use tracehound_tests::ledger::{Ledger, amount};
use tracehound_tests::{compile, functions, heaptrace, json, library, number, trace, wait_for};

#[test]
fn children_by_fork_are_neither_recorded_nor_harmed() {
    agrees("fork_plain.c", &[]);
}

#[test]
fn forty_forks_while_threads_allocate() {
    agrees("fork_storm.c", &[]);
}

#[test]
fn fork_from_a_thread() {
    agrees("fork_in_thread.c", &[]);
}

#[test]
fn fork_handlers_may_allocate() {
    agrees("atfork.c", &[]);
}

#[test]
fn vfork_borrows_the_parents_memory() {
    agrees("vfork.c", &[]);
}

/// The child has an id of its own, which is gone when the thread goes on that has lent it everything.
#[test]
fn a_thread_whose_first_event_is_its_vforked_childs_is_recorded_to_its_end() {
    agrees("vfork_first.c", &[]);
    agrees("vfork_first.c", &["exec"]);
}

#[test]
fn processes_by_bare_system_calls() {
    agrees("clone_raw.c", &[]);
}

#[test]
fn spawn_system_and_popen() {
    let run = agrees("spawn.c", &[]);
    assert_eq!(run.traced.recordings().len(), 1);
}

#[test]
fn commands_in_rust() {
    agrees("rust_commands.rs", &[]);
}

#[test]
fn exec_ends_the_recording_and_is_not_followed() {
    let run = Case::new("exec_self.c").ends("exec").agrees();
    assert_eq!(run.traced.recordings().len(), 1);
}

#[test]
fn exec_leaves_other_preloaded_libraries() {
    let other = compile("plugin.c", &["-shared", "-fPIC", "-DNAME=one", "-DSIZE=3000"]);
    let (_, traced) = Case::new("exec_self.c").preloads(&other).unharmed();
    assert!(traced.printed().contains(&other.display().to_string()), "{}", traced.stdout);
    let (_, traced) = Case::new("exec_self.c").preloads_first(&other).unharmed();
    assert!(traced.printed().contains(&other.display().to_string()), "{}", traced.stdout);
}

#[test]
fn exec_from_a_thread_while_another_allocates() {
    Case::new("exec_self.c").args(&["thread"]).ends("exec").agrees();
}

#[test]
fn an_exec_that_fails_changes_nothing() {
    agrees("exec_fails.c", &[]);
    Case::new("exec_fails.c").option("CHILDREN", "1").agrees();
}

#[test]
fn a_followed_exec_has_a_recording_of_its_own() {
    let case = Case::new("exec_self.c").option("CHILDREN", "1");
    let run = case.run(true);
    assert_eq!(run.status.code(), Some(21), "{}", run.stderr);
    let recordings = run.recordings();
    assert_eq!(recordings.len(), 2, "{recordings:?}");
    let ends: Vec<String> =
        recordings.iter().map(|path| json(&["info"], path)["end"].as_str().unwrap_or("").to_owned()).collect();
    for end in ["exec", "exit"] {
        let at = ends.iter().position(|e| e == end).unwrap_or_else(|| panic!("no recording ends by {end}: {ends:?}"));
        case.sound(&recordings[at], end);
        let ledger = Ledger::of(&recordings[at]);
        let (before, after) = (ledger.through("before_exec").0, ledger.through("after_exec").0);
        assert_eq!((before, after), if end == "exec" { (1, 0) } else { (0, 1) });
    }
}

#[test]
fn a_followed_fork_has_a_recording_of_its_own() {
    let case = Case::new("fork_follow.c").option("CHILDREN", "1");
    let run = case.agrees();
    let others: Vec<_> = run.traced.recordings().into_iter().filter(|path| *path != run.recording).collect();
    assert_eq!(others.len(), 2, "{others:?}");
    let infos: Vec<_> = others.iter().map(|path| case.sound(path, "exit")).collect();
    let child = usize::from(infos[0]["process"]["parent_pid"] != run.traced.pid);
    let (child_info, grandchild_info) = (&infos[child], &infos[1 - child]);
    assert_eq!(child_info["process"]["parent_pid"], run.traced.pid);
    assert_eq!(grandchild_info["process"]["parent_pid"], child_info["process"]["pid"]);

    let ledger = Ledger::of(&others[child]);
    ledger.assert_agrees(child_info, &json(&["leaks"], &others[child]), "the child");
    assert_eq!(ledger.through("in_child"), (150, 100 * 900 + 50 * 901));
    // What it inherited is live at its start, with the parent's backtraces; half of it is freed.
    assert_eq!(ledger.through("in_parent"), (40, 32000));
    let leaks = json(&["leaks"], &others[child]);
    let leaked: u64 = leaks["sites"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|site| functions(&site["stack"]).contains(&"in_parent".to_owned()))
        .map(|site| number(site, "/count"))
        .sum();
    assert_eq!(leaked, 20);

    let ledger = Ledger::of(&others[1 - child]);
    ledger.assert_agrees(grandchild_info, &json(&["leaks"], &others[1 - child]), "the grandchild");
    assert_eq!(ledger.through("in_grandchild"), (10, 9500));
    assert_eq!(ledger.through("in_parent"), (20, 16000));
}

#[test]
fn a_followed_shell_records_every_process_it_starts() {
    let script = "x=$(echo one | tr a-z A-Z); (exit 3); echo $x $?; ls / | sort -r | head -n 1 >/dev/null; exit 6";
    let case = Case::command("/bin/bash").args(&["-c", script]).option("CHILDREN", "1");
    let (_, traced) = case.unharmed();
    let recordings = traced.recordings();
    assert!(recordings.len() >= 6, "{recordings:?}");
    for recording in &recordings {
        let info = json(&["info"], recording);
        assert_eq!(info["complete"], true, "{info:#}");
        assert_eq!(number(&info, "/recorder/unmatched_frees"), 0, "{info:#}");
    }
    for name in ["-tr-", "-ls-", "-sort-", "-head-"] {
        assert!(recordings.iter().any(|path| path.to_string_lossy().contains(name)), "{name}: {recordings:?}");
    }
}

#[test]
fn underscore_exit_ends_all_threads() {
    Case::new("exit_with_threads.c").args(&["_exit"]).agrees();
}

#[test]
fn underscore_capital_exit_ends_all_threads() {
    Case::new("exit_with_threads.c").args(&["_Exit"]).agrees();
}

#[test]
fn exit_with_threads_alive() {
    Case::new("exit_with_threads.c").args(&["exit"]).agrees();
}

#[test]
fn return_from_main_with_threads_alive() {
    Case::new("exit_with_threads.c").args(&["return"]).agrees();
}

#[test]
fn quick_exit_runs_its_handlers() {
    Case::new("exit_with_threads.c").args(&["quick_exit"]).agrees();
}

#[test]
fn the_bare_exit_system_call_loses_nothing() {
    Case::new("exit_with_threads.c").args(&["syscall"]).agrees();
}

/// The recorder's thread, which is left, ends with the program's.
#[test]
fn threads_that_end_by_the_system_call_end_the_process() {
    for way in ["only", "both", "returns", "gone", "bare"] {
        Case::new("exit_thread_by_number.c").args(&[way]).agrees();
    }
}

#[test]
fn pthread_exit_of_the_first_thread() {
    Case::new("exit_with_threads.c").args(&["pthread_exit"]).agrees();
}

#[test]
fn fatal_signals_stay_fatal_and_lose_nothing() {
    // SIGHUP, SIGINT, SIGQUIT, SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGUSR1, SIGSEGV, SIGPIPE, SIGALRM, SIGTERM
    for signal in [1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 13, 14, 15, 31, 34, 64] {
        Case::new("fatal.c").args(&[signal.to_string()]).ends("killed").agrees();
    }
}

#[test]
fn handlers_of_fatal_signals_may_allocate() {
    for signal in [4, 6, 11, 15] {
        Case::new("fatal.c").args(&[signal.to_string().as_str(), "handled"]).ends("killed").agrees();
    }
}

#[test]
fn a_core_dump_is_still_written() {
    // The exit status that is compared says whether there was one.
    Case::new("core.c").ends("killed").agrees();
}

#[test]
fn a_daemon_closes_everything_and_works() {
    let run = agrees("daemonise.c", &[]);
    assert_eq!(run.traced.recordings().len(), 1);
}

#[test]
fn closing_every_descriptor_leaves_the_recording_whole() {
    agrees("close_all.c", &[]);
}

#[test]
fn descriptors_taken_over_by_the_program_are_its_own() {
    agrees("dup_over.c", &["500"]);
    // At once, before anything else has happened.
    for _ in 0..20 {
        agrees("dup_over.c", &["1"]);
    }
}

#[test]
fn chroot_and_setuid_leave_the_recording_whole() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("only root may chroot");
        return;
    }
    agrees("privileges.c", &["chroot"]);
    Case::new("privileges.c").args(&["setuid"]).side_file_stays().agrees();
}

#[test]
fn another_or_no_working_folder() {
    agrees("privileges.c", &["chdir"]);
    agrees("privileges.c", &["remove"]);
}

#[test]
fn a_renamed_folder_takes_its_recording_with_it() {
    let case = Case::new("privileges.c").args(&["rename"]).after("mkdir inner && cd inner");
    let (_, traced) = case.unharmed();
    let renamed = traced.folder.path().join("inner-renamed");
    let found: Vec<_> = std::fs::read_dir(&renamed).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(found.len(), 1, "{found:?}; {}", traced.stderr);
    let info = case.sound(&found[0], "exit");
    assert_eq!(number(&info, "/allocations/bytes"), 444_000);
}

#[test]
fn a_limited_address_space_is_the_programs_own() {
    agrees("limits.c", &["as"]);
}

#[test]
fn few_descriptors_are_enough_for_us() {
    Case::new("limits.c").args(&["nofile"]).after("ulimit -n 32").agrees();
}

#[test]
fn a_limit_on_file_size_stops_the_recording_not_the_program() {
    let (_, traced) = Case::new("limits.c").args(&["fsize"]).any_stderr().unharmed();
    let recordings = traced.recordings();
    assert_eq!(recordings.len(), 1, "{recordings:?}; {}", traced.stderr);
    let info = json(&["info"], &recordings[0]);
    assert_eq!(info["complete"], false, "{info:#}");
    assert!(number(&info, "/allocations/count") > 0, "{info:#}");
    assert_eq!(traced.stderr.lines().count(), 1, "{}", traced.stderr);
}

#[test]
fn the_programs_surroundings_are_as_without_us() {
    Case::new("quiet.c").args(&["argument"]).agrees();
    // Closed standard streams stay closed, an open mask does not open the recording.
    Case::new("quiet.c").after("exec <&- 2>&-; umask 000").agrees();
}

#[test]
fn a_sandbox_of_few_system_calls() {
    // The recorder cannot write any more: what it has in memory at least is there, and that it had to stop is said.
    let (_, traced) = Case::new("seccomp.c").any_stderr().unharmed();
    let info = json(&["info"], &traced.recordings()[0]);
    let whole = (amount(&info, "/allocations"), number(&info, "/events/free")) == ((20_500, 8_150_000), 10_500);
    assert!(number(&info, "/allocations/count") >= 500, "{info:#}");
    assert_eq!(info["complete"], false, "{info:#}");
    assert!(whole || traced.stderr.contains("tracehound"), "silent loss: {info:#}");
}

#[test]
fn a_sandbox_that_kills_ends_the_recording_and_not_the_program() {
    for how in ["kill", "strict"] {
        let (_, traced) = Case::new("seccomp.c").args(&[how]).warns("seccomp").unharmed();
        let info = json(&["info"], &traced.recordings()[0]);
        assert_eq!(info["end"], "stopped", "{how}: {info:#}");
        let before = if how == "kill" { 500 } else { 1 };
        assert_eq!(number(&info, "/allocations/count"), before, "{how}: {info:#}");
        assert_eq!(number(&info, "/events/lost"), 0, "{how}: {info:#}");
        assert!(info["remarks"].to_string().contains("seccomp"), "{how}: {info:#}");
    }
}

#[test]
fn a_thread_that_may_not_read_the_counter_goes_on_unrecorded() {
    let (_, traced) = Case::new("no_counter.c").warns("time-stamp counter").unharmed();
    let info = json(&["info"], &traced.recordings()[0]);
    assert_eq!(info["end"], "stopped", "{info:#}");
    assert_eq!(number(&info, "/allocations/count"), 100, "{info:#}");
    assert!(info["remarks"].to_string().contains("time-stamp counter"), "{info:#}");
}

#[test]
fn filters_that_the_kernel_refuses_are_refused_and_no_more() {
    Case::new("seccomp.c").args(&["refused"]).agrees();
}

#[test]
fn namespaces_are_left_and_entered() {
    Case::new("namespaces.c").agrees();
    Case::new("namespaces.c").args(&["by number"]).agrees();
}

/// The C library ends a process in which a thread answers otherwise, and the recorder's is one.
#[test]
fn users_and_groups_change_with_capabilities_kept_and_dropped() {
    for order in ["kept", "dropped", "raised", "alone", "effective"] {
        // Who has given up its rights may not remove the file.
        Case::new("credentials.c").args(&[order]).side_file_stays().agrees();
    }
}

/// What a program sets is its own: it has as much memory as without the recorder, reads back what it has set, and so does
/// what it starts; what it locks is what it has.
#[test]
fn a_program_limits_and_locks_its_own_memory() {
    for way in ["addresses", "data", "process", "locked", "small"] {
        Case::new("memory_limits.c").args(&[way]).agrees();
    }
}

/// How much memory a program gets, in MiB, under a limit that a shell has set before, and what was said.
fn left_under(limit: &str, preload: &str) -> (u64, String, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let script = format!("ulimit {limit} && exec env LD_PRELOAD={preload} {}", compile("memory_left.c", &[]).display());
    let output = Command::new("sh").args(["-c", &script]).current_dir(folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{limit}: {:?}, {said}", output.status);
    (String::from_utf8_lossy(&output.stdout).trim().parse().unwrap(), said, folder)
}

#[test]
fn a_limit_from_before_the_start_is_the_programs() {
    let library = library();
    // The library itself has 17 MiB of addresses, and what it has needed to find out.
    const LOADED: u64 = 28;
    for kibibytes in [22_000_u64, 40_000, 100_000, 200_000, 1_000_000, 4_000_000] {
        for what in ["v", "d", "Sv", "Sd"] {
            let limit = format!("-{what} {kibibytes}");
            let (plain, _, _) = left_under(&limit, "");
            let (left, said, folder) = left_under(&limit, library.to_str().unwrap());
            let is_recorded = std::fs::read_dir(folder.path()).unwrap().next().is_some();
            println!(
                "{limit}: {plain} MiB, with the recorder {left}, {}",
                if is_recorded { "recorded" } else { "not" }
            );
            if is_recorded {
                // A hard limit is raised by root alone.
                let least = if what.starts_with('S') { plain } else { plain * 2 / 3 };
                assert!(left >= least && said.is_empty(), "{limit}: {plain} MiB, then {left}: {said}");
            } else {
                assert!(said.lines().count() == 1 && said.contains("runs unrecorded"), "{limit}: {said}");
                assert!(left + LOADED >= plain, "{limit}: {plain} MiB, then {left}");
                assert!(!what.starts_with('S'), "{limit}: a soft limit makes room");
            }
        }
    }
}

/// No handler of forks runs for them: they are not recorded, and the parent's recording says so where children are followed.
#[test]
fn children_made_by_system_calls_are_missed_aloud() {
    let remarks = |case: Case| {
        let run = case.agrees();
        assert_eq!(run.traced.recordings().len(), 1);
        let info = json(&["info"], &run.recording);
        info["remarks"].as_array().unwrap().iter().filter(|remark| remark["topic"] == "unfollowed-child").count()
    };
    for how in ["syscall", "clone", "_Fork"] {
        assert_eq!(remarks(Case::new("fork_by_number.c").args(&[how]).option("CHILDREN", "1")), 1, "{how}");
        assert_eq!(remarks(Case::new("fork_by_number.c").args(&[how])), 0, "{how}");
    }
}

#[test]
fn a_child_that_is_linked_statically_is_said() {
    let child = compile("five.c", &["-static"]);
    let python = format!("import subprocess; subprocess.run(['{}'])", child.display());
    let shell = format!("{} && true", child.display());
    for starter in [["/bin/bash", "-c", &shell], ["/usr/bin/python3", "-c", &python]] {
        let case = Case::command(starter[0]).args(&starter[1..]).option("CHILDREN", "1");
        let run = case.run(true);
        assert!(run.status.success(), "{}", run.stderr);
        let remarks: Vec<String> =
            run.recordings().iter().map(|path| json(&["info"], path)["remarks"].to_string()).collect();
        let said = format!("{} is linked statically", child.display());
        assert!(remarks.iter().any(|remarks| remarks.contains(&said)), "{starter:?}: {remarks:?}");
    }
    let dynamic = compile("five.c", &[]);
    let run = Case::command("/bin/bash")
        .args(&["-c", &format!("{} && true", dynamic.display())])
        .option("CHILDREN", "1")
        .run(true);
    let mut infos = run.recordings().into_iter().map(|path| json(&["info"], &path)["remarks"].to_string());
    assert!(infos.all(|remarks| !remarks.contains("unfollowed-child")));
}

/// A program that only starts others, by each way that there is, and what its recordings say of those; its standard error.
fn unfollowed(program: &str, how: &str) -> (Vec<String>, String) {
    let run = Case::new("start_other.c").args(&[how, program]).option("CHILDREN", "1").run(true);
    assert!(run.status.success(), "{how} {program}: {}", run.stderr);
    let said = run.recordings().iter().flat_map(|path| unfollowed_programs(path)).collect();
    (said, run.stderr)
}

/// What a recording says of programs that have none.
fn unfollowed_programs(recording: &Path) -> Vec<String> {
    let info = json(&["info"], recording);
    let remarks = info["remarks"].as_array().unwrap().iter().filter(|remark| remark["topic"] == "unfollowed-child");
    remarks.map(|remark| remark["text"].as_str().unwrap().to_owned()).collect()
}

const WAYS: [&str; 6] = ["execve", "vfork", "spawn", "fexecve", "execveat", "script"];

/// The loader of a 32-bit program cannot load the recorder, and would say so on the program's standard error.
#[test]
fn a_child_that_is_a_32_bit_program_is_said_and_sees_nothing_of_it() {
    let child = compile("five.c", &["-m32"]);
    let child = child.to_str().unwrap();
    for how in WAYS {
        let (said, stderr) = unfollowed(child, how);
        assert_eq!(said.len(), 1, "{how}: {said:?}");
        assert!(said[0].starts_with(child) && said[0].contains("is a 32-bit program"), "{how}: {said:?}");
        assert!(!stderr.contains("ld.so"), "{how}: {stderr}");
    }
}

#[test]
fn the_first_programs_that_cannot_be_followed_are_named_and_others_said() {
    let child = compile("five.c", &["-static"]);
    let folder = tempfile::tempdir().unwrap();
    let script = format!(
        "import shutil, subprocess\nfor number in range(20):\n    subprocess.run([shutil.copy('{}', f'{}/{{number}}')])",
        child.display(),
        folder.path().display()
    );
    let run = Case::command("/usr/bin/python3").args(&["-c", &script]).option("CHILDREN", "1").run(true);
    assert!(run.status.success(), "{}", run.stderr);
    let texts: Vec<String> = run.recordings().iter().flat_map(|path| unfollowed_programs(path)).collect();
    let named = texts.iter().filter(|text| text.contains("is linked statically")).count();
    let others = texts.iter().filter(|text| text.contains("only the first 16 are named")).count();
    assert_eq!((named, others), (16, 1), "{texts:?}");
}

/// The kernel refuses arguments of this length, after the recorder has looked at the program.
#[test]
fn a_program_that_could_not_be_followed_and_did_not_start_is_no_child() {
    let child = compile("five.c", &["-static"]);
    let child = child.to_str().unwrap();
    for (how, count) in [("own_too_long", 2), ("vfork_too_long", 2), ("spawn_too_long", 0)] {
        let (said, _) = unfollowed(child, how);
        assert_eq!(said.len(), count, "{how}: {said:?}");
        if let Some(last) = said.last() {
            let expected = format!("exec failed (error {}), so that this did not start: {}", libc::E2BIG, said[0]);
            assert_eq!(*last, expected, "{how}");
        }
    }
}

#[test]
fn a_child_that_gains_rights_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let child = folder.path().join("gains");
    std::fs::copy(compile("five.c", &[]), &child).unwrap();
    assert!(Command::new("chown").arg("nobody").arg(&child).status().unwrap().success(), "tests run as root");
    let child = child.to_str().unwrap();
    let mode = |mode: u32| std::fs::set_permissions(child, std::fs::Permissions::from_mode(mode)).unwrap();
    mode(0o755);
    assert_eq!(unfollowed(child, "execve").0, Vec::<String>::new());
    mode(0o4755);
    for how in WAYS {
        let (said, _) = unfollowed(child, how);
        assert_eq!(said.len(), 1, "{how}: {said:?}");
        assert!(said[0].starts_with(child) && said[0].contains("gains rights"), "{how}: {said:?}");
    }
    // The kernel takes no notice of the bit then, so the child is recorded.
    assert_eq!(unfollowed(child, "no_new_privs").0, Vec::<String>::new());
}

#[test]
fn what_a_shell_starts_after_the_recorder_was_removed_from_the_environment_is_said() {
    for how in ["system", "popen", "clearenv"] {
        let (said, _) = unfollowed("/bin/true", how);
        assert_eq!(said.len(), 1, "{how}: {said:?}");
        assert!(said[0].contains("removed the recorder from LD_PRELOAD"), "{how}: {said:?}");
    }
    assert_eq!(unfollowed("/bin/true", "system_as_it_is").0, Vec::<String>::new());
}

#[test]
fn an_end_by_a_system_call_of_the_programs_own_is_no_kill() {
    for (how, end) in [("execve", "exec"), ("execveat", "exec"), ("exit_group", "exit")] {
        Case::new("end_by_number.c").args(&[how]).ends(end).agrees();
    }
}

#[test]
fn a_program_with_as_many_mappings_as_it_may_have_ends_as_it_does_alone() {
    Case::new("mappings_until_none.c").any_stderr().agrees();
}

/// A program that may not write files any more: its recording stops, and says that something is missing.
#[test]
fn a_program_that_forbids_itself_files_has_a_recording_that_says_so() {
    let traced = trace(compile("no_files.c", &["-O1"]), &[], &[]);
    assert_eq!(traced.output.status.code(), Some(5), "{}", traced.stderr());
    assert!(traced.stderr().contains("the program goes on"), "{}", traced.stderr());
    let info = traced.info();
    assert_eq!((&info["end"], &info["complete"]), (&"disk_full".into(), &false.into()), "{info:#}");
    let remarks = info["remarks"].as_array().unwrap();
    assert!(remarks.iter().any(|remark| remark["topic"] == "write-error"), "{remarks:?}");
}

#[test]
fn served_by_the_bundled_allocator() {
    for program in ["family.c", "edges.c", "realloc_chain.c", "threads_short.c"] {
        Case::new(program).option("ALLOCATOR", "jemalloc").agrees();
    }
}

#[test]
fn a_program_that_takes_all_the_address_space_works_on() {
    // With what is left the recorder may stop recording, in one line; it may not disturb the program.
    let case = Case::new("out_of_memory.c").any_stderr();
    for _ in 0..4 {
        let (_, traced) = case.unharmed();
        assert!(traced.stderr.lines().count() <= 1, "{}", traced.stderr);
        let info = json(&["info"], &traced.recordings()[0]);
        assert!(info["end"] == "exit" || info["end"] == "disk_full", "{info:#}");
        assert!(number(&info, "/events/alloc") > 100, "{info:#}");
    }
}

/// A daemon outlives what `heaptrace run` waits for, and has left its parents.
#[test]
fn daemons_are_recorded_as_children_or_missed_aloud() {
    let program = compile("daemon.c", &["-O1"]);
    let run = |options: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new(heaptrace());
        command.arg("run").args(options).args(["-o", "r-%p.dat", "--"]).arg(&program).current_dir(folder.path());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        (folder, String::from_utf8(output.stderr).unwrap())
    };
    let stop = |folder: &TempDir| std::fs::write(folder.path().join("stop"), "").unwrap();
    let (folder, said) = run(&[]);
    assert!(said.contains("runs on and is not recorded"), "{said}");
    stop(&folder);

    let (folder, said) = run(&["--children"]);
    let recordings = || {
        let entries = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.extension().is_some_and(|end| end == "dat")).collect::<Vec<_>>()
    };
    assert!(said.contains(&format!("made {} recordings", recordings().len())), "{said}");
    assert!(!said.contains("runs on"), "{said}");
    stop(&folder);
    wait_for("the daemon's end", Duration::from_secs(30), || {
        recordings().iter().any(|path| {
            let info = json(&["info"], path);
            number(&info, "/allocations/count") == 100 && info["end"] == "exit"
        })
    });
}
