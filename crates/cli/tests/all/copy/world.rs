//! A folder, trees to copy, and servers to copy them to.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs::{self, File},
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::{FileExt, MetadataExt, PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
    process::{Command, Output},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

pub use posthaste_testbed::noise;
use posthaste_testbed::{AzureServer, GcsServer, S3Server, SshServer, install};
use serde_json::Value;

/// Temporary folder with its own home.
pub struct World {
    folder: tempfile::TempDir,
    environment: Vec<(&'static str, String)>,
    ssh_options: Vec<String>,
    arguments: Vec<String>,
}

impl World {
    pub fn new() -> Self {
        Self {
            folder: tempfile::Builder::new()
                .prefix("posthaste-cp-")
                .tempdir()
                .unwrap(),
            environment: Vec::new(),
            ssh_options: Vec::new(),
            arguments: Vec::new(),
        }
    }

    pub fn with_s3(mut self, server: &S3Server) -> Self {
        self.environment = server.environment();
        self
    }

    pub fn with_azure(mut self, server: &AzureServer) -> Self {
        self.environment.extend(server.environment());
        self
    }

    pub fn with_gcs(mut self, server: &GcsServer) -> Self {
        self.environment.extend(server.environment());
        self
    }

    pub fn with_ssh(mut self, server: &SshServer) -> Self {
        self.ssh_options = server.options();
        self
    }

    /// Registers the repository's `program` as the plug-in for `scheme`. Its process ids are noted
    /// in the file `plug-ins`.
    pub fn with_plugin(self, scheme: &str, program: &str) -> Self {
        install::find_python().unwrap();
        let program = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../plugins")
            .join(program);
        let noted = format!(
            "echo $$ >> '{}'; exec '{}'",
            self.path("plug-ins").display(),
            program.display()
        );
        let text = format!("[{scheme}]\ncommand = [\"sh\", \"-c\", \"{noted}\"]\n");
        let path = self.path("home/.config/posthaste/plugins.toml");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        self
    }

    /// Writes `profiles.toml`.
    pub fn with_profiles(self, text: &str) -> Self {
        self.set_profiles(text);
        self
    }

    /// Rewrites `profiles.toml`, as an editor would, while a copy may read it.
    pub fn set_profiles(&self, text: &str) {
        let path = self.path("home/.config/posthaste/profiles.toml");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let draft = path.with_extension("new");
        fs::write(&draft, text).unwrap();
        fs::set_permissions(&draft, fs::Permissions::from_mode(0o600)).unwrap();
        fs::rename(draft, path).unwrap();
    }

    /// Adds arguments to every copy.
    pub fn with_arguments(mut self, arguments: &[&str]) -> Self {
        self.arguments
            .extend(arguments.iter().map(|&text| text.to_owned()));
        self
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Builds a `posthaste cp` without this machine's own configuration.
    pub fn cp<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = self.posthaste(["cp"]);
        for option in &self.ssh_options {
            command.args(["--ssh-option", option]);
        }
        command.args(&self.arguments).args(arguments);
        command
    }

    /// Builds a `posthaste` without this machine's own configuration.
    pub fn posthaste<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_posthaste"));
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.path("home"));
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.current_dir(self.folder.path()).args(arguments);
        command
    }

    /// Runs a copy that must succeed; returns its figures.
    pub fn copy<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Value {
        let output = self.cp(arguments).arg("--json").output().unwrap();
        assert!(output.status.success(), "{}", lines_of(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

/// Returns a command's standard error.
pub fn lines_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub fn set_mtime(path: &Path, secs: u64, nanos: u32) {
    let time = UNIX_EPOCH + Duration::new(secs, nanos);
    File::open(path).unwrap().set_modified(time).unwrap();
}

/// Makes a tree with everything that is easily lost.
pub fn make_tree(root: &Path, byte_names: bool) {
    let file = |name: &str, bytes: &[u8]| {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    };
    file("zero", b"");
    file("deep/er/est/small", b"small\n");
    file("names/a b+c%20d&e<f>", b"odd");
    file("names/new\nline", b"newline");
    file("names/\u{e9}\u{1f600}", b"unicode");
    let script = file("bin/script", b"#!/bin/sh\n");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let secret = file("secret", b"hush");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let large = file("large", &noise(1, 20_000_001));
    set_mtime(&large, 1_577_934_245, 123_456_789);
    fs::create_dir_all(root.join("empty/below")).unwrap();
    symlink("deep/er/est/small", root.join("link")).unwrap();
    symlink("no/where", root.join("dangling")).unwrap();
    if byte_names {
        let name = OsString::from_vec(b"names/caf\xe9 \xff".to_vec());
        fs::write(root.join(name), b"bytes").unwrap();
    }
    let sparse = File::create(root.join("sparse")).unwrap();
    sparse.set_len(40 << 20).unwrap();
    sparse.write_all_at(b"in the middle", 20 << 20).unwrap();
    drop(sparse);
    set_mtime(&root.join("deep/er"), 1_500_000_000, 0);
    fs::set_permissions(root.join("deep/er"), fs::Permissions::from_mode(0o751)).unwrap();
}

/// Exactness with which two trees must agree.
#[derive(Clone, Copy)]
pub struct Exactness {
    pub mtime_step: Duration,
    pub directory_attributes: bool,
}

pub const EXACT: Exactness = Exactness {
    mtime_step: Duration::from_nanos(1),
    directory_attributes: true,
};

#[derive(Debug, PartialEq)]
enum Thing {
    File { bytes: blake3::Hash, mode: u32 },
    Directory { mode: Option<u32> },
    Link(PathBuf),
}

fn snapshot(root: &Path, exactness: Exactness) -> BTreeMap<PathBuf, (Thing, Option<SystemTime>)> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let mode = metadata.mode() & 0o7777;
            let mtime = Some(metadata.modified().unwrap());
            let name = path.strip_prefix(root).unwrap().to_owned();
            let thing = if metadata.is_symlink() {
                (Thing::Link(fs::read_link(&path).unwrap()), None)
            } else if metadata.is_dir() {
                open.push(path);
                let kept = exactness.directory_attributes;
                (
                    Thing::Directory {
                        mode: kept.then_some(mode),
                    },
                    mtime.filter(|_| kept),
                )
            } else {
                let bytes = blake3::hash(&fs::read(&path).unwrap());
                (Thing::File { bytes, mode }, mtime)
            };
            found.insert(name, thing);
        }
    }
    found
}

/// Panics at the first difference between two trees.
pub fn assert_same(wanted: &Path, found: &Path, exactness: Exactness) {
    let (wanted, found) = (snapshot(wanted, exactness), snapshot(found, exactness));
    let names = |tree: &BTreeMap<PathBuf, _>| tree.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&wanted), names(&found));
    for (name, (thing, mtime)) in &wanted {
        let (other, other_mtime) = &found[name];
        assert_eq!(thing, other, "{}", name.display());
        if let (Some(mtime), Some(other)) = (mtime, other_mtime) {
            let apart = mtime
                .duration_since(*other)
                .unwrap_or_else(|error| error.duration());
            assert!(
                apart < exactness.mtime_step,
                "{}: {apart:?} apart",
                name.display()
            );
        }
    }
}

/// Lists hidden files of unfinished copies below `root`.
pub fn leftovers(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.is_symlink() {
                open.push(path);
            } else if path.file_name().unwrap().as_bytes().starts_with(b".") {
                found.push(path);
            }
        }
    }
    found
}
