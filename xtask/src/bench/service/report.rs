//! The table of results.

use std::fmt::Write;

use super::{
    super::figures, ANSWERS_AFTER_S_MAX, BULK_FILES, BULK_PER_S_MIN, BYTES_EACH_MAX, CLIENTS,
    IDLE_PERCENT_MAX, LINES, NAMES, NAMINGS, QUESTIONS, Row, STATUS_P99_MS_MAX, SUBMITS_PER_S_MIN,
    TRANSFERS, WINDOW,
};
use crate::root;

/// Returns the report of the results with each journal, with so many requests queued.
pub(super) fn write(rows: &[Row], requests: usize) -> String {
    let mut text = format!(
        "# The service\n\nWritten by `cargo xtask bench service`. The service as it ships, on loopback, with a relay beside it that takes \
         1 MiB a second. {CLIENTS} clients submit {requests} requests of one file of a MiB, each over a connection of its own, and ask again where the service \
         says that too many wait for their scan; all of \
         them stay queued while {QUESTIONS} questions of each kind are asked by as many, and other transfers run to more relays, each of which takes little. Then it is killed and started again. A job of FTS's \
         interface has {BULK_FILES} files, a call of our own {LINES} lines, and waits while 10,000 wait for their scan; {NAMINGS} requests, one after the other, name {NAMES} files each. Memory is what the process grew by; the processor's time is that of the service, of one core, \
         over {} s. Clients, service, relay and database share the machine.\n\n{}\n\n| | {} | to reach |\n|---|{}---|\n",
        WINDOW.as_secs(),
        figures::machine(&root()),
        rows.iter()
            .map(|row| row.kind.name())
            .collect::<Vec<_>>()
            .join(" | "),
        "---|".repeat(rows.len()),
    );
    for (what, of, goal) in taking().into_iter().chain(keeping()) {
        let cells: Vec<String> = rows.iter().map(of).collect();
        let _ = writeln!(text, "| {what} | {} | {goal} |", cells.join(" | "));
    }
    text
}

/// Line of the report: its subject, its figure, and its goal.
type Line = (String, fn(&Row) -> String, String);

fn line(what: &str, of: fn(&Row) -> String, goal: String) -> Line {
    (what.to_owned(), of, goal)
}

/// Returns the lines about the speed of submissions.
fn taking() -> Vec<Line> {
    vec![
        line(
            "submissions of one file a second",
            |row| format!("{:.0}", row.submits_per_s),
            format!("{SUBMITS_PER_S_MIN:.0}"),
        ),
        line(
            "one of them: median, p99",
            |row| row.submit.to_string(),
            String::new(),
        ),
        line(
            "until all were scanned and admitted",
            |row| format!("{:.1} s", row.admitted_s),
            String::new(),
        ),
        line(
            "files a second, in jobs of FTS's interface",
            |row| format!("{:.0}", row.bulk_per_s),
            format!("{BULK_PER_S_MIN:.0}"),
        ),
        line(
            "lines of one call a second, each a submission of one file",
            |row| format!("{:.0}", row.lines_per_s),
            String::new(),
        ),
        line(
            "files a second that requests name",
            |row| format!("{:.0}", row.names_per_s),
            format!("{BULK_PER_S_MIN:.0}"),
        ),
        line(
            "until those were found and admitted",
            |row| format!("{:.1} s", row.named_s),
            String::new(),
        ),
    ]
}

/// Returns the lines about the speed of answers, and the cost.
fn keeping() -> Vec<Line> {
    vec![
        line(
            "connections of transfers that run meanwhile",
            |row| row.transfers.to_string(),
            TRANSFERS.to_string(),
        ),
        line(
            "status of one: median, p99",
            |row| row.status.to_string(),
            format!("p99 {STATUS_P99_MS_MAX:.0} ms"),
        ),
        line(
            "page of 100: median, p99",
            |row| row.page.to_string(),
            String::new(),
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
            String::new(),
        ),
        line(
            "the same with 100 watchers of events",
            |row| format!("{:.1} %", row.watched_percent),
            String::new(),
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
