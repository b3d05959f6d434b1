//! `cargo xtask bench queue LOG.swf[.gz]…`: value of queue forecasts on logs of real queues.
//!
//! Runs `crates/forecast/examples/queue` as it ships, which plays the logs; here its figures become
//! a page.

use std::{fmt::Write, process::Command};

use anyhow::{Context, bail, ensure};

use super::{figures::machine, publish, say, stage};
use crate::root;

/// Processors that divide jobs into classes, as they are shown.
const CLASSES: [&str; 5] = ["1-4", "5-16", "17-64", "65-256", "more"];

/// Introduction of the page: its method.
const HEAD: &str = "# Forecasts of queues\n\nWhat [the forecasts of a queue](../algorithms/queue-wait.md) are worth on job logs of the \
    [Parallel Workloads Archive](https://www.cs.huji.ac.il/labs/parallel/workload/) (Feitelson, Tsafrir, Krakov, JPDC 2014; the \
    owners of each log are named in it). Written by `cargo xtask bench queue LOG.swf.gz…`. Every forecast knows what was known at its \
    moment, and nothing else. Bounds are drawn for all jobs of a log; the first 30,000 are replayed and played in the closed loop, so \
    that a log takes minutes.\n\n";

/// Introduction of the tables of a log.
const STAGING: &str = "Each job reads data whose size is drawn from one seed (log-normal, mean 65 GB before it is clamped to 2.28 MB - \
    7.48 TB, sigma 2), at 1 Gbit/s. *Exposure* is how long it lies on scratch before its job starts. *Queue* begins staging before \
    the start that the simulated queue forecasts with requested times; *q* before the quantile *q* of what became of such forecasts so \
    far. The queue is looked at when a job is submitted, else every 30 s at most.\n\n\
    **Replayed**: jobs start when they did. Cuts are against staging at submission; *unavoidable* is the share of jobs whose \
    data is late even so, *late* the share whose data is over a minute later than that, *delay* how much later on average \
    over all jobs.\n\n\
    **Closed loop**: a scheduler with EASY backfill starts no job before its data is there, on as many processors as \
    the log's header says, else as its widest job used. *Held*: it does not plan for such a job \
    either, as for jobs of PBS and of `posthaste submit`. *Kept*: as Slurm does it, whose quick look at the queue passes over jobs \
    without data, and whose backfill keeps the processors of a job that could start until its data is there. *Wait* is \
    against staging at submission in the same loop, with its standard error: the loop is chaotic, as one job that starts a second later moves all \
    that come after it, so all is the mean of eight draws of the data, without those that *stalled*: whose jobs waited over five times as \
    long as with data staged at submission. *By width* is how the waits grow of jobs that ask for up to a sixteenth, up to a quarter, and more of \
    the machine.\n";

/// Results of one policy.
#[derive(Default)]
struct Row {
    name: String,
    replay: Vec<f64>,
    held: Vec<f64>,
    kept: Vec<f64>,
}

/// Treatment of a job without its data by the scheduler of a closed loop.
#[derive(Clone, Copy)]
enum Gate {
    Held,
    Kept,
}

impl Row {
    fn closed(&self, gate: Gate) -> &[f64] {
        match gate {
            Gate::Held => &self.held,
            Gate::Kept => &self.kept,
        }
    }
}

/// Seconds of mean delay that a policy may cost when replayed, and the share by which waits may
/// grow in the closed loop.
const DELAY_MAX_S: f64 = 90.0;
const GROWTH_MAX: f64 = 0.01;

/// Results of one log.
#[derive(Default)]
struct Log {
    name: String,
    jobs: String,
    procs: String,
    /// Jobs that were played.
    staged: String,
    bounds: Vec<(String, Vec<f64>)>,
    /// Mean waits in the closed loops without data, and with data staged at submission.
    bases: Vec<(String, Vec<f64>)>,
    rows: Vec<Row>,
}

