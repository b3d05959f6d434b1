//! `cargo xtask bench service`: answers of the service in a second, their latency with many
//! requests queued, and the cost of those.
//!
//! The service runs as it ships, with one slow relay, so that submitted requests stay queued.

mod load;
mod report;
mod subject;

use std::{
    fmt::Write,
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::{say, stage};
use load::{Latency, Load};
use subject::{Kind, Subject};

/// Requests that are queued, one file of a MiB each.
const REQUESTS: usize = 100_000;
/// Clients that submit and ask at once, each over a connection of its own.
const CLIENTS: usize = 16;
/// Transfers that run while it is asked, over so many more slow depots; files are small, so that
/// few bytes are in flight.
const TRANSFERS: usize = 200;
const BUSY_DEPOTS: usize = 220;
const BUSY_REQUESTS: usize = 2200;
const BUSY_BYTES: usize = 256 << 10;
/// Questions in each row.
const QUESTIONS: usize = 5000;
/// Files of one job of FTS's interface, and such jobs.
const BULK_FILES: usize = 10_000;
const BULKS: usize = 3;
/// Lines of a call of our own interface, of a file of a MiB each.
const LINES: usize = 30_000;
/// Files that one request names, and such requests.
const NAMES: usize = 100_000;
const NAMINGS: usize = 3;
/// Clients that listen to events.
const WATCHERS: usize = 100;
/// Window of the processor measurement.
const WINDOW: Duration = Duration::from_secs(10);
/// Longest time for anything here.
const PATIENCE: Duration = Duration::from_secs(1800);

/// Goals with SQLite.
const SUBMITS_PER_S_MIN: f64 = 2000.0;
const BULK_PER_S_MIN: f64 = 100_000.0;
const STATUS_P99_MS_MAX: f64 = 50.0;
const BYTES_EACH_MAX: f64 = 2048.0;
const IDLE_PERCENT_MAX: f64 = 5.0;
const ANSWERS_AFTER_S_MAX: f64 = 5.0;

/// Results with one journal.
struct Row {
    kind: Kind,
    submit: Latency,
    submits_per_s: f64,
    admitted_s: f64,
    bulk_per_s: f64,
    lines_per_s: f64,
    names_per_s: f64,
    named_s: f64,
    transfers: usize,
    status: Latency,
    page: Latency,
    bytes_each: f64,
    idle_percent: f64,
    queued_percent: f64,
    watched_percent: f64,
    answers_after_s: f64,
    resumes_after_s: f64,
}

/// Runs the benchmark; `--requests N` are queued, `--journal sqlite` or `postgres` alone.
///
/// # Errors
/// Fails if something can't be started or answers wrongly.
pub fn run(arguments: &[String]) -> Result<()> {
    let (mut requests, mut kinds) = (REQUESTS, vec![Kind::Sqlite, Kind::Postgres]);
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let value = words
            .next()
            .with_context(|| format!("{word} wants a value"))?;
        match (word.as_str(), value.as_str()) {
            ("--requests", number) => requests = number.parse()?,
            ("--journal", "sqlite") => kinds = vec![Kind::Sqlite],
            ("--journal", "postgres") => kinds = vec![Kind::Postgres],
            _ => bail!(
                "write `cargo xtask bench service [--requests N] [--journal sqlite|postgres]`"
            ),
        }
    }
    let program = stage::build("posthaste-cli", "posthaste")?;
    let folder = stage::Folder::new(&std::env::temp_dir())?;
    let mut rows = Vec::new();
    for kind in kinds {
        let place = folder.path().join(kind.name());
        fs::create_dir(&place)?;
        let mut subject = Subject::start(&program, &place, kind)?;
        rows.push(measure(&mut subject, requests)?);
    }
    super::publish("service", &report::write(&rows, requests))?;
    Ok(())
}

