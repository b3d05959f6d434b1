//! The glossary's forbidden words stay out of names.

use std::collections::BTreeSet;

use super::{
    Finding, Tree,
    source::{self, Kind, Piece},
};

const GLOSSARY: &str = "GLOSSARY.md";
const FORBIDDEN: &str = "## Words we do not use";
const FOREIGN: &str = "## Names that are others'";

pub fn check(tree: &Tree) -> Vec<Finding> {
    let Some(glossary) = tree.get(GLOSSARY) else {
        return vec![Finding::new(GLOSSARY, 1, "there is no glossary")];
    };
    let forbidden = forbidden(glossary);
    let foreign = foreign(glossary);
    let mut found = Vec::new();
    if forbidden.is_empty() {
        let message = format!("`{FORBIDDEN}` has no table with a forbidden word in each row");
        found.push(Finding::new(GLOSSARY, 1, message));
    }
    for (path, text) in tree.ending(".rs") {
        check_path(path, &forbidden, &mut found);
        check_names(path, text, &forbidden, &foreign, &mut found);
    }
    found
}

/// A word banned from names, and its replacements.
struct Word {
    /// Lowercase; "SLA miss" is two.
    segments: Vec<String>,
    instead: String,
}

/// Returns the first two cells of each row of the table under `heading`.
fn rows<'a>(glossary: &'a str, heading: &str) -> Vec<(&'a str, &'a str)> {
    glossary
        .lines()
        .skip_while(|line| *line != heading)
        .skip(1)
        .take_while(|line| !line.starts_with('#'))
        .filter_map(|line| {
            let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
            Some((cells.next()?, cells.next()?))
        })
        .skip(2) // The head and the rule below it.
        .collect()
}

fn forbidden(glossary: &str) -> Vec<Word> {
    rows(glossary, FORBIDDEN)
        .into_iter()
        .map(|(word, instead)| Word {
            segments: word.to_lowercase().split(' ').map(str::to_owned).collect(),
            instead: instead.to_owned(),
        })
        .collect()
}

/// Returns the pieces of each name the glossary lists between backticks, as `tokio::task`.
fn foreign(glossary: &str) -> Vec<Vec<String>> {
    rows(glossary, FOREIGN)
        .into_iter()
        .flat_map(|(names, _)| names.split('`').skip(1).step_by(2))
        .map(|name| {
            source::pieces(name)
                .iter()
                .map(|piece| piece.text.to_owned())
                .collect()
        })
        .collect()
}

/// Returns the words of a name, lowercase: `intoParts` and `INTO_PARTS` are both into, parts.
fn segments(name: &str) -> Vec<String> {
    let mut segments = vec![String::new()];
    let letters: Vec<char> = name.chars().collect();
    for (place, letter) in letters.iter().enumerate() {
        let before = place.checked_sub(1).map(|place| letters[place]);
        let after = letters.get(place + 1);
        let starts = letter.is_uppercase()
            && (before.is_some_and(char::is_lowercase)
                || before.is_some_and(char::is_uppercase)
                    && after.is_some_and(|after| after.is_lowercase()));
        if starts || !letter.is_alphabetic() {
            segments.push(String::new());
        }
        if letter.is_alphabetic()
            && let Some(last) = segments.last_mut()
        {
            last.extend(letter.to_lowercase());
        }
    }
    segments.retain(|segment| !segment.is_empty());
    segments
}

fn matching<'w>(name: &str, forbidden: &'w [Word]) -> Option<&'w Word> {
    let said = segments(name);
    forbidden.iter().find(|word| {
        said.windows(word.segments.len()).any(|window| {
            window
                .iter()
                .zip(&word.segments)
                .all(|(said, word)| said == word || said.strip_suffix('s') == Some(word))
        })
    })
}

fn check_path(path: &str, forbidden: &[Word], found: &mut Vec<Finding>) {
    for name in path.trim_end_matches(".rs").split('/') {
        if let Some(word) = matching(name, forbidden) {
            found.push(finding(path, 1, name, word));
        }
    }
}

