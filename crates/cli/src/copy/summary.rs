//! Final report of a copy, for people or for programs.

use std::io::{self, Write};

use posthaste_engine::{
    copy::{Ending, Figures, Limit},
    parked::Record,
};
use posthaste_types::{ByteRate, Bytes};
use serde_json::{Value, json};

use super::{CopyArguments, Losses};
use crate::output;

/// Formats figures under the names that rclone's `core/stats` gives them.
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
        "serverSideCopies": figures.server_copies,
        "serverSideCopyBytes": figures.server_copy_bytes,
        "links": figures.links,
        "directories": figures.directories,
    })
}

/// Returns the bytes that only the parking place has.
fn parked_bytes(record: &Record) -> u64 {
    let size = record.whole.map_or(0, |(size, _)| size);
    size.saturating_sub(record.confirmed.bytes())
}

/// Prints the result, if it is wanted.
pub(super) fn print(
    arguments: &CopyArguments,
    ending: &Ending,
    (parked, losses): (Option<&(Record, String)>, &Losses),
    code: u8,
) {
    let figures = &ending.figures;
    if arguments.json {
        print_json(arguments, ending, (parked, losses), code);
        return;
    }
    if ending.fatal.is_some() {
        return;
    }
    if !arguments.quiet {
        print_figures(arguments, figures, parked);
    }
    // This is the reason for the exit code.
    if let Some(limit) = limit(arguments, ending) {
        let _ = writeln!(
            io::stderr(),
            "posthaste: {limit} ended it before all was copied (run the same again to go on)"
        );
    }
    let is_asked = arguments.archive || arguments.preserve;
    if !arguments.quiet || is_asked || ending.links_refused > 0 {
        for line in refused(ending) {
            let _ = writeln!(io::stderr(), "{line}");
        }
    }
    // `-a` says so among its losses.
    let lent_rights = ending.lent_rights * u64::from(!arguments.archive);
    if let Some(line) = output::lent_rights_not_given(lent_rights) {
        let _ = writeln!(io::stderr(), "{line}");
    }
    // This is the reason for the exit code, so it is printed even where little else is.
    if !losses.is_nothing() {
        let _ = writeln!(io::stderr(), "not kept, as -a asks for: {losses}");
    }
}

/// Returns the user's limit that ended the copy, as typed.
fn limit(arguments: &CopyArguments, ending: &Ending) -> Option<String> {
    Some(match ending.limit? {
        Limit::Transfer => format!("--max-transfer {}", arguments.max_transfer?),
        Limit::Duration => format!("--max-duration {:?}", arguments.max_duration?),
    })
}

/// Lists the metadata that the destination refused to keep, once and not for each file.
fn refused(ending: &Ending) -> Vec<String> {
    let not_kept = output::not_kept(ending.unkept, ending.links_refused);
    let mut lines: Vec<_> = not_kept.into_iter().collect();
    if ending.untimed > 0 {
        lines.push(format!(
            "{} told from the same there by size alone, as no times are kept there (--ignore-times copies all)",
            output::counted(ending.untimed, "file"),
        ));
    }
    lines
}

fn print_figures(arguments: &CopyArguments, figures: &Figures, parked: Option<&(Record, String)>) {
    if let Some((record, place)) = parked {
        let _ = writeln!(
            io::stderr(),
            "parked at {place}: {} of the stream, {} are at the destination \
             (`posthaste parked resume {}` completes it)",
            Bytes::new(parked_bytes(record)),
            Bytes::new(record.confirmed.bytes()),
            record.id,
        );
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
        "{verb} {}, {} in {:.1} s; {} unchanged{failed}{resumed}",
        output::counted(files, "file"),
        Bytes::new(bytes),
        figures.elapsed.as_secs_f64(),
        figures.unchanged,
    );
}

fn print_json(
    arguments: &CopyArguments,
    ending: &Ending,
    (parked, losses): (Option<&(Record, String)>, &Losses),
    code: u8,
) {
    let mut stats = stats(&ending.figures);
    stats["fatalError"] = json!(ending.fatal.is_some());
    stats["lastError"] = json!(ending.last_error);
    stats["code"] = json!(ending.last_code);
    stats["endedBy"] = json!(limit(arguments, ending));
    stats["notKept"] = json!((!losses.is_nothing()).then(|| losses.to_string()));
    stats["modesNotKept"] = json!(ending.unkept.modes);
    stats["timesNotKept"] = json!(ending.unkept.times);
    stats["linksNotKept"] = json!(ending.links_refused);
    stats["comparedBySizeAlone"] = json!(ending.untimed);
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
    stats["parked"] = parked.map_or(Value::Null, |(record, place)| {
        json!({
            "id": record.id.to_string(),
            "place": place,
            "reason": record.why,
            "confirmed_bytes": record.confirmed.bytes(),
        })
    });
    output::json(&stats);
}
