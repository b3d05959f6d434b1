//! Removes directories that a release has emptied.

use std::{fs, io, os::unix::ffi::OsStrExt, path::Path};

use posthaste_endpoint::{Error, Locus, Result, is_mark};

/// Removes files by which a directory is looked for elsewhere, now or by a service that was killed.
/// They are empty; another of such a name is somebody's.
fn remove_marks(path: &Path) {
    let is_ours = |entry: &fs::DirEntry| {
        let found = entry.metadata();
        is_mark(entry.file_name().as_bytes())
            && found.is_ok_and(|found| found.is_file() && found.len() == 0)
    };
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    for entry in entries.filter(is_ours) {
        // What stays keeps its directory.
        let _ = fs::remove_file(entry.path());
    }
}

/// Removes a directory unless it has new entries, which were never part of the dataset.
pub(super) fn remove_directory(path: &Path, shown: &str) -> Result<()> {
    let removed = match fs::remove_dir(path) {
        Err(cause) if cause.kind() == io::ErrorKind::DirectoryNotEmpty => {
            remove_marks(path);
            fs::remove_dir(path)
        }
        removed => removed,
    };
    match removed {
        Ok(()) => Ok(()),
        Err(cause)
            if matches!(
                cause.kind(),
                io::ErrorKind::NotFound
                    | io::ErrorKind::DirectoryNotEmpty
                    // A source named by a link: that is nobody's copy.
                    | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(())
        }
        Err(cause) => Err(Error::io("remove", shown, cause).at(Locus::Source)),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use posthaste_endpoint::mark_name;

    use super::*;

    #[test]
    fn a_mark_keeps_no_directory_and_what_else_is_new_does() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("d");
        fs::create_dir(&path).unwrap();
        for name in ["mark", "new"] {
            let file = match name {
                "mark" => path.join(OsStr::from_bytes(&mark_name("word"))),
                name => path.join(name),
            };
            fs::write(&file, "").unwrap();
            remove_directory(&path, "d").unwrap();
            assert_eq!(path.exists(), name == "new");
            fs::create_dir_all(&path).unwrap();
        }
        assert!(path.join("new").exists());
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        remove_directory(&link, "link").unwrap();
        assert!(link.exists(), "only what it leads to was released");
    }
}
