//! The one place that writes to standard output.

use std::io::Write;

use posthaste_endpoint::Unkept;

/// Prints a line. When nobody reads any more (`| head`), the program just ends.
pub fn line(text: &str) {
    let mut out = std::io::stdout().lock();
    if out
        .write_all(text.as_bytes())
        .and_then(|()| out.write_all(b"\n"))
        .is_err()
        || out.flush().is_err()
    {
        std::process::exit(0);
    }
}

/// So many of something: `1 file`, `2 files`.
pub fn counted(number: u64, noun: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{ending}")
}

/// Says what a destination refused to keep of what arrived, if anything.
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

/// Prints a value as one line of JSON.
pub fn json(value: &impl serde::Serialize) {
    line(
        &serde_json::to_string(value).unwrap_or_else(|cause| format!("{{\"error\":\"{cause}\"}}")),
    );
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
