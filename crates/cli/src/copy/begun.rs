//! Copies of trees that have begun and not ended.
//!
//! `cp tree new` makes `new` a copy of `tree`. If such a copy is killed, `new` is a directory, and
//! the same command line would copy into it, as `cp` does. A note therefore names the command line
//! that began it, until it ends.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use posthaste_endpoint::Checksum;
use posthaste_engine::copy::{Notice, Options};

use crate::config;

/// Command line of a `posthaste cp`, with its working directory.
pub(super) struct Begun {
    /// Words of the command line. `None` with several sources, which are always copied into the
    /// destination.
    line: Option<Vec<u8>>,
    folder: PathBuf,
    /// Destination, if it is a local path.
    destination: PathBuf,
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
        Self {
            line,
            folder,
            destination: here.join(to),
        }
    }

    /// Returns the note about a command line, named by its checksum.
    fn file(&self) -> Option<(PathBuf, &[u8])> {
        let line = self.line.as_deref()?;
        Some((self.folder.join(Checksum::of(line).to_string()), line))
    }

    /// Extends the options, so that the copy continues one that was begun, or is noted when it
    /// begins.
    pub(super) fn watch(self: &Arc<Self>, options: Options) -> Options {
        let (begun, on_notice) = (Arc::clone(self), options.on_notice);
        let is_known = self.is_known();
        Options {
            continues: is_known,
            has_begun: is_known,
            on_notice: Arc::new(move |notice| {
                match notice {
                    Notice::Made => begun.note(""),
                    Notice::Stands(path) => begun.note(&identity(path)),
                    Notice::Failed(_)
                    | Notice::Copied(_)
                    | Notice::Unchanged(_)
                    | Notice::WouldCopy(_)
                    | Notice::LeftOut(_)
                    | Notice::Parking(..)
                    | Notice::Tuned(_) => {}
                }
                on_notice(notice);
            }),
            ..options
        }
    }

    /// Returns whether the same command line was begun before and did not end. A directory created
    /// since under the same name does not count.
    fn is_known(&self) -> bool {
        let Some((file, line)) = self.file() else {
            return false;
        };
        let noted = fs::read(file).unwrap_or_default();
        let Some(made) = noted.strip_prefix(line) else {
            return false;
        };
        made.is_empty() || made == format!("\n{}", identity(&self.destination)).as_bytes()
    }

    /// Notes that the copy has begun, and the directory it created. If that fails, only the
    /// resumption of a killed copy is lost.
    fn note(&self, made: &str) {
        let Some((file, line)) = self.file() else {
            return;
        };
        let mut text = line.to_vec();
        if !made.is_empty() {
            text.extend_from_slice(format!("\n{made}").as_bytes());
        }
        let _ = fs::create_dir_all(&self.folder);
        let _ = fs::write(file, text);
    }

    /// Removes the note of the begun copy.
    pub(super) fn end(&self) {
        if let Some((file, _)) = self.file() {
            let _ = fs::remove_file(file);
        }
    }
}

/// Returns an identity that tells a directory from a later one of the same name. Inode numbers are
/// reused, so the creation time counts too.
fn identity(path: &Path) -> String {
    let Ok(found) = fs::symlink_metadata(path) else {
        return "none".to_owned();
    };
    let born = found.created().ok();
    let born = born.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok());
    format!("{} {} {born:?}", found.dev(), found.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_made_anew_is_not_what_was_begun() -> std::io::Result<()> {
        let home = tempfile::tempdir()?;
        let begun = || {
            let folder = home.path().join("begun");
            Begun::in_folder(folder, home.path(), &["tree".into()], OsStr::new("new"))
        };
        let new = home.path().join("new");
        fs::create_dir(&new)?;
        begun().note(&identity(&new));
        assert!(begun().is_known());
        fs::rename(&new, home.path().join("old"))?;
        fs::create_dir(&new)?;
        assert!(!begun().is_known());
        Ok(())
    }

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
        line.note("");
        assert!(line.is_known());
        assert!(!begun("/tmp", &["tree"]).is_known(), "another directory");
        assert!(!begun("/home", &["wood"]).is_known());
        line.end();
        assert!(!line.is_known());
        let many = begun("/home", &["tree", "wood"]);
        many.note("");
        assert!(!many.is_known(), "they always go into the destination");
        Ok(())
    }
}
