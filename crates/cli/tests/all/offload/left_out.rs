//! Files left out of a dataset, and facts of its files kept beside their bytes.

use std::{fs, path::Path};

use posthaste_testbed::odd::{Deed, Files, Habits};
use serde_json::Value;

use super::{Centre, state};
use crate::support::processes::{Relay, failure, picture, text};

#[test]
fn files_that_change_or_vanish_meanwhile_are_left_out_and_named_and_the_rest_goes() {
    use std::os::unix::fs::PermissionsExt;
    // So slow that it can't be done before they do.
    let relays = [("ash", "500K"), ("birch", "500K"), ("cedar", "500K")];
    let mut centre = Centre::with(&relays, 12, 4);
    let (large, gone) = (
        centre.scratch().join("large.bin"),
        centre.scratch().join("gone"),
    );
    fs::write(&gone, vec![7; 300_000]).unwrap();
    let lends = centre.scratch().join("deep/file 1");
    let mode = fs::metadata(&lends).unwrap().permissions().mode();
    fs::set_permissions(&lends, fs::Permissions::from_mode(mode | 0o4000)).unwrap();
    centre.offload(&["--code", "2+1", "--release", "when-safe"]);
    fs::remove_file(&gone).unwrap();
    let mut bytes = fs::read(&large).unwrap();
    bytes.push(1);
    fs::write(&large, &bytes).unwrap();
    let watched = centre.service.run(&["watch", "r1"]);
    assert_eq!(watched.status.code(), Some(6), "{}", text(&watched.stderr));
    let request = centre.service.status("r1");
    assert_eq!(state(&request), "released", "{request}");
    assert_eq!(request["left_out"]["files"], 2, "{request}");
    // Which files those were is said wherever somebody looks.
    let shown = |command| text(&centre.service.run(&[command, "r1"]).stdout);
    let log = fs::read_to_string(centre.service.state.with_extension("log")).unwrap();
    let named = request["left_out"]["named"].to_string();
    for said in [named, shown("status"), shown("explain"), log] {
        for file in [&large, &gone] {
            assert!(said.contains(file.to_str().unwrap()), "{said}");
        }
        assert!(said.contains("changed after it was listed"), "{said}");
    }
    assert_eq!(fs::read(&large).unwrap(), bytes, "it stays");
    assert!(!centre.scratch().join("deep").exists(), "the rest went");
    let is_large = |line: &String| line.contains("large.bin") && !line.contains("link");
    centre.before.retain(|line| !is_large(line));
    let (_, said) = centre.pull_rest("r1", &["gone", "large.bin"]);
    let lent = "set-user-ID and set-group-ID bits of 1 file,";
    assert_eq!(said.matches(lent).count(), 1, "{said}");
}

#[test]
fn pipes_and_sockets_are_counted_and_named_and_stay() {
    let relays = [("ash", "60M"), ("birch", "60M"), ("cedar", "60M")];
    let centre = Centre::with(&relays, 4, 2);
    let pipe = centre.scratch().join("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    let socket = centre.scratch().join("socket");
    let _socket = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    centre.offload(&["--code", "2+1", "--release", "when-safe"]);
    let watched = centre.service.run(&["watch", "r1"]);
    assert_eq!(watched.status.code(), Some(6), "{}", text(&watched.stderr));
    let request = centre.service.status("r1");
    assert_eq!(state(&request), "released", "{request}");
    assert_eq!(request["left_out"]["files"], 2, "{request}");
    let shown = |command| text(&centre.service.run(&[command, "r1"]).stdout);
    let log = fs::read_to_string(centre.service.state.with_extension("log")).unwrap();
    for said in [shown("status"), shown("explain"), log] {
        for left in [&pipe, &socket] {
            let line = format!("{}: it is a device, a pipe or a socket", left.display());
            assert!(said.contains(&line), "{said}");
        }
    }
    assert!(pipe.exists() && socket.exists(), "they stay");
    assert!(!centre.scratch().join("deep").exists(), "the rest went");
    let (report, _) = centre.pull_rest("r1", &["pipe", "socket"]);
    assert_eq!(report["left_out"], 2, "{report}");
}

#[test]
fn what_copies_left_unfinished_is_counted_and_named_and_stays() {
    let relays = [("ash", "60M"), ("birch", "60M"), ("cedar", "60M")];
    let centre = Centre::with(&relays, 4, 2);
    let names = [
        ".x.0123456789ab.posthaste-partial",
        ".run.posthaste-0123456789ab",
        ".posthaste-pull-0123456789abcdef",
    ];
    let left = names.map(|name| centre.scratch().join(name));
    fs::write(&left[0], "half").unwrap();
    for folder in &left[1..] {
        fs::create_dir(folder).unwrap();
        fs::write(folder.join("0"), "half").unwrap();
    }
    centre.offload(&["--code", "2+1", "--release", "when-safe"]);
    let watched = centre.service.run(&["watch", "r1"]);
    assert_eq!(watched.status.code(), Some(6), "{}", text(&watched.stderr));
    let request = centre.service.status("r1");
    assert_eq!(state(&request), "released", "{request}");
    assert_eq!(request["left_out"]["files"], 3, "{request}");
    let said = text(&centre.service.run(&["status", "r1"]).stdout);
    for left in &left {
        let line = format!(
            "{}: it is named as what a copy left unfinished",
            left.display()
        );
        assert!(said.contains(&line), "{said}");
    }
    assert!(left[0].exists() && left[1].join("0").exists() && left[2].join("0").exists());
    assert!(
        !centre.scratch().join("deep/file 1").exists(),
        "the rest went"
    );
    let (report, _) = centre.pull_rest("r1", &names);
    assert_eq!(report["left_out"], 3, "{report}");
}

/// Removes the fragments that a relay stored, but not their directory. Returns their number.
fn remove_fragments(relay: &Relay) -> usize {
    let mut removed = 0;
    let mut open = vec![relay.directory.join("datasets")];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let name = entry.file_name().into_string().unwrap();
            if entry.file_type().unwrap().is_dir() {
                open.push(entry.path());
            } else if name != "expires" && !name.starts_with("manifest") {
                fs::remove_file(entry.path()).unwrap();
                removed += 1;
            }
        }
    }
    removed
}

