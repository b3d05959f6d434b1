//! A small JSON file that is whole whenever the process or the machine ends: written anew beside,
//! then renamed.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::{Error, ErrorKind, Result};

/// Name of the field that holds the file's form.
const VERSION: &str = "version";

/// A kept file, and its texts for people.
#[derive(Debug)]
pub struct KeptFile {
    /// Path of the file; a version being written lies beside it as `.new`.
    pub path: PathBuf,
    /// Version of the content's form. Other versions are not read.
    pub version: u64,
    /// Most bytes that are read.
    pub bytes_max: u64,
    /// Operation that errors of reading name: a verb and its purpose.
    pub operation: &'static str,
    /// Hint if the content makes no sense.
    pub hint: &'static str,
}

#[derive(Serialize)]
struct Versioned<'a, T> {
    version: u64,
    #[serde(flatten)]
    kept: &'a T,
}

impl KeptFile {
    /// Reads the last written content; `None` if none was ever written. Blocking.
    ///
    /// # Errors
    /// The operating system's errors; [`ErrorKind::Invalid`] for an invalid file.
    pub fn read<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        let shown = || self.path.display().to_string();
        let failed = |cause| Error::io(self.operation, shown(), cause);
        let mut text = Vec::new();
        match File::open(&self.path) {
            Ok(opened) => opened
                .take(self.bytes_max)
                .read_to_end(&mut text)
                .map_err(failed)?,
            Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(cause) => return Err(failed(cause)),
        };
        let invalid = |why: String| {
            Error::new(ErrorKind::Invalid, self.operation, shown())
                .cause(why)
                .hint(self.hint)
        };
        let read: serde_json::Result<Map<String, Value>> = serde_json::from_slice(&text);
        let mut kept = read.map_err(|cause| invalid(cause.to_string()))?;
        let version = kept.remove(VERSION).as_ref().and_then(Value::as_u64);
        if version != Some(self.version) {
            let found = version.map_or_else(|| "none".to_owned(), |version| version.to_string());
            return Err(invalid(format!(
                "it is of version {found}, not {}",
                self.version
            )));
        }
        let kept = serde_json::from_value(Value::Object(kept));
        kept.map(Some).map_err(|cause| invalid(cause.to_string()))
    }

    /// Writes the whole content, a struct or a map, and returns when it would survive a crash of
    /// the machine. Blocking.
    ///
    /// # Errors
    /// The operating system's errors; the previous state is still there.
    pub fn write(&self, kept: &impl Serialize) -> io::Result<()> {
        let version = self.version;
        let text = serde_json::to_vec(&Versioned { version, kept })?;
        let unfinished = self.path.with_extension("new");
        let mut options = OpenOptions::new();
        let mut out = options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&unfinished)?;
        out.write_all(&text)?;
        out.sync_all()?;
        fs::rename(&unfinished, &self.path)?;
        File::open(self.path.parent().unwrap_or(&self.path))?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Names {
        names: Vec<String>,
    }

    #[test]
    fn what_was_written_comes_back_and_what_makes_no_sense_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let file = KeptFile {
            path: dir.path().join("names.json"),
            version: 2,
            bytes_max: 1 << 10,
            operation: "read the names in",
            hint: "move it away",
        };
        assert_eq!(file.read::<Names>().unwrap(), None);
        let kept = Names {
            names: vec!["a".into(), "b".into()],
        };
        file.write(&kept).unwrap();
        let text = fs::read_to_string(&file.path).unwrap();
        assert_eq!(text, r#"{"version":2,"names":["a","b"]}"#);
        assert_eq!(file.read().unwrap(), Some(kept));
        for (damaged, why) in [
            ("", "EOF"),
            ("{\"version\":2,\"na", "EOF"),
            (r#"{"version":1,"names":[]}"#, "it is of version 1, not 2"),
            (r#"{"names":[]}"#, "it is of version none, not 2"),
            (r#"{"version":2,"names":[],"x":1}"#, "unknown field"),
        ] {
            fs::write(&file.path, damaged).unwrap();
            let error = file.read::<Names>().unwrap_err();
            let shown = error.to_string();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{shown}");
            assert!(
                shown.contains(why) && shown.contains("move it away"),
                "{shown}"
            );
        }
    }
}
