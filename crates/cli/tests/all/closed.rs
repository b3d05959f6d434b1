//! Files of running programs are closed to other users of the machine.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use crate::support::processes::{Gateway, Relay, Service, make_tree};

/// Lists the entries of a directory, and itself, that others than their owner may read, write or
/// enter.
fn open_to_others(folder: &Path) -> Vec<String> {
    let (mut open, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(path) = folders.pop() {
        let about = fs::symlink_metadata(&path).unwrap();
        let mode = about.permissions().mode();
        if !about.is_symlink() && mode & 0o077 != 0 {
            open.push(format!("{mode:o} {}", path.display()));
        }
        if about.is_dir() {
            folders.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        }
    }
    open
}

#[test]
fn what_services_relays_and_gateways_keep_is_closed_to_others() {
    let folder = tempfile::tempdir().unwrap();
    let relay = Relay::start(folder.path(), "ash", "1G", "60M");
    let service = Service::start(folder.path());
    service.add(&relay);
    let gateway = folder.path().join("gateway");
    let _gateway = Gateway::start(&gateway);
    let run = folder.path().join("run");
    make_tree(&run, 3, 1);
    let what = ["offload", run.to_str().unwrap(), "--to", "home"];
    let how = [
        "--deadline",
        "10m",
        "--via",
        "ash",
        "--code",
        "1+0",
        "--json",
    ];
    service.json(&[&what[..], &how].concat());
    service.wait_until("r1", |request| request["state"] == "safe");
    for kept in [&service.state, &folder.path().join("ash"), &gateway] {
        let open = open_to_others(kept);
        assert!(open.is_empty(), "{open:#?}");
    }
}
