//! House rules no compiler checks: arrows between rooms, sizes, words, error pages, links.
//!
//! Every check is a function from the [`Tree`] to its [`Finding`]s, so that a test can hand it a
//! tree with one fault in it.

mod arrows;
mod circles;
mod documents;
mod errors;
mod papers;
mod places;
mod sizes;
mod source;
mod summaries;
mod words;

use std::{collections::BTreeMap, fmt, path::Path, process::Command};

use anyhow::{Context, bail};

/// The project's own text files, by path from the root with `/` between the names.
#[derive(Debug, Default)]
pub struct Tree {
    files: BTreeMap<String, String>,
}

/// A broken house rule.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    path: String,
    line: usize,
    message: String,
}

impl Finding {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line,
            message: message.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

impl Tree {
    /// Reads every file below `root` that git tracks, or would add with `git add`. Files that are
    /// not UTF-8 text are left out.
    ///
    /// # Errors
    /// Fails if `root` is no git checkout or a file can't be read.
    pub fn read(root: &Path) -> anyhow::Result<Self> {
        let listing = Command::new("git")
            .args([
                "ls-files",
                "-z",
                "--cached",
                "--others",
                "--exclude-standard",
            ])
            .current_dir(root)
            .output()
            .context("can't run git; tidy asks it which files are the project's")?;
        if !listing.status.success() {
            bail!(
                "can't list the project's files: {}",
                String::from_utf8_lossy(&listing.stderr).trim()
            );
        }
        let mut files = BTreeMap::new();
        for path in String::from_utf8_lossy(&listing.stdout).split_terminator('\0') {
            let whole = root.join(path);
            if !whole.is_file() {
                continue; // Deleted but not yet committed so, or a symbolic link to a folder.
            }
            let bytes = std::fs::read(&whole).with_context(|| format!("can't read {path}"))?;
            if let Ok(text) = String::from_utf8(bytes) {
                files.insert(path.to_owned(), text);
            }
        }
        Ok(Self { files })
    }

    /// Returns a tree with these files.
    #[cfg(test)]
    fn of(files: &[(&str, &str)]) -> Self {
        let files = files
            .iter()
            .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
            .collect();
        Self { files }
    }

    fn get(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// Returns whether there is such a file or folder.
    fn has(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        path.is_empty()
            || self.files.contains_key(path)
            || self.files.keys().any(|known| known.starts_with(&folder))
    }

    /// Returns the files whose path ends so, in order.
    fn ending(&self, end: &str) -> impl Iterator<Item = (&str, &str)> {
        self.files
            .iter()
            .filter(move |(path, _)| path.ends_with(end))
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }
}

/// Returns everything that is wrong with the tree.
fn findings(tree: &Tree, root: &Path) -> Vec<Finding> {
    let mut found = arrows::check(tree);
    found.extend(circles::check(tree));
    found.extend(sizes::check(tree));
    found.extend(summaries::check(tree));
    found.extend(words::check(tree));
    found.extend(errors::check(tree));
    found.extend(papers::check(tree));
    found.extend(documents::check(tree));
    found.extend(places::check(tree, &places::private_words(root)));
    found
}

/// Checks the checkout at `root` and prints what is wrong.
///
/// # Errors
/// Fails if anything is wrong, or the files can't be read.
pub fn run(root: &Path) -> anyhow::Result<()> {
    let tree = Tree::read(root)?;
    let found = findings(&tree, root);
    for finding in &found {
        eprintln!("{finding}");
    }
    match found.len() {
        0 => {
            eprintln!("tidy: {} files, nothing to mend", tree.files.len());
            Ok(())
        }
        count => bail!("tidy: {count} to mend"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_known_by_its_files() {
        let tree = Tree::of(&[("docs/guide/first.md", "")]);
        assert!(tree.has("docs/guide") && tree.has("docs/guide/first.md"));
        assert!(!tree.has("docs/gui"));
    }
}
