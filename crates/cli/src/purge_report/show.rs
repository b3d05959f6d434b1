//! Formats of a report: for people, and JSON.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use jiff::{Timestamp, tz::TimeZone};
use posthaste_batch::purge::{Confidence, Death, Group, Language, Sum};
use posthaste_types::Bytes;
use serde_json::{Value, json};

use super::{Report, ReportArguments, date_of, elsewhere::Elsewhere};
use crate::{ls::progress::grouped, output};

/// Prints a report.
pub(super) fn print(report: &Report<'_>, arguments: &ReportArguments) {
    if arguments.json {
        output::json(&to_json(report, arguments));
        return;
    }
    output::line(&head(report));
    days(report);
    if !arguments.summary {
        directories(report, arguments);
    }
}

fn head(report: &Report<'_>) -> String {
    let account = report.account;
    let scanned = match report.is_incremental {
        false => String::new(),
        true => format!(
            ", {} of them looked at again",
            grouped(report.tally.looked_at())
        ),
    };
    format!(
        "{}: {} in {} directories{scanned}",
        output::one_line(&String::from_utf8_lossy(report.root.path())),
        of_files(account.total),
        grouped(report.tally.directories())
    )
}

fn of_files(sum: Sum) -> String {
    let noun = if sum.files == 1 { "file" } else { "files" };
    format!("{} {noun}, {}", grouped(sum.files), Bytes::new(sum.bytes))
}

fn days(report: &Report<'_>) {
    let account = report.account;
    let mut rows = vec![
        ["GOES", "FILES", "BYTES", "PREDICTED", "SAFE ELSEWHERE"]
            .map(str::to_owned)
            .to_vec(),
    ];
    let number = |sum: Sum| match sum.files {
        0 => String::new(),
        files => grouped(files),
    };
    for (day, end_s) in account.days.iter().zip(report.midnights) {
        if day.all.files > 0 {
            rows.push(vec![
                date_of(*end_s, &report.world.zone),
                grouped(day.all.files),
                Bytes::new(day.all.bytes).to_string(),
                number(day.predicted),
                number(day.safe),
            ]);
        }
    }
    for (what, sum) in [
        ("may go, nobody can say when", account.possible),
        ("later", account.later),
        ("never", account.stays),
    ] {
        if sum.files > 0 {
            rows.push(vec![
                what.to_owned(),
                grouped(sum.files),
                Bytes::new(sum.bytes).to_string(),
            ]);
        }
    }
    output::table(&rows);
}

fn directories(report: &Report<'_>, arguments: &ReportArguments) {
    let urgent = report.account.urgent();
    if urgent.is_empty() {
        let all = match report.account.groups.is_empty() {
            true => "nothing goes",
            false => "all that goes is safe elsewhere",
        };
        return output::line(&format!(
            "\n{all} until {}",
            when(report.until_s, &report.world.zone)
        ));
    }
    output::line("\nTo offload first:");
    let limit = if arguments.limit == 0 {
        usize::MAX
    } else {
        arguments.limit
    };
    for (path, group) in urgent.iter().take(limit) {
        let Some(first) = group.first else { continue };
        let shown = full_path(report, *path);
        let from = how_sure(first.confidence);
        output::line(&format!(
            "{}: {}, {from} from {} on ({})",
            shown
                .as_deref()
                .map_or("others".into(), |path| output::one_line(
                    &String::from_utf8_lossy(path)
                )),
            of_files(group.dying),
            when(first.at_s, &report.world.zone),
            report.rules.policy.rules[first.rule].explain(),
        ));
        if let Some(path) = shown {
            let saves = offload(report.elsewhere, report.world.now_s, &path, first);
            output::line(&format!("  {saves}"));
        }
    }
    if urgent.len() > limit {
        output::line(&format!(
            "and {} more (--limit 0 tells all)",
            urgent.len() - limit
        ));
    }
}

/// Describes the confidence of a deadline, as a prefix.
pub(super) fn how_sure(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::Possible => "possibly",
        Confidence::Predicted => "as predicted",
        Confidence::Certain => "certainly",
    }
}

pub(super) fn when(at_s: i64, zone: &TimeZone) -> String {
    let at = Timestamp::from_second(at_s).unwrap_or(Timestamp::MAX);
    at.to_zoned(zone.clone())
        .strftime("%Y-%m-%d %H:%M")
        .to_string()
}

fn full_path(report: &Report<'_>, path: Option<&[u8]>) -> Option<Vec<u8>> {
    let mut full = report.root.path().to_vec();
    let path = path?;
    if !path.is_empty() {
        if full != b"/" {
            full.push(b'/');
        }
        full.extend_from_slice(path);
    }
    Some(full)
}

