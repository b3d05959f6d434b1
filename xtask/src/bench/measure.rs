//! What one process takes: wall time, processor time and memory.
//!
//! Linux keeps a dead child's processor time in `/proc/PID/stat` until it is waited for, and a
//! living one's peak memory in `/proc/PID/status`; so both are read without unsafe code. Processor
//! time comes in ticks of 10 ms, peak memory is looked at every 5 ms.

use std::{
    fs,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};

/// Between two looks at a running process.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Ticks of processor time a second: `USER_HZ`, the same on every Linux.
const TICKS_PER_S: f64 = 100.0;

/// What one run took.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// From start to end.
    pub wall_s: f64,
    /// In user and kernel mode, all threads.
    pub cpu_s: f64,
    /// Most resident memory.
    pub peak_mib: u64,
}

/// Runs the command to its end.
///
/// # Errors
/// When it can't be started or fails.
#[expect(
    clippy::disallowed_methods,
    reason = "a benchmark measures the real clock"
)]
pub fn run(command: &mut Command) -> anyhow::Result<Sample> {
    let started = Instant::now();
    let child = command.stderr(Stdio::piped()).spawn().context("start it")?;
    let folder = format!("/proc/{}", child.id());
    let mut peak_kib = 0;
    let (wall_s, cpu_s) = loop {
        peak_kib = peak_kib.max(peak_of(&folder).unwrap_or(0));
        let (state, ticks) = state_of(&folder).context("look at it")?;
        if state == 'Z' {
            break (started.elapsed().as_secs_f64(), ticks / TICKS_PER_S);
        }
        thread::sleep(LOOK_EVERY);
    };
    let output = child.wait_with_output()?;
    ensure!(
        output.status.success(),
        "{}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(Sample {
        wall_s,
        cpu_s,
        peak_mib: peak_kib / 1024,
    })
}

fn peak_of(folder: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("{folder}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

/// The state of a process and the ticks it has used (`proc(5)`).
fn state_of(folder: &str) -> Option<(char, f64)> {
    let text = fs::read_to_string(format!("{folder}/stat")).ok()?;
    // The name in parentheses may hold anything.
    let (_, rest) = text.rsplit_once(") ")?;
    let fields: Vec<&str> = rest.split(' ').collect();
    let user: f64 = fields.get(11)?.parse().ok()?;
    let system: f64 = fields.get(12)?.parse().ok()?;
    Some((fields.first()?.chars().next()?, user + system))
}
