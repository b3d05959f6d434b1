//! What one source does not let be listed or read is left out and named, and the rest arrives.

use std::fs;

use posthaste_testbed::odd::{Deed, Files, Habits, Spoils, front};
use tokio::task::block_in_place;

use crate::support::sources::{Centre, make_tree, text};

/// Size of several chunks.
const LARGE: usize = 9 << 20;

/// Stages in from an address with `--wait`: the exit code, and all that was said.
fn stage_in(centre: &Centre, from: &str, to: &str) -> (Option<i32>, String) {
    let done = centre.run(&["stage-in", from, to, "--deadline", "10m", "--wait"]);
    let said = text(&done.stderr) + &text(&done.stdout);
    (done.status.code(), said)
}

#[test]
fn what_may_not_be_listed_or_read_here_is_left_out() {
    const EACCES: i32 = 13;
    let centre = Centre::with("40M", "40M", 1);
    let files = Files::mount(Habits::refusing(|call| {
        let is_refused = call.deed == Deed::List && call.has("closed")
            || call.deed == Deed::Open && call.has("secret");
        is_refused.then_some(EACCES)
    }));
    let run = files.path().join("run");
    make_tree(&run, 3);
    for name in ["closed", "closed/deep"] {
        fs::create_dir(run.join(name)).unwrap();
    }
    // With permission to write them they are there.
    for (name, size) in [("deep/secret", LARGE), ("deep/er/secret.small", 10)] {
        let kept = files.behind().join("run").join(name);
        fs::write(kept, vec![7; size]).unwrap();
    }
    let to = centre.scratch("input");
    let (code, said) = stage_in(&centre, run.to_str().unwrap(), to.to_str().unwrap());
    assert_eq!(code, Some(6), "{said}\n{}", centre.log());
    for name in ["run/closed", "run/deep/secret", "run/deep/er/secret.small"] {
        assert!(said.contains(&format!("{name}: ")), "{name} not in {said}");
    }
    let request = centre.json(&["status", "r1", "--json"]);
    assert_eq!(request["state"], "arrived", "{request}");
    assert_eq!(request["left_out"]["files"], 3, "{request}");
    assert_eq!(request["left_out"]["bytes"], LARGE + 10, "{request}");
    for name in ["file 0000", "file 0002", "er/small"] {
        let name = format!("deep/{name}");
        let (here, there) = (fs::read(to.join(&name)), fs::read(run.join(&name)));
        assert_eq!(here.unwrap(), there.unwrap(), "{name}");
    }
    for name in ["closed", "deep/secret", "deep/er/secret.small"] {
        assert!(!to.join(name).exists(), "{name}");
    }
}

#[test]
fn links_pipes_sockets_and_unfinished_copies_are_left_out_and_alone_they_are_refused() {
    let centre = Centre::with("40M", "40M", 1);
    let run = centre.folder.path().join("run");
    make_tree(&run, 3);
    std::os::unix::fs::symlink("small", run.join("deep/er/link")).unwrap();
    let mode = rustix::fs::Mode::RUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, run.join("pipe"), mode).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(run.join("deep/socket")).unwrap();
    let half = "deep/.x.0123456789ab.posthaste-partial";
    let draft = "deep/.y.posthaste-0123456789ab";
    fs::write(run.join(half), "half").unwrap();
    fs::create_dir(run.join(draft)).unwrap();
    fs::write(run.join(draft).join("z"), "half").unwrap();
    let to = centre.scratch("input");
    let (code, said) = stage_in(&centre, run.to_str().unwrap(), to.to_str().unwrap());
    assert_eq!(code, Some(6), "{said}\n{}", centre.log());
    for name in ["deep/er/link", "pipe", "deep/socket", half, draft] {
        assert!(said.contains(&format!("run/{name}: ")), "{name}: {said}");
        assert!(fs::symlink_metadata(to.join(name)).is_err(), "{name}");
    }
    assert!(said.contains("bring it with `posthaste cp`"), "{said}");
    assert!(to.join("deep/er/small").exists(), "the rest is there");
    let alone = centre.folder.path().join("alone");
    fs::create_dir(&alone).unwrap();
    std::os::unix::fs::symlink("nowhere", alone.join("link")).unwrap();
    let to = centre.scratch("alone");
    let (code, said) = stage_in(&centre, alone.to_str().unwrap(), to.to_str().unwrap());
    assert!(code != Some(0) && code != Some(6), "{code:?} {said}");
    assert!(said.contains("alone/link: "), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forbidden_key_and_a_forbidden_prefix_are_left_out_and_alone_they_are_refused() {
    let centre = Centre::with("400M", "40M", 1);
    let tree = centre.folder.path().join("tree");
    make_tree(&tree, 3);
    for (name, size) in [("key-of-another", LARGE), ("prefix-of-another/x", 10)] {
        let path = tree.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, vec![7; size]).unwrap();
    }
    let copied = block_in_place(|| centre.run_alone(&["cp", "tree", "archive:tree"]));
    assert!(copied.status.success(), "{}", text(&copied.stderr));
    let front = front(centre.s3.address(), Spoils::Rights, |asked| {
        let is_listed = asked.target.contains("prefix=") && !asked.target.contains("tree%2Fprefix");
        asked.target.contains("of-another") && !is_listed
    })
    .await;
    centre.move_archive(&front.url());
    block_in_place(|| {
        let to = centre.scratch("input");
        let (code, said) = stage_in(&centre, "archive:tree", to.to_str().unwrap());
        assert_eq!(code, Some(6), "{said}\n{}", centre.log());
        for name in ["tree/key-of-another", "tree/prefix-of-another"] {
            assert!(said.contains(name), "{name} not in {said}");
        }
        assert!(to.join("deep/er/small").exists(), "the rest is there");
        for name in ["key-of-another", "prefix-of-another"] {
            assert!(!to.join(name).exists(), "{name}");
        }
        let to = centre.scratch("alone");
        let from = "archive:tree/key-of-another";
        let (code, said) = stage_in(&centre, from, to.to_str().unwrap());
        assert!(code != Some(0) && code != Some(6), "{code:?} {said}");
        assert!(!to.exists());
    });
}
