//! Two accounts on every machine: their private directories, and an archive lent to one of them.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt, chown},
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::support::{
    files::make_files,
    processes::{Service, text},
};

/// Accounts by their names and numbers.
pub const ALICE: (&str, u32) = ("nobody", 65534);
pub const BOB: (&str, u32) = ("daemon", 1);

/// Makes a directory that only its owner may read: `of-NAME`.
pub fn private(scratch: &Path, (name, uid): (&str, u32)) -> PathBuf {
    let folder = scratch.join(format!("of-{name}"));
    make_files(&folder, 2);
    for path in [
        folder.join("deep"),
        folder.join("0.h5"),
        folder.join("1.h5"),
        folder.clone(),
    ] {
        if path.exists() {
            chown(&path, Some(uid), Some(uid)).unwrap();
        }
    }
    for file in fs::read_dir(folder.join("deep")).unwrap() {
        chown(file.unwrap().path(), Some(uid), Some(uid)).unwrap();
    }
    fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();
    folder
}

/// Lets a user's requests, and so their jobs, use the service's archive.
pub fn lend_archive(service: &Service, scratch: &Path, (name, _): (&str, u32)) {
    let output = scratch.join("token");
    let words = ["token", "add", name, "--scope", "submit", "--owner", name];
    let places = ["--below", "/nowhere", "--profile", "archive", "--output"];
    let words = [&words[..], &places, &[output.to_str().unwrap()]].concat();
    let made = service.run(&words);
    assert!(made.status.success(), "{}", text(&made.stderr));
}

pub fn is_owned(path: &Path, (_, uid): (&str, u32)) {
    assert_eq!(fs::metadata(path).unwrap().uid(), uid, "{}", path.display());
}

/// Returns the requests of this owner, newest first.
pub fn requests_of(service: &Service, (name, _): (&str, u32)) -> Vec<Value> {
    let all = service.json(&["list", "--json"]);
    let all = all.as_array().unwrap().iter();
    all.filter(|one| one["wishes"]["owner"] == *name)
        .cloned()
        .collect()
}
