//! Job logs in the Standard Workload Format (v2.2), and made-up data for their jobs.

use std::{io::Error, path::Path, process::Command, time::Duration};

use posthaste_forecast::queue::Shape;

/// Number of fields of a line.
const FIELDS: usize = 18;

/// Rate of arriving data, in bytes a second: 1 Gbit/s.
const RATE: f64 = 125e6;

/// Mean and sigma of the bytes a job reads, and their limits: log-normal, after Table IV of CATCH.
const MEAN: f64 = 65.3e9;
const SIGMA: f64 = 2.0;
const LEAST: f64 = 2.28e6;
const MOST: f64 = 7.481e12;

/// A job of a log; moments are in seconds.
#[derive(Debug, Clone, Copy)]
pub struct Job {
    /// Number in the log.
    pub number: u64,
    pub submit: u64,
    pub start: u64,
    pub run: u64,
    pub shape: Shape,
    /// Bytes it reads.
    pub bytes: f64,
    /// Seconds that their staging takes.
    pub lead: u64,
}

impl Job {
    pub fn wait(&self) -> u64 {
        self.start - self.submit
    }
}

pub struct Log {
    pub name: String,
    pub procs: u32,
    pub jobs: Vec<Job>,
}

/// Seed of the data sizes when a log is read.
const SEED: u64 = 42;

impl Log {
    /// Returns the log with the same jobs and other data.
    pub fn drawn(&self, seed: u64) -> Self {
        let drawn = self.jobs.iter().map(|job| {
            let bytes = size(job.number, seed);
            Job {
                bytes,
                lead: (bytes / RATE).ceil() as u64,
                ..*job
            }
        });
        Self {
            name: self.name.clone(),
            procs: self.procs,
            jobs: drawn.collect(),
        }
    }
}

/// Reads a log, through gzip if its name says so.
pub fn read(path: &Path) -> Result<Log, Error> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let bytes = if name.ends_with(".gz") {
        let output = Command::new("gzip").arg("-dc").arg(path).output()?;
        if !output.status.success() {
            return Err(Error::other(String::from_utf8_lossy(&output.stderr)));
        }
        output.stdout
    } else {
        std::fs::read(path)?
    };
    let text = String::from_utf8_lossy(&bytes);
    let mut procs = 0;
    let mut jobs = Vec::new();
    for line in text.lines() {
        if let Some(header) = line.strip_prefix(';') {
            let most = header.trim().strip_prefix("MaxProcs:");
            procs = most
                .and_then(|most| most.trim().parse().ok())
                .unwrap_or(procs);
        } else {
            jobs.extend(job(line));
        }
    }
    jobs.sort_by_key(|job: &Job| job.submit);
    let short = name.trim_end_matches(".gz").trim_end_matches(".swf");
    Ok(Log {
        name: short.to_owned(),
        procs: procs.max(widest(&jobs)),
        jobs,
    })
}

/// Reads the job of a line. Processors and requested time fall back to those used; lines without a
/// wait or processors give none.
fn job(line: &str) -> Option<Job> {
    let fields: Vec<f64> = line
        .split_whitespace()
        .map(|word| word.parse().unwrap_or(-1.0))
        .collect();
    let whole = |place: usize| u64::try_from(*fields.get(place)? as i64).ok();
    if fields.len() < FIELDS {
        return None;
    }
    let (submit, wait) = (whole(1)?, whole(2)?);
    let run = whole(3).unwrap_or(0);
    let positive = |place: usize| whole(place).filter(|value| *value > 0);
    let procs = positive(4).or_else(|| positive(7))?;
    let requested = positive(8).unwrap_or(run).max(1);
    let number = whole(0)?;
    let bytes = size(number, SEED);
    Some(Job {
        number,
        submit,
        start: submit + wait,
        run,
        shape: Shape {
            procs: u32::try_from(procs).ok()?,
            walltime: Duration::from_secs(requested),
        },
        bytes,
        lead: (bytes / RATE).ceil() as u64,
    })
}

/// Returns the processors of the widest job, which the machine has at least: some logs have no
/// header. What ran at once is no measure: ends that are logged too late add up to a larger machine.
fn widest(jobs: &[Job]) -> u32 {
    let procs = jobs.iter().map(|job| job.shape.procs);
    procs.max().unwrap_or(0)
}

/// Returns the bytes that a job reads, the same in every run with that seed.
fn size(number: u64, seed: u64) -> f64 {
    let even = |salt: u64| {
        let bits = mix(number.wrapping_mul(2).wrapping_add(salt) ^ seed) >> 11;
        (bits as f64 + 0.5) / (1u64 << 53) as f64
    };
    let normal = (-2.0 * even(0).ln()).sqrt() * (std::f64::consts::TAU * even(1)).cos();
    let mu = MEAN.ln() - SIGMA * SIGMA / 2.0;
    (mu + SIGMA * normal).exp().clamp(LEAST, MOST)
}

/// Mixes bits by the finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014).
fn mix(seed: u64) -> u64 {
    let seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let seed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let seed = (seed ^ (seed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    seed ^ (seed >> 31)
}
