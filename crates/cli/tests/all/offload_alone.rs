//! Data that an offload writes to an address is its own: nobody else writes there meanwhile, and
//! others' data there stays.

use crate::support::sources;

use std::{
    fs,
    io::Write,
    os::unix::fs::{PermissionsExt, symlink},
    path::PathBuf,
    sync::{
        Arc, Mutex, Once, OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use crate::support::sources::{Centre, chunks, make_tree, picture, text};
use posthaste_testbed::odd::{Deed, Files, Habits};
use serde_json::Value;

/// Offloads results on scratch to `to`.
fn begin(centre: &Centre, files: usize, to: &str) -> String {
    make_tree(&centre.scratch("out"), files);
    let from = centre.scratch("out");
    let asked = ["offload", from.to_str().unwrap(), "--to", to, "--json"];
    let more = ["--deadline", "30m", "--release", "when-safe"];
    let asked = centre.json(&[&asked[..], &more[..]].concat());
    asked["id"].as_str().unwrap().to_owned()
}

/// Waits until a request failed because other files have its names, and checks that its source and
/// these files are unchanged.
fn gives_way(centre: &Centre, id: &str, theirs: &[PathBuf], whole: &[(PathBuf, Vec<u8>)]) {
    let ended = centre.wait_until(id, |request: &Value| request["state"] == "failed");
    let why = ended["reason"].as_str().unwrap();
    assert!(why.contains("something else got this name"), "{why}");
    for path in theirs {
        assert_eq!(fs::read(path).unwrap(), b"theirs", "{}", path.display());
    }
    assert_eq!(picture(&centre.scratch("out")), whole, "its source stays");
}

#[test]
fn one_place_in_several_spellings_is_one() {
    let centre = Centre::with("40M", "40M", 0);
    // A full destination is one that it waits for.
    let files = Files::mount(Habits::refusing(|call| {
        (call.deed == Deed::Create).then_some(28)
    }));
    let archive = files.path().join("archive");
    begin(&centre, 2, archive.join("run").to_str().unwrap());
    let folder = centre.folder.path();
    symlink(files.path(), folder.join("link")).unwrap();
    let from = centre.scratch("out");
    for other in [
        "link/archive/run",
        "link//archive/./run",
        "link/archive/x/../run",
        "link/archive/run/deep",
        "link/archive",
    ] {
        let to = format!("{}/{other}", folder.display());
        for to in [to.clone(), format!("file://{to}")] {
            let asked = ["--to", &to, "--deadline", "10m"];
            let output =
                centre.run(&[&["offload", from.to_str().unwrap()][..], &asked[..]].concat());
            let said = text(&output.stderr);
            assert!(
                !output.status.success() && said.contains("r1 goes there too"),
                "{to}: {said}"
            );
        }
    }
}

#[test]
fn a_path_without_room_is_refused_when_it_is_submitted() {
    let centre = Centre::with("40M", "40M", 0);
    let files = Files::mount(Habits {
        free_blocks: 64,
        ..Habits::default()
    });
    let out = centre.scratch("out");
    fs::create_dir_all(&out).unwrap();
    fs::write(out.join("full"), vec![7; 1 << 20]).unwrap();
    let to = files.path().join("archive/run");
    let offload = |more: &[&str]| {
        let places = [
            "offload",
            out.to_str().unwrap(),
            "--to",
            to.to_str().unwrap(),
        ];
        centre.run(&[&places[..], &["--deadline", "10m"], more].concat())
    };
    for more in [&["--dry-run"][..], &["--wait"]] {
        let refused = offload(more);
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(7), "{said}");
        assert!(
            said.contains("it takes 1.0 MiB, and 256.0 KiB are free there"),
            "{said}"
        );
    }
    assert!(!files.path().join("archive").exists());
    // A hole takes nothing.
    fs::write(out.join("full"), "").unwrap();
    let full = fs::File::options().write(true).open(out.join("full"));
    full.unwrap().set_len(1 << 20).unwrap();
    let done = offload(&["--wait"]);
    assert!(done.status.success(), "{}", text(&done.stderr));
}

#[test]
fn what_others_put_there_meanwhile_stays_and_so_does_the_source() {
    let centre = Centre::with("40M", "40M", 0);
    let behind: Arc<OnceLock<PathBuf>> = Arc::default();
    let there = Arc::clone(&behind);
    let files = Files::mount(Habits::refusing(move |call| {
        if call.deed == Deed::Create && call.has("0003") {
            let there = there.get().unwrap();
            fs::write(there.join("archive/deep/file 0003"), b"theirs").unwrap();
        }
        None
    }));
    behind.set(files.behind().to_owned()).unwrap();
    let to = files.path().join("archive");
    let id = begin(&centre, 6, to.to_str().unwrap());
    let whole = picture(&centre.scratch("out"));
    let theirs = files.behind().join("archive/deep/file 0003");
    gives_way(&centre, &id, &[theirs], &whole);
}

#[test]
fn what_others_put_into_the_bucket_meanwhile_stays_and_so_does_the_source() {
    let mut centre = Centre::with("2M", "40M", 0);
    let id = begin(&centre, 24, "archive:run7");
    let whole = picture(&centre.scratch("out"));
    centre.wait_until(&id, |request| chunks(request, "chunks_safe") >= 2);
    centre.kill();
    let mut theirs = Vec::new();
    for (path, _) in &whole {
        let path = centre.s3.bucket_folder().join("run7").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if let Ok(mut file) = fs::File::create_new(&path) {
            file.write_all(b"theirs").unwrap();
            theirs.push(path);
        }
    }
    assert!(!theirs.is_empty(), "all of it was there");
    centre.restart();
    gives_way(&centre, &id, &theirs, &whole);
}

#[test]
fn an_object_that_another_client_replaced_is_seen_before_its_source_is_removed() {
    let centre = Centre::with("40M", "40M", 0);
    let object = centre.s3.bucket_folder().join("run7/deep/file 0000");
    let theirs = centre.folder.path().join("theirs");
    fs::write(&theirs, vec![9; 1 << 20]).unwrap();
    let put = Arc::new(Mutex::new(sources::command(
        centre.folder.path(),
        &centre.s3,
    )));
    let address = "s3://testbed/run7/deep/file 0000";
    put.lock().unwrap().arg("cp").arg(theirs).arg(address);
    // Whoever reads the file once its object is there compares it: right before that, another
    // client is faster.
    let files = Files::mount(Habits::refusing(move |call| {
        if call.deed == Deed::Open && call.has("file 0000") && object.exists() {
            assert!(put.lock().unwrap().status().unwrap().success());
        }
        None
    }));
    make_tree(&files.behind().join("out"), 2);
    let from = files.path().join("out");
    let asked = ["offload", from.to_str().unwrap(), "--to", "archive:run7"];
    let more = ["--deadline", "30m", "--release", "when-safe", "--json"];
    let asked = centre.json(&[&asked[..], &more[..]].concat());
    let ended = centre.wait_until(asked["id"].as_str().unwrap(), |request| {
        request["state"] == "released" || request["stage_in"]["releases"] == false
    });
    assert_eq!(ended["state"], "arrived", "{ended}");
    assert!(from.join("deep/file 0000").exists());
    let said = "what is there is not what is on scratch";
    assert!(centre.log().contains(said), "{}", centre.log());
}

#[test]
fn a_source_of_which_anything_changed_stays_is_named_and_ends_with_its_code() {
    for changes_bytes in [true, false] {
        let centre = Centre::with("40M", "40M", 0);
        make_tree(&centre.scratch("out"), 2);
        let changed = centre.scratch("out/deep/file 0001");
        let (file, once) = (changed.clone(), Once::new());
        let there = Files::mount(Habits::refusing(move |call| {
            if call.deed == Deed::Create {
                once.call_once(|| {
                    let then = fs::metadata(&file).unwrap().modified().unwrap();
                    if changes_bytes {
                        fs::write(&file, vec![7; 1 << 20]).unwrap();
                        let file = fs::File::options().write(true).open(&file).unwrap();
                        file.set_modified(then).unwrap();
                    } else {
                        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
                    }
                });
            }
            None
        }));
        let (from, to) = (centre.scratch("out"), there.path().join("archive"));
        let asked = ["offload", from.to_str().unwrap(), "--to"];
        let more = ["--deadline", "30m", "--release", "when-safe", "--wait"];
        let asked = [&asked[..], &[to.to_str().unwrap()], &more[..]].concat();
        let output = centre.run(&asked);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(6), "{said}");
        assert_eq!(fs::metadata(&changed).unwrap().len(), 1 << 20);
        let status = text(&centre.run(&["status", "r1"]).stdout);
        assert!(
            status.contains("scratch not released") && status.contains("file 0001"),
            "{status}"
        );
        assert_eq!(picture(&from).len(), 1, "the others are gone");
    }
}

