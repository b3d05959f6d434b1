//! Large files of web servers and stores whose answers don't show, or contradict, that their ranges
//! are of one version.

use std::{
    fs,
    sync::{
        Arc, LazyLock, Mutex,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
};

use bytes::Bytes;
use posthaste_endpoint::{BodySum, StoredSum};
use posthaste_testbed::{
    noise,
    odd::{Answer, Asked, Server},
};
use tokio::task::block_in_place;

use crate::copy::{
    table::{End, shown},
    world::{World, lines_of},
};

const SIZE: usize = 12 << 20;

/// Bytes of both versions: no two places of one are alike, nor any of both.
static CONTENT: LazyLock<[Vec<u8>; 2]> =
    LazyLock::new(|| [0, 1].map(|version| noise(version, SIZE)));

fn content(version: u32) -> &'static [u8] {
    &CONTENT[usize::from(version > 0)]
}

/// Answers like a server that knows ranges.
fn serve(asked: &Asked, headers: &str, bytes: &[u8]) -> Answer {
    let headers = format!("{headers}accept-ranges: bytes\r\n");
    match asked.range {
        Some((first, last)) => {
            let range = format!("content-range: bytes {first}-{last}/{SIZE}\r\n");
            Answer::sized(206, &(headers + &range), &bytes[first..=last])
        }
        None => Answer::sized(200, &headers, bytes),
    }
}

/// Starts a server of a file that is replaced after its first range was read. `tells` gets the number
/// of the answer: HEAD's is none, ranges count from 0, and all of it comes under the last.
async fn changing(tells: impl Fn(Option<u32>) -> String + Send + Sync + 'static) -> Server {
    let ranges = AtomicU32::new(0);
    Server::start(move |asked| match (&*asked.method, asked.range) {
        ("GET", Some(_)) => {
            let count = ranges.fetch_add(1, SeqCst);
            serve(asked, &tells(Some(count)), content(count))
        }
        ("GET", None) => serve(asked, &tells(Some(u32::MAX)), content(1)),
        _ => serve(asked, &tells(None), content(0)),
    })
    .await
}

/// Copies the file, and returns the exit code and what was said.
fn copies(world: &World, from: &str) -> (Option<i32>, String) {
    let output = block_in_place(|| world.cp([from, "there"]).output().unwrap());
    (output.status.code(), lines_of(&output))
}

