//! Places that offloads write to directly: those that are one, that somebody else writes to, that
//! give no answer, and that are to be written slowly.

use std::{
    fs,
    sync::{Arc, Mutex},
};

use posthaste_testbed::odd::{Files, Habits};

use crate::{
    stage_out::{is_state, offload, refused, with_results},
    support::sources::{self, picture, text},
};

#[test]
fn who_says_nothing_at_all_holds_no_submission() {
    let (centre, _) = with_results("40M", 1);
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let still = Arc::new(Mutex::new(()));
    let lock = Arc::clone(&still);
    // It answers nobody about this path as long as the lock is held.
    let files = Files::mount(Habits::refusing(move |call| {
        let _waits = call.has("still").then(|| lock.lock());
        None
    }));
    let _held = still.lock().unwrap();
    let mount = files.path().join("still/run");
    for to in [
        &*format!("webdav://127.0.0.1:{port}/x"),
        mount.to_str().unwrap(),
    ] {
        for more in [&["--dry-run"][..], &[]] {
            let asked = [&["--to", to, "--deadline", "10m"], more].concat();
            let request = offload(&centre, &asked);
            let warning = request["warnings"][0].as_str().unwrap_or_default();
            assert!(warning.contains("did not answer within 5 s"), "{request}");
        }
    }
}

/// Copies some of the files that `offload` sends, with their times.
fn bring_some(centre: &sources::Centre, to: &std::path::Path) {
    fs::create_dir_all(to.join("deep")).unwrap();
    for name in ["deep/er", "deep/file 0001"] {
        let copied = std::process::Command::new("cp")
            .arg("-a")
            .args([centre.scratch("out").join(name), to.join(name)])
            .status();
        assert!(copied.unwrap().success());
    }
}

#[test]
fn a_place_that_has_some_of_it_gets_the_rest_and_what_is_another_s_stays() {
    let (centre, whole) = with_results("40M", 4);
    let archive = centre.folder.path().join("archive");
    bring_some(&centre, &archive);
    let place = archive.to_str().unwrap();
    let to =
        |more: &'static [&'static str]| [&["--to", place, "--deadline", "10m"][..], more].concat();
    offload(&centre, &to(&["--dry-run"]));
    offload(&centre, &to(&[]));
    centre.wait_until("r1", is_state("arrived"));
    assert_eq!(picture(&archive), whole);
    // All of it may be there; what is not its own ends it and stays, at once where its size tells.
    offload(&centre, &to(&[]));
    centre.wait_until("r2", is_state("arrived"));
    let own = archive.join("deep/er/small");
    let about = fs::metadata(&own).unwrap();
    let size = usize::try_from(about.len()).unwrap();
    fs::write(&own, vec![b'x'; size]).unwrap();
    let file = fs::File::options().write(true).open(&own).unwrap();
    file.set_modified(about.modified().unwrap()).unwrap();
    // It may have failed before the command that asked for it ends.
    let from = centre.scratch("out");
    let release = to(&["--release", "when-safe"]);
    centre.run(&[&["offload", from.to_str().unwrap()][..], &release].concat());
    let request = centre.wait_until("r3", is_state("failed"));
    let why = request["reason"].as_str().unwrap();
    assert!(why.contains("deep/er/small"), "{why}");
    assert_eq!(fs::read(&own).unwrap(), vec![b'x'; size]);
    fs::write(&own, "another's").unwrap();
    let (_, said) = refused(&centre, &["--to", place]);
    assert!(
        said.contains("deep/er/small") && said.contains("already"),
        "{said}"
    );
    fs::remove_file(&own).unwrap();
    fs::write(archive.join("deep/theirs"), "another's").unwrap();
    let (_, said) = refused(&centre, &["--to", place]);
    assert!(said.contains("deep/theirs"), "{said}");
    assert_eq!(picture(&centre.scratch("out")), whole, "its source stays");
}

#[test]
fn two_submissions_of_one_id_at_once_are_one_request() {
    let (centre, _) = with_results("2M", 1);
    for round in 0..4 {
        let (to, id) = (format!("archive:new/{round}"), format!("run-{round}"));
        let asked = ["--to", &to, "--submission-id", &id, "--deadline", "10m"];
        let submit = || offload(&centre, &asked)["id"].clone();
        let [one, other] = std::thread::scope(|scope| {
            [scope.spawn(submit), scope.spawn(submit)].map(|asked| asked.join().unwrap())
        });
        assert_eq!(one, other);
    }
}