fn check_names(
    path: &str,
    text: &str,
    forbidden: &[Word],
    foreign: &[Vec<String>],
    found: &mut Vec<Finding>,
) {
    let pieces: Vec<Piece<'_>> = source::pieces(text)
        .into_iter()
        .filter(|piece| piece.kind != Kind::Comment)
        .collect();
    let mut seen = BTreeSet::new();
    for (place, piece) in pieces.iter().enumerate() {
        if piece.kind != Kind::Word || seen.contains(piece.text) {
            continue;
        }
        if let Some(word) = matching(piece.text, forbidden)
            && !is_foreign(&pieces, place, foreign)
        {
            seen.insert(piece.text);
            found.push(finding(path, piece.line, piece.text, word));
        }
    }
}

/// Returns whether the word at `place` stands inside a name of others.
fn is_foreign(pieces: &[Piece<'_>], place: usize, foreign: &[Vec<String>]) -> bool {
    foreign.iter().any(|name| {
        (0..name.len())
            .filter(|offset| name[*offset] == pieces[place].text)
            .filter_map(|offset| pieces.get(place.checked_sub(offset)?..)?.get(..name.len()))
            .any(|there| {
                there
                    .iter()
                    .zip(name)
                    .all(|(piece, text)| piece.text == text)
            })
    })
}

fn finding(path: &str, line: usize, name: &str, word: &Word) -> Finding {
    Finding::new(
        path,
        line,
        format!(
            "`{name}`: we do not say \"{}\"; say {} ({GLOSSARY})",
            word.segments.join(" "),
            word.instead
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: &str = "# Words\n## Words we do not use\n\n| not | but |\n|---|---|\n| part | chunk |\n| SLA miss | miss |\n| task | transfer |\n\n## Names that are others'\n\n| name | of |\n|---|---|\n| `into_parts`, `Parts` | http |\n| `tokio::task`, `task::` | tokio |\n";

    fn found(source: &str) -> Vec<String> {
        check(&Tree::of(&[
            (GLOSSARY, WORDS),
            ("crates/core/src/books.rs", source),
        ]))
        .iter()
        .map(Finding::to_string)
        .collect()
    }

    #[test]
    fn forbidden_words_are_found_in_every_case() {
        for name in [
            "part",
            "PartSize",
            "PART_SIZE_MAX",
            "upload_parts",
            "HTTPPart",
            "sla_miss_count",
            "SlaMiss",
        ] {
            assert_eq!(
                found(&format!("fn a() {{ let _ = {name}; }}")).len(),
                1,
                "{name} passed"
            );
        }
    }

    #[test]
    fn the_message_says_what_to_say() {
        assert_eq!(
            found("\nlet part_size = 1;"),
            [
                "crates/core/src/books.rs:2: `part_size`: we do not say \"part\"; say chunk (GLOSSARY.md)"
            ]
        );
    }

    #[test]
    fn longer_words_texts_comments_and_foreign_names_are_fine() {
        for source in [
            "fn partial(particular: Party, multitasking: u8) {}",
            "let a = \"part\"; // a part",
            "let (http::request::Parts { .. }, body) = request.into_parts();",
            "use tokio::task; fn a() { task::yield_now() }",
            "fn miss(sla: u8) {}",
        ] {
            assert_eq!(found(source), [""; 0], "{source}");
        }
    }

    #[test]
    fn a_foreign_name_frees_no_name_of_ours() {
        assert_eq!(found("mod task {}\nfn copy_into_parts() {}").len(), 2);
    }

    #[test]
    fn file_names_are_names() {
        let tree = Tree::of(&[(GLOSSARY, WORDS), ("crates/core/src/task.rs", "")]);
        assert_eq!(check(&tree).len(), 1);
    }

    #[test]
    fn a_glossary_without_words_is_found() {
        assert_eq!(check(&Tree::of(&[(GLOSSARY, "# Words\n")])).len(), 1);
        assert_eq!(check(&Tree::of(&[])).len(), 1);
    }
}