#[test]
fn what_can_not_be_there_is_left_out_and_named_and_the_rest_goes() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    const EINVAL: i32 = 22;
    let centre = Centre::with("40M", "40M", 0);
    let from = centre.scratch("out");
    make_tree(&from, 2);
    let (odd, pipe) = (from.join("deep/a:b"), from.join("deep/pipe"));
    fs::write(&odd, "odd").unwrap();
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let there = Files::mount(Habits::refusing(|call| {
        let is_refused = call.deed == Deed::Create && call.has("a:b");
        is_refused.then_some(EINVAL)
    }));
    let to = there.path().join("archive");
    let asked = ["offload", from.to_str().unwrap(), "--to"];
    let more = ["--deadline", "30m", "--release", "when-safe", "--wait"];
    let output = centre.run(&[&asked[..], &[to.to_str().unwrap()], &more[..]].concat());
    assert_eq!(output.status.code(), Some(6), "{}", text(&output.stderr));
    let request = centre.json(&["status", "r1", "--json"]);
    assert_eq!(request["state"], "released", "{request}");
    assert_eq!(request["left_out"]["files"], 2, "{request}");
    assert_eq!(request["left_out"]["bytes"], 3, "{request}");
    let shown = |command| text(&centre.run(&[command, "r1"]).stdout);
    for said in [shown("status"), shown("explain"), centre.log()] {
        assert!(said.contains("a:b: Invalid argument"), "{said}");
        assert!(said.contains("pipe: "), "{said}");
    }
    let stays = picture_of_names(&from);
    assert_eq!(stays, ["deep/a:b", "deep/pipe"], "the rest went");
    assert!(there.path().join("archive/deep/file 0001").exists());
    assert!(there.path().join("archive/deep/er/small").exists());
}

