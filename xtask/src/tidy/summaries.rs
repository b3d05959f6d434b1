//! First words of documentation: a summary line is a verb and its object, or a noun phrase.

use super::{Finding, Tree};

/// First words that put the clause before the verb.
const AVOIDED: [&str; 13] = [
    "What", "Whether", "How", "The same", "As", "Of", "One", "It", "Who", "Where", "When", "Those",
    "That",
];
/// Documentation that people and programs outside read as help and as the API document. It is
/// written for them, and changes with their tests.
const OUTSIDE: [&str; 4] = [
    "crates/cli/",
    "crates/api/",
    "crates/service/src/http/",
    "lab/src/main.rs",
];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.ending(".rs") {
        let is_outside = OUTSIDE.iter().any(|outside| path.starts_with(outside));
        if is_outside || path.contains("/tests/") {
            continue;
        }
        let mut above = "";
        for (place, line) in text.lines().map(str::trim).enumerate() {
            let mark = ["/// ", "//! "]
                .into_iter()
                .find(|mark| line.starts_with(mark));
            if let Some(mark) = mark
                && !above.starts_with(mark.trim_end())
            {
                found.extend(judge(path, place + 1, &line[mark.len()..]));
            }
            above = line;
        }
    }
    found
}

fn judge(path: &str, line: usize, summary: &str) -> Option<Finding> {
    let word = AVOIDED.iter().find(|word| {
        let rest = summary.strip_prefix(**word);
        rest.is_some_and(|rest| rest.starts_with([' ', ',']))
    })?;
    let message = format!(
        "documentation begins with `{word}`: begin with a verb (\"Returns whether …\") or a noun"
    );
    Some(Finding::new(path, line, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_begins_with_a_verb_or_a_noun() {
        let found = |text: &str| {
            check(&Tree::of(&[("crates/core/src/a.rs", text)]))
                .iter()
                .map(|finding| finding.line)
                .collect::<Vec<_>>()
        };
        let text = "//! Rates.\n\n/// Whether it runs.\nfn a() {}\n/// Returns it.\n/// It is cheap.\nfn b() {}\n";
        assert_eq!(found(text), [3]);
        assert_eq!(
            found("/// The same, later.\n/// Assets.\n\n/// Assets.\n"),
            [1]
        );
        let help = Tree::of(&[("crates/cli/src/a.rs", "/// What to copy.\n")]);
        assert!(check(&help).is_empty());
    }
}