fn measure(subject: &mut Subject, requests: usize) -> Result<Row> {
    say(&format!("{}: idle", subject.kind.name()));
    std::thread::sleep(Duration::from_secs(3));
    let idle_percent = subject.busy_percent(WINDOW)?;
    let before = subject.memory()?;
    say(&format!("{requests} requests by {CLIENTS} clients"));
    let source = subject.source(1 << 20)?;
    let submits = (0..requests).map(|number| {
        let body = wanted(&source, "depot", &format!("bench-{number}"));
        ("POST".to_owned(), "/v1/requests".to_owned(), body)
    });
    let (submit, took) = Load::new(subject).run(CLIENTS, submits.collect(), 201)?;
    let begun = now();
    subject.wait_until_admitted(PATIENCE)?;
    let admitted_s = took.as_secs_f64() + begun.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "shown to people")]
    let bytes_each = subject.memory()?.saturating_sub(before) as f64 / requests as f64;
    say("questions while they are queued, and 200 transfers run");
    let busy = keep_busy(subject)?;
    let ask = |path: &dyn Fn(usize) -> String| -> Vec<(String, String, String)> {
        let asked = (0..QUESTIONS).map(|number| ("GET".to_owned(), path(number), String::new()));
        asked.collect()
    };
    let one = |number: usize| format!("/v1/requests/r{}", 1 + number * 7919 % requests);
    let mut transfers = subject.connections_to(&busy)?;
    let (status, _) = Load::new(subject).run(CLIENTS, ask(&one), 200)?;
    transfers = transfers.min(subject.connections_to(&busy)?);
    let some = |_| "/v1/requests?limit=100&fields=id,state".to_owned();
    let (page, _) = Load::new(subject).run(CLIENTS, ask(&some), 200)?;
    transfers = transfers.min(subject.connections_to(&busy)?);
    let queued_percent = subject.busy_percent(WINDOW)?;
    let watchers = Load::new(subject).watch(WATCHERS)?;
    let watched_percent = subject.busy_percent(WINDOW)?;
    drop(watchers);
    say("killed, and started again");
    let (answers_after, resumes_after) = subject.kill_and_restart(PATIENCE)?;
    say("many lines in one call");
    let lines_per_s = lines_of_one_call(subject)?;
    say("files that are named");
    let (names_per_s, named_s) = names(subject)?;
    say("jobs of FTS's interface");
    let bulk_per_s = bulk(subject)?;
    #[expect(clippy::cast_precision_loss, reason = "shown to people")]
    let submits_per_s = requests as f64 / took.as_secs_f64();
    Ok(Row {
        kind: subject.kind,
        submit,
        submits_per_s,
        admitted_s,
        bulk_per_s,
        lines_per_s,
        names_per_s,
        named_s,
        transfers,
        status,
        page,
        bytes_each,
        idle_percent,
        queued_percent,
        watched_percent,
        answers_after_s: answers_after.as_secs_f64(),
        resumes_after_s: resumes_after.as_secs_f64(),
    })
}

/// Starts transfers to more depots, until so many run.
fn keep_busy(subject: &mut Subject) -> Result<Vec<u16>> {
    let names: Vec<String> = (0..BUSY_DEPOTS)
        .map(|number| format!("busy-{number}"))
        .collect();
    let ports: Result<Vec<u16>> = names.iter().map(|name| subject.lend(name, "4k")).collect();
    let ports = ports?;
    let source = subject.source(BUSY_BYTES)?;
    let submits = (0..BUSY_REQUESTS).map(|number| {
        let body = wanted(
            &source,
            &names[number % BUSY_DEPOTS],
            &format!("busy-{number}"),
        );
        ("POST".to_owned(), "/v1/requests".to_owned(), body)
    });
    Load::new(subject).run(CLIENTS, submits.collect(), 201)?;
    let begun = now();
    while subject.connections_to(&ports)? < TRANSFERS {
        ensure!(begun.elapsed() < PATIENCE, "too few transfers run");
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(ports)
}

/// Returns the files in a second that jobs of many files submit.
fn bulk(subject: &Subject) -> Result<f64> {
    let files: Vec<Value> = (0..BULK_FILES)
        .map(|number| {
            json!({ "sources": [format!("https://127.0.0.1:9/f{number}")], "destinations": [format!("https://127.0.0.1:9/t{number}")] })
        })
        .collect();
    let body = json!({ "files": files, "params": { "max_time_in_queue": "1s" } }).to_string();
    let job = |_| ("POST".to_owned(), "/fts3/jobs".to_owned(), body.clone());
    let (_, took) = Load::new(subject).run(1, (0..BULKS).map(job).collect(), 200)?;
    #[expect(clippy::cast_precision_loss, reason = "shown to people")]
    let files = (BULKS * BULK_FILES) as f64;
    Ok(files / took.as_secs_f64())
}

/// Returns the lines in a second that one call submits, while sources are scanned.
fn lines_of_one_call(subject: &Subject) -> Result<f64> {
    let source = subject.source(1 << 20)?;
    let lines = (0..LINES).map(|number| wanted(&source, "depot", &format!("line-{number}")) + "\n");
    let took = Load::new(subject).pour(&lines.collect::<String>(), LINES)?;
    #[expect(clippy::cast_precision_loss, reason = "shown to people")]
    let lines = LINES as f64;
    Ok(lines / took.as_secs_f64())
}

/// Returns the files in a second that requests name, and the time until the last is scanned.
fn names(subject: &Subject) -> Result<(f64, f64)> {
    let tree = subject.tree(NAMES)?;
    let mut names = String::new();
    for name in &tree.names {
        let _ = writeln!(names, "\"{name}\"");
    }
    let call = |number: usize| {
        let first = wanted(&tree.root, "depot", &format!("named-{number}"));
        let path = "/v1/requests/named".to_owned();
        ("POST".to_owned(), path, format!("{first}\n{names}"))
    };
    let begun = now();
    let calls = (0..NAMINGS).map(call).collect();
    let (_, took) = Load::new(subject).run(1, calls, 201)?;
    subject.wait_until_admitted(PATIENCE)?;
    #[expect(clippy::cast_precision_loss, reason = "shown to people")]
    let files = (NAMINGS * NAMES) as f64;
    Ok((files / took.as_secs_f64(), begun.elapsed().as_secs_f64()))
}

/// Returns a submission of one file.
fn wanted(source: &str, depot: &str, submission: &str) -> String {
    let body = json!({
        "source": source, "to": ["away"], "via": [depot], "code": "1+0",
        "deadline": "2027-12-01T00:00:00Z", "submission_id": submission, "best_effort": true,
    });
    body.to_string()
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn now() -> Instant {
    Instant::now()
}
