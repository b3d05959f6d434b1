//! Trees and large directories of a real store, with many pages in flight.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use posthaste_endpoint::{
    Endpoint, Entry, Kind, Listing,
    s3::{self, Store},
};
use posthaste_testbed::S3Server;
use tokio::{
    io::AsyncReadExt,
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

/// Names and their entries.
type Tree = BTreeMap<String, (Kind, u64)>;

/// Bytes after which a connection breaks: more than a page, so that some pages come whole, and less
/// than all of them.
const BROKEN_AFTER_BYTES: u64 = 500_000;
/// First connections, which break within their first page: a listing over many connections may
/// request less than [`BROKEN_AFTER_BYTES`] on each.
const FIRST_BROKEN: usize = 3;
const FIRST_BROKEN_AFTER_BYTES: u64 = 50_000;

/// Most requests for one page.
const TRIES_MAX: u32 = 10;

fn open(server: &S3Server, key: &str) -> Arc<dyn Endpoint> {
    open_at(server.endpoint(), key)
}

fn open_at(endpoint: String, key: &str) -> Arc<dyn Endpoint> {
    let store = Store {
        endpoint,
        region: "us-east-1".to_owned(),
        access_key_id: S3Server::ACCESS_KEY.to_owned(),
        secret_access_key: S3Server::SECRET_KEY.to_owned(),
        ca_file: None,
    };
    s3::open_store(S3Server::BUCKET, key, &store).unwrap()
}

/// Puts files of these sizes below the bucket, as the server keeps them.
fn fill(bucket: &Path, names: impl IntoIterator<Item = (String, u64)>) -> Tree {
    let mut tree = Tree::new();
    for (name, size) in names {
        let path = bucket.join(&name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, vec![b'x'; usize::try_from(size).unwrap()]).unwrap();
        for (slash, _) in name.match_indices('/') {
            tree.insert(name[..slash].to_owned(), (Kind::Directory, 0));
        }
        tree.insert(name, (Kind::File, size));
    }
    tree
}

/// Returns a tree whose order by keys is not that of its directories, with pages of each kind.
fn many() -> Vec<(String, u64)> {
    let flat = (0..3_500).map(|n| (format!("flat/img-{n:07}"), n % 3));
    let deep = (0..2_500).map(|n| (format!("run-{}/out/step{}/x{n}", n % 3, n / 500), 1));
    let beside = (0..40).map(|n| {
        (
            format!("run{}{n}/é + %41&<\"'>", ["", "-", " ", "!"][n % 4]),
            2,
        )
    });
    let mut all: Vec<_> = flat.chain(deep).chain(beside).collect();
    all.push(("run".to_owned(), 5));
    all.push(("one".to_owned(), 0));
    all
}

fn note(tree: &mut Tree, page: Vec<Entry>) {
    for entry in page {
        let name = String::from_utf8(entry.name).unwrap();
        if let Some(slash) = name.rfind('/') {
            assert!(
                tree.contains_key(&name[..slash]),
                "{name} before its directory"
            );
        }
        let twice = tree.insert(name.clone(), (entry.kind, entry.size));
        assert!(twice.is_none(), "{name} twice");
        if entry.kind == Kind::File {
            let stored = u64::try_from(entry.stored.unwrap().secs).unwrap();
            let stored = SystemTime::UNIX_EPOCH + Duration::from_secs(stored);
            assert!(stored.elapsed().unwrap_or_default() < Duration::from_secs(3600));
            assert_eq!(entry.mtime, None);
        }
    }
}

/// Returns the next page, requested again if the server was too busy to answer in time, like
/// copies.
async fn next_page(listing: &mut Box<dyn Listing>) -> Vec<Entry> {
    for _ in 0..TRIES_MAX {
        match listing.next_page().await {
            Ok(page) => return page,
            Err(error) => assert!(error.is_temporary(), "{error}"),
        }
    }
    panic!("no page comes");
}

async fn read_all(mut listing: Box<dyn Listing>) -> Tree {
    let mut tree = Tree::new();
    loop {
        let page = next_page(&mut listing).await;
        if page.is_empty() {
            return tree;
        }
        note(&mut tree, page);
    }
}

fn below(tree: &Tree, prefix: &str) -> Tree {
    let names = tree.iter().filter_map(|(name, what)| {
        let name = name.strip_prefix(prefix).filter(|name| !name.is_empty());
        Some((name?.to_owned(), *what))
    });
    names.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_is_listed_whole_from_any_root() {
    let server = S3Server::start().unwrap();
    let all = fill(&server.bucket_folder(), many());
    for root in ["", "flat", "run-1", "run-2/out/step3", "none"] {
        let endpoint = open(&server, root);
        let found = read_all(endpoint.list_tree(b"").await.unwrap().unwrap()).await;
        let prefix = if root.is_empty() {
            String::new()
        } else {
            format!("{root}/")
        };
        assert!(found == below(&all, &prefix), "below {root:?}");
    }
    let endpoint = open(&server, "run-0");
    let found = read_all(endpoint.list_tree(b"out").await.unwrap().unwrap()).await;
    assert!(found == below(&all, "run-0/out/"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_directory_is_listed_alone() {
    let server = S3Server::start().unwrap();
    let names = (0..4_200).map(|n| match n % 4 {
        0 => (format!("d/{n:05}/below"), 1),
        1 => (format!("d/{n:05}-x/be/low"), 1),
        _ => (format!("d/{n:05}"), 1),
    });
    let all = fill(&server.bucket_folder(), names);
    let wanted: Tree = below(&all, "d/")
        .into_iter()
        .filter(|(name, _)| !name.contains('/'))
        .collect();
    let endpoint = open(&server, "");
    let found = read_all(endpoint.list(b"d", false).await.unwrap()).await;
    assert!(found == wanted);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_goes_on_from_its_mark() {
    let server = S3Server::start().unwrap();
    let all = fill(&server.bucket_folder(), many());
    let endpoint = open(&server, "");
    for flat in [false, true] {
        let path = if flat { &b"flat"[..] } else { b"" };
        let wanted = if flat {
            below(&all, "flat/")
        } else {
            all.clone()
        };
        let mut listing = match flat {
            true => endpoint.list(path, false).await.unwrap(),
            false => endpoint.list_tree(path).await.unwrap().unwrap(),
        };
        let (mut found, mut resumptions) = (Tree::new(), 0);
        loop {
            let page = next_page(&mut listing).await;
            if page.is_empty() {
                break;
            }
            note(&mut found, page);
            if let Some(mark) = listing.mark() {
                listing = endpoint.list_on(path, &mark).await.unwrap();
                resumptions += 1;
            }
        }
        assert!(found == wanted);
        assert!(resumptions >= 2, "{resumptions}");
    }
    let refused = endpoint.list_on(b"", b"[9,false,[]]").await;
    assert!(refused.is_err());
}

/// Proxies the server and breaks each connection in the middle of an answer.
async fn break_connections(listener: TcpListener, port: u16) {
    let mut set = JoinSet::new();
    let first = std::iter::repeat_n(FIRST_BROKEN_AFTER_BYTES, FIRST_BROKEN);
    let mut limits = first.chain(std::iter::repeat(BROKEN_AFTER_BYTES));
    loop {
        let (mut here, _) = listener.accept().await.unwrap();
        let limit = limits.next().unwrap();
        set.spawn(async move {
            let mut there = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let (mut from, mut to) = there.split();
            let (mut read, mut write) = here.split();
            let mut answers = (&mut from).take(limit);
            tokio::select! {
                _ = tokio::io::copy(&mut read, &mut to) => {}
                _ = tokio::io::copy(&mut answers, &mut write) => {}
            }
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_goes_on_over_broken_connections() {
    let server = S3Server::start().unwrap();
    let all = fill(&server.bucket_folder(), many());
    let port: u16 = server
        .endpoint()
        .rsplit(':')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut before = JoinSet::new();
    before.spawn(break_connections(listener, port));
    let endpoint = open_at(format!("http://{address}"), "");
    let mut listing = endpoint.list_tree(b"").await.unwrap().unwrap();
    let (mut found, mut failures) = (Tree::new(), 0);
    loop {
        match listing.next_page().await {
            Ok(page) if page.is_empty() => break,
            Ok(page) => note(&mut found, page),
            Err(error) => {
                assert!(error.is_temporary(), "{error}");
                failures += 1;
                assert!(failures < 100, "{error}");
            }
        }
    }
    assert!(found == all);
    assert!(failures > 0, "no connection broke");
}
