//! Documents: links lead somewhere, documents that comments name exist, the changelog has a place
//! for the next change.

use super::{
    Finding, Tree,
    source::{self, Kind},
};

const CHANGELOG: &str = "CHANGELOG.md";

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    let changelog = tree.get(CHANGELOG).unwrap_or_default();
    if !changelog
        .lines()
        .any(|line| line.trim() == "## [Unreleased]")
    {
        found.push(Finding::new(
            CHANGELOG,
            1,
            "there is no section `## [Unreleased]`",
        ));
    }
    for (path, text) in tree.ending(".md") {
        for (line, link) in links(text) {
            if let Some(message) = broken(tree, path, &link) {
                found.push(Finding::new(path, line, message));
            }
        }
    }
    for (path, text) in tree.ending(".md") {
        if path.starts_with("docs/benchmarks/") || path.starts_with("docs/reproduced/") {
            let names = |what: &str| text.lines().any(|line| line.contains(what));
            if !names("`cargo xtask ") || !text.lines().any(|line| line.starts_with("- commit")) {
                let message = "it names no commit (`- commit: …`) or no command that makes it";
                found.push(Finding::new(path, 1, message));
            }
        }
    }
    for (path, text) in tree.ending(".rs") {
        for piece in source::pieces(text) {
            if piece.kind == Kind::Comment {
                check_mentions(tree, path, &piece, &mut found);
            }
        }
    }
    found
}

/// Checks the documents that a comment refers to: `docs/….md`, without placeholders.
fn check_mentions(tree: &Tree, path: &str, comment: &source::Piece<'_>, found: &mut Vec<Finding>) {
    for (offset, line) in comment.text.lines().enumerate() {
        for word in
            line.split(|mark: char| !(mark.is_ascii_alphanumeric() || "-_/.".contains(mark)))
        {
            let names_one = word.starts_with("docs/")
                && word.ends_with(".md")
                && !word.contains(|letter: char| letter.is_ascii_uppercase());
            if names_one && !tree.has(word) {
                let message = format!("there is no {word}");
                found.push(Finding::new(path, comment.line + offset, message));
            }
        }
    }
}

/// Returns lines of prose with their number: code blocks and code spans are blanked.
fn prose(text: &str) -> Vec<(usize, String)> {
    let mut fenced = false;
    let mut lines = Vec::new();
    for (place, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            let spoken: Vec<&str> = line.split('`').step_by(2).collect();
            lines.push((place + 1, spoken.join("\u{0}")));
        }
    }
    lines
}

/// Returns targets of `[text](target)`, `![text](target)` and `[name]: target`.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    for (line, words) in prose(text) {
        for after in words.split("](").skip(1) {
            let target = after.split(')').next().unwrap_or_default();
            links.push((
                line,
                target.split(' ').next().unwrap_or_default().to_owned(),
            ));
        }
        if let Some((name, target)) = words.split_once("]: ")
            && name.starts_with('[')
        {
            links.push((line, target.trim().to_owned()));
        }
    }
    links
}

/// Returns the error of a link in the document at `path`; none for links out of the project.
fn broken(tree: &Tree, path: &str, link: &str) -> Option<String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
    let file = if target.is_empty() {
        path.to_owned()
    } else {
        match resolve(path, target) {
            Some(file) if tree.has(&file) => file,
            Some(_) | None => return Some(format!("the link {link} leads nowhere")),
        }
    };
    let anchored = anchor.is_empty()
        || !file.ends_with(".md")
        || tree.get(&file).is_some_and(|text| {
            text.lines()
                .any(|line| anchor_of(line).as_deref() == Some(anchor))
        });
    (!anchored).then(|| format!("{file} has no heading #{anchor}"))
}

/// Returns the path from the root that `target` means in the document at `path`.
fn resolve(path: &str, target: &str) -> Option<String> {
    let mut names: Vec<&str> = path.split('/').collect();
    names.pop();
    for name in target.trim_end_matches('/').split('/') {
        match name {
            "." => {}
            ".." => {
                names.pop()?;
            }
            _ => names.push(name),
        }
    }
    Some(names.join("/"))
}

/// Returns the anchor that hosting sites make of a heading.
fn anchor_of(line: &str) -> Option<String> {
    let heading = line.trim_start_matches('#');
    if heading.len() == line.len() || !heading.starts_with(' ') {
        return None;
    }
    let anchor = heading
        .trim()
        .chars()
        .filter_map(|letter| match letter {
            ' ' => Some('-'),
            '-' | '_' => Some(letter),
            _ if letter.is_alphanumeric() => Some(letter.to_ascii_lowercase()),
            _ => None,
        })
        .collect();
    Some(anchor)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: (&str, &str) = (CHANGELOG, "# Changelog\n\n## [Unreleased]\n");

    fn found(text: &str) -> Vec<Finding> {
        check(&Tree::of(&[
            LOG,
            ("docs/guide/first.md", text),
            ("docs/demo.svg", "<svg/>"),
            ("README.md", "# A `cp`, first\n"),
        ]))
    }

    #[test]
    fn figures_without_their_commit_or_command_are_found() {
        let found = |text: &str| check(&Tree::of(&[LOG, ("docs/benchmarks/copy.md", text)]));
        assert_eq!(
            found("By `cargo xtask bench copy`.\n\n- commit: 1a2b3c4d\n"),
            []
        );
        assert_eq!(found("By `cargo xtask bench copy`.\n").len(), 1);
        assert_eq!(found("By hand.\n\n- commit: 1a2b3c4d\n").len(), 1);
    }

    #[test]
    fn links_that_lead_somewhere_are_fine() {
        for text in [
            "![the demo](../demo.svg)",
            "[readme](../../README.md#a-cp-first) and [docs](..)",
            "[out](https://example.org/x) [mail](mailto:a@example.org)",
            "## Here\n[there](#here)",
            "`[not](a-link)`\n```\n[nor](this)\n```\n",
        ] {
            assert_eq!(found(text), [], "{text}");
        }
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        for text in [
            "\n[gone](gone.md)",
            "\n[out of the tree](../../../x.md)",
            "\n[no such heading](../../README.md#nope)",
            "\n[name]: gone.md",
        ] {
            let found = found(text);
            assert_eq!(found.len(), 1, "{text}");
            assert_eq!(found[0].line, 2);
        }
    }

    #[test]
    fn a_comment_names_no_document_that_is_not_there() {
        let source = "/// Above.\n/// See `docs/algorithms/gone.md`.\nfn a() {}";
        let tree = Tree::of(&[LOG, ("crates/plan/src/flow.rs", source)]);
        let found = check(&tree);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 2);
        let source = "// docs/algorithms/NAME.md, docs/errors/busy.md\nlet a = \"docs/gone.md\";";
        let tree = Tree::of(&[LOG, ("a/src/b.rs", source), ("docs/errors/busy.md", "")]);
        assert_eq!(check(&tree), []);
    }

    #[test]
    fn a_changelog_without_room_for_the_next_change_is_found() {
        assert_eq!(
            check(&Tree::of(&[(CHANGELOG, "# Changelog\n## [0.1.0]\n")])).len(),
            1
        );
        assert_eq!(check(&Tree::of(&[])).len(), 1);
    }
}