#[test]
fn what_a_relay_lost_beneath_it_is_found_before_its_source_goes() {
    // So slow that some is stored long before all is.
    let relays = [("ash", "1M"), ("birch", "1M"), ("cedar", "1M")];
    let mut centre = Centre::with(&relays, 12, 4);
    centre.offload(&["--code", "2+1", "--release", "when-safe"]);
    let has_some = |request: &Value| request["chunks_safe"].as_u64() >= Some(1);
    let request = centre.service.wait_until("r1", has_some);
    assert_eq!(state(&request), "moving", "{request}");
    assert!(remove_fragments(&centre.relays[0]) > 0);
    let is_released = |request: &Value| state(request) == "released";
    let request = centre.service.wait_until("r1", is_released);
    assert!(request["chunks_repaired"].as_u64() >= Some(1), "{request}");
    // All of it is there without any one of them.
    centre.relays[2].kill();
    centre.pull_and_compare("r1");
}

#[test]
fn a_relay_that_is_another_process_is_asked_what_it_holds() {
    let relays = [("ash", "60M"), ("birch", "60M"), ("cedar", "60M")];
    let mut centre = Centre::with(&relays, 4, 2);
    let request = centre.offload(&["--code", "2+1", "--wait"]);
    assert_eq!(state(&request), "safe", "{request}");
    centre.relays[0].kill();
    assert!(remove_fragments(&centre.relays[0]) > 0);
    centre.relays[0].restart();
    let is_repaired = |request: &Value| {
        request["chunks_repaired"] == request["chunks"] && state(request) == "safe"
    };
    centre.service.wait_until("r1", is_repaired);
}

#[test]
fn what_a_relay_has_of_a_file_as_it_was_makes_way_for_its_chunks_without_it() {
    let relays = [("ash", "60M"), ("birch", "60M"), ("cedar", "60M")];
    let mut centre = Centre::with(&relays, 12, 4);
    centre.relays[1..].iter_mut().for_each(Relay::kill);
    let request = centre.offload(&["--code=2+1", "--release=when-safe", "--best-effort"]);
    assert_eq!(state(&request), "moving", "{request}");
    // One fragment of each chunk is of no use to anybody without a second.
    let is_on_ash = |request: &Value| request["shares"][0]["stored"] == request["chunks"];
    centre.service.wait_until("r1", is_on_ash);
    let large = centre.scratch().join("large.bin");
    let mut bytes = fs::read(&large).unwrap();
    bytes.push(1);
    fs::write(&large, &bytes).unwrap();
    centre.relays[1..].iter_mut().for_each(Relay::restart);
    let watched = centre.service.run(&["watch", "r1"]);
    assert_eq!(watched.status.code(), Some(6), "{}", text(&watched.stderr));
    let request = centre.service.status("r1");
    assert_eq!(request["left_out"]["files"], 1, "{request}");
    assert_eq!(fs::read(&large).unwrap(), bytes, "it stays");
    let is_large = |line: &String| line.contains("large.bin") && !line.contains("link");
    centre.before.retain(|line| !is_large(line));
    centre.pull_rest("r1", &["large.bin"]);
}