/// Runs the benchmark over the logs.
///
/// # Errors
/// Fails if no log is named, one can't be read, or the program prints anything but figures.
pub fn run(arguments: &[String]) -> anyhow::Result<()> {
    if arguments.is_empty() {
        bail!(
            "write `cargo xtask bench queue LOG.swf[.gz]…`: logs are at https://www.cs.huji.ac.il/labs/parallel/workload/"
        );
    }
    let program = stage::build_example("posthaste-forecast", "queue")?;
    let mut logs = Vec::new();
    for path in arguments {
        say(path);
        let output = Command::new(&program).arg(path).output()?;
        ensure!(
            output.status.success(),
            "{path}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        logs.push(read(&String::from_utf8(output.stdout)?)?);
    }
    publish("queue", &page(&logs)?)
}

fn read(lines: &str) -> anyhow::Result<Log> {
    let mut log = Log::default();
    for line in lines.lines() {
        let words: Vec<&str> = line.split('\t').collect();
        let numbers = |from: usize| -> anyhow::Result<Vec<f64>> {
            let words = words.get(from..).context(line.to_owned())?;
            words
                .iter()
                .map(|word| word.parse::<f64>().context(line.to_owned()))
                .collect()
        };
        match words[..] {
            ["log", name, jobs, procs] => {
                (log.name, log.jobs, log.procs) = (name.into(), jobs.into(), procs.into());
            }
            ["staged", played] => log.staged = played.into(),
            ["bounds", name, ..] => log.bounds.push((name.into(), numbers(2)?)),
            ["replay", name, ..] => row(&mut log, name).replay = numbers(2)?,
            ["base", kind, ..] => log.bases.push((kind.into(), numbers(2)?)),
            ["held", name, ..] => row(&mut log, name).held = numbers(2)?,
            ["kept", name, ..] => row(&mut log, name).kept = numbers(2)?,
            _ => bail!("no line of figures: {line}"),
        }
    }
    Ok(log)
}

fn row<'l>(log: &'l mut Log, name: &str) -> &'l mut Row {
    let found = log.rows.iter().position(|row| row.name == name);
    let place = found.unwrap_or(log.rows.len());
    if found.is_none() {
        log.rows.push(Row {
            name: name.to_owned(),
            ..Row::default()
        });
    }
    &mut log.rows[place]
}

impl Log {
    /// Returns mean waits in a closed loop, in seconds: without data, and with data staged at
    /// submission.
    fn base(&self, kind: &str) -> anyhow::Result<[f64; 2]> {
        let base = self.bases.iter().find(|(name, _)| name == kind);
        let waits = base.and_then(|(_, waits)| waits.as_slice().try_into().ok());
        waits.with_context(|| format!("{}: no waits where jobs are {kind}", self.name))
    }

    /// Returns the policy that cuts most when replayed, among those of small delay, with its cut
    /// and delay.
    fn best_replayed(&self) -> Option<(&str, f64, f64)> {
        let rows = self.rows.iter().filter_map(|row| match row.replay[..] {
            [cut, _, _, _, delay] => Some((row.name.as_str(), cut, delay)),
            _ => None,
        });
        rows.filter(|(_, _, delay)| *delay < DELAY_MAX_S)
            .max_by(|one, other| one.1.total_cmp(&other.1))
    }

    /// Returns the policy that cuts most in the closed loop, among those that never stalled and with
    /// little growth of waits, with its cut and that growth.
    fn best_closed(&self, gate: Gate) -> Option<(&str, f64, f64)> {
        let rows = self.rows.iter();
        let rows = rows.filter_map(|row| match *row.closed(gate) {
            [cut, growth, _, _, _, _, 0.0] => Some((row.name.as_str(), cut, growth)),
            _ => None,
        });
        rows.filter(|(_, _, growth)| *growth < GROWTH_MAX)
            .max_by(|one, other| one.1.total_cmp(&other.1))
    }
}

/// Writes the best results for each log.
fn reached(page: &mut String, logs: &[Log]) -> anyhow::Result<()> {
    page.push_str(
        "\n## In short\n\n\
         The upper bound is to hold for 95 % of the jobs. The middle column is the policy that cuts most of the exposure when jobs \
         start when they did, at less than 90 s of mean delay; the last two are those that cut most in the closed loop while waits grow by less than \
         1 % and no draw stalls. All were chosen on the log that they are shown for.\n\n\
         | log | under upper bound | replayed | closed loop, held | closed loop, kept |\n|---|---|---|---|---|\n",
    );
    for log in logs {
        let trimmed = log.bounds.iter().find(|(name, _)| name == "trimmed");
        let bound = trimmed.and_then(|(_, figures)| figures.first());
        let bound = bound.copied().map_or_else(|| "-".to_owned(), percent);
        let none = || "none".to_owned();
        let replayed = log.best_replayed().map_or_else(none, |(name, cut, delay)| {
            format!("{name}: {}, {delay:.0} s", percent(cut))
        });
        let closed = |gate| {
            let best = log.best_closed(gate);
            best.map_or_else(none, |(name, cut, growth)| {
                format!("{name}: {}, {:+.1} %", percent(cut), growth * 100.0)
            })
        };
        let (held, kept) = (closed(Gate::Held), closed(Gate::Kept));
        writeln!(
            page,
            "| {} | {bound} | {replayed} | {held} | {kept} |",
            log.name
        )?;
    }
    Ok(())
}

