//! The last words of a copy, for people or for programs.

use std::io::{self, Write};

use posthaste_engine::copy::{Ending, Figures};
use posthaste_types::{ByteRate, Bytes};
use serde_json::{Value, json};

use super::CopyArguments;

/// Figures under the names rclone's `core/stats` gives them.
pub(super) fn stats(figures: &Figures) -> Value {
    let rate = ByteRate::over(Bytes::new(figures.bytes), figures.elapsed);
    let left = figures
        .total_bytes
        .saturating_sub(figures.bytes + figures.resumed_bytes);
    let eta = (rate.get() > 0).then(|| rate.time_for(Bytes::new(left)).as_secs());
    json!({
        "bytes": figures.bytes,
        "checks": figures.unchanged,
        "elapsedTime": figures.elapsed.as_secs_f64(),
        "errors": figures.errors,
        "retries": figures.tries,
        "eta": eta,
        "listed": figures.listed,
        "speed": rate.get(),
        "totalBytes": figures.total_bytes,
        "totalTransfers": figures.total_files,
        "transfers": figures.files,
        "resumedBytes": figures.resumed_bytes,
        "links": figures.links,
        "directories": figures.directories,
    })
}

/// Prints how it ended, when anybody wants to know.
pub(super) fn print(arguments: &CopyArguments, ending: &Ending, code: u8) {
    let figures = &ending.figures;
    if arguments.json {
        let mut stats = stats(figures);
        stats["fatalError"] = json!(ending.fatal.is_some());
        stats["lastError"] = json!(ending.last_error);
        stats["dryRun"] = json!(arguments.dry_run);
        stats["exitCode"] = json!(code);
        stats["tuning"] = ending
            .tuned
            .decisions
            .iter()
            .map(|decision| {
                json!({
                    "at_s": decision.at.as_secs_f64(),
                    "rate_bytes_per_s": decision.rate.map(ByteRate::get),
                    "setting": decision.setting.to_string(),
                    "reason": decision.reason,
                })
            })
            .collect();
        // Nobody can be told that standard output is gone.
        let _ = writeln!(io::stdout(), "{stats}");
        return;
    }
    if arguments.quiet || ending.fatal.is_some() {
        return;
    }
    let failed = if figures.errors == 0 {
        String::new()
    } else {
        format!(", {} failed", figures.errors)
    };
    let resumed = if figures.resumed_bytes == 0 {
        String::new()
    } else {
        format!(
            ", {} were there from an earlier run",
            Bytes::new(figures.resumed_bytes)
        )
    };
    let verb = if arguments.dry_run {
        "would copy"
    } else {
        "copied"
    };
    let files = if arguments.dry_run {
        figures.total_files
    } else {
        figures.files
    };
    let bytes = if arguments.dry_run {
        figures.total_bytes
    } else {
        figures.bytes
    };
    let _ = writeln!(
        io::stderr(),
        "{verb} {files} files, {} in {:.1} s; {} unchanged{failed}{resumed}",
        Bytes::new(bytes),
        figures.elapsed.as_secs_f64(),
        figures.unchanged,
    );
}
