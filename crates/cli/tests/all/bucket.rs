//! Object stores as depots: real relays that keep their bytes in real stores, while they and the
//! service are killed.

use std::{
    fs::DirEntry,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::support::processes::{
    PATIENCE, Relay, Service, make_tree, now, picture, received, said_by, text,
};
use posthaste_testbed::{AzureServer, S3Server};
use serde_json::Value;

/// Three stores, each lent by a relay.
struct Stores {
    versity: S3Server,
    gateway: S3Server,
    azure: AzureServer,
}

impl Stores {
    fn start() -> Self {
        let azure = AzureServer::start().unwrap();
        azure.empty_container("lent").unwrap();
        Self {
            versity: S3Server::start().unwrap(),
            gateway: S3Server::start().unwrap(),
            azure,
        }
    }

    fn relays(&self, folder: &Path) -> Vec<Relay> {
        let start = |name, bucket, environment| {
            Relay::start_backed(folder, name, "1G", bucket, environment)
        };
        vec![
            start("versity", "s3://testbed/a", self.versity.environment()),
            start("gateway", "s3://testbed/a", self.gateway.environment()),
            start("azure", "azblob://lent/a", self.azure.environment()),
        ]
    }

    /// Counts the datasets of which a store has fragments.
    fn datasets(&self) -> usize {
        let datasets = self.versity.bucket_folder().join("a/datasets");
        let datasets = std::fs::read_dir(datasets).into_iter().flatten();
        // The server leaves empty folders behind.
        let group = |dataset: std::io::Result<DirEntry>| dataset.unwrap().path().join("0");
        let has_some = |group: &PathBuf| {
            let mut items = std::fs::read_dir(group).into_iter().flatten();
            items.next().is_some()
        };
        datasets.map(group).filter(has_some).count()
    }
}

fn stored(request: &Value, depot: &str) -> u64 {
    let shares = request["shares"].as_array().unwrap();
    let share = shares.iter().find(|share| share["depot"] == depot);
    share.unwrap()["stored"].as_u64().unwrap()
}

fn same(before: &[String], arrived: &Path) {
    let after = picture(arrived);
    let differs = |line: &&String| !after.contains(line) || !before.contains(line);
    let differing: Vec<_> = after.iter().chain(before).filter(differs).collect();
    assert!(differing.is_empty(), "{differing:#?}");
}

fn offload(service: &Service, scratch: &Path, to: &str) {
    let scratch = scratch.to_str().unwrap();
    let submit = ["offload", scratch, "--deadline", "10m", "--json"];
    let ways = ["--via", "versity,gateway,azure", "--code", "2+1"];
    let release = ["--to", to, "--release", "when-safe"];
    service.json(&[&submit[..], &ways, &release].concat());
}

#[test]
fn what_goes_over_stores_comes_home_whoever_is_killed_and_no_byte_of_it_through_their_relays() {
    let folder = tempfile::tempdir().unwrap();
    let stores = Stores::start();
    let mut relays = stores.relays(folder.path());
    let mut home = Relay::start(folder.path(), "home", "1G", "60M");
    let mut service = Service::start(folder.path());
    relays
        .iter()
        .chain([&home])
        .for_each(|relay| service.add(relay));
    service.wait_for_depots(|depot| depot["state"] == "up");
    let scratch = folder.path().join("scratch");
    make_tree(&scratch, 24, 5);
    let before = picture(&scratch);
    offload(&service, &scratch, "work");
    service.wait_until("r1", |request| stored(request, "gateway") >= 2);
    relays[0].kill();
    service.kill();
    service.restart();
    relays[0].restart();
    service.wait_until("r1", |request| request["state"] == "released");
    assert!(!scratch.exists(), "scratch is free");
    // They were asked for passes, of some hundred bytes each.
    let (asked, kept) = (received(&relays), said_by(&relays[0]).used.get());
    assert!(
        kept > 1 << 20 && asked < kept / 20,
        "{asked} of {kept} went through: {:?}\n{}",
        relays.iter().map(said_by).collect::<Vec<_>>(),
        text(&service.run(&["explain", "r1"]).stdout)
    );
    assert_eq!(stores.datasets(), 1);
    // Any one of them may be lost; here a store, with its relay.
    relays[1].kill();
    let arrived = folder.path().join("arrived");
    service.json(&["pull", "r1", arrived.to_str().unwrap(), "--json"]);
    same(&before, &arrived);
    relays[1].restart();

    // With a relay at the destination, which is away at first: it fetches by itself, and then no
    // fragment is left.
    home.kill();
    service.wait_for_depots(|depot| (depot["state"] == "down") == (depot["name"] == "home"));
    offload(&service, &arrived, "home");
    service.wait_until("r2", |request| request["state"] == "released");
    assert_eq!(stores.datasets(), 2);
    home.restart();
    service.wait_until("r2", |request| request["state"] == "delivered");
    let back = folder.path().join("back");
    service.json(&["pull", "r2", back.to_str().unwrap(), "--json"]);
    same(&before, &back);
    let begun = now();
    while stores.datasets() != 1 {
        assert!(
            begun.elapsed() < PATIENCE,
            "{} are there",
            stores.datasets()
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    let told = text(&service.run(&["explain", "r2"]).stdout);
    assert!(told.contains("whole at"), "{told}");
    no_secret_is_in_a_log(folder.path());
}

/// Checks that no log contains a presigned URL or a key.
fn no_secret_is_in_a_log(folder: &Path) {
    for log in std::fs::read_dir(folder).unwrap() {
        let log = log.unwrap().path();
        if log.extension().is_some_and(|end| end == "log") {
            let log = std::fs::read_to_string(log).unwrap();
            for secret in [
                "X-Amz-",
                "sig=",
                S3Server::SECRET_KEY,
                AzureServer::ACCOUNT_KEY,
            ] {
                assert!(!log.contains(secret), "{log}");
            }
        }
    }
}
