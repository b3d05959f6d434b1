//! Reference plug-ins of this repository against real servers.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, symlink},
    },
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
};

use bytes::Bytes;
use futures_util::{StreamExt, future::join_all};
use posthaste_endpoint::{
    ByteStream, Checksum, Endpoint, ErrorKind, FileSpec, Kind,
    plugin::{Launch, Patience, Plugin},
    posix::DraftRules,
};
use posthaste_testbed::{
    GridFtpServer,
    conformance::{Scale, passes_as_one_file, passes_at_scale, passes_seeded, passes_the_suite},
    install::{GLOBUS_URL_COPY, find_debian_program, find_python},
    noise,
};

/// Programs in Python.
const PROGRAMS: [&str; 4] = [
    "python/posthaste_plugin.py",
    "python/posthaste-plugin-dirstore",
    "gridftp/globus_ftp.py",
    "gridftp/posthaste-plugin-gsiftp",
];

/// Returns a program of the repository's `plugins` folder.
fn program(name: &str) -> PathBuf {
    find_python().unwrap();
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../../plugins")
        .join(name)
}

fn launch(scheme: &str, name: &str) -> Launch {
    Launch {
        scheme: scheme.to_owned(),
        command: vec![program(name).into()],
        settings: serde_json::Map::new(),
        profile: BTreeMap::new(),
        patience: Patience::default(),
    }
}

async fn folder(path: &Path, rules: DraftRules) -> Arc<dyn Endpoint> {
    folder_without(path, rules, &[]).await
}