#[tokio::test(flavor = "multi_thread")]
async fn ranges_that_may_be_of_two_versions_are_read_as_one_stream() {
    const OLD: &str = "last-modified: Wed, 01 Jan 2025 00:00:00 GMT\r\n";
    const NOW: &str = "date: Wed, 01 Jan 2025 00:00:59 GMT\r\n";
    type Tells = fn(Option<u32>) -> String;
    let cases: [(&str, Tells); 8] = [
        ("nothing", |_| String::new()),
        ("a weak version", |_| "etag: W/\"e\"\r\n".to_owned()),
        ("a time just now", |_| format!("{OLD}{NOW}")),
        ("both", |_| format!("etag: W/\"e\"\r\n{OLD}{NOW}")),
        // As nginx has it.
        ("a version that is such a time", |_| {
            format!("etag: \"67748580-{SIZE:x}\"\r\n{OLD}{NOW}")
        }),
        ("a version that vanishes", |answer| match answer {
            None | Some(0) => "etag: \"e\"\r\n".to_owned(),
            Some(_) => String::new(),
        }),
        ("a time that contradicts a version", |answer| match answer {
            None | Some(0) => format!("etag: \"e\"\r\n{OLD}"),
            Some(_) => format!("etag: \"e\"\r\n{}", OLD.replace("00:00:00", "00:00:07")),
        }),
        ("two digests", |answer| {
            let digest = BodySum::md5_of(content(u32::from(answer != Some(0)))).to_base64();
            format!("etag: \"e\"\r\nrepr-digest: md5=:{digest}:\r\n")
        }),
    ];
    for (what, tells) in cases {
        let server = changing(tells).await;
        let world = World::new();
        let (code, lines) = copies(&world, &format!("{}/t/big", server.url()));
        assert_eq!(code, Some(0), "{what}: {lines}");
        let read = fs::read(world.path("there")).unwrap();
        assert!(read == content(1), "{what}: it is of no version");
    }
    shown(
        "web",
        "a file changes between two ranges of it, and nothing shows that, or what does is contradictory",
        End::Right,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_file_that_is_not_what_its_digest_says_gets_no_name() {
    let digest_of = |bytes: &'static [u8]| {
        let digest = StoredSum::Sha256([0; 32]).of(&[Bytes::from_static(bytes)]);
        let StoredSum::Sha256(digest) = digest else {
            panic!("{digest:?}");
        };
        let digits = digest.iter().map(|byte| format!("{byte:02x}"));
        format!("repr-digest: sha-256=:{}:\r\n", digits.collect::<String>())
    };
    for version in [0, 1] {
        let told = digest_of(content(version));
        for [with_head, with_ranges] in [[true, false], [false, true], [true, true]] {
            let told = told.clone();
            let server = Server::start(move |asked| {
                let is_told = match asked.method == "GET" {
                    true => with_ranges,
                    false => with_head,
                };
                let headers = format!("etag: \"e\"\r\n{}", if is_told { &told } else { "" });
                serve(asked, &headers, content(0))
            })
            .await;
            let world = World::new();
            let (code, lines) = copies(&world, &format!("{}/t/big", server.url()));
            assert_eq!(code == Some(0), version == 0, "{lines}");
            assert_eq!(world.path("there").exists(), version == 0, "{lines}");
            let is_named = lines.contains("t/big") && lines.contains("checksum");
            assert!(version == 0 || is_named, "{lines}");
        }
    }
    shown(
        "web",
        "a large file is not what its digest says",
        End::Refused,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_earlier_run_brought_is_held_to_the_digest_too() {
    for is_right in [true, false] {
        let digest = BodySum::md5_of(content(u32::from(!is_right))).to_base64();
        let about = format!("etag: \"e\"\r\ndigest: md5={digest}\r\n");
        let is_open = Arc::new(AtomicU32::new(0));
        let opened = Arc::clone(&is_open);
        let read = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&read);
        let server = Server::start(move |asked| {
            if let Some((first, last)) = asked.range {
                *counted.lock().unwrap() += last + 1 - first;
            }
            match (asked.range, opened.load(SeqCst)) {
                // By then others have come.
                (Some((_, last)), 0) if last == SIZE - 1 => Answer::sized(403, "", ""),
                _ => serve(asked, &about, content(0)),
            }
        })
        .await;
        let world = World::new();
        let from = format!("{}/t/big", server.url());
        let (code, lines) = copies(&world, &from);
        assert!(code != Some(0) && lines.contains("403"), "{lines}");
        is_open.store(1, SeqCst);
        *read.lock().unwrap() = 0;
        let (code, lines) = copies(&world, &from);
        assert_eq!(code == Some(0), is_right, "{lines}");
        assert_eq!(world.path("there").exists(), is_right, "{lines}");
        assert!(is_right || lines.contains("checksum"), "{lines}");
        let read = *read.lock().unwrap();
        assert!(0 < read && read < SIZE, "{read} bytes were read once more");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_web_server_is_not_told_where_a_copy_goes() {
    let asked_for = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&asked_for);
    let server = Server::start(move |asked| {
        noted.lock().unwrap().push(asked.target.clone());
        let page = "content-type: text/html\r\n";
        match &*asked.target {
            "/t/" => Answer::sized(
                200,
                page,
                "<html><a href=\"a\">a</a><a href=\"tmp/\">t</a></html>",
            ),
            "/t/tmp/" => Answer::sized(200, page, "<html><a href=\"b\">b</a></html>"),
            "/t/a" | "/t/tmp/b" => Answer::sized(200, "", "x"),
            _ => Answer::sized(404, "", ""),
        }
    })
    .await;
    let world = World::new();
    let (code, lines) = copies(&world, &format!("{}/t/", server.url()));
    assert_eq!(code, Some(0), "{lines}");
    let mut asked_for = asked_for.lock().unwrap().clone();
    asked_for.sort_unstable();
    asked_for.dedup();
    let known = ["/t/", "/t/a", "/t/tmp", "/t/tmp/", "/t/tmp/b"];
    let unknown: Vec<_> = asked_for
        .iter()
        .filter(|target| !known.contains(&&***target))
        .collect();
    assert!(unknown.is_empty(), "{unknown:?}");
}
