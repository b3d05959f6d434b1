//! Malicious sources that try to write outside of a copy's destination.

use std::fs;

use posthaste_testbed::odd::{Answer, Server};
use tokio::task::block_in_place;

use crate::copy::world::{World, lines_of};

/// Rounds of a race, of which the store would have to win one.
const ROUNDS: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_calls_one_name_a_link_and_a_directory_writes_nowhere_else() {
    let world = World::new();
    let victim = world.path("victim");
    fs::create_dir(&victim).unwrap();
    let target = victim.display().to_string();
    let server = Server::start(move |asked| {
        let path = asked.target.split('?').next().unwrap_or_default();
        match path {
            "/storage/v1/b/b/o/t%2FN.rclonelink" => Answer::sized(200, "", &*target),
            "/storage/v1/b/b/o/t%2FN%2Fauthorized_keys" => Answer::sized(200, "", "x"),
            "/storage/v1/b/b/o" => {
                let item = |(name, size)| {
                    format!(r#"{{"name":"t/{name}","size":"{size}","generation":"1"}}"#)
                };
                let keys = [("N.rclonelink", target.len()), ("N/authorized_keys", 1)];
                let items = keys.map(item).join(",");
                Answer::sized(200, "", format!(r#"{{"items":[{items}]}}"#))
            }
            _ => Answer::sized(404, "", ""),
        }
    })
    .await;
    let profile = format!("[p]\nendpoint = \"{}\"\nanonymous = true\n", server.url());
    let world = world
        .with_profiles(&profile)
        .with_arguments(&["--profile", "p"]);
    for round in 0..ROUNDS {
        let to = format!("back{round}");
        let output = block_in_place(|| world.cp(["gs://b/t/", &to]).output().unwrap());
        let lines = lines_of(&output);
        assert_eq!(output.status.code(), Some(6), "{lines}");
        assert!(lines.contains("/N"), "{lines}");
        assert_eq!(fs::read_dir(&victim).unwrap().count(), 0, "{lines}");
    }
}

#[test]
fn a_directory_that_became_a_link_is_not_written_through() {
    let world = World::new();
    fs::create_dir_all(world.path("source/deep/er")).unwrap();
    fs::write(world.path("source/deep/er/file"), "x").unwrap();
    fs::create_dir(world.path("victim")).unwrap();
    fs::create_dir(world.path("there")).unwrap();
    std::os::unix::fs::symlink(world.path("victim"), world.path("there/deep")).unwrap();
    let output = world.cp(["source/", "there"]).output().unwrap();
    let lines = lines_of(&output);
    assert_eq!(output.status.code(), Some(6), "{lines}");
    assert!(lines.contains("a symbolic link has that name"), "{lines}");
    assert_eq!(fs::read_dir(world.path("victim")).unwrap().count(), 0);
}
