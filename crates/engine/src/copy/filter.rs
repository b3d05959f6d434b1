//! Filter of a copy's files: `--include` and `--exclude` with rclone's globs.
//!
//! A pattern matches the end of a path at any depth; a leading `/` ties it to the root of the
//! source. `*` and `?` stop at `/`, `**` does not, `{a,b}` and `[a-z]` work as in a shell, and a
//! trailing `/` means everything below that directory. A file is copied unless a pattern excludes
//! it. If anything is included, only included files are copied.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use posthaste_endpoint::{Error, ErrorKind, Result};

/// Filter of the files to copy.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    include: Option<GlobSet>,
    exclude: Option<GlobSet>,
    /// Directories that are excluded with all they hold, so that nobody lists them.
    prune: Option<GlobSet>,
}

impl Filter {
    /// Builds the filter that these patterns describe.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for a malformed pattern.
    pub fn new(include: &[String], exclude: &[String]) -> Result<Self> {
        let pruned: Vec<String> = exclude
            .iter()
            .filter_map(|pattern| {
                pattern
                    .strip_suffix("/**")
                    .or_else(|| pattern.strip_suffix('/'))
                    .map(str::to_owned)
            })
            .filter(|pattern| !pattern.is_empty())
            .collect();
        Ok(Self {
            include: compile(include)?,
            exclude: compile(exclude)?,
            prune: compile(&pruned)?,
        })
    }

    /// Returns whether every file passes.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.include.is_none() && self.exclude.is_none()
    }

    /// Returns whether files were chosen: all others are left out.
    #[must_use]
    pub fn is_choosing(&self) -> bool {
        self.include.is_some()
    }

    /// Returns whether some directories need not be listed.
    #[must_use]
    pub fn is_pruning(&self) -> bool {
        self.prune.is_some()
    }

    /// Returns whether the file at `path`, relative to its source, is copied.
    #[must_use]
    pub fn passes_file(&self, path: &[u8]) -> bool {
        let path = Path::new(OsStr::from_bytes(path));
        let excluded = self.exclude.as_ref().is_some_and(|set| set.is_match(path));
        let included = self.include.as_ref().is_none_or(|set| set.is_match(path));
        included && !excluded
    }

    /// Returns whether anything below the directory at `path` can be copied.
    #[must_use]
    pub fn passes_directory(&self, path: &[u8]) -> bool {
        let path = Path::new(OsStr::from_bytes(path));
        !self.prune.as_ref().is_some_and(|set| set.is_match(path))
    }
}

fn compile(patterns: &[String]) -> Result<Option<GlobSet>> {
    if patterns.is_empty() {
        return Ok(None);
    }
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let invalid = |cause: globset::Error| {
            Error::new(ErrorKind::Invalid, "read the pattern", pattern.as_str())
                .cause(cause.kind().to_string())
                .hint("write patterns as rclone does, like '*.nc' or '/logs/**'")
        };
        let anchored = match pattern.strip_prefix('/') {
            Some(rest) => rest.to_owned(),
            None => format!("**/{pattern}"),
        };
        let whole = if anchored.ends_with('/') {
            format!("{anchored}**")
        } else {
            anchored
        };
        let glob = GlobBuilder::new(&whole)
            .literal_separator(true)
            .backslash_escape(true)
            .build()
            .map_err(invalid)?;
        set.add(glob);
    }
    set.build().map(Some).map_err(|cause| {
        Error::new(ErrorKind::Invalid, "read the patterns", patterns.join(" "))
            .cause(cause.kind().to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filter(include: &[&str], exclude: &[&str]) -> Filter {
        let owned = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        Filter::new(&owned(include), &owned(exclude)).unwrap()
    }

    #[test]
    fn patterns_match_as_rclones_do() {
        for (pattern, path, matches) in [
            ("*.jpg", "a.jpg", true),
            ("*.jpg", "x/y/a.jpg", true),
            ("/*.jpg", "x/a.jpg", false),
            ("/*.jpg", "a.jpg", true),
            ("dir/**", "x/dir/y/z", true),
            ("/dir/**", "x/dir/y", false),
            ("dir/", "dir/y/z", true),
            ("*.{nc,h5}", "run/out.h5", true),
            ("out[0-9].nc", "out7.nc", true),
            ("out?.nc", "out/.nc", false),
            ("a*c", "a/c", false),
        ] {
            assert_eq!(
                filter(&[pattern], &[]).passes_file(path.as_bytes()),
                matches,
                "{pattern} on {path}"
            );
            assert_eq!(
                filter(&[], &[pattern]).passes_file(path.as_bytes()),
                !matches,
                "excluding {pattern} on {path}"
            );
        }
    }

    #[test]
    fn exclusion_wins_and_whole_directories_are_pruned() {
        let filter = filter(&["*.nc"], &["tmp/**", "bad.nc"]);
        assert!(filter.passes_file(b"run/good.nc"));
        assert!(!filter.passes_file(b"run/bad.nc"));
        assert!(!filter.passes_file(b"run/good.txt"));
        assert!(!filter.passes_directory(b"run/tmp"));
        assert!(filter.passes_directory(b"run"));
    }

    #[test]
    fn a_malformed_pattern_is_named() {
        let error = Filter::new(&["a[".to_owned()], &[]).unwrap_err();
        assert!(error.to_string().contains("a["), "{error}");
    }
}
