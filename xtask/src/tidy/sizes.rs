//! Sizes and shapes of files. Functions are clippy's business.

use super::{Finding, Tree, source};

/// Most lines of a Rust file before its tests: what a reader takes in at one sitting.
const FILE_LINES_MAX: usize = 500;
/// Most lines of ARCHITECTURE.md: longer, and nobody reads it on the first day.
const ARCHITECTURE_LINES_MAX: usize = 300;

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.ending(".rs") {
        let lines = lines_before_tests(text);
        let tests = path.contains("/tests/") || path.ends_with("/tests.rs");
        if lines > FILE_LINES_MAX && !tests {
            found.push(Finding::new(
                path,
                FILE_LINES_MAX,
                format!("{lines} lines before its tests, {FILE_LINES_MAX} at most: split it by reason to change"),
            ));
        }
        if path.ends_with("/mod.rs") {
            found.push(Finding::new(
                path,
                1,
                "a module is `foo.rs` beside `foo/`, not `foo/mod.rs`",
            ));
        }
        check_ignored(path, text, &mut found);
    }
    if let Some(text) = tree.get("ARCHITECTURE.md") {
        let lines = text.lines().count();
        if lines > ARCHITECTURE_LINES_MAX {
            found.push(Finding::new(
                "ARCHITECTURE.md",
                ARCHITECTURE_LINES_MAX,
                format!("{lines} lines, {ARCHITECTURE_LINES_MAX} at most"),
            ));
        }
    }
    found
}

/// Counts the lines up to the inline test module, which stands last in a file.
fn lines_before_tests(text: &str) -> usize {
    let mut guarded = None;
    for (place, line) in text.lines().map(str::trim).enumerate() {
        if line == "#[cfg(test)]" {
            guarded = Some(place);
        } else if !line.starts_with("#[") {
            if let Some(start) = guarded
                && line.starts_with("mod ")
                && line.ends_with('{')
            {
                return start;
            }
            guarded = None;
        }
    }
    text.lines().count()
}

/// Checks for ignored tests, as such a test is a promise that nobody keeps.
fn check_ignored(path: &str, text: &str, found: &mut Vec<Finding>) {
    for window in source::pieces(text).windows(3) {
        if window[0].is("#") && window[1].is("[") && window[2].is("ignore") {
            found.push(Finding::new(
                path,
                window[0].line,
                "an ignored test never fails: mend it or remove it",
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, text: &str) -> usize {
        check(&Tree::of(&[(path, text)])).len()
    }

    #[test]
    fn a_long_file_is_found() {
        let long = "//\n".repeat(FILE_LINES_MAX + 1);
        assert_eq!(count("crates/core/src/books.rs", &long), 1);
        assert_eq!(count("crates/core/src/books.rs", &long[3..]), 0);
        assert_eq!(count("crates/core/tests/books.rs", &long), 0);
    }

    #[test]
    fn tests_do_not_count_but_other_guarded_lines_do() {
        let tail = "//\n".repeat(FILE_LINES_MAX);
        assert_eq!(
            count(
                "a/src/b.rs",
                &format!("//\n#[cfg(test)]\nmod tests {{\n{tail}}}\n")
            ),
            0
        );
        assert_eq!(
            count(
                "a/src/b.rs",
                &format!("#[cfg(test)]\nextern crate std;\n{tail}")
            ),
            1
        );
        assert_eq!(
            count("a/src/b.rs", &format!("#[cfg(test)]\nmod tests;\n{tail}")),
            1
        );
    }

    #[test]
    fn a_long_architecture_is_found() {
        assert_eq!(
            count("ARCHITECTURE.md", &"a\n".repeat(ARCHITECTURE_LINES_MAX + 1)),
            1
        );
    }

    #[test]
    fn old_style_modules_and_ignored_tests_are_found() {
        assert_eq!(count("crates/core/src/books/mod.rs", ""), 1);
        assert_eq!(
            count("a/src/b.rs", "#[test]\n#[ignore = \"slow\"]\nfn a() {}"),
            1
        );
        assert_eq!(count("a/src/b.rs", "// #[ignore]"), 0);
    }
}