#[test]
fn what_goes_to_a_path_keeps_to_its_limit() {
    let (centre, whole) = with_results("40M", 8);
    let archive = centre.folder.path().join("archive");
    let (to, began) = (archive.to_str().unwrap(), sources::now());
    let more = ["--to", to, "--bwlimit", "2M", "--deadline", "10m"];
    let request = offload(&centre, &more);
    centre.wait_until(request["id"].as_str().unwrap(), is_state("arrived"));
    // Eight MiB take four seconds by it, however long they take besides.
    let took = began.elapsed();
    assert!(took.as_secs() >= 3, "{took:?}");
    assert_eq!(picture(&archive), whole);
}

#[test]
fn two_profiles_of_one_store_are_one_place() {
    let (centre, _) = with_results("2M", 40);
    let profiles = centre
        .folder
        .path()
        .join("home/.config/posthaste/profiles.toml");
    let text = fs::read_to_string(&profiles).unwrap();
    let (archive, _) = text.split_once("[mirror]").unwrap();
    let url = format!("s3://{}", posthaste_testbed::S3Server::BUCKET);
    let twin = archive.replace("[archive]", "[twin]");
    let twin = twin.replace(&url, &format!("{url}/new"));
    fs::write(&profiles, format!("{text}\n{twin}")).unwrap();
    let request = offload(&centre, &["--to", "archive:new/deep", "--deadline", "10m"]);
    assert_eq!(request["id"], "r1");
    for to in ["twin:deep", "twin:deep/er"] {
        let (_, said) = refused(&centre, &["--to", to]);
        assert!(said.contains("r1 goes there too"), "{said}");
    }
    offload(&centre, &["--to", "twin:other", "--deadline", "10m"]);
}

#[test]
fn what_somebody_put_there_before_the_first_file_ends_it() {
    let (mut centre, whole) = with_results("40M", 4);
    centre.s3.kill();
    let request = offload(&centre, &["--to", "archive:run9", "--deadline", "20m"]);
    let id = request["id"].as_str().unwrap();
    let there = centre.s3.bucket_folder().join("run9/deep");
    fs::create_dir_all(&there).unwrap();
    fs::write(there.join("theirs"), "theirs").unwrap();
    centre.s3.restart().unwrap();
    let request = centre.wait_until(id, is_state("failed"));
    let why = request["reason"].as_str().unwrap();
    assert!(
        why.contains("run9/deep") && why.contains("already"),
        "{why}"
    );
    assert_eq!(request["error_code"], "conflict");
    assert_eq!(picture(&centre.scratch("out")), whole, "its source stays");
    assert_eq!(fs::read_dir(&there).unwrap().count(), 1);
    let waited = centre.run(&["watch", id]);
    assert_eq!(waited.status.code(), Some(1), "{}", text(&waited.stderr));
}

#[test]
fn a_line_about_a_slip_says_what_to_try() {
    let (centre, _) = with_results("40M", 1);
    let from = centre.scratch("out");
    let from = from.to_str().unwrap();
    let late = ["--deadline", "10m"];
    for (asked, code, words) in [
        (
            &["offload", from, "--to", "archive:x", "--files-from", from][..],
            2,
            "it is a directory (name a file with a line for each)",
        ),
        (
            &["offload", from, "--to", "archive:x", "--files-from", "none"],
            4,
            "(check the path)",
        ),
    ] {
        let output = centre.run(&[asked, &late].concat());
        let said = text(&output.stderr);
        assert!(said.contains(words), "{asked:?}: {said}");
        assert_eq!(output.status.code(), Some(code), "{asked:?}: {said}");
    }
    let output = centre.run(&["paths", "--probe", "/no/such/place"]);
    let said = text(&output.stderr);
    assert!(said.contains("name a directory that is there"), "{said}");
}

#[test]
fn what_would_go_into_itself_over_sftp_goes_nowhere() {
    let (centre, whole) = with_results("40M", 2);
    let ssh = posthaste_testbed::SshServer::start().unwrap();
    let profiles = centre
        .folder
        .path()
        .join("home/.config/posthaste/profiles.toml");
    let options = ssh.options();
    let options: Vec<String> = options.iter().map(|one| format!("{one:?}")).collect();
    let url = ssh.address(centre.scratch("out").to_str().unwrap());
    let here = format!(
        "[here]\nurl = \"{url}\"\nssh_options = [{}]\n",
        options.join(", ")
    );
    let before = fs::read_to_string(&profiles).unwrap();
    fs::write(&profiles, before + "\n" + &here).unwrap();
    let request = offload(&centre, &["--to", "here:in", "--deadline", "10m"]);
    let id = request["id"].as_str().unwrap();
    let request = centre.wait_until(id, |request| {
        ["failed", "arrived"].contains(&request["state"].as_str().unwrap())
    });
    let why = request["reason"].to_string();
    assert_eq!(request["state"], "failed", "{request}");
    assert!(why.contains("it can't be copied into itself"), "{request}");
    assert_eq!(picture(&centre.scratch("out")), whole);
}
