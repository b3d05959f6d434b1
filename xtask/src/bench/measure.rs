//! Cost of one process: wall time, processor time and memory.
//!
//! Linux keeps a dead child's processor time in `/proc/PID/stat` until it is waited for, and a
//! living one's peak memory in `/proc/PID/status`; so both are read without unsafe code. Processor
//! time comes in ticks of 10 ms. Peak memory is read every 5 ms, and so is the processor time of
//! its child processes: not every program waits for them.

use std::{
    collections::BTreeMap,
    fs,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

/// Interval between two checks of a running process.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Ticks of processor time a second: `USER_HZ`, the same on every Linux.
const TICKS_PER_S: f64 = 100.0;

/// Cost of one run.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// Wall time from start to end.
    pub wall_s: f64,
    /// Time in user and kernel mode, all threads, and child processes.
    pub cpu_s: f64,
    /// Most resident memory.
    pub peak_mib: u64,
}

/// Runs the command to its end, or kills it.
///
/// # Errors
/// Fails if it can't be started, fails or takes longer than `longest`.
pub fn run_within(command: &mut Command, longest: Duration) -> anyhow::Result<Sample> {
    let sample = run_unless_slow(command, longest)?;
    sample.with_context(|| format!("not done after {} s", longest.as_secs()))
}

/// Runs the command to its end, or ends it at the time limit: then there is no sample.
///
/// # Errors
/// Fails if it can't be started or fails.
#[expect(
    clippy::disallowed_methods,
    reason = "a benchmark measures the real clock"
)]
pub fn run_unless_slow(command: &mut Command, limit: Duration) -> anyhow::Result<Option<Sample>> {
    let started = Instant::now();
    let mut child = command.stderr(Stdio::piped()).spawn().context("start it")?;
    let said = child.stderr.take().map(|stderr| {
        // Read while it runs: a full pipe would stop the process.
        thread::spawn(|| std::io::read_to_string(stderr).unwrap_or_default())
    });
    let folder = format!("/proc/{}", child.id());
    let mut peak_kib = 0;
    let mut children = BTreeMap::new();
    let (wall_s, cpu_s) = loop {
        peak_kib = peak_kib.max(peak_of(&folder).unwrap_or(0));
        let ticks = ticks_of(&folder).context("look at it")?;
        if ticks.is_over {
            let seen: f64 = children.values().sum();
            let all = ticks.own + ticks.waited_for.max(seen);
            break (started.elapsed().as_secs_f64(), all / TICKS_PER_S);
        }
        look_at_children(&folder, &mut children);
        if started.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        thread::sleep(LOOK_EVERY);
    };
    let status = child.wait()?;
    if !status.success() {
        let said = said.and_then(|said| said.join().ok()).unwrap_or_default();
        bail!("{status}: {}", said.trim());
    }
    Ok(Some(Sample {
        wall_s,
        cpu_s,
        peak_mib: peak_kib / 1024,
    }))
}

/// Returns the highest resident memory of a running process.
pub fn peak_mib(process: u32) -> Option<u64> {
    Some(peak_of(&format!("/proc/{process}"))? / 1024)
}

fn peak_of(folder: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("{folder}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

/// The processor time of a process so far.
struct Ticks {
    /// True if it has ended, and nobody has waited for it.
    is_over: bool,
    own: f64,
    /// Time of child processes that it has waited for.
    waited_for: f64,
}

/// Returns the processor time of a process (`proc(5)`).
fn ticks_of(folder: &str) -> Option<Ticks> {
    let text = fs::read_to_string(format!("{folder}/stat")).ok()?;
    // The name in parentheses may hold anything.
    let (_, rest) = text.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    let sum = |from: usize| {
        let ticks = fields.get(from..from + 2)?.iter();
        let ticks = ticks.map(|field| field.parse::<f64>());
        ticks.sum::<Result<f64, _>>().ok()
    };
    Some(Ticks {
        is_over: fields.first()?.starts_with('Z'),
        own: sum(11)?,
        waited_for: sum(13)?,
    })
}

/// Records the processor time of a process's children so far, by their number.
fn look_at_children(folder: &str, children: &mut BTreeMap<String, f64>) {
    let Ok(threads) = fs::read_dir(format!("{folder}/task")) else {
        return;
    };
    for thread in threads.flatten() {
        let listed = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        for child in listed.split_whitespace() {
            if let Some(ticks) = ticks_of(&format!("/proc/{child}")) {
                children.insert(child.to_owned(), ticks.own + ticks.waited_for);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu_s(script: &str) -> f64 {
        let mut command = Command::new("sh");
        let sample = run_within(command.args(["-c", script]), Duration::from_secs(30));
        sample.unwrap().cpu_s
    }

    #[test]
    fn time_of_children_counts_whether_or_not_they_are_waited_for() {
        let work = "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done";
        let alone = cpu_s(work);
        assert!(alone > 0.05, "{alone} s");
        let waited_for = cpu_s(&format!("sh -c '{work}'; true"));
        let left = cpu_s(&format!("sh -c '{work}; sleep 5' & sleep {}", 8.0 * alone));
        for seen in [waited_for, left] {
            assert!(
                (alone * 0.5..alone * 2.0).contains(&seen),
                "{seen} of {alone} s"
            );
        }
    }
}
