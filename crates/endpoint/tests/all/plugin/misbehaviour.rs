//! Plug-ins that die, hang, lie and flood: diagnosed, survived, and gone afterwards.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures_util::{StreamExt, future::join_all};
use posthaste_endpoint::{
    ByteStream, Checksum, Endpoint, Entry, Error, ErrorKind, FileSpec, Kind, Locus, Result,
    plugin::{Launch, Patience, Plugin},
    posix::DraftRules,
};
use posthaste_testbed::install::find_python;
use serde_json::json;
use tempfile::TempDir;
use tokio::time::{Instant, timeout};

/// Bytes of the rogue's one file.
const SIZE: u64 = 100_000;

/// Longest time for anything here, on the busiest machine.
const SOON: Duration = Duration::from_secs(120);

/// Timeout of a hanging plug-in. Every answer must come within it, so it exceeds the time for which
/// a busy machine may suspend a process.
const HANGING: Duration = Duration::from_secs(5);

struct Rogue {
    folder: TempDir,
    launch: Launch,
}

impl Rogue {
    fn new(fault: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("all/plugin/rogue.py");
        let settings = json!({"fault": fault, "folder": folder.path()});
        let launch = Launch {
            scheme: "rogue".to_owned(),
            command: vec![find_python().unwrap().into(), script.into()],
            settings: settings.as_object().unwrap().clone(),
            profile: BTreeMap::from([("password".to_owned(), "hush-hush".to_owned())]),
            patience: Patience {
                greeted: SOON,
                quiet: SOON,
                cancelled: SOON,
            },
        };
        Self { folder, launch }
    }

    /// Returns one that is given up after a short silence.
    fn not_waited_for(fault: &str) -> Self {
        let mut rogue = Self::new(fault);
        rogue.launch.patience.quiet = HANGING;
        rogue
    }

    async fn try_open(&self) -> Result<Plugin> {
        let rules = DraftRules::default();
        Plugin::open(self.launch.clone(), b"place".to_vec(), rules).await
    }

    async fn open(&self) -> Arc<Plugin> {
        Arc::new(self.try_open().await.unwrap())
    }

    async fn refusal(&self) -> Error {
        self.try_open().await.err().expect("it opened")
    }

    /// Returns the process ids of all its starts.
    fn starts(&self) -> Vec<u32> {
        let text = fs::read_to_string(self.folder.path().join("starts")).unwrap();
        text.lines().map(|line| line.parse().unwrap()).collect()
    }

    /// Waits until none of its processes is left.
    fn is_gone(&self) {
        self.starts().into_iter().for_each(is_gone);
    }

    /// Returns whether any of its processes noted its id.
    fn has_begun(&self) -> bool {
        self.folder.path().join("starts").exists()
    }
}

fn is_gone(process: u32) {
    const LOOK_EVERY: Duration = Duration::from_millis(20);
    let path = PathBuf::from(format!("/proc/{process}"));
    let looks = SOON.as_millis() / LOOK_EVERY.as_millis();
    let is_gone = (0..looks).any(|_| {
        std::thread::sleep(LOOK_EVERY);
        !path.exists() || is_dead(process)
    });
    assert!(is_gone, "the process {process} still runs");
}

/// Returns whether it is only a zombie: `init` collects an orphan's exit status.
fn is_dead(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit(')')
        .next()
        .is_some_and(|rest| rest.trim_start().starts_with('Z'))
}

fn entry() -> Entry {
    Entry {
        name: Vec::new(),
        kind: Kind::File,
        size: SIZE,
        mtime: None,
        stored: None,
        mode: None,
        version: None,
    }
}

async fn stat(plugin: &Plugin) -> Result<Entry> {
    let found = plugin.stat(b"file", false).await?;
    Ok(found.expect("nothing is there"))
}

async fn get(plugin: &Plugin) -> Result<Vec<u8>> {
    let whole = plugin.get(b"file", &entry()).await?;
    Ok(whole.data.concat())
}

async fn put(plugin: &Plugin) -> Result<()> {
    let bytes = vec![7; 3 << 20];
    let spec = FileSpec {
        size: bytes.len() as u64,
        mtime: None,
        mode: None,
        origin: "test:put".into(),
        version: None,
    };
    let sum = Checksum::of(&bytes);
    plugin.put(b"new", &spec, vec![bytes.into()], sum).await
}

fn content() -> Vec<u8> {
    (0..SIZE)
        .map(|i| u8::try_from(i * 31 % 251).unwrap())
        .collect()
}

