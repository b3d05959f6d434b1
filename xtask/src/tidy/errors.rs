//! Every error code has its page, and every page its code.

use std::collections::BTreeMap;

use super::{
    Finding, Tree,
    source::{self, Kind, Piece},
};

const PAGES: &str = "docs/errors/";
/// Headings of each page, in this order.
const HEADINGS: [&str; 4] = [
    "## What happened",
    "## Likely causes",
    "## What to try",
    "## For programs",
];

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut codes = BTreeMap::new();
    for (path, text) in tree.ending(".rs") {
        if !path.starts_with("crates/") || path.contains("/tests/") {
            continue;
        }
        for code in codes_in(text) {
            if is_kebab(code.text) {
                codes.entry(code.text).or_insert((path, code.line));
            } else {
                let message = format!("error code \"{}\" is not kebab-case", code.text);
                found.push(Finding::new(path, code.line, message));
            }
        }
    }
    for (code, (path, line)) in &codes {
        let page = format!("{PAGES}{code}.md");
        if tree.get(&page).is_none() {
            found.push(Finding::new(
                path,
                *line,
                format!("error code \"{code}\" has no page {page}"),
            ));
        }
    }
    for (path, text) in tree.ending(".md") {
        let Some(name) = path
            .strip_prefix(PAGES)
            .and_then(|name| name.strip_suffix(".md"))
            .filter(|name| *name != "README")
        else {
            continue;
        };
        if !codes.contains_key(name) {
            found.push(Finding::new(
                path,
                1,
                format!("no error has the code \"{name}\""),
            ));
        }
        check_page(path, name, text, &mut found);
    }
    found
}

fn is_kebab(code: &str) -> bool {
    !code.is_empty()
        && code.split('-').all(|word| {
            !word.is_empty()
                && word
                    .chars()
                    .all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit())
        })
}

/// Returns the texts in the body of each `fn code(…) -> &'static str`.
fn codes_in(text: &str) -> Vec<Piece<'_>> {
    let pieces = source::pieces(text);
    let mut codes = Vec::new();
    for (place, window) in pieces.windows(3).enumerate() {
        if !(window[0].is("fn") && window[1].is("code") && window[2].is("(")) {
            continue;
        }
        let rest = &pieces[place..];
        let Some(open) = rest.iter().position(|piece| piece.is("{") || piece.is(";")) else {
            continue;
        };
        if !rest[..open].iter().any(|piece| piece.is("str")) {
            continue;
        }
        let mut depth = 0_usize;
        for piece in &rest[open..] {
            if piece.is("{") {
                depth += 1;
            } else if piece.is("}") {
                depth = depth.saturating_sub(1);
            } else if piece.kind == Kind::Text {
                codes.push(*piece);
            }
            if depth == 0 {
                break;
            }
        }
    }
    codes
}

fn check_page(path: &str, name: &str, text: &str, found: &mut Vec<Finding>) {
    if text.lines().next() != Some(format!("# {name}").as_str()) {
        found.push(Finding::new(
            path,
            1,
            format!("the page starts with `# {name}`"),
        ));
    }
    let mut headings = text
        .lines()
        .filter(|line| HEADINGS.contains(line))
        .collect::<Vec<_>>();
    headings.dedup();
    if headings != HEADINGS {
        let message = format!("the page answers, in this order: {}", HEADINGS.join(", "));
        found.push(Finding::new(path, 1, message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: (&str, &str) = (
        "crates/endpoint/src/error.rs",
        "impl Error { pub const fn code(&self) -> &'static str { match self { A => \"timed-out\" } } }\nfn other() { \"no code\" }",
    );

    fn page(name: &str) -> String {
        format!("# {name}\n{}\n", HEADINGS.join("\n"))
    }

    #[test]
    fn a_code_with_its_page_is_fine() {
        let tree = Tree::of(&[CODE, ("docs/errors/timed-out.md", &page("timed-out"))]);
        assert_eq!(check(&tree), []);
    }

    #[test]
    fn a_code_without_page_is_found_where_it_stands() {
        let found = check(&Tree::of(&[CODE]));
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].path.as_str(), found[0].line), (CODE.0, 1));
    }

    #[test]
    fn a_page_without_code_or_answers_is_found() {
        let tree = Tree::of(&[
            CODE,
            ("docs/errors/timed-out.md", "# timed-out\n"),
            ("docs/errors/gone.md", &page("gone")),
            ("docs/errors/README.md", "# Errors\n"),
        ]);
        assert_eq!(check(&tree).len(), 2);
    }

    #[test]
    fn a_page_under_another_name_is_found() {
        let tree = Tree::of(&[CODE, ("docs/errors/timed-out.md", &page("timeout"))]);
        assert_eq!(check(&tree).len(), 1);
    }

    #[test]
    fn codes_are_kebab_case() {
        let source = "fn code(self) -> &'static str { \"TimedOut\" }";
        assert_eq!(
            check(&Tree::of(&[("crates/api/src/lib.rs", source)])).len(),
            1
        );
    }

    #[test]
    fn other_functions_called_code_have_no_pages() {
        let source = "fn code(self) -> u8 { b\"x\"[0] } fn encode() -> &'static str { \"A B\" }";
        assert_eq!(check(&Tree::of(&[("crates/api/src/lib.rs", source)])), []);
    }
}