/// Returns the command that saves a file, or a directory before its first file is purged; names
/// that only the user knows are in capitals.
pub(super) fn offload(elsewhere: &Elsewhere, now_s: i64, path: &[u8], first: Death) -> String {
    let deadline = match first.at_s <= now_s {
        true => "1h".to_owned(),
        false => Timestamp::from_second(first.at_s)
            .unwrap_or(Timestamp::MAX)
            .to_string(),
    };
    let to = elsewhere.to.as_deref().unwrap_or("NAME");
    let via = match elsewhere.via.is_empty() {
        true => "DEPOT,DEPOT".to_owned(),
        false => elsewhere.via.join(","),
    };
    format!(
        "posthaste offload {} --to {} --via {} --deadline {deadline}",
        quoted(path),
        quoted(to.as_bytes()),
        quoted(via.as_bytes())
    )
}

/// Quotes a word for a shell.
fn quoted(word: &[u8]) -> String {
    let text = OsStr::from_bytes(word).to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) && !text.starts_with('-') {
        return text.into_owned();
    }
    if word.iter().any(u8::is_ascii_control) || std::str::from_utf8(word).is_err() {
        return format!("$'{}'", word.escape_ascii());
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

pub(super) fn rfc(at_s: i64) -> Option<String> {
    Timestamp::from_second(at_s).map(|at| at.to_string()).ok()
}

fn to_json(report: &Report<'_>, arguments: &ReportArguments) -> Value {
    let account = report.account;
    let sum = |sum: Sum| json!({"files": sum.files, "bytes": sum.bytes});
    let days = account.days.iter().zip(report.midnights);
    let days = days.filter(|(day, _)| day.all.files > 0).map(|(day, end_s)| {
        json!({
            "date": date_of(*end_s, &report.world.zone), "all": sum(day.all), "predicted": sum(day.predicted),
            "safe": sum(day.safe),
        })
    });
    let limit = if arguments.limit == 0 {
        usize::MAX
    } else {
        arguments.limit
    };
    let directory = |(path, group): (Option<&[u8]>, &Group)| {
        let first = group.first?;
        let full = full_path(report, path);
        Some(json!({
            "path": full.as_deref().map(|path| String::from_utf8_lossy(path).into_owned()),
            "first": rfc(first.at_s), "confidence": first.confidence.name(),
            "rule": report.rules.policy.rules[first.rule].name,
            "why": report.rules.policy.rules[first.rule].explain(),
            "dying": sum(group.dying), "possible": sum(group.possible), "safe": sum(group.safe),
            "offload": full.map(|path| offload(report.elsewhere, report.world.now_s, &path, first)),
        }))
    };
    let directories: Vec<Value> = match arguments.summary {
        true => Vec::new(),
        false => account
            .urgent()
            .into_iter()
            .take(limit)
            .filter_map(directory)
            .collect(),
    };
    let language = match report.rules.language {
        Language::Toml => "toml",
        Language::Robinhood => "robinhood",
        Language::Scale => "scale",
    };
    let remarks = report.rules.policy.remarks.iter();
    let remarks: Vec<Value> = remarks
        .map(|one| json!({"line": one.line, "text": one.text}))
        .collect();
    json!({
        "path": String::from_utf8_lossy(report.root.path()), "now": rfc(report.world.now_s), "until": rfc(report.until_s),
        "policy": {"file": report.rules.shown, "language": language, "remarks": remarks},
        "total": sum(account.total), "never": sum(account.stays), "later": sum(account.later),
        "possible": sum(account.possible), "days": days.collect::<Vec<_>>(), "directories": directories,
        "service_asked": report.elsewhere.is_known,
        "scan": {
            "files": report.tally.files(), "looked_at": report.tally.looked_at(),
            "directories": report.tally.directories(), "listed": report.tally.listed(),
            "other_file_systems": report.tally.elsewhere(), "failures": report.tally.failures(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_as_shells_take_them() {
        for (word, wanted) in [
            (&b"/scratch/a-b"[..], "/scratch/a-b"),
            (b"/a b", "'/a b'"),
            (b"/it's", r"'/it'\''s'"),
            (b"/\xff", r"$'/\xff'"),
            (b"/a\nb", r"$'/a\nb'"),
            (b"-x", "'-x'"),
            (b"", "''"),
        ] {
            assert_eq!(quoted(word), wanted);
        }
    }
}
