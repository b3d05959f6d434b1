//! Real movers transfer trees directly between scratch and real servers.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::support::processes::Process;
use crate::support::sources::{Centre, chunks, command, make_tree, picture, text};
use posthaste_testbed::{AzureServer, FtpFace, FtpServer, GcsServer, WebFace, WebServer, noise};
use serde_json::Value;

pub fn mover(centre: &Centre, home: &Path, token: &Path, name: &str) -> Process {
    let mut command = command(home, &centre.s3);
    let words = ["mover", "--json", "--slots", "4", "--name", name];
    command
        .args(words)
        .args(["--server", &centre.url, "--token-file"]);
    let log = centre.folder.path().join(name).with_extension("log");
    Process::run(command.arg(token), &log)
}

pub fn token(centre: &Centre) -> PathBuf {
    let token = centre.folder.path().join("movers.token");
    let add = ["token", "add", "movers", "--scope", "move", "--output"];
    let made = centre.run(&[&add[..], &[token.to_str().unwrap()]].concat());
    assert!(made.status.success(), "{}", text(&made.stderr));
    token
}

fn done(centre: &Centre, name: &str) -> u64 {
    let movers = centre.json(&["movers", "--json"]);
    let mut movers = movers.as_array().unwrap().iter();
    let mover = movers.find(|mover| mover["name"] == name);
    mover.map_or(0, |mover| mover["done"].as_u64().unwrap())
}

fn check_whole(centre: &Centre) {
    let whole = picture(&centre.web.files().join("run"));
    assert!(picture(&centre.scratch("input")) == whole);
    assert!(centre.holds_only(&["input"]));
}

#[test]
fn movers_fetch_one_tree_together_and_none_that_dies_or_hangs_loses_any_of_it() {
    let mut centre = Centre::with("5M", "5M", 160);
    let token = token(&centre);
    let mut dying = mover(&centre, centre.folder.path(), &token, "dying");
    let hanging = mover(&centre, centre.folder.path(), &token, "hanging");
    let _living = mover(&centre, centre.folder.path(), &token, "living");
    let request = centre.stage_in("input", &["--deadline", "20m"]);
    let id = request["id"].as_str().unwrap().to_owned();
    let works = |centre: &Centre| {
        let names = ["dying", "hanging", "living"];
        names.iter().all(|name| done(centre, name) > 0)
    };
    centre.wait_until(&id, |_| works(&centre));
    dying.kill();
    hanging.signal("STOP");
    let here = |request: &Value| chunks(request, "chunks_safe");
    let before = centre.wait_until(&id, |request| here(request) >= 12);
    centre.kill();
    centre.restart();
    let after = centre.json(&["status", &id, "--json"]);
    assert!(here(&after) >= here(&before));
    hanging.signal("CONT");
    centre.wait_until(&id, |request| request["state"] == "arrived");
    check_whole(&centre);
    assert!(done(&centre, "living") > 0, "{}", centre.log());
}

#[test]
fn what_a_mover_has_no_profile_for_the_service_fetches_itself() {
    // So slow that the mover is asked before all of it is here.
    let centre = Centre::with("2M", "2M", 24);
    let token = token(&centre);
    let lacking = centre.folder.path().join("other");
    fs::create_dir_all(&lacking).unwrap();
    let _mover = mover(&centre, &lacking, &token, "lacking");
    let request = centre.stage_in("input", &["--deadline", "10m"]);
    let id = request["id"].as_str().unwrap();
    centre.wait_until(id, |request| request["state"] == "arrived");
    check_whole(&centre);
    assert_eq!(done(&centre, "lacking"), 0);
    assert!(centre.log().contains("mover lacking: "), "{}", centre.log());
}

/// Makes files of a MiB each, and one of 96 MiB that is written in many segments.
fn make_results(centre: &Centre, files: usize) -> Vec<(PathBuf, Vec<u8>)> {
    make_results_with(centre, files, 24)
}