fn says(error: &Error, text: &str) {
    assert!(error.to_string().contains(text), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_dies_at_once_is_quoted() {
    let rogue = Rogue::new("dies_at_start");
    let error = rogue.refusal().await;
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(!error.is_temporary(), "it will die again");
    says(&error, "exit code 3");
    says(&error, "the robot is on fire");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_not_there_is_said_to_be_missing() {
    let mut rogue = Rogue::new("");
    rogue.launch.command = vec!["/nowhere/posthaste-plugin-rogue".into()];
    let error = rogue.refusal().await;
    assert_eq!(error.kind(), ErrorKind::NotFound);
    says(&error, "/nowhere/posthaste-plugin-rogue");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_says_nothing_is_not_waited_for() {
    let mut rogue = Rogue::new("is_silent_at_start");
    rogue.launch.patience.greeted = Duration::from_secs(2);
    let error = rogue.refusal().await;
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    // On a busy machine it was killed before it could do anything at all.
    if rogue.has_begun() {
        rogue.is_gone();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_version_is_not_guessed_at() {
    let error = Rogue::new("speaks_a_later_version").refusal().await;
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    says(&error, "version 2");
    says(&error, "update");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_say_hello_is_sent_away() {
    let rogue = Rogue::new("does_not_say_hello");
    says(&rogue.refusal().await, "does not say hello first");
    rogue.is_gone();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_that_is_quoted_is_blotted_out() {
    let error = Rogue::new("refuses").refusal().await;
    assert_eq!(error.kind(), ErrorKind::Unauthenticated);
    says(&error, "bad password … (ask)");
    assert!(!format!("{error:?}").contains("hush"), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_in_no_list_of_processes() {
    let rogue = Rogue::new("serve");
    let plugin = rogue.open().await;
    let [process] = rogue.starts()[..] else {
        panic!("it was started more than once");
    };
    for file in ["cmdline", "environ"] {
        let seen = fs::read(format!("/proc/{process}/{file}")).unwrap();
        assert!(!seen.is_empty());
        let seen = String::from_utf8_lossy(&seen);
        assert!(!seen.contains("hush-hush"), "{file} shows the password");
    }
    stat(&plugin).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_death_in_mid_read_is_temporary_and_mended() {
    let rogue = Rogue::new("dies_in_read");
    let plugin = rogue.open().await;
    let error = get(&plugin).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(error.is_temporary());
    says(
        &error,
        "in the middle of a message (exit code 7): segmentation fault, or so",
    );
    assert_eq!(get(&plugin).await.unwrap(), content());
    assert_eq!(rogue.starts().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_death_in_mid_write_is_temporary_and_mended() {
    let rogue = Rogue::new("dies_in_write");
    let plugin = rogue.open().await;
    let error = put(&plugin).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(error.is_temporary());
    // Its end may be noticed late.
    while let Err(error) = put(&plugin).await {
        assert!(error.is_temporary(), "{error}");
    }
    assert_eq!(rogue.starts().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_only_dies_is_given_up() {
    for fault in ["dies_always", "dies_at_the_second_start"] {
        let rogue = Rogue::new(fault);
        let plugin = rogue.open().await;
        let last = loop {
            let error = stat(&plugin).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unreachable);
            if !error.is_temporary() {
                break error;
            }
            assert!(rogue.starts().len() <= 5, "it is started again and again");
        };
        says(&last, "it died too often");
        assert_eq!(rogue.starts().len(), 5, "{fault}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_hangs_is_killed_and_started_anew() {
    let rogue = Rogue::not_waited_for("hangs");
    let plugin = rogue.open().await;
    let error = stat(&plugin).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(error.is_temporary());
    is_gone(rogue.starts()[0]);
    assert_eq!(stat(&plugin).await.unwrap().size, SIZE);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_reads_nothing_is_killed() {
    let rogue = Rogue::not_waited_for("does_not_read");
    let plugin = rogue.open().await;
    let error = put(&plugin).await.unwrap_err();
    assert!(error.is_temporary(), "{error}");
    is_gone(rogue.starts()[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_slow_but_says_so_is_waited_for() {
    let rogue = Rogue::not_waited_for("is_slow");
    let plugin = rogue.open().await;
    let began = Instant::now();
    stat(&plugin).await.unwrap();
    assert!(began.elapsed() > HANGING, "it was not slow");
    assert_eq!(rogue.starts().len(), 1);
}

/// Opens a range and reads some of it.
async fn half_a_read(plugin: &Plugin) -> ByteStream {
    let reader = plugin.open(b"file", &entry()).await.unwrap();
    let mut body = reader.read(0..SIZE).await.unwrap();
    assert_eq!(body.next().await.unwrap().unwrap().len(), 1000);
    body
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_waits_for_is_cancelled() {
    let rogue = Rogue::new("ends_cancels");
    let plugin = rogue.open().await;
    for _ in 0..20 {
        drop(half_a_read(&plugin).await);
    }
    let all_cancelled = async { while plugin.read_link(b"count").await.unwrap() != b"20" {} };
    let waited = timeout(SOON, all_cancelled).await;
    assert!(waited.is_ok(), "not all were cancelled");
    assert_eq!(rogue.starts().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_does_not_end_what_was_cancelled_is_killed() {
    let mut rogue = Rogue::new("ignores_cancels");
    rogue.launch.patience.cancelled = Duration::from_secs(1);
    let plugin = rogue.open().await;
    drop(half_a_read(&plugin).await);
    is_gone(rogue.starts()[0]);
    stat(&plugin).await.unwrap();
    assert_eq!(rogue.starts().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn nonsense_ends_the_process_and_what_was_under_way() {
    for (fault, wanted) in [
        ("writes_garbage", "a line that is no message"),
        (
            "writes_an_endless_line",
            "a line of more than 1048576 bytes",
        ),
        ("answers_nobody", "which nobody made"),
        (
            "sends_what_nobody_asked_for",
            "more bytes than were asked for",
        ),
        ("sends_too_much", "more bytes than were asked for"),
        ("sends_too_large_a_payload", "announced 1073741824 bytes"),
        (
            "has_no_patience_for_credit",
            "more bytes than were asked for",
        ),
        ("announces_more_than_it_sends", "that is no message"),
    ] {
        let rogue = Rogue::new(fault);
        let plugin = rogue.open().await;
        let error = match stat(&plugin).await {
            Err(error) => error,
            Ok(_) => get(&plugin).await.unwrap_err(),
        };
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{fault}: {error}");
        assert!(error.is_temporary(), "{fault}");
        says(&error, wanted);
        assert!(!error.to_string().contains('\u{1b}'), "{fault}");
        is_gone(rogue.starts()[0]);
        assert_eq!(get(&plugin).await.unwrap(), content(), "{fault}");
        assert_eq!(rogue.starts().len(), 2, "{fault}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_answer_ends_the_process() {
    let rogue = Rogue::new("answers_twice");
    let plugin = rogue.open().await;
    // The first answer may arrive before the second is seen.
    let _ = plugin.stat(b"file", false).await;
    is_gone(rogue.starts()[0]);
    assert_eq!(get(&plugin).await.unwrap(), content());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_ends_early_has_changed() {
    let rogue = Rogue::new("sends_too_little");
    let plugin = rogue.open().await;
    let reader = plugin.open(b"file", &entry()).await.unwrap();
    let mut body = reader.read(0..SIZE).await.unwrap();
    let error = loop {
        match body.next().await.unwrap() {
            Ok(bytes) => assert_eq!(bytes.len(), 10),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::Changed);
    assert_eq!(error.locus(), Locus::Source);
    assert_eq!(rogue.starts().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn done_before_all_has_come_is_not_done() {
    let rogue = Rogue::new("is_done_too_early");
    let plugin = rogue.open().await;
    says(&put(&plugin).await.unwrap_err(), "before it had everything");
}

#[tokio::test(flavor = "multi_thread")]
async fn listings_lead_nowhere_else_and_end() {
    for (fault, wanted) in [
        ("lists_a_way_out", "an impossible entry"),
        ("lists_for_ever", "page after page, without end"),
    ] {
        let rogue = Rogue::new(fault);
        let plugin = rogue.open().await;
        let error = plugin.list(b"", false).await.err().expect(fault);
        says(&error, wanted);
        assert_eq!(rogue.starts().len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_complaints_is_swallowed() {
    let rogue = Rogue::new("floods_standard_error");
    let plugin = rogue.open().await;
    assert_eq!(get(&plugin).await.unwrap(), content());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_is_asked_at_once_than_is_taken() {
    let rogue = Rogue::new("counts_requests");
    let plugin = rogue.open().await;
    let found = join_all((0..40).map(|_| stat(&plugin))).await;
    let most = found.into_iter().map(|found| found.unwrap().size).max();
    assert_eq!(most, Some(8));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_breaks_is_cancelled() {
    let rogue = Rogue::new("serve");
    let plugin = rogue.open().await;
    let spec = FileSpec {
        size: 20 << 20,
        mtime: None,
        mode: None,
        origin: "test:broken".into(),
        version: None,
    };
    let writer = plugin.create(b"new", &spec).await.unwrap();
    let broken = Error::new(ErrorKind::Corrupt, "read", "test:broken").at(Locus::Source);
    let pieces = vec![Ok(Bytes::from_static(b"some")), Err(broken)];
    let body: ByteStream = Box::pin(futures_util::stream::iter(pieces));
    let error = writer.write(0, 0..16 << 20, body).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.locus()),
        (ErrorKind::Corrupt, Locus::Source)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_of_one_that_ignores_the_end() {
    let rogue = Rogue::new("ignores_the_end");
    let plugin = rogue.open().await;
    stat(&plugin).await.unwrap();
    let child = fs::read_to_string(rogue.folder.path().join("child")).unwrap();
    assert!(Path::new("/proc").join(&child).exists());
    drop(plugin);
    rogue.is_gone();
    is_gone(child.parse().unwrap());
}
