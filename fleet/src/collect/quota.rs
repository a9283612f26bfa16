//! Quotas of a spool: what the store has is given back to the disk; when that is not enough, because the store is away
//! or slower than the programs write, recordings are ended, the one with most unshipped bytes first. Bytes that the
//! store lacks are never deleted.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use tokio::task::JoinSet;
use tracehound_api::units::bytes;

use super::status::CollectorStatus;
use crate::source::LocalRecording;

/// One recording more is ended each time when the spool has grown by this part of its quota since the last one.
const STEPS: u64 = 16;

/// How a look at a recording's share came out.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SpoolShare {
    path: PathBuf,
    unshipped: u64,
}

/// Most bytes that a spool and a recording may have, and what was done to keep to that.
pub struct SpoolQuota {
    /// Most bytes of the spool.
    spool: Option<u64>,
    /// Most bytes of one recording that the store lacks.
    each: Option<u64>,
    /// Recordings whose end was asked for.
    asked: HashSet<PathBuf>,
    /// Unshipped bytes from which on one more is ended.
    next: u64,
    ends: JoinSet<(PathBuf, Result<()>)>,
    /// Whether a recording has not ended yet whose end was asked for.
    is_ending: bool,
}

impl SpoolQuota {
    /// Quotas as they were given.
    pub fn new(spool: Option<u64>, each: Option<u64>) -> Self {
        Self { spool, each, asked: HashSet::new(), next: spool.unwrap_or(0), ends: JoinSet::new(), is_ending: false }
    }

    /// Enforces the quotas, or reports that this is not possible.
    pub fn keep(&mut self, sources: &mut HashMap<PathBuf, LocalRecording>, store: &str, status: &Arc<CollectorStatus>) {
        self.give_back(sources, store, status);
        self.asked.retain(|path| sources.contains_key(path));
        let shares: Vec<SpoolShare> = sources
            .iter()
            .map(|(path, source)| SpoolShare { path: path.clone(), unshipped: source.unshipped() })
            .collect();
        // A process is looked for only where its recording may be ended.
        let is_running = |path: &Path| sources.get(path).is_some_and(|source| source.process().is_some());
        self.is_ending = !self.ends.is_empty();
        for (path, why) in self.due(shares, &is_running) {
            let Some(pid) = sources.get(&path).and_then(LocalRecording::process) else { continue };
            status.ended_for_quota(&format!("{}: {why}: its recording is ended", path.display()));
            self.ends.spawn_blocking(move || (path, end_recording(pid, &why)));
        }
        while let Some(done) = self.ends.try_join_next() {
            if let Ok((path, Err(error))) = done {
                status.error(&format!("{}: its recording could not be ended: {error:#}", path.display()));
            }
        }
    }

    /// Gives back what the store has, of the largest recordings first, until the quota is kept.
    fn give_back(&self, sources: &mut HashMap<PathBuf, LocalRecording>, store: &str, status: &CollectorStatus) {
        let mut sizes: Vec<(u64, PathBuf)> =
            sources.iter().map(|(path, source)| (source.allocated(), path.clone())).collect();
        let mut all: u64 = sizes.iter().map(|(bytes, _)| bytes).sum();
        status.spool(all);
        let Some(quota) = self.spool else { return };
        sizes.sort();
        while all > quota
            && let Some((_, path)) = sizes.pop()
        {
            let Some(source) = sources.get_mut(&path) else { continue };
            match source.punch(store) {
                Ok(bytes) => {
                    all = all.saturating_sub(bytes);
                    status.given_back(bytes);
                }
                Err(error) => status.error(&format!("{}: {error:#}", path.display())),
            }
        }
        status.spool(all);
        if all > quota {
            // Nothing is deleted that was not shipped.
            status.over_quota();
        }
    }