/// Makes results with one more file, of `large` times 4 MiB.
fn make_results_with(centre: &Centre, files: usize, large: usize) -> Vec<(PathBuf, Vec<u8>)> {
    let out = centre.scratch("out");
    make_tree(&out, files);
    fs::write(out.join("large"), noise(0, large << 22)).unwrap();
    picture(&out)
}

fn offload(centre: &Centre, to: &str, more: &[&str]) -> String {
    let out = centre.scratch("out");
    let words = ["offload", out.to_str().unwrap(), "--to", to, "--json"];
    let request = centre.json(&[&words[..], more].concat());
    request["id"].as_str().unwrap().to_owned()
}

#[test]
fn movers_write_one_tree_and_one_large_file_together_and_none_that_dies_or_hangs_loses_any_of_it() {
    let mut centre = Centre::with("8M", "8M", 0);
    let whole = make_results(&centre, 40);
    let token = token(&centre);
    let mut dying = mover(&centre, centre.folder.path(), &token, "dying");
    let hanging = mover(&centre, centre.folder.path(), &token, "hanging");
    let _living = mover(&centre, centre.folder.path(), &token, "living");
    let more = ["--deadline", "20m", "--release", "when-safe"];
    let id = offload(&centre, "archive:run7", &more);
    let names = ["dying", "hanging", "living"];
    centre.wait_until(&id, |_| names.iter().all(|name| done(&centre, name) > 0));
    dying.kill();
    hanging.signal("STOP");
    let there = |request: &Value| chunks(request, "chunks_safe");
    let before = centre.wait_until(&id, |request| there(request) >= 10);
    centre.kill();
    centre.restart();
    let after = centre.json(&["status", &id, "--json"]);
    assert!(there(&after) >= there(&before));
    hanging.signal("CONT");
    centre.wait_until(&id, |request| request["state"] == "released");
    assert!(picture(&centre.s3.bucket_folder().join("run7")) == whole);
    assert!(!centre.scratch("out").exists(), "scratch is free");
    assert!(done(&centre, "living") > 0, "{}", centre.log());
}

/// Adds a profile for the service's user.
fn add_profile(centre: &Centre, profile: &str) {
    let home = centre.folder.path().join("home");
    let path = home.join(".config/posthaste/profiles.toml");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{text}\n{profile}")).unwrap();
}

/// Writes to an SSH server with a profile that only the service's user has, or movers too.
fn to_ssh(has_movers_profile: bool) {
    let centre = Centre::with("40M", "40M", 0);
    let whole = make_results(&centre, 4);
    let ssh = posthaste_testbed::SshServer::start().unwrap();
    let options: Vec<String> = ssh
        .options()
        .iter()
        .map(|option| format!("{option:?}"))
        .collect();
    let far = centre.folder.path().join("far");
    fs::create_dir(&far).unwrap();
    let (url, options) = (ssh.address(far.to_str().unwrap()), options.join(", "));
    // So slow that there is work for both movers.
    let rate = if has_movers_profile { "10M" } else { "1G" };
    add_profile(
        &centre,
        &format!("[tape]\nurl = \"{url}\"\nssh_options = [{options}]\nrate_max = \"{rate}\"\n"),
    );
    let lacking = centre.folder.path().join("other");
    fs::create_dir_all(&lacking).unwrap();
    let home = match has_movers_profile {
        true => centre.folder.path(),
        false => &lacking,
    };
    let token = token(&centre);
    let movers = ["one", "two"].map(|name| mover(&centre, home, &token, name));
    let id = offload(&centre, "tape:run7", &["--deadline", "10m"]);
    centre.wait_until(&id, |request| request["state"] == "arrived");
    assert!(picture(&far.join("run7")) == whole);
    for name in ["one", "two"] {
        assert_eq!(
            done(&centre, name) > 0,
            has_movers_profile,
            "{}",
            centre.log()
        );
    }
    drop(movers);
}

#[test]
fn movers_stripe_one_file_over_sftp() {
    to_ssh(true);
}

#[test]
fn what_movers_have_no_profile_for_the_service_writes_itself() {
    to_ssh(false);
}

