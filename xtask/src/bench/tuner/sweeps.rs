//! Transfers that were measured at many settings: GridFTP between sites, as CSV files of one row a
//! transfer, read in place.

use std::{collections::BTreeMap, fs, path::Path, process::Command, time::Duration};

use anyhow::{Context, bail};
use posthaste_plan::tuner::{Bounds, PathFacts, Setting};
use posthaste_types::{ByteRate, Bytes};

use super::{Course, Road};

/// Distinct settings of the sweeps that `auto` was made with, at least.
const SETTINGS_FULL: usize = 30;

/// A sweep with fewer distinct settings is no grid to search.
pub const SETTINGS_MIN: usize = 8;

/// Measured paths.
#[derive(Default)]
pub struct Measured {
    /// Paths that the parameters of `auto` were chosen on.
    pub fitted: Vec<Course>,
    /// Paths that it was not made with: smaller grids.
    pub other: Vec<Course>,
}

/// Columns that make two rows the same sweep.
const SAME: [&str; 9] = [
    "Note",
    "FileSize",
    "Files",
    "Source",
    "Destination",
    "Bandwidth",
    "RTT",
    "BufferSize",
    "Fast",
];

/// Other names of columns in the files.
const OTHERWISE: [(&str, &str); 6] = [
    ("FileNumbers", "Files"),
    ("FileCount", "Files"),
    ("P", "Parallelism"),
    ("CC", "Concurrency"),
    ("PP", "Pipelining"),
    ("FAST", "Fast"),
];

/// Each setting's measurements, in bytes a second.
type Grid = BTreeMap<Setting, Vec<f64>>;

/// A measured sweep. For an unmeasured setting, the nearest measured streams and files ahead count,
/// and an interpolation between the nearest files at once.
struct Sweep {
    grid: Grid,
}

/// Reads every `*.csv` and `*.csv.gz` of the folder.
///
/// # Errors
/// Fails if a file can't be read, or has no throughput column.
pub fn read(folder: &Path) -> anyhow::Result<Measured> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("no folder {}", folder.display()))?;
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry?.path());
    }
    paths.sort();
    let mut measured = Measured::default();
    for path in paths {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let text = if name.ends_with(".csv.gz") {
            unzipped(&path)?
        } else if name.ends_with(".csv") {
            fs::read_to_string(&path)?
        } else {
            continue;
        };
        let origin = name.split('.').next().unwrap_or_default();
        let sweeps = sweeps(&text).with_context(|| name.clone())?;
        for (same, grid) in sweeps {
            let courses = match grid.len() {
                SETTINGS_FULL.. => &mut measured.fitted,
                _ => &mut measured.other,
            };
            courses.extend(course(origin, &same, grid));
        }
    }
    Ok(measured)
}

fn unzipped(path: &Path) -> anyhow::Result<String> {
    let output = Command::new("gzip").arg("-dc").arg(path).output();
    let output = output.context("gzip can't be started")?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the sweeps of a file by the columns that they share. Rows without all three settings are
/// dropped.
fn sweeps(text: &str) -> anyhow::Result<BTreeMap<Vec<String>, Grid>> {
    let mut lines = text.lines();
    let head = lines.next().context("the file is empty")?;
    let columns: Vec<&str> = head
        .split(',')
        .map(|name| {
            OTHERWISE
                .iter()
                .find(|(other, _)| *other == name)
                .map_or(name, |(_, ours)| ours)
        })
        .collect();
    if !columns.contains(&"Throughput") {
        bail!("no column is called Throughput");
    }
    let mut sweeps: BTreeMap<Vec<String>, Grid> = BTreeMap::new();
    for line in lines {
        let cells: BTreeMap<&str, &str> = columns.iter().copied().zip(line.split(',')).collect();
        let Some((setting, rate)) = row(&cells) else {
            continue;
        };
        let same = SAME.map(|name| cells.get(name).copied().unwrap_or_default().to_owned());
        let grid = sweeps.entry(same.to_vec()).or_default();
        grid.entry(setting).or_default().push(rate);
    }
    Ok(sweeps)
}

/// Returns a row's setting and its rate. The files count the files asked for beyond the one in
/// hand.
fn row(cells: &BTreeMap<&str, &str>) -> Option<(Setting, f64)> {
    let number = |name: &str| cells.get(name)?.parse::<f64>().ok();
    let whole = |name: &str| cells.get(name)?.parse::<u16>().ok();
    let setting = Setting::new(
        whole("Concurrency")?,
        whole("Parallelism")?,
        whole("Pipelining")?.saturating_add(1),
    );
    let rate = number("Throughput")? * 1e6 / 8.0;
    (rate > 0.0).then_some((setting, rate))
}

/// Returns the sweep as a course; none if it is too small or lacks facts.
#[expect(
    clippy::cast_possible_truncation,
    reason = "rates and sizes are far below 2^53"
)]
fn course(origin: &str, same: &[String], grid: Grid) -> Option<Course> {
    if grid.len() < SETTINGS_MIN {
        return None;
    }
    let number = |name: &str| {
        let place = SAME.iter().position(|column| *column == name)?;
        same.get(place)?.parse::<f64>().ok()
    };
    let bandwidth = number("Bandwidth")?;
    // One file writes megabits, the others bits.
    let bandwidth = if bandwidth < 1e6 {
        bandwidth * 1e6
    } else {
        bandwidth
    } / 8.0;
    let count = number("Files")? as u64;
    let most = |knob: fn(&Setting) -> u16| grid.keys().map(knob).max().unwrap_or(1);
    let at_once = most(|setting| setting.concurrency);
    let sweep = Sweep { grid };
    let best = sweep.grid.keys().map(|&setting| sweep.mean(setting));
    Some(Course {
        origin: origin.to_owned(),
        facts: PathFacts {
            rtt: Duration::from_secs_f64(number("RTT")?),
            bandwidth: Some(ByteRate::new(bandwidth as u64)),
            buffer: Bytes::new(number("BufferSize")? as u64),
            cores: 8,
            piece: Bytes::ZERO,
        },
        bounds: Bounds {
            concurrency_min: 1,
            concurrency_max: at_once.min(u16::try_from(count).unwrap_or(u16::MAX)),
            parallelism_max: sweep.grid.keys().map(|setting| setting.parallelism).max()?,
            pipelining_max: sweep.grid.keys().map(|setting| setting.pipelining).max()?,
        },
        files: (count, Bytes::new(number("FileSize")? as u64)),
        best: best.fold(0.0, f64::max),
        road: Box::new(sweep),
    })
}