/// Returns a file's facts beside its bytes: owner, group, number of names, inode, and its
/// attributes of these names.
fn extras(path: &Path) -> (u32, u32, u64, Vec<Vec<u8>>) {
    use std::os::unix::fs::MetadataExt;
    let found = fs::symlink_metadata(path).unwrap();
    let names = [
        "user.kind",
        "system.posix_acl_access",
        "system.posix_acl_default",
    ];
    let values = names.iter().map(|name| {
        let mut value = vec![0; 1000];
        let size = rustix::fs::lgetxattr(path, *name, &mut value[..]).unwrap_or(0);
        value.truncate(size);
        value
    });
    (found.uid(), found.gid(), found.nlink(), values.collect())
}

#[test]
fn owners_other_names_attributes_and_access_lists_come_home_before_their_source_is_gone_for_good() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
    let relays = [("ash", "60M"), ("birch", "50M"), ("cedar", "40M")];
    let mut centre = Centre::with(&relays, 4, 12);
    let deep = centre.scratch().join("deep");
    fs::hard_link(deep.join("file 1"), centre.scratch().join("again")).unwrap();
    let set = |path: &Path, name: &str, value: &[u8]| {
        rustix::fs::setxattr(path, name, value, rustix::fs::XattrFlags::empty()).unwrap();
    };
    // Its owner may write, one more and the group read, others nothing.
    let mut list = vec![2, 0, 0, 0];
    for (tag, rights, id) in [
        (1u16, 6u16, u32::MAX),
        (2, 4, 1234),
        (4, 4, u32::MAX),
        (16, 4, u32::MAX),
        (32, 0, u32::MAX),
    ] {
        list.extend_from_slice(&tag.to_le_bytes());
        list.extend_from_slice(&rights.to_le_bytes());
        list.extend_from_slice(&id.to_le_bytes());
    }
    set(&deep.join("file 2"), "system.posix_acl_access", &list);
    set(&deep, "system.posix_acl_default", &list);
    set(&deep.join("file 3"), "user.kind", b"raw\0\xff");
    set(&centre.scratch().join("zero"), "user.kind", b"");
    let read_only = fs::Permissions::from_mode(0o444);
    fs::set_permissions(deep.join("file 3"), read_only).unwrap();
    if rustix::process::geteuid().is_root() {
        for name in ["deep/file 4", "deep/dangling", "deep/er"] {
            std::os::unix::fs::lchown(centre.scratch().join(name), Some(1234), Some(4321)).unwrap();
        }
        chown(&deep, Some(1234), None).unwrap();
    }
    centre.before = picture(&centre.scratch());
    let names = [
        "again",
        "zero",
        "deep",
        "deep/er",
        "deep/dangling",
        "deep/file 1",
        "deep/file 2",
        "deep/file 3",
        "deep/file 4",
    ];
    let all = |root: &Path| names.map(|name| extras(&root.join(name)));
    let before = all(&centre.scratch());
    let request = centre.offload(&["--code", "2+1", "--release", "when-safe", "--wait"]);
    assert_eq!(state(&request), "released", "{request}");
    // What the destination gives to new files would let one more read them.
    let home = centre.folder.path().join("arrived");
    fs::create_dir(&home).unwrap();
    set(&home, "system.posix_acl_default", &list);
    centre.pull_and_compare("r1");
    assert_eq!(all(&home), before);
    let inode = |name: &str| fs::metadata(home.join(name)).unwrap().ino();
    assert_eq!(inode("again"), inode("deep/file 1"));
}