/// Sends a tree to a place `there` and back, while a mover dies and the service is killed on either
/// way.
fn there_and_back(profile: &str, do_movers_write: bool) {
    let mut centre = Centre::with("1G", "1G", 0);
    // So slow that whoever is to die does so before all has arrived.
    add_profile(&centre, &format!("{profile}rate_max = \"3M\"\n"));
    let whole = make_results_with(&centre, 20, 5);
    let token = token(&centre);
    // Alone, it can't be left without work.
    let dying = mover(&centre, centre.folder.path(), &token, "dying");
    let id = offload(&centre, "there:run7", &["--deadline", "20m"]);
    let doomed = do_movers_write.then_some(("dying", dying));
    let living = survives(&mut centre, &id, &token, doomed, "living");
    if !do_movers_write {
        // As far as the service that was started again knows.
        assert_eq!(done(&centre, "living"), 0, "{}", centre.log());
    }
    drop(living);

    let dying = mover(&centre, centre.folder.path(), &token, "dying-too");
    let back = centre.scratch("back");
    let words = ["stage-in", "there:run7", back.to_str().unwrap(), "--json"];
    let request = centre.json(&[&words[..], &["--deadline", "20m"]].concat());
    let id = request["id"].as_str().unwrap().to_owned();
    let doomed = Some(("dying-too", dying));
    let _living = survives(&mut centre, &id, &token, doomed, "living-too");
    let came = picture(&back);
    let [lost, new] = [(&whole, &came), (&came, &whole)].map(|(one, other)| {
        let differs = one.iter().filter(|line| !other.contains(line));
        differs.take(5).collect::<Vec<_>>()
    });
    assert!(lost.is_empty() && new.is_empty(), "{lost:?} {new:?}");
}

/// Waits for the arrival; meanwhile kills a mover that has moved some of it, which another
/// replaces, and the service.
fn survives(
    centre: &mut Centre,
    id: &str,
    token: &Path,
    doomed: Option<(&str, Process)>,
    other: &str,
) -> Process {
    let safe = |request: &Value| chunks(request, "chunks_safe");
    centre.wait_until(id, |request| safe(request) >= 2);
    if let Some((name, mut dying)) = doomed {
        centre.wait_until(id, |_| done(centre, name) > 0);
        dying.kill();
    }
    let living = mover(centre, centre.folder.path(), token, other);
    let before = centre.json(&["status", id, "--json"]);
    assert!(before["state"] != "arrived", "too quick: {before}");
    centre.kill();
    centre.restart();
    let after = centre.json(&["status", id, "--json"]);
    assert!(safe(&after) >= safe(&before), "{after}");
    centre.wait_until(id, |request| request["state"] == "arrived");
    living
}

/// Returns the server's profile under the name `there`.
fn there(profile: &str, name: &str, url: &str) -> String {
    let profile = profile.replace(&format!("[{name}]"), "[there]");
    format!("{profile}url = \"{url}\"\n")
}

#[test]
fn a_tree_goes_to_azure_and_back_whoever_dies() {
    let server = AzureServer::start().unwrap();
    let url = format!("azblob://{}", AzureServer::CONTAINER);
    there_and_back(&there(&server.profile(), "azure", &url), true);
}

#[test]
fn a_tree_goes_to_google_cloud_storage_and_back_whoever_dies() {
    let server = GcsServer::start().unwrap();
    let url = format!("gs://{}", GcsServer::BUCKET);
    there_and_back(&there(&server.profile(), "gcs", &url), true);
}

#[test]
fn a_tree_goes_to_webdav_and_back_whoever_dies() {
    let server = WebServer::start().unwrap();
    let url = server.address(WebFace::Dav, "");
    let url = url.trim_end_matches('/');
    there_and_back(&there(&server.profile(), "web", url), true);
}

#[test]
fn a_tree_goes_to_ftp_and_back_whoever_dies() {
    let server = FtpServer::start(FtpFace::Plain).unwrap();
    let url = server.address_below("");
    let url = url.trim_end_matches('/');
    there_and_back(&there(&server.profile(), "ftp", url), false);
}