/// Returns a folder whose plug-in denies some of its capabilities.
async fn folder_without(path: &Path, rules: DraftRules, without: &[&str]) -> Arc<dyn Endpoint> {
    let mut launch = launch("dirstore", "python/posthaste-plugin-dirstore");
    launch.settings.insert("without".to_owned(), without.into());
    let address = path.as_os_str().as_bytes().to_vec();
    Arc::new(Plugin::open(launch, address, rules).await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_passes_the_suite() {
    let place = tempfile::tempdir().unwrap();
    let rules = DraftRules::default();
    passes_the_suite(folder(&place.path().join("below/root"), rules).await).await;
    passes_as_one_file(folder(&place.path().join("single/file"), rules).await).await;
}

async fn grid(server: &GridFtpServer, below: &str) -> Arc<dyn Endpoint> {
    find_debian_program(GLOBUS_URL_COPY).unwrap();
    let launch = launch("gsiftp", "gridftp/posthaste-plugin-gsiftp");
    let address = server.address(below).into_bytes();
    let plugin = Plugin::open(launch, address, DraftRules::default());
    Arc::new(plugin.await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn gridftp_passes_the_suite() {
    let server = GridFtpServer::start().unwrap();
    // Three segments of the size that is worth a login.
    let scale = Scale {
        large_bytes: (80 << 20) + 12_345,
        ..Scale::default()
    };
    passes_at_scale(grid(&server, "below/root").await, scale).await;
    passes_as_one_file(grid(&server, "single/file").await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gridftp_refusals_say_what_to_do() {
    let server = GridFtpServer::start().unwrap();
    let refusal = |address: String| async move {
        let launch = launch("gsiftp", "gridftp/posthaste-plugin-gsiftp");
        let opened = Plugin::open(launch, address.into_bytes(), DraftRules::default()).await;
        opened.err().expect("it opened")
    };
    let secure = server.address("x").replace("anonymous@", "");
    let error = refusal(secure).await;
    assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{error}");
    assert!(error.to_string().contains("grid-proxy-init"), "{error}");
    let error = refusal("anonymous@127.0.0.1:1/x".to_owned()).await;
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    for address in ["host", "me@host/x", "/x", "me:secret@host/x"] {
        let error = refusal(address.to_owned()).await;
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    let outside = server.address("../outside");
    let error = refusal(outside).await;
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn gridftp_links_are_followed_or_left_alone() {
    let server = GridFtpServer::start().unwrap();
    fs::create_dir(server.files().join("there")).unwrap();
    fs::write(server.files().join("there/file"), "content").unwrap();
    symlink(".", server.files().join("there/loop")).unwrap();
    symlink("file", server.files().join("there/link")).unwrap();
    let grid = grid(&server, "there").await;
    for (follow, wanted) in [
        (false, [Kind::File, Kind::Link, Kind::Link]),
        (true, [Kind::File, Kind::File, Kind::Directory]),
    ] {
        let mut listing = grid.list(b"", follow).await.unwrap();
        let mut entries = listing.next_page().await.unwrap();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        let kinds: Vec<Kind> = entries.iter().map(|entry| entry.kind).collect();
        assert_eq!(kinds, wanted, "follow: {follow}");
    }
    let error = grid.read_link(b"link").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn gridftp_goes_on_when_the_server_hangs_up() {
    let server = GridFtpServer::start().unwrap();
    fs::write(server.files().join("file"), "content").unwrap();
    let grid = grid(&server, "").await;
    for _ in 0..3 {
        let entry = grid.stat(b"file", false).await.unwrap().unwrap();
        let whole = grid.get(b"file", &entry).await.unwrap();
        assert_eq!(whole.data.concat(), b"content");
        server.hang_up();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_can_do_less_passes_the_suite_too() {
    let rules = DraftRules::default();
    let little = [
        "checks",
        "reads_unfinished",
        "segments_in_any_order",
        "resumes",
        "marks",
        "lists_trees",
        "server_copy",
        "links",
        "mtimes_listed",
        "ranges",
    ];
    for without in [&little[..1], &little[..2], &little[..3], &little] {
        let place = tempfile::tempdir().unwrap();
        let folder = folder_without(place.path(), rules, without).await;
        assert_eq!(folder.capabilities().resumes, without.len() < 4);
        passes_at_scale(folder, Scale::SHORT_LISTINGS).await;
    }
    let place = tempfile::tempdir().unwrap();
    let read_only = folder_without(place.path(), rules, &["writes", "removes", "links"]).await;
    passes_seeded(read_only, folder(place.path(), rules).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_compares_is_kept_as_well() {
    let place = tempfile::tempdir().unwrap();
    let rules = DraftRules {
        verify: false,
        fsync: false,
        ..DraftRules::default()
    };
    passes_the_suite(folder(place.path(), rules).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_garbles_is_found_out() {
    let place = tempfile::tempdir().unwrap();
    let folder = folder(place.path(), DraftRules::default()).await;
    let spec = FileSpec {
        size: 40 << 20,
        mtime: None,
        mode: None,
        origin: "test:garbled".into(),
        version: None,
    };
    let segment = vec![1; 16 << 20];
    let body = |bytes: &[u8]| -> ByteStream {
        let bytes = Ok(Bytes::copy_from_slice(bytes));
        Box::pin(futures_util::stream::iter([bytes]))
    };
    let writer = folder.create(b"file", &spec).await.unwrap();
    for index in [0, 1] {
        let start = index * (16 << 20);
        let writing = writer.write(index, start..start + (16 << 20), body(&segment));
        writing.await.unwrap();
    }
    drop(writer);
    let partial = place.path().read_dir().unwrap().next().unwrap().unwrap();
    let file = fs::File::options()
        .write(true)
        .open(partial.path())
        .unwrap();
    file.write_all_at(b"garbled", 17 << 20).unwrap();
    let writer = folder.create(b"file", &spec).await.unwrap();
    assert_eq!(writer.kept(), [(0, Checksum::of(&segment))]);
    writer.discard().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_take_what_was_asked_for_is_in_nobodys_way() {
    let place = tempfile::tempdir().unwrap();
    let bytes = noise(0, 20 << 20);
    fs::write(place.path().join("file"), &bytes).unwrap();
    let folder = folder(place.path(), DraftRules::default()).await;
    let entry = folder.stat(b"file", false).await.unwrap().unwrap();
    let reader = folder.open(b"file", &entry).await.unwrap();
    let mut idle = Vec::new();
    for _ in 0..5 {
        idle.push(reader.read(0..entry.size).await.unwrap());
    }
    for body in std::iter::once(reader.read(0..entry.size).await.unwrap()).chain(idle) {
        let read: Vec<Bytes> = body.map(|bytes| bytes.unwrap()).collect().await;
        assert!(read.concat() == bytes, "it reads differently");
    }
    reader.confirm().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn many_requests_are_under_way_at_once() {
    let place = tempfile::tempdir().unwrap();
    let folder = folder(place.path(), DraftRules::default()).await;
    let store = |index: usize| {
        let folder = &folder;
        async move {
            let path = format!("file-{index}").into_bytes();
            let bytes = vec![b'a' + u8::try_from(index % 26).unwrap(); index * 97];
            let spec = FileSpec {
                size: bytes.len() as u64,
                mtime: None,
                mode: None,
                origin: "test:many".into(),
                version: None,
            };
            let sum = Checksum::of(&bytes);
            let data = vec![Bytes::from(bytes.clone())];
            folder.put(&path, &spec, data, sum).await.unwrap();
            let entry = folder.stat(&path, false).await.unwrap().unwrap();
            let whole = folder.get(&path, &entry).await.unwrap();
            assert!(whole.data.concat() == bytes, "file {index} differs");
        }
    };
    join_all((0..500).map(store)).await;
    let marked = place.path().read_dir().unwrap().count();
    assert_eq!(marked, 500, "something is left over or lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_goes_on_from_its_mark_in_another_process() {
    let place = tempfile::tempdir().unwrap();
    for index in 0..1_700 {
        fs::write(place.path().join(format!("{index:04}")), "").unwrap();
    }
    fs::create_dir_all(place.path().join("deep/er")).unwrap();
    fs::write(place.path().join("deep/er/file"), "").unwrap();
    let rules = DraftRules::default();
    for is_tree in [false, true] {
        let mut names = Vec::new();
        let mut mark: Option<Vec<u8>> = None;
        loop {
            let folder = folder(place.path(), rules).await;
            let mut listing = match &mark {
                None if is_tree => folder.list_tree(b"").await.unwrap().unwrap(),
                None => folder.list(b"", false).await.unwrap(),
                Some(mark) => folder.list_on(b"", mark).await.unwrap(),
            };
            let page = listing.next_page().await.unwrap();
            if page.is_empty() {
                break;
            }
            names.extend(page.into_iter().map(|entry| entry.name));
            mark = listing.mark();
            assert!(mark.is_some(), "a page without a mark");
        }
        let deep: &[&[u8]] = if is_tree {
            &[b"deep", b"deep/er", b"deep/er/file"]
        } else {
            &[b"deep"]
        };
        assert_eq!(names.len(), 1_700 + deep.len());
        assert_eq!(names[1_700..], *deep);
    }
}

#[test]
fn the_reference_plugins_need_no_newer_python_than_they_say() {
    let check = "import ast, sys\nfor name in sys.argv[1:]:\n    ast.parse(open(name).read(), feature_version=(3, 6))";
    let mut python = Command::new(find_python().unwrap());
    python.args(["-c", check]);
    python.args(PROGRAMS.map(program));
    assert!(python.status().unwrap().success());
}
