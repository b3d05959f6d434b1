//! A copy between local paths that nobody waits for any more.

use std::{
    collections::BTreeMap,
    fs,
    sync::Arc,
    time::{Duration, Instant},
};

use posthaste_endpoint::posix::{DraftRules, Posix};
use posthaste_engine::copy::{self, Filter, Links, Options, Place, Progress, Source, Throttle};
use posthaste_plan::tuner::Method;
use posthaste_types::ByteRate;
use tokio::{task::JoinSet, time::sleep};

/// Longest wait: at its rate the copy would take a thousand seconds.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(10);

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::disallowed_methods, reason = "a test may look at the clock")]
async fn it_ends_and_gives_no_file_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let [from, to] = ["from", "to"].map(|name| folder.path().join(name));
    fs::create_dir(&from).unwrap();
    fs::write(from.join("file"), posthaste_testbed::noise(0, 64 << 20)).unwrap();
    let rules = DraftRules::default();
    let source = Source {
        place: Place::local(Posix::new(from.as_path(), rules)),
        name: b"from".to_vec(),
        content: true,
    };
    let options = Options {
        filter: Filter::default(),
        method: Method::Auto,
        history: BTreeMap::new(),
        throttle: Throttle::new(Some(ByteRate::new(64 << 10))),
        links: Links::Keep,
        rules,
        again: false,
        update: false,
        modes: false,
        verify: false,
        dry_run: false,
        continues: false,
        has_begun: false,
        written: None,
        transfer_max: None,
        duration_max: None,
        help: None,
        on_notice: Arc::new(|_| {}),
    };
    let progress = Arc::new(Progress::default());
    let destination = Place::local(Posix::new(to.as_path(), rules));
    let copying = copy::copy(
        vec![source],
        destination,
        false,
        options,
        Arc::clone(&progress),
    );
    let mut copies = JoinSet::new();
    copies.spawn(copying);
    while progress.figures().bytes == 0 {
        assert!(copies.try_join_next().is_none(), "it has ended");
        sleep(LOOK_EVERY).await;
    }
    copies.shutdown().await;
    // Each thread of it holds what it counts in.
    let until = Instant::now() + PATIENCE;
    while Arc::strong_count(&progress) > 1 {
        assert!(Instant::now() < until, "it goes on");
        sleep(LOOK_EVERY).await;
    }
    assert!(!to.join("file").exists());
}