impl Sweep {
    /// Returns the measurements of the nearest setting; near is a difference of few doublings.
    fn nearest(&self, setting: Setting) -> &[f64] {
        let square = |one: u16, other: u16| (f64::from(one) / f64::from(other)).log2().powi(2);
        let distance = |other: &Setting| {
            square(setting.concurrency, other.concurrency)
                + square(setting.parallelism, other.parallelism)
                + square(setting.pipelining, other.pipelining)
        };
        let found = self
            .grid
            .iter()
            .min_by(|one, other| distance(one.0).total_cmp(&distance(other.0)));
        found.map_or(&[], |(_, rates)| rates)
    }

    /// Interpolates between two measured counts of files at once, on the line through both, by
    /// doublings.
    fn between(&self, setting: Setting, figure: impl Fn(&[f64]) -> f64) -> f64 {
        let wanted = setting.concurrency;
        let counts = || self.grid.keys().map(|setting| setting.concurrency);
        let below = counts().filter(|&count| count <= wanted).max();
        let above = counts().filter(|&count| count >= wanted).min();
        let at = |concurrency| {
            let there = Setting {
                concurrency,
                ..setting
            };
            figure(self.nearest(there))
        };
        match (below, above) {
            (Some(below), Some(above)) if below < above => {
                let doublings = |count: u16| f64::from(count).log2();
                let way = doublings(wanted) - doublings(below);
                let share = way / (doublings(above) - doublings(below));
                at(below) * (1.0 - share) + at(above) * share
            }
            _ => at(wanted),
        }
    }
}

impl Road for Sweep {
    fn measure(&self, setting: Setting, turn: usize) -> f64 {
        self.between(setting, |rates| {
            rates.get(turn % rates.len().max(1)).copied().unwrap_or(0.0)
        })
    }

    fn mean(&self, setting: Setting) -> f64 {
        self.between(setting, |rates| {
            rates.iter().sum::<f64>() / rates.len().max(1) as f64
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "Note,FileSize,FileNumbers,Network,Source,Destination,Bandwidth,RTT,BufferSize,P,CC,PP,FAST,Throughput";

    fn grid() -> String {
        let mut text = format!("{HEAD}\n");
        for concurrency in [1, 2, 4, 8, 16, 32] {
            for parallelism in [1, 2, 4, 8, 16] {
                for extra in [0, 10] {
                    let rate = concurrency * 10 + parallelism + extra;
                    text.push_str(&format!(
                        "n,1048576,20,N,a,b,1000000000,0.06,131071,{parallelism},{concurrency},0,OFF,{rate}\n"
                    ));
                }
            }
        }
        text.push_str("n,1048576,20,N,a,b,1000000000,0.06,131071,4,na,na,OFF,999\n");
        text
    }

    #[test]
    fn a_grid_is_read_with_its_facts() {
        let sweeps = sweeps(&grid()).unwrap();
        assert_eq!(sweeps.len(), 1);
        let (same, grid) = sweeps.into_iter().next().unwrap();
        let course = course("x", &same, grid).unwrap();
        assert_eq!(course.facts.bandwidth, Some(ByteRate::new(125_000_000)));
        assert_eq!(course.facts.rtt, Duration::from_millis(60));
        // Twenty files: no more at once than that.
        assert_eq!(course.bounds.concurrency_max, 20);
        assert_eq!(course.bounds.pipelining_max, 1);
        assert!((course.best - 341.0 * 125_000.0).abs() < 1.0);
    }

    #[test]
    fn what_was_not_measured_counts_as_its_neighbour() {
        let (same, grid) = sweeps(&grid()).unwrap().into_iter().next().unwrap();
        let road = course("x", &same, grid).unwrap().road;
        let mbit = |rate: f64| (rate / 125_000.0).round();
        assert_eq!(mbit(road.mean(Setting::new(8, 1, 8))), 86.0);
        let between = mbit(road.mean(Setting::new(6, 1, 1)));
        assert!(between > 60.0 && between < 75.0, "{between}");
        assert_eq!(mbit(road.mean(Setting::new(60, 1, 1))), 326.0);
        assert_eq!(mbit(road.measure(Setting::new(8, 1, 1), 0)), 81.0);
        assert_eq!(mbit(road.measure(Setting::new(8, 1, 1), 1)), 91.0);
        assert_eq!(mbit(road.measure(Setting::new(8, 1, 1), 2)), 81.0);
    }

    #[test]
    fn what_is_no_grid_is_left_out() {
        let short: String = grid()
            .lines()
            .take(7)
            .map(|line| format!("{line}\n"))
            .collect();
        let (same, grid) = sweeps(&short).unwrap().into_iter().next().unwrap();
        assert!(course("x", &same, grid).is_none());
        assert!(sweeps("a,b\n1,2\n").is_err());
    }
}