    /// Recordings that are to be ended now, and why.
    fn due(&mut self, mut shares: Vec<SpoolShare>, is_running: &dyn Fn(&Path) -> bool) -> Vec<(PathBuf, String)> {
        let all: u64 = shares.iter().map(|share| share.unshipped).sum();
        shares.sort_by(|a, b| (b.unshipped, &a.path).cmp(&(a.unshipped, &b.path)));
        let mut found = Vec::new();
        for share in &shares {
            let Some(most) = self.each.filter(|&most| share.unshipped > most) else { break };
            if !self.asked.contains(&share.path) && is_running(&share.path) {
                let has = bytes(share.unshipped);
                found.push((
                    share.path.clone(),
                    format!("{has} of it are not in the store, its quota is {}", bytes(most)),
                ));
                self.asked.insert(share.path.clone());
            }
        }
        let Some(quota) = self.spool else { return found };
        if all <= quota {
            self.next = quota;
            return found;
        }
        if self.is_ending {
            // Until its end is in its file a recording grows on, and nobody else is to end for that.
            self.next = all + quota / STEPS;
            return found;
        }
        let greediest = shares.iter().find(|share| !self.asked.contains(&share.path) && is_running(&share.path));
        if let (true, true, Some(share)) = (found.is_empty(), all > self.next, greediest) {
            let why = format!(
                "{} of the spool are not in the store, {} of them of this recording, the quota is {}",
                bytes(all),
                bytes(share.unshipped),
                bytes(quota)
            );
            self.asked.insert(share.path.clone());
            self.next = all + quota / STEPS;
            found.push((share.path.clone(), why));
        }
        found
    }
}

/// Runs `heaptrace ctl`, which lies beside us, to end the recording of a process.
fn end_recording(pid: u32, why: &str) -> Result<()> {
    let here = std::env::current_exe().context("cannot tell where heaptrace is")?;
    let mut command = Command::new(here.with_file_name("heaptrace"));
    command.arg("ctl").arg(pid.to_string()).args(["end", &format!("heaptrace collect: {why}")]);
    let output = command.stdin(Stdio::null()).output().context("cannot start heaptrace ctl")?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim().trim_start_matches("heaptrace: "));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(list: &[(&str, u64)]) -> Vec<SpoolShare> {
        list.iter().map(|&(path, unshipped)| SpoolShare { path: path.into(), unshipped }).collect()
    }

    fn ended(quota: &mut SpoolQuota, list: &[(&str, u64)]) -> Vec<String> {
        let running = |path: &Path| path != Path::new("dead");
        quota.due(shares(list), &running).into_iter().map(|(path, _)| path.display().to_string()).collect()
    }

    #[test]
    fn the_greediest_is_ended_and_the_next_one_when_the_spool_grows_on() {
        let mut quota = SpoolQuota::new(Some(160), None);
        assert!(ended(&mut quota, &[("a", 80), ("b", 80)]).is_empty());
        assert_eq!(ended(&mut quota, &[("dead", 500), ("a", 90), ("b", 100)]), ["b"]);
        // Its end has not come yet, and nothing has grown.
        assert!(ended(&mut quota, &[("dead", 500), ("a", 90), ("b", 110)]).is_empty());
        assert_eq!(ended(&mut quota, &[("dead", 500), ("a", 110), ("b", 110)]), ["a"]);
        assert!(ended(&mut quota, &[("dead", 900), ("a", 110), ("b", 110)]).is_empty(), "nobody is left");
    }

    #[test]
    fn nobody_else_is_ended_while_one_ends() {
        let mut quota = SpoolQuota::new(Some(160), None);
        assert_eq!(ended(&mut quota, &[("a", 90), ("b", 100)]), ["b"]);
        quota.is_ending = true;
        assert!(ended(&mut quota, &[("a", 90), ("b", 500)]).is_empty());
        quota.is_ending = false;
        assert!(ended(&mut quota, &[("a", 90), ("b", 500)]).is_empty(), "nothing has grown since");
        assert_eq!(ended(&mut quota, &[("a", 120), ("b", 500)]), ["a"]);
    }

    #[test]
    fn each_has_a_quota_of_its_own() {
        let mut quota = SpoolQuota::new(None, Some(50));
        assert!(ended(&mut quota, &[("a", 50), ("b", 10)]).is_empty());
        assert_eq!(ended(&mut quota, &[("a", 60), ("b", 51), ("c", 9), ("dead", 70)]), ["a", "b"]);
        assert!(ended(&mut quota, &[("a", 70), ("b", 51)]).is_empty(), "once");
    }
}
