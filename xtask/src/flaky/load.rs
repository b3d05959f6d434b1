//! A busy machine: loops on all cores, and processes of the tests that stand still for a while.

use std::{
    fs, hint,
    os::unix::process::CommandExt,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// Variable that marks processes of this run of the tests; its value is this process.
const MARK: &str = "POSTHASTE_FLAKY";
/// Stops a process for a time, even if the caller ends: `$0` is the process, `$1` seconds.
const STOP_FOR: &str = "kill -STOP $0 && sleep $1; kill -CONT $0";
/// Longest time that a process stands still, and longest time between two that do.
const STANDS_MS_MAX: u64 = 3_000;
const BETWEEN_MS_MAX: u64 = 1_000;

/// Keeps the machine busy until dropped.
pub struct Load {
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts a loop on each core, and stops of processes that `seed` chooses.
    pub fn start(seed: u64) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let mut threads = Vec::new();
        for _ in 0..cores {
            let ends = ends.clone();
            threads.push(thread::spawn(move || {
                while !ends.load(Relaxed) {
                    hint::spin_loop();
                }
            }));
        }
        let also = ends.clone();
        threads.push(thread::spawn(move || stop_some(seed, &also)));
        Self { ends, threads }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.ends.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that panicked has ended too.
            let _ = thread.join();
        }
    }
}

/// Stops one process of the tests after the other, until it shall end.
fn stop_some(seed: u64, ends: &AtomicBool) {
    let mut numbers = Numbers(seed | 1);
    while !ends.load(Relaxed) {
        thread::sleep(Duration::from_millis(numbers.next_below(BETWEEN_MS_MAX)));
        let running = running();
        if running.is_empty() {
            continue;
        }
        let place = usize::try_from(numbers.next_below(running.len() as u64)).unwrap_or(0);
        let process = &running[place];
        stop_for(process, numbers.next_below(STANDS_MS_MAX));
    }
}

/// Returns the variable that marks processes of the tests.
pub fn mark() -> (&'static str, String) {
    (MARK, std::process::id().to_string())
}

/// Stops one process for a while. A process of its own group does, so that none stays stopped when
/// this run is killed.
fn stop_for(process: &str, millis: u64) {
    let seconds = format!("{}.{:03}", millis / 1_000, millis % 1_000);
    // A process may have ended meanwhile.
    let _ = Command::new("sh")
        .args(["-c", STOP_FOR, process, &seconds])
        .process_group(0)
        .output();
}

/// Lists the running processes of tests, without those that a test itself stopped.
fn running() -> Vec<String> {
    let (mut running, (name, value)) = (Vec::new(), mark());
    let mark = format!("{name}={value}");
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let folder = entry.path();
        let Ok(environment) = fs::read(folder.join("environ")) else {
            continue;
        };
        let is_of_tests = environment
            .split(|byte| *byte == 0)
            .any(|variable| variable == mark.as_bytes());
        if is_of_tests && !stands(&folder) {
            running.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    // The order of a listing is not guaranteed.
    running.sort();
    running
}

/// Returns whether a process stands still, or has ended, by its folder below `/proc`.
fn stands(folder: &std::path::Path) -> bool {
    let stat = fs::read_to_string(folder.join("stat")).unwrap_or_default();
    // The name before it may contain anything, also a parenthesis.
    let state = stat
        .rsplit_once(") ")
        .and_then(|(_, rest)| rest.chars().next());
    !matches!(state, Some('R' | 'S' | 'D'))
}

/// Pseudo-random numbers, xorshift64: nothing depends on their quality.
struct Numbers(u64);

impl Numbers {
    /// Draws a number below `end`.
    fn next_below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_of_tests_are_found_by_their_environment() {
        let child = |variables: &[(&str, &str)]| {
            let mut command = Command::new("sleep");
            command
                .arg("600")
                .env_clear()
                .envs(variables.iter().copied());
            command.env("PATH", "/usr/bin:/bin").spawn().unwrap()
        };
        let (name, value) = mark();
        let mut ours = child(&[(name, &value)]);
        let mut others = child(&[]);
        // Between `fork` and `exec` it has the environment of this test.
        let settled = (0..1_000).any(|_| {
            thread::sleep(Duration::from_millis(10));
            let running = running();
            running.contains(&ours.id().to_string()) && !running.contains(&others.id().to_string())
        });
        for child in [&mut ours, &mut others] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(settled);
    }

    #[test]
    fn numbers_stay_below_their_end() {
        let mut numbers = Numbers(7);
        assert!((0..1_000).all(|_| numbers.next_below(3) < 3));
    }
}
