//! Patterns of paths and of names.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

use globset::{GlobBuilder, GlobMatcher};

/// Longest pattern, in bytes: no path is longer.
const PATTERN_BYTES_MAX: usize = 4096;
/// Most wildcards of one pattern: each may double the cost of a match.
const WILDCARDS_MAX: usize = 64;

/// Pattern that matches paths, or names, as bytes.
#[derive(Debug, Clone)]
pub struct Pattern {
    /// Text of the pattern as written.
    text: String,
    how: How,
}

#[derive(Debug, Clone)]
enum How {
    /// A directory and all below it. With `itself` false, only what is below it.
    Below {
        folder: Vec<u8>,
        itself: bool,
    },
    Glob(GlobMatcher),
}

impl Pattern {
    /// Reads a pattern of ours: `*` matches within a name, `**` across names. A pattern that begins
    /// with `/` matches whole paths, any other the ends of paths.
    ///
    /// # Errors
    /// The reason why the pattern is invalid.
    pub fn path(text: &str) -> Result<Self, String> {
        let whole = if text.starts_with('/') {
            text.to_owned()
        } else {
            format!("**/{text}")
        };
        Self::read(text, &whole, true)
    }

    /// Reads a shell pattern whose wildcards match `/` too.
    ///
    /// # Errors
    /// The reason why the pattern is invalid.
    pub fn free(text: &str) -> Result<Self, String> {
        Self::read(text, text, false)
    }

    /// Reads a pattern of directories, whose `*` stays within a name. It matches them and all below
    /// them.
    ///
    /// # Errors
    /// The reason why the pattern is invalid.
    pub fn tree(text: &str) -> Result<Self, String> {
        let folder = text.trim_end_matches('/');
        if !has_wildcards(folder) && folder.starts_with('/') {
            return Self::below(text, folder, true);
        }
        Self::read(text, &format!("{{{folder},{folder}/**}}"), true)
    }

    /// Reads a pattern of SQL: `%` matches any text, `_` any one character.
    ///
    /// # Errors
    /// The reason why the pattern is invalid.
    pub fn like(text: &str) -> Result<Self, String> {
        if let Some(folder) = text.strip_suffix("/%")
            && folder.starts_with('/')
            && !folder.contains(['%', '_'])
        {
            return Self::below(text, folder, false);
        }
        let mut glob = String::new();
        for letter in text.chars() {
            match letter {
                '%' => glob.push('*'),
                '_' => glob.push('?'),
                '*' | '?' | '[' | ']' | '{' | '}' | '\\' => {
                    glob.push('\\');
                    glob.push(letter);
                }
                plain => glob.push(plain),
            }
        }
        Self::read(text, &glob, false)
    }

    fn below(text: &str, folder: &str, itself: bool) -> Result<Self, String> {
        check(text)?;
        Ok(Self {
            text: text.to_owned(),
            how: How::Below {
                folder: folder.as_bytes().to_vec(),
                itself,
            },
        })
    }

    fn read(text: &str, glob: &str, stays: bool) -> Result<Self, String> {
        check(text)?;
        if stays
            && let Some(folder) = glob.strip_suffix("/**")
            && folder.starts_with('/')
            && !has_wildcards(folder)
        {
            return Self::below(text, folder, false);
        }
        let built = GlobBuilder::new(glob)
            .literal_separator(stays)
            .backslash_escape(true)
            .build();
        let glob = built.map_err(|cause| cause.kind().to_string())?;
        Ok(Self {
            text: text.to_owned(),
            how: How::Glob(glob.compile_matcher()),
        })
    }

    /// Returns whether the pattern matches this path or name.
    #[must_use]
    pub fn is_about(&self, path: &[u8]) -> bool {
        match &self.how {
            How::Below { folder, itself } => match path.strip_prefix(&**folder) {
                Some([]) => *itself,
                Some(rest) => rest.starts_with(b"/"),
                None => false,
            },
            How::Glob(glob) => glob.is_match(Path::new(OsStr::from_bytes(path))),
        }
    }

    /// Returns the text of the pattern as written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

fn check(text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err("it is empty".to_owned());
    }
    if text.len() > PATTERN_BYTES_MAX {
        return Err(format!("a pattern has {PATTERN_BYTES_MAX} bytes at most"));
    }
    let wildcards = text.chars().filter(|c| matches!(c, '*' | '%' | '{' | '['));
    if wildcards.count() > WILDCARDS_MAX {
        return Err(format!("a pattern has {WILDCARDS_MAX} wildcards at most"));
    }
    Ok(())
}

fn has_wildcards(text: &str) -> bool {
    text.contains(['*', '?', '[', ']', '{', '}', '\\'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(pattern: Result<Pattern, String>, paths: &[&str]) -> Vec<bool> {
        let pattern = pattern.unwrap();
        let judge = |path: &&str| pattern.is_about(path.as_bytes());
        paths.iter().map(judge).collect()
    }

    #[test]
    fn ours_are_about_whole_paths_or_ends_and_a_star_stays_within_a_name() {
        let paths = ["/scratch/a", "/scratch/a/b", "/scratch", "/scratchy/a"];
        let below = about(Pattern::path("/scratch/**"), &paths);
        assert_eq!(below, [true, true, false, false]);
        let beside = about(Pattern::path("/scratch/*"), &paths);
        assert_eq!(beside, [true, false, false, false]);
        let ends = about(
            Pattern::path("*.keep"),
            &["/a/b.keep", "/b.keep", "/a.keep/b"],
        );
        assert_eq!(ends, [true, true, false]);
    }

    #[test]
    fn trees_hold_their_root_and_sql_knows_two_wildcards_alone() {
        let paths = ["/fs/a", "/fs/a/b/c", "/fs/ab"];
        assert_eq!(about(Pattern::tree("/fs/a/"), &paths), [true, true, false]);
        assert_eq!(about(Pattern::tree("/fs/?"), &paths), [true, true, false]);
        assert_eq!(
            about(Pattern::like("/fs/a/%"), &paths),
            [false, true, false]
        );
        assert_eq!(about(Pattern::like("%/a_"), &paths), [false, false, true]);
        assert_eq!(
            about(Pattern::like("/x*[%"), &["/x*[1", "/xy1"]),
            [true, false]
        );
    }

    #[test]
    fn what_is_no_pattern_is_said() {
        assert!(Pattern::path("").is_err() && Pattern::path("/a[").is_err());
        assert!(
            Pattern::path(&"*".repeat(65)).is_err() && Pattern::free(&"a".repeat(5000)).is_err()
        );
    }
}