#[test]
fn what_no_address_keeps_is_said_and_removed_only_where_that_is_asked_for() {
    use std::os::unix::fs::PermissionsExt;
    let centre = Centre::with(&[("ash", "60M"), ("birch", "60M")], 4, 12);
    let (scratch, folder) = (centre.scratch(), centre.folder.path());
    fs::hard_link(scratch.join("deep/file 1"), scratch.join("zz")).unwrap();
    let to = |name: &str| folder.join(name).display().to_string();
    let ask = |to: &str, more: &[&str]| {
        let base = [
            "offload",
            scratch.to_str().unwrap(),
            "--to",
            to,
            "--deadline=10m",
        ];
        centre.service.run(&[&base[..], more].concat())
    };
    for more in [
        &["--release=when-safe", "--wait"][..],
        &["--release=when-safe", "--dry-run"],
        &["--release=when-safe", "--dry-run", "--via=ash,birch"],
    ] {
        let (_, said) = failure(&ask(&to("refused"), more));
        let names_it = said.contains("/zz") && said.contains("which an address does not keep");
        assert!(names_it, "{more:?}: {said}");
    }
    assert!(scratch.join("zz").exists() && !folder.join("refused").exists());
    fs::remove_file(scratch.join("zz")).unwrap();
    let lends = scratch.join("deep/file 2");
    let mode = fs::metadata(&lends).unwrap().permissions().mode();
    fs::set_permissions(&lends, fs::Permissions::from_mode(mode | 0o4000)).unwrap();
    let (_, said) = failure(&ask(&to("refused"), &["--release=when-safe", "--dry-run"]));
    let names_it = said.contains("/file 2") && said.contains("set-user-ID");
    assert!(names_it, "{said}");
    fs::hard_link(scratch.join("deep/file 1"), scratch.join("zz")).unwrap();
    let done = ask(&to("kept"), &["--release=anyway", "--wait"]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(folder.join("kept/zz").exists() && !scratch.exists());
}

#[test]
fn what_is_excluded_stays_and_the_rest_goes() {
    let centre = Centre::with(&[("ash", "60M"), ("birch", "60M")], 4, 11);
    let log = centre.scratch().join("log");
    fs::create_dir(&log).unwrap();
    for name in ["still.written", "other.written", "done.nc"] {
        fs::write(log.join(name), name).unwrap();
    }
    let (code, said) = failure(&centre.service.run(&[
        "offload",
        log.to_str().unwrap(),
        "--to=home",
        "--deadline=10m",
        "--via=ash",
        "--include=*.tif",
        "--dry-run",
    ]));
    assert_eq!(code, 4, "{said}");
    assert!(said.contains("no file of it passes"), "{said}");
    let more = ["--exclude", "*.written", "--release", "when-safe", "--wait"];
    let request = centre.offload(&more);
    assert_eq!(request["state"], "released", "{request}");
    assert!(log.join("still.written").exists() && log.join("other.written").exists());
    assert!(!log.join("done.nc").exists(), "it was taken");
    let back = centre.folder.path().join("back");
    let pulled = centre.service.run(&["pull", "r1", back.to_str().unwrap()]);
    assert!(pulled.status.success(), "{}", text(&pulled.stderr));
    assert!(back.join("log/done.nc").exists() && !back.join("log/still.written").exists());
}

#[test]
fn what_a_destination_refuses_is_named_and_kept_until_all_of_it_is_pulled() {
    const EPERM: i32 = 1;
    let relays = [("ash", "60M"), ("birch", "50M"), ("cedar", "40M")];
    let centre = Centre::with(&relays, 4, 7);
    let request = centre.offload(&["--code", "2+1", "--wait"]);
    assert_eq!(request["missed"], false, "{request}");
    let files = Files::mount(Habits {
        hides_open: true,
        ..Habits::refusing(|call| {
            let is_refused = matches!(call.deed, Deed::MakeLink | Deed::SetMode)
                || call.deed == Deed::Rename && call.has("file 7");
            is_refused.then_some(EPERM)
        })
    });
    let home = files.path().join("home");
    let pulled = centre.service.run(&["pull", "r1", home.to_str().unwrap()]);
    let (told, said) = (text(&pulled.stdout), text(&pulled.stderr));
    assert_eq!(pulled.status.code(), Some(6), "{said}");
    assert!(told.contains(" in 43 files pulled and verified"), "{told}");
    for words in [
        "/home/deep/file 7: Operation not permitted",
        "can't make link ",
        ", 2 symbolic links",
        "3 entries left out; depots keep r1 until",
    ] {
        assert!(said.contains(words), "{words} not in {said}");
    }
    assert!(!said.contains("can't clean"), "{said}");
    assert!(home.join("deep/file 8").exists() && !home.join("deep/file 7").exists());
    assert_eq!(state(&centre.service.status("r1")), "safe");
    centre.pull_and_compare("r1");
    assert_eq!(state(&centre.service.status("r1")), "delivered");
}

#[test]
fn a_file_that_appears_after_the_seal_is_not_removed() {
    // So slow that it can't be released before the file is there.
    let relays = [("ash", "500K"), ("birch", "500K"), ("cedar", "500K")];
    let centre = Centre::with(&relays, 8, 5);
    centre.offload(&["--code", "2+1", "--release", "when-safe"]);
    let late = centre.scratch().join("deep/late");
    fs::write(&late, b"written after the dataset was sealed").unwrap();
    centre.service.wait_until("r1", |request| {
        matches!(state(request), "released" | "safe")
    });
    assert!(late.exists());
}