/// Returns the paths of all but directories, in order.
fn picture_of_names(root: &std::path::Path) -> Vec<String> {
    let (mut names, mut open) = (Vec::new(), vec![root.to_path_buf()]);
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(root).unwrap();
                names.push(name.to_str().unwrap().to_owned());
            }
        }
    }
    names.sort();
    names
}

#[test]
fn a_destination_that_fails_is_told_of_and_waited_for() {
    for (code, said) in [(28, "No space left on device"), (5, "Input/output error")] {
        let centre = Centre::with("40M", "40M", 0);
        let is_well: Arc<AtomicBool> = Arc::default();
        let mended = Arc::clone(&is_well);
        let there = Files::mount(Habits::refusing(move |call| {
            let is_refused = call.deed == Deed::Create && call.has("0001");
            (is_refused && !mended.load(Relaxed)).then_some(code)
        }));
        let to = there.path().join("archive");
        let id = begin(&centre, 2, to.to_str().unwrap());
        centre.wait_until(&id, |request| {
            request["warnings"].to_string().contains(said)
        });
        let story = || text(&centre.run(&["explain", &id]).stdout);
        let told = centre.wait_until(&id, |_| story().contains(said));
        assert_eq!(told["state"], "moving", "{told}");
        is_well.store(true, Relaxed);
        let ended = centre.wait_until(&id, |request| request["state"] == "released");
        assert!(ended["left_out"].is_null(), "{ended}");
        assert!(!story().contains("more urgent requests"), "{}", story());
    }
}

