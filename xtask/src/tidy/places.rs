//! Private names of one machine, which stay out of the project.

use std::path::Path;

use super::{Finding, Tree};

/// Words, one a line, that this checkout keeps to itself. Never committed: it lies inside `.git`.
const PRIVATE: &str = ".git/info/private-words";

/// Returns the path of the checkout, and the words that its owner listed in
/// `.git/info/private-words`.
pub fn private_words(root: &Path) -> Vec<String> {
    let listed = std::fs::read_to_string(root.join(PRIVATE)).unwrap_or_default();
    let mut words: Vec<String> = listed
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(str::to_owned)
        .collect();
    // A path of one name, such as a mount point, can be anybody's.
    if root.components().count() > 2 {
        words.push(root.display().to_string());
    }
    words
}

pub fn check(tree: &Tree, private: &[String]) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.ending("") {
        for (place, line) in text.lines().enumerate() {
            if let Some(word) = private.iter().find(|word| line.contains(word.as_str())) {
                let message = format!("\"{word}\" means something only on this machine");
                found.push(Finding::new(path, place + 1, message));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(line: &str) -> usize {
        let tree = Tree::of(&[("docs/guide/first.md", line)]);
        check(&tree, &["/srv/checkout".to_owned(), "lab-tool".to_owned()]).len()
    }

    #[test]
    fn private_words_are_found() {
        assert_eq!(count("see /srv/checkout/docs"), 1);
        assert_eq!(count("run lab-tool first"), 1);
        assert_eq!(count("see /scratch/run7"), 0);
    }

    #[test]
    fn the_checkout_itself_is_private() {
        let words = private_words(Path::new("/srv/checkout"));
        assert_eq!(words, ["/srv/checkout"]);
        assert!(private_words(Path::new("/src")).is_empty());
    }
}
