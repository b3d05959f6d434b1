//! A paper that is cited by its key is in the list.

use std::collections::BTreeSet;

use super::{
    Finding, Tree,
    source::{self, Kind},
};

const LIST: &str = "docs/papers.md";

pub fn check(tree: &Tree) -> Vec<Finding> {
    let listed: BTreeSet<&str> = tree
        .get(LIST)
        .unwrap_or_default()
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .collect();
    let mut found = Vec::new();
    let mut look = |path: &str, first_line: usize, text: &str| {
        for (offset, line) in text.lines().enumerate() {
            if is_loose(line) {
                let message =
                    format!("name the document: a key of {LIST} or docs/algorithms/NAME.md");
                found.push(Finding::new(path, first_line + offset, message));
            }
            for key in keys(line).filter(|key| !listed.contains(key)) {
                let message = format!("paper `{key}` is not in {LIST}");
                found.push(Finding::new(path, first_line + offset, message));
            }
        }
    };
    for (path, text) in tree.ending(".rs") {
        for piece in source::pieces(text) {
            if piece.kind == Kind::Comment {
                look(path, piece.line, piece.text);
            }
        }
    }
    for (path, text) in tree.ending(".md") {
        look(path, 1, text);
    }
    found
}

/// Returns whether the line cites a section of "algorithms", which is no document anybody can open.
fn is_loose(line: &str) -> bool {
    line.split("algorithms ")
        .skip(1)
        .any(|after| after.starts_with(|first: char| first.is_ascii_digit()))
}

/// Returns words that look like a paper's key: a name, a hyphen, a venue with two digits or a year.
fn keys(line: &str) -> impl Iterator<Item = &str> {
    line.split(|mark: char| {
        !(mark.is_ascii_alphanumeric() || matches!(mark, '-' | '_' | '/' | '.'))
    })
    .map(|word| word.trim_end_matches('.'))
    .filter(|word| is_key(word))
}

fn is_key(word: &str) -> bool {
    let Some((name, place)) = word.rsplit_once('-') else {
        return false;
    };
    let venue = place.trim_end_matches(|digit: char| digit.is_ascii_digit());
    let digits = &place[venue.len()..];
    let lower = |text: &str| text.chars().all(|letter| letter.is_ascii_lowercase());
    let year = matches!(digits.get(..2), Some("19" | "20")) && digits.len() == 4;
    name.len() > 1
        && lower(name)
        && lower(venue)
        && (venue.is_empty() && year || venue.len() > 1 && (digits.len() == 2 || year))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: (&str, &str) = (
        LIST,
        "| key | paper |\n|---|---|\n| `offload-ics08` | Monti |\n",
    );

    fn count(source: &str) -> usize {
        check(&Tree::of(&[KNOWN, ("crates/plan/src/lib.rs", source)])).len()
    }

    #[test]
    fn a_listed_paper_may_be_cited() {
        assert_eq!(count("/// The fan-out (offload-ics08, section 3.2)."), 0);
    }

    #[test]
    fn an_unlisted_paper_is_found() {
        assert_eq!(count("/// The fan-out (catch-2011, section 3.2)."), 1);
        assert_eq!(count("/// The fan-out (offload-ics09 eq. 2)."), 1);
        let tree = Tree::of(&[KNOWN, ("docs/algorithms/greedy.md", "See eley-2017.")]);
        assert_eq!(check(&tree).len(), 1);
    }

    #[test]
    fn a_section_of_nothing_is_found() {
        assert_eq!(count("// two ticks in a row (algorithms 4.2)"), 1);
        assert_eq!(count("// the two algorithms differ"), 0);
    }

    #[test]
    fn other_words_with_digits_are_no_papers() {
        for word in [
            "x86-64",
            "sha-256",
            "aws-sigv4",
            "2026-11-20",
            "utf-8",
            "ed25519",
            "a-b-c12",
        ] {
            assert_eq!(count(&format!("// {word}")), 0, "{word}");
        }
        assert_eq!(count("let a = \"catch-2011\";"), 0);
    }
}
