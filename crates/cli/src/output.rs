//! Only place that writes to standard output, and lines to standard error.

use std::{
    io::{ErrorKind, Write, stderr, stdout},
    sync::atomic::{AtomicBool, Ordering},
};

use posthaste_endpoint::Unkept;
use posthaste_types::is_obeyed;

use crate::failure::Exit;

/// Prints a line on standard error, whether or not it has a reader.
macro_rules! note {
    ($($text:tt)*) => {
        $crate::output::say(&format!($($text)*))
    };
}
pub(crate) use note;

/// Formats the text of [`note`].
pub fn say(text: &str) {
    // The reader that closed it wants no message.
    let _ = stderr().lock().write_all(format!("{text}\n").as_bytes());
}

/// Exit code with which shells report SIGPIPE: nobody reads the program's output any more.
pub const NOBODY_READS: u8 = 141;

/// Prints a line. If that fails the program ends with a failure, because the output was lost.
pub fn line(text: &str) {
    write(&plain(text));
}

/// Reports a problem on standard error.
pub fn complain(what: &dyn std::fmt::Display) {
    note!("posthaste: {}", plain(&what.to_string()));
}

/// Makes a text safe for a terminal: sequences that would move the cursor or change colours are
/// shown instead of obeyed.
pub fn plain(text: &str) -> String {
    escaped(text, |letter| letter.escape_default().to_string())
}

/// Makes a text safe for a terminal and puts it on one line: a name may have anything in it.
pub fn one_line(text: &str) -> String {
    plain(text).replace('\n', "\\n").replace('\t', "\\t")
}

/// Makes JSON safe for a terminal: only its strings can contain characters that a terminal would
/// obey.
pub fn plain_json(text: &str) -> String {
    escaped(text, |letter| format!("\\u{:04x}", u32::from(letter)))
}

/// Escapes a text's control characters, except line ends and tabs.
fn escaped(text: &str, write: impl Fn(char) -> String) -> String {
    let is_kept = |letter: char| !is_obeyed(letter) || matches!(letter, '\n' | '\t');
    let mut all = String::with_capacity(text.len());
    for letter in text.chars() {
        match is_kept(letter) {
            true => all.push(letter),
            false => all.push_str(&write(letter)),
        }
    }
    all
}

fn write(text: &str) {
    let mut out = stdout().lock();
    let printed = out
        .write_all(text.as_bytes())
        .and_then(|()| out.write_all(b"\n"))
        .and_then(|()| out.flush());
    let Err(cause) = printed else { return };
    if cause.kind() == ErrorKind::BrokenPipe {
        std::process::exit(NOBODY_READS.into());
    }
    give_up(&cause)
}

/// Ends the program, whose output is lost.
pub fn give_up(cause: &std::io::Error) -> ! {
    note!("posthaste: can't write to standard output: {cause}");
    std::process::exit(Exit::Fatal as i32)
}

/// Formats a count: `1 file`, `2 files`.
pub fn counted(number: u64, noun: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{ending}")
}

/// Reports files that arrived without the bits that would lend their owner's rights.
pub fn lent_rights_not_given(count: u64) -> Option<String> {
    let files = (count > 0).then(|| counted(count, "file"))?;
    Some(format!(
        "not given: set-user-ID and set-group-ID bits of {files}, which would lend its owner's rights (`chmod u+s` gives them)"
    ))
}

/// Reports the metadata that a destination refused to keep, if any.
pub fn not_kept(unkept: Unkept, links: u64) -> Option<String> {
    let kinds = [
        (unkept.modes, "mode"),
        (unkept.times, "modification time"),
        (links, "symbolic link"),
    ];
    let refused = kinds.into_iter().filter(|&(count, _)| count > 0);
    let refused: Vec<_> = refused.map(|(count, kind)| counted(count, kind)).collect();
    let refused = (!refused.is_empty()).then(|| refused.join(", "))?;
    Some(format!("not kept, as the destination refuses: {refused}"))
}

static TOLD_JSON: AtomicBool = AtomicBool::new(false);

/// Returns whether anything was printed as JSON.
pub fn has_told_json() -> bool {
    TOLD_JSON.load(Ordering::Relaxed)
}

/// Prints a value as one line of JSON.
pub fn json(value: &impl serde::Serialize) {
    TOLD_JSON.store(true, Ordering::Relaxed);
    let text = serde_json::to_string(value);
    let text = text.unwrap_or_else(|cause| format!("{{\"error\":\"{cause}\"}}"));
    // A terminal may obey characters that JSON does not escape.
    write(&plain_json(&text));
}

/// Prints rows as columns two spaces apart; the first row is the heading.
pub fn table(rows: &[Vec<String>]) {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
    };
    let widths: Vec<usize> = (0..columns)
        .map(|column| width(column).unwrap_or(0))
        .collect();
    for row in rows {
        let cells = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        line(cells.collect::<Vec<_>>().join("  ").trim_end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown_instead() {
        assert_eq!(
            plain("a\u{1b}[31mb\u{9b}2J\tc\nä"),
            "a\\u{1b}[31mb\\u{9b}2J\tc\nä"
        );
        assert_eq!(
            one_line("can't a\nb\t\u{202e}c"),
            "can't a\\nb\\t\\u{202e}c"
        );
        let text = plain_json("\"\u{9b}\u{202e}\"");
        assert!(text.is_ascii(), "{text}");
        assert_eq!(
            serde_json::from_str::<String>(&text).unwrap(),
            "\u{9b}\u{202e}"
        );
    }
}
