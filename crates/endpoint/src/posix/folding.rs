//! File systems that do not tell upper from lower case.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::partial::{create_own, own_path};

/// Names looked at in a directory that is not empty.
const NAMES_MAX: usize = 100;

/// Whether names that differ in case only are one where `path` is to lie. Learnt by a name that is there, else by a file that is made
/// and removed; what can't be learnt counts as told apart. Blocks.
pub(super) fn folds_names(path: &Path) -> bool {
    let trial = own_path(path);
    let entries = fs::read_dir(trial.parent().unwrap_or(path));
    let names = entries.into_iter().flatten().flatten();
    let mut with_letters = names
        .take(NAMES_MAX)
        .map(|entry| entry.path())
        .filter(|path| *path != other_case(path));
    if let Some(there) = with_letters.next() {
        return is_same(&there, &other_case(&there));
    }
    let made = create_own(&trial).is_ok();
    let folds = made && is_same(&trial, &other_case(&trial));
    if made {
        // It is hidden, and its name says whose it is.
        let _ = fs::remove_file(&trial);
    }
    folds
}

fn is_same(one: &Path, other: &Path) -> bool {
    let look = |path: &Path| fs::symlink_metadata(path).map(|it| (it.dev(), it.ino(), it.mtime()));
    matches!((look(one), look(other)), (Ok(one), Ok(other)) if one == other)
}

/// The path with the letters of its name in the other case.
fn other_case(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default();
    let upper = name.to_ascii_uppercase();
    path.with_file_name(if upper == name {
        name.to_ascii_lowercase()
    } else {
        upper
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_is_told_apart_here_and_nothing_is_left() {
        let folder = tempfile::tempdir().unwrap();
        assert!(!folds_names(&folder.path().join("file")));
        assert!(!folds_names(&folder.path().join("missing/file")));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        fs::write(folder.path().join("there"), "").unwrap();
        assert!(!folds_names(&folder.path().join("file")));
    }
}