fn page(logs: &[Log]) -> anyhow::Result<String> {
    let mut page = format!("{HEAD}{}\n", machine(&root()));
    reached(&mut page, logs)?;
    page.push_str(
        "\n## Bounds\n\n95 % of waits lie under the upper bound, with 95 % confidence, and 95 % over the lower one. *Windows* are of 1,000 \
         jobs: in how many of them the upper bound held for 95 %. *Trimmed* forgets when the queue changes, *whole* does not.\n\n\
         | log | jobs | | under upper | over lower | windows | wait : upper, median | mean upper | mean wait |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    for log in logs {
        for (name, figures) in &log.bounds {
            let [upper, lower, windows, median, bound, wait, ..] = figures[..] else {
                bail!("{}: too few figures of bounds", log.name);
            };
            writeln!(
                page,
                "| {} | {} | {name} | {} | {} | {} | {median:.3} | {bound:.0} s | {wait:.0} s |",
                log.name,
                log.jobs,
                percent(upper),
                percent(lower),
                percent(windows)
            )?;
        }
    }
    write!(
        page,
        "\nUnder the upper bound, by processors:\n\n| log | | {} |\n|---|---|",
        CLASSES.join(" | ")
    )?;
    page.push_str(&"---|".repeat(CLASSES.len()));
    page.push('\n');
    for log in logs {
        for (name, figures) in &log.bounds {
            let classes = figures.get(6..).unwrap_or_default().chunks_exact(2);
            let cells: Vec<String> = classes
                .map(|class| {
                    if class[0] > 0.0 {
                        percent(class[1])
                    } else {
                        "-".into()
                    }
                })
                .collect();
            writeln!(page, "| {} | {name} | {} |", log.name, cells.join(" | "))?;
        }
    }
    write!(page, "\n## Staging\n\n{STAGING}")?;
    for log in logs {
        section(&mut page, log)?;
    }
    Ok(page)
}

fn section(page: &mut String, log: &Log) -> anyhow::Result<()> {
    let [none, held] = log.base("held")?;
    let [_, kept] = log.base("kept")?;
    write!(
        page,
        "\n### {}\n\n{} processors, the first {} jobs. In the closed loop jobs without data wait {none:.0} s on average; with data \
         staged at submission {held:.0} s where they are held until it is there, {kept:.0} s where their processors are kept.\n\n\
         | | exposure cut | by GB | unavoidable | late | delay | held: exposure cut | wait | by width | kept: exposure cut | wait | by width |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|\n",
        log.name, log.procs, log.staged,
    )?;
    for row in &log.rows {
        let &[cut, by_bytes, unavoidable, late, delay] = &row.replay[..] else {
            bail!("{}: `{}` was not replayed", log.name, row.name);
        };
        write!(
            page,
            "| {} | {} | {} | {} | {} | {delay:.0} s |",
            row.name,
            percent(cut),
            percent(by_bytes),
            percent(unavoidable),
            percent(late)
        )?;
        for gate in [Gate::Held, Gate::Kept] {
            let &[cut, growth, error, narrow, middle, wide, stalled] = row.closed(gate) else {
                bail!("{}: no closed loop of `{}`", log.name, row.name);
            };
            let [growth, error] = [growth, error].map(|share| share * 100.0);
            let by_width = [narrow, middle, wide].map(|share| match share.is_finite() {
                true => format!("{:+.0} %", share * 100.0),
                false => "none".to_owned(),
            });
            let stalled = match stalled {
                0.0 => String::new(),
                draws => format!(", {draws:.0} stalled"),
            };
            write!(
                page,
                " {} | {growth:+.1} ± {error:.1} %{stalled} | {} |",
                percent(cut),
                by_width.join(", ")
            )?;
        }
        page.push('\n');
    }
    Ok(())
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_become_rows() {
        let lines = "log\tKTH\t9\t100\nbounds\ttrimmed\t.975\t.99\t.93\t.01\t900\t300\t5\t.98\t4\t.9\t0\t0\t0\t0\t0\t0\n\
            staged\t9\nreplay\tq .30\t.5\t.25\t.4\t.125\t61.6\nbase\theld\t90\t100\nheld\tq .30\t.8\t.01\t.002\t.1\t0\tNaN\t2\n\
            base\tkept\t90\t200\nkept\tq .30\t.2\t.005\t.001\t-.1\t.2\t0\t0\n";
        let page = page(&[read(lines).unwrap()]).unwrap();
        for row in [
            "| KTH | 97.5 % | q .30: 50.0 %, 62 s | none | q .30: 20.0 %, +0.5 % |",
            "| KTH | 9 | trimmed | 97.5 % | 99.0 % | 93.0 % | 0.010 | 900 s | 300 s |",
            "| KTH | trimmed | 98.0 % | 90.0 % | - | - | - |",
            "| q .30 | 50.0 % | 25.0 % | 40.0 % | 12.5 % | 62 s | 80.0 % | +1.0 ± 0.2 %, 2 stalled | +10 %, +0 %, none | 20.0 % | +0.5 ± 0.1 % | -10 %, +20 %, +0 % |",
        ] {
            assert!(page.contains(row), "{page}");
        }
        assert!(read("something else\n").is_err());
    }
}
