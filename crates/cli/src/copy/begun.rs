//! Trees whose copies have begun and not ended.
//!
//! `cp tree new` makes `new` a copy of `tree`. When such a copy is killed, `new` is a directory, and
//! the same line would copy into it, as `cp` does. So it is noted which line began it, until it ends.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use posthaste_endpoint::Checksum;
use posthaste_engine::copy::{Notice, Options};

use crate::config;

/// One line of `posthaste cp`, in the directory where it was typed.
pub(super) struct Begun {
    /// `None` where there are several sources, which are always copied into the destination.
    line: Option<Vec<u8>>,
    folder: PathBuf,
}

impl Begun {
    pub(super) fn new(sources: &[OsString], destination: &OsStr) -> Self {
        let here = env::current_dir().unwrap_or_default();
        let folder = config::state_directory().join("begun");
        Self::in_folder(folder, &here, sources, destination)
    }

    fn in_folder(folder: PathBuf, here: &Path, sources: &[OsString], to: &OsStr) -> Self {
        let line = match sources {
            [from] => {
                let words = [here.as_os_str(), from, to].map(OsStr::as_bytes);
                Some(words.join(&b'\n'))
            }
            _ => None,
        };
        Self { line, folder }
    }

    /// The note about a line, named by its checksum.
    fn file(&self) -> Option<(PathBuf, &[u8])> {
        let line = self.line.as_deref()?;
        Some((self.folder.join(Checksum::of(line).to_string()), line))
    }

    /// The same options, for a copy that goes on with what was begun, or is noted when it begins.
    pub(super) fn watch(self: &Arc<Self>, options: Options) -> Options {
        let (begun, on_notice) = (Arc::clone(self), options.on_notice);
        Options {
            continues: self.is_known(),
            on_notice: Arc::new(move |notice| {
                if matches!(notice, Notice::Made) {
                    begun.note();
                }
                on_notice(notice);
            }),
            ..options
        }
    }

    /// Whether the same line began before and did not end.
    fn is_known(&self) -> bool {
        let file = self.file();
        file.is_some_and(|(file, line)| fs::read(file).is_ok_and(|noted| noted == line))
    }

    /// Notes that it has begun. Where that fails, a killed copy is not found again, no more.
    fn note(&self) {
        if let Some((file, line)) = self.file() {
            let _ = fs::create_dir_all(&self.folder);
            let _ = fs::write(file, line);
        }
    }

    /// It has ended.
    pub(super) fn end(&self) {
        if let Some((file, _)) = self.file() {
            let _ = fs::remove_file(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_known_from_its_beginning_to_its_end() -> std::io::Result<()> {
        let state = tempfile::tempdir()?;
        let begun = |here: &str, sources: &[&str]| {
            let sources: Vec<OsString> = sources.iter().map(OsString::from).collect();
            let folder = state.path().join("begun");
            Begun::in_folder(folder, Path::new(here), &sources, OsStr::new("new"))
        };
        let line = begun("/home", &["tree"]);
        assert!(!line.is_known());
        line.note();
        assert!(line.is_known());
        assert!(!begun("/tmp", &["tree"]).is_known(), "another directory");
        assert!(!begun("/home", &["wood"]).is_known());
        line.end();
        assert!(!line.is_known());
        let many = begun("/home", &["tree", "wood"]);
        many.note();
        assert!(!many.is_known(), "they always go into the destination");
        Ok(())
    }
}
