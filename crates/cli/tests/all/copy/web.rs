//! Copies to WebDAV and back, and from a web server.

use std::{collections::BTreeMap, fs, path::Path};

use posthaste_testbed::{WebFace, WebServer};

use crate::copy::world::{World, leftovers, lines_of, noise, set_mtime};

/// Makes a tree of nested directories, with names that need care and a file in segments.
fn make_plain_tree(root: &Path) {
    fs::create_dir_all(root.join("deep/er/still")).unwrap();
    for index in 0..40 {
        let path = root.join(format!("deep/er/still/{index} of 40%.nc"));
        fs::write(path, noise(index, 10_000)).unwrap();
    }
    fs::write(root.join("deep/large"), noise(77, 30_000_001)).unwrap();
    fs::write(root.join("a b+c?d#e"), "odd").unwrap();
    fs::write(root.join("empty"), "").unwrap();
}

/// Digests of a tree's files, by name.
fn contents(root: &Path) -> BTreeMap<String, blake3::Hash> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(root).unwrap().display().to_string();
                found.insert(name, blake3::hash(&fs::read(&path).unwrap()));
            }
        }
    }
    found
}

#[test]
fn trees_go_to_webdav_and_back() {
    let server = WebServer::start().unwrap();
    let world = World::new();
    let source = world.path("source");
    make_plain_tree(&source);
    let there = server.address(WebFace::Dav, "far/away");
    world.copy(["source/", &there]);
    assert_eq!(
        contents(&source),
        contents(&server.dav_files().join("far/away"))
    );
    assert!(leftovers(&server.dav_files()).is_empty());
    let again = world.copy(["source/", &there]);
    assert_eq!(again["transfers"], 0, "{again}");
    world.copy([&format!("{there}/"), "back"]);
    assert_eq!(contents(&source), contents(&world.path("back")));
    // What an older copy put back is another file, though it was written before the one that is
    // there.
    let older = source.join("a b+c?d#e");
    fs::write(&older, "old").unwrap();
    set_mtime(&older, 1_500_000_000, 0);
    // What can't be kept is told each time.
    for copied in ["copied 1 file,", "copied 0 files,"] {
        let output = world.cp(["-p", "source/", &there]).output().unwrap();
        let lines = lines_of(&output);
        assert_eq!(output.status.code(), Some(6), "{lines}");
        // Of its files, and of `deep/er/still`.
        let all = contents(&source).len() + 3;
        let unkept = format!("the destination refuses: {all} modes, 3 modification times");
        assert!(lines.contains(&unkept), "{lines}");
        assert!(lines.contains(copied), "{lines}");
    }
    assert_eq!(
        contents(&source),
        contents(&server.dav_files().join("far/away"))
    );
}

#[test]
fn what_is_only_read_from_is_told_before_anything_is_tried() {
    let server = WebServer::start().unwrap();
    let world = World::new();
    make_plain_tree(&world.path("source"));
    let there = server.address(WebFace::Pages, "up");
    for arguments in [
        &["source/", &*there][..],
        &["--dry-run", "source/", &there],
        &["source/empty", "source/deep", &there],
        &["-", &there],
    ] {
        let refused = world.cp(arguments).output().unwrap();
        let said = lines_of(&refused);
        assert_eq!(refused.status.code(), Some(1), "{arguments:?}: {said}");
        let why = format!("can't write {there}: web servers are only read from");
        assert_eq!(said.matches(&why).count(), 1, "{arguments:?}: {said}");
        assert!(!said.contains("would copy http"), "{arguments:?}: {said}");
    }
}

#[test]
fn trees_come_from_web_servers() {
    let server = WebServer::start().unwrap();
    let world = World::new();
    make_plain_tree(&server.files().join("tree"));
    for (face, name) in [(WebFace::Pages, "pages"), (WebFace::Json, "json")] {
        world.copy([&server.address(face, "tree/"), name]);
        assert_eq!(
            contents(&server.files().join("tree")),
            contents(&world.path(name))
        );
    }
}
