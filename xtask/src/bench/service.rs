//! `cargo xtask bench service`: what the service answers in a second, how soon with many requests queued, and what they cost it.
//!
//! The service runs as it ships, with one relay that takes little a second, so that what is submitted stays queued.

mod load;
mod subject;

use std::{
    fmt::Write,
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::{figures, say, stage};
use crate::root;
use load::{Latency, Load};
use subject::{Kind, Subject};

/// Requests that are queued, one file of a MiB each.
const REQUESTS: usize = 100_000;
/// Clients that submit and ask at once, each over a connection of its own.
const CLIENTS: usize = 16;
/// Questions in each row.
const QUESTIONS: usize = 5000;
/// Files of one job of FTS's interface, and such jobs.
const BULK_FILES: usize = 10_000;
const BULKS: usize = 3;
/// Lines of a call of our own interface, of a file of a MiB each.
const LINES: usize = 30_000;
/// Who listens to events.
const WATCHERS: usize = 100;
/// For how long the processor's time is taken.
const WINDOW: Duration = Duration::from_secs(10);
/// Nothing here may take longer.
const PATIENCE: Duration = Duration::from_secs(1800);

/// What must be reached, with SQLite.
const SUBMITS_PER_S_MIN: f64 = 2000.0;
const BULK_PER_S_MIN: f64 = 100_000.0;
const STATUS_P99_MS_MAX: f64 = 50.0;
const BYTES_EACH_MAX: f64 = 2048.0;
const IDLE_PERCENT_MAX: f64 = 5.0;
const ANSWERS_AFTER_S_MAX: f64 = 5.0;

/// What was measured with one journal.
struct Row {
    kind: Kind,
    submit: Latency,
    submits_per_s: f64,
    admitted_s: f64,
    bulk_per_s: f64,
    lines_per_s: f64,
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
/// When something can't be started or answers wrongly.
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
    super::publish("service", &report(&rows, requests))?;
    Ok(())
}

fn measure(subject: &mut Subject, requests: usize) -> Result<Row> {
    say(&format!("{}: idle", subject.kind.name()));
    std::thread::sleep(Duration::from_secs(3));
    let idle_percent = subject.busy_percent(WINDOW)?;
    let before = subject.memory()?;
    say(&format!("{requests} requests by {CLIENTS} clients"));
    let source = subject.source()?;
    let submits = (0..requests).map(|number| {
        let body = wanted(&source, &format!("bench-{number}"));
        ("POST".to_owned(), "/v1/requests".to_owned(), body)
    });
    let (submit, took) = Load::new(subject).run(CLIENTS, submits.collect(), 201)?;
    let begun = now();
    subject.wait_until_admitted(PATIENCE)?;
    let admitted_s = took.as_secs_f64() + begun.elapsed().as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "shown to people")]
    let bytes_each = subject.memory()?.saturating_sub(before) as f64 / requests as f64;
    say("questions while they are queued");
    let ask = |path: &dyn Fn(usize) -> String| -> Vec<(String, String, String)> {
        let asked = (0..QUESTIONS).map(|number| ("GET".to_owned(), path(number), String::new()));
        asked.collect()
    };
    let one = |number: usize| format!("/v1/requests/r{}", 1 + number * 7919 % requests);
    let (status, _) = Load::new(subject).run(CLIENTS, ask(&one), 200)?;
    let some = |_| "/v1/requests?limit=100&fields=id,state".to_owned();
    let (page, _) = Load::new(subject).run(CLIENTS, ask(&some), 200)?;
    let queued_percent = subject.busy_percent(WINDOW)?;
    let watchers = Load::new(subject).watch(WATCHERS)?;
    let watched_percent = subject.busy_percent(WINDOW)?;
    drop(watchers);
    say("killed, and started again");
    let (answers_after, resumes_after) = subject.kill_and_restart(PATIENCE)?;
    say("many lines in one call");
    let lines_per_s = lines_of_one_call(subject)?;
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

/// Files in a second that jobs of many files bring.
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