#[test]
fn what_patterns_leave_out_is_not_sent_to_an_address_either() {
    let centre = Centre::with("40M", "40M", 0);
    let from = centre.scratch("out");
    make_tree(&from, 3);
    fs::write(from.join(".secret"), "mine").unwrap();
    fs::write(from.join("deep/run.log"), "grows").unwrap();
    let to = centre.scratch("archive");
    let ends = [from.to_str().unwrap(), "--to", to.to_str().unwrap()];
    let patterns = ["--exclude", ".secret", "--exclude", "*.log"];
    let more = ["--deadline", "10m", "--json"];
    let asked = centre.json(&[&["offload"][..], &ends[..], &patterns[..], &more[..]].concat());
    let id = asked["id"].as_str().unwrap();
    centre.wait_until(id, |request| request["state"] == "arrived");
    let is_wanted = |path: &PathBuf| !(path.ends_with(".secret") || path.ends_with("run.log"));
    let wanted: Vec<_> = picture(&from)
        .into_iter()
        .filter(|(path, _)| is_wanted(path))
        .collect();
    assert_eq!(picture(&to), wanted);
}

#[test]
fn a_source_is_never_released_to_itself_under_another_name() {
    let centre = Centre::with("40M", "40M", 0);
    let ssh = posthaste_testbed::SshServer::start().unwrap();
    let options: Vec<_> = ssh
        .options()
        .iter()
        .map(|option| format!("{option:?}"))
        .collect();
    let profiles = centre
        .folder
        .path()
        .join("home/.config/posthaste/profiles.toml");
    let (url, options) = (
        ssh.address(centre.scratch("").to_str().unwrap()),
        options.join(", "),
    );
    let kept = fs::read_to_string(&profiles).unwrap();
    let kept = format!("{kept}\n[loop]\nurl = \"{url}\"\nssh_options = [{options}]\n");
    fs::write(&profiles, kept).unwrap();
    let id = begin(&centre, 3, "loop:out");
    let whole = picture(&centre.scratch("out"));
    centre.wait_until(&id, |_| {
        let story = text(&centre.run(&["status", &id]).stdout);
        (story + &centre.log()).contains("it is the source itself, under another name")
    });
    assert_eq!(picture(&centre.scratch("out")), whole, "its source stays");
}

/// Offloads one directory to another and removes it there; returns what is said if that is refused.
fn moves(centre: &Centre, from: &str, to: &str, more: &[&str]) -> Result<Value, String> {
    let [from, to] = [from, to].map(|name| centre.folder.path().join(name));
    let asked = [
        "offload",
        from.to_str().unwrap(),
        "--to",
        to.to_str().unwrap(),
        "--json",
    ];
    let how = ["--deadline", "2h", "--release", "when-safe"];
    let output = centre.run(&[&asked[..], &how, more].concat());
    match output.status.success() {
        true => Ok(serde_json::from_slice(&output.stdout).unwrap()),
        false => Err(text(&output.stderr)),
    }
}

#[test]
fn of_two_that_release_one_source_at_least_one_has_all_of_it() {
    let centre = Centre::with("40M", "40M", 0);
    make_tree(&centre.folder.path().join("a"), 4);
    let whole = picture(&centre.folder.path().join("a"));
    // The first may have removed some or all of it before the second looks: then that is told at once, or
    // the second takes the rest.
    let both = ["b", "c"].map(|to| (to, moves(&centre, "a", to, &[])));
    let said = both[1].1.as_ref().err().map(|said| said.to_lowercase());
    assert!(
        (said.iter()).all(|said| ["vanished", "no such"].iter().any(|why| said.contains(why))),
        "{said:?}"
    );
    let taken = both
        .into_iter()
        .filter_map(|(to, taken)| Some((to, taken.ok()?)));
    let ids: Vec<_> = taken
        .map(|(to, taken)| (to, taken["id"].as_str().unwrap().to_owned()))
        .collect();
    let is_over = |request: &Value| {
        ["released", "delivered", "failed"].contains(&request["state"].as_str().unwrap())
    };
    let mut kept = 0;
    for (to, id) in &ids {
        let ended = centre.wait_until(id, is_over);
        if ended["state"] == "failed" {
            assert!(
                ended["reason"].as_str().is_some_and(|why| !why.is_empty()),
                "{ended}"
            );
            continue;
        }
        // The second takes what it finds: some may have left already.
        let there = picture(&centre.folder.path().join(to));
        assert!(there.iter().all(|file| whole.contains(file)), "{ended}");
        kept += usize::from(there == whole);
    }
    assert!(kept > 0 && !centre.folder.path().join("a").exists());
}
