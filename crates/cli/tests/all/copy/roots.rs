//! Sources and destinations: other names of one place, and links that lead to it later.

use std::{fs, os::unix::fs::symlink, sync::Once};

use posthaste_testbed::odd::{Deed, Files, Habits};

use crate::copy::world::{World, lines_of};

#[test]
fn two_sources_whose_names_are_one_there_do_not_become_one() {
    let world = World::new();
    for source in ["x/DATA", "y/data"] {
        fs::create_dir_all(world.path(source)).unwrap();
        fs::write(world.path(source).join(&source[..1]), source).unwrap();
    }
    let there = Files::mount(Habits {
        folds_names: |_| true,
        ..Habits::default()
    });
    let to = there.path().to_str().unwrap();
    let output = world.cp(["-r", "x/DATA", "y/data", to]).output().unwrap();
    let lines = lines_of(&output);
    assert_eq!(output.status.code(), Some(6), "{lines}");
    assert!(lines.contains("a name that is the same there"), "{lines}");
    assert_eq!(fs::read_dir(there.behind()).unwrap().count(), 1, "{lines}");
    // Whichever came first.
    let came = |name: &str| there.path().join(name).exists();
    assert!(came("DATA/x") != came("data/y"), "{lines}");
    // Where names are told apart both arrive.
    let output = world.cp(["-r", "x/DATA", "y/data", "."]).output().unwrap();
    assert!(output.status.success(), "{}", lines_of(&output));
    assert!(world.path("DATA/x").exists() && world.path("data/y").exists());
}

#[test]
fn a_link_that_takes_the_place_of_a_destination_leads_nowhere() {
    let world = World::new();
    let (there, victim) = (world.path("there"), world.path("victim"));
    for folder in [&there, &victim] {
        fs::create_dir(folder).unwrap();
    }
    let (away, to, once) = (world.path("away"), victim.clone(), Once::new());
    let (old, sources) = (there.clone(), 40);
    let files = Files::mount(Habits::refusing(move |call| {
        if call.deed == Deed::Read {
            once.call_once(|| {
                fs::rename(&old, &away).unwrap();
                symlink(&to, &old).unwrap();
            });
        }
        None
    }));
    for number in 0..sources {
        let folder = files.behind().join(format!("source/{number}"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("file"), "x").unwrap();
    }
    let from = format!("{}/source/", files.path().display());
    let output = world
        .cp([&*from, there.to_str().unwrap()])
        .output()
        .unwrap();
    let lines = lines_of(&output);
    assert!(there.is_symlink(), "{lines}");
    assert_eq!(fs::read_dir(&victim).unwrap().count(), 0, "{lines}");
}

#[test]
fn a_link_that_takes_the_place_of_a_source_is_not_followed() {
    let world = World::new();
    let (source, others) = (world.path("source"), world.path("others"));
    for (folder, text) in [(&source, "ours"), (&others, "theirs")] {
        for number in 0..40 {
            let folder = folder.join(number.to_string());
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("file"), text).unwrap();
        }
    }
    let (from, once) = (source.clone(), Once::new());
    let files = Files::mount(Habits::refusing(move |call| {
        if call.deed == Deed::Create {
            once.call_once(|| {
                fs::remove_dir_all(&from).unwrap();
                symlink(&others, &from).unwrap();
            });
        }
        None
    }));
    let to = files.path().join("there");
    let output = world
        .cp(["source/", to.to_str().unwrap()])
        .output()
        .unwrap();
    let lines = lines_of(&output);
    assert!(source.is_symlink(), "{lines}");
    assert!(!output.status.success(), "{lines}");
    for number in 0..40 {
        let file = files.behind().join(format!("there/{number}/file"));
        if let Ok(bytes) = fs::read(&file) {
            assert_eq!(bytes, b"ours", "{lines}");
        }
    }
}