/// Lines in a second that one call brings, while sources are scanned.
fn lines_of_one_call(subject: &Subject) -> Result<f64> {
    let source = subject.source()?;
    let lines = (0..LINES).map(|number| wanted(&source, &format!("line-{number}")) + "\n");
    let took = Load::new(subject).pour(&lines.collect::<String>(), LINES)?;
    #[expect(clippy::cast_precision_loss, reason = "shown to people")]
    let lines = LINES as f64;
    Ok(lines / took.as_secs_f64())
}

/// A submission of one file.
fn wanted(source: &str, submission: &str) -> String {
    let body = json!({
        "source": source, "to": ["away"], "via": ["depot"], "code": "1+0",
        "deadline": "2027-12-01T00:00:00Z", "submission_id": submission, "best_effort": true,
    });
    body.to_string()
}

fn report(rows: &[Row], requests: usize) -> String {
    let mut text = format!(
        "# The service\n\nWritten by `cargo xtask bench service`. The service as it ships, on loopback, with a relay beside it that takes \
         1 MiB a second. {CLIENTS} clients submit {requests} requests of one file of a MiB, each over a connection of its own, and ask again where the service \
         says that too many wait for their scan; all of \
         them stay queued while {QUESTIONS} questions of each kind are asked by as many. Then it is killed and started again. A job of FTS's \
         interface has {BULK_FILES} files, a call of our own {LINES} lines, and waits while 10,000 wait for their scan. Memory is what the process grew by; the processor's time is that of the service, of one core, \
         over {} s. Clients, service, relay and database share the machine.\n\n{}\n\n| | {} | to reach |\n|---|{}---|\n",
        WINDOW.as_secs(),
        figures::machine(&root()),
        rows.iter()
            .map(|row| row.kind.name())
            .collect::<Vec<_>>()
            .join(" | "),
        "---|".repeat(rows.len()),
    );
    for (what, of, goal) in lines() {
        let cells: Vec<String> = rows.iter().map(of).collect();
        let _ = writeln!(text, "| {what} | {} | {goal} |", cells.join(" | "));
    }
    text
}

/// What a line of the report is about, its figure, and what must be reached.
type Line = (String, fn(&Row) -> String, String);

fn lines() -> Vec<Line> {
    let line = |what: &str, of: fn(&Row) -> String, goal: String| (what.to_owned(), of, goal);
    let none = String::new;
    vec![
        line(
            "submissions of one file a second",
            |row| format!("{:.0}", row.submits_per_s),
            format!("{SUBMITS_PER_S_MIN:.0}"),
        ),
        line(
            "one of them: median, p99",
            |row| row.submit.to_string(),
            none(),
        ),
        line(
            "until all were scanned and admitted",
            |row| format!("{:.1} s", row.admitted_s),
            none(),
        ),
        line(
            "files in bulk a second",
            |row| format!("{:.0}", row.bulk_per_s),
            format!("{BULK_PER_S_MIN:.0}"),
        ),
        line(
            "lines of one call a second, each a submission of one file",
            |row| format!("{:.0}", row.lines_per_s),
            none(),
        ),
        line(
            "status of one: median, p99",
            |row| row.status.to_string(),
            format!("p99 {STATUS_P99_MS_MAX:.0} ms"),
        ),
        line(
            "page of 100: median, p99",
            |row| row.page.to_string(),
            none(),
        ),
        line(
            "memory of a queued request",
            |row| format!("{:.0} B", row.bytes_each),
            format!("{BYTES_EACH_MAX:.0} B"),
        ),
        line(
            "processor, idle",
            |row| format!("{:.1} %", row.idle_percent),
            format!("{IDLE_PERCENT_MAX:.0} %"),
        ),
        line(
            "processor, all queued",
            |row| format!("{:.1} %", row.queued_percent),
            none(),
        ),
        line(
            "the same with 100 watchers of events",
            |row| format!("{:.1} %", row.watched_percent),
            none(),
        ),
        line(
            "answers again after a kill",
            |row| format!("{:.1} s", row.answers_after_s),
            format!("{ANSWERS_AFTER_S_MAX:.0} s"),
        ),
        line(
            "moves data again",
            |row| format!("{:.1} s", row.resumes_after_s),
            "10 s".to_owned(),
        ),
    ]
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn now() -> Instant {
    Instant::now()
}
