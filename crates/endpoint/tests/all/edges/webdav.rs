//! WebDAV servers with unexpected answers.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use posthaste_endpoint::{
    Checksum, Endpoint, Entry, ErrorKind, FileSpec, FileTime, Kind, Result, posix::DraftRules,
};
use posthaste_testbed::{
    conformance::{open, open_with},
    odd::{Answer, Asked, Server},
};

use crate::edges::{
    says,
    table::{End, shown},
};

/// Size above that of a single write.
const LARGE_BYTES: usize = (9 << 20) + 5;

/// Files of a server, by path.
type Files = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

fn files(held: &[(&str, &str)]) -> Files {
    let held = held.iter();
    let held = held.map(|(path, bytes)| ((*path).to_owned(), bytes.as_bytes().to_vec()));
    Arc::new(Mutex::new(held.collect()))
}

/// Returns an element of an answer about properties, under an unusual prefix.
fn told(path: &str, properties: &str) -> String {
    format!(
        "<x:response><x:href>{path}</x:href><x:propstat><x:prop>{properties}</x:prop>\
         <x:status>HTTP/1.1 200 OK</x:status></x:propstat></x:response>"
    )
}

const FOLDER: &str = "<x:resourcetype><x:collection/></x:resourcetype>";

fn about(responses: &str) -> Answer {
    let start = "<?xml version=\"1.0\"?><x:multistatus xmlns:x=\"DAV:\">";
    Answer::sized(207, "", format!("{start}{responses}</x:multistatus>"))
}

/// Answers like a correct server.
fn answer(asked: &Asked, files: &Files) -> Answer {
    let mut files = files.lock().unwrap();
    let path = asked.target.trim_end_matches('/').to_owned();
    match &*asked.method {
        "PUT" => {
            files.insert(path, asked.body.clone());
            Answer::sized(201, "", "")
        }
        "MOVE" => {
            let to = asked.header("destination").unwrap();
            let to = &to[to.find("/t").unwrap()..];
            if asked.header("overwrite") == Some("F") && files.contains_key(to) {
                return Answer::sized(412, "", "");
            }
            let Some(bytes) = files.remove(&path) else {
                return Answer::sized(404, "", "");
            };
            files.insert(to.to_owned(), bytes);
            Answer::sized(201, "", "")
        }
        "DELETE" => {
            let status = if files.remove(&path).is_some() {
                204
            } else {
                404
            };
            Answer::sized(status, "", "")
        }
        "PROPFIND" => {
            let size = |bytes: &Vec<u8>| {
                format!("<x:getcontentlength>{}</x:getcontentlength>", bytes.len())
            };
            if let Some(bytes) = files.get(&path) {
                return about(&told(&path, &size(bytes)));
            }
            if path != "/t" {
                return Answer::sized(404, "", "");
            }
            let mut text = told("/t/", FOLDER);
            let depth = asked.header("depth");
            for (path, bytes) in files.iter().filter(|_| depth == Some("1")) {
                text += &told(path, &size(bytes));
            }
            about(&text)
        }
        _ => match files.get(&path) {
            Some(bytes) => Answer::sized(200, "etag: \"v\"\r\n", bytes.clone()),
            None => Answer::sized(404, "", ""),
        },
    }
}

async fn dav(server: &Server) -> Arc<dyn Endpoint> {
    let address = server.url().replace("http://", "webdav://");
    let profile = "[me]\nuser = \"u\"\npassword = \"p\"\n";
    // The servers' answers are tested.
    let rules = DraftRules {
        verify: false,
        ..DraftRules::default()
    };
    let address = format!("{address}/t");
    open_with(&address, profile, rules).await.unwrap()
}

fn spec(size: usize) -> FileSpec {
    FileSpec {
        size: size as u64,
        mtime: None,
        mode: None,
        origin: "test:edges".into(),
        version: None,
    }
}

async fn put(endpoint: &dyn Endpoint, path: &[u8], bytes: &[u8]) -> Result<()> {
    let data = vec![Bytes::copy_from_slice(bytes)];
    let sum = Checksum::of(bytes);
    endpoint.put(path, &spec(bytes.len()), data, sum).await
}

/// Writes like for a large file: from a stream without a copy.
async fn write(endpoint: &dyn Endpoint, path: &[u8], bytes: &[u8]) -> Result<()> {
    let writer = endpoint.create(path, &spec(bytes.len())).await?;
    let pieces: Vec<_> = bytes.chunks(100_000).map(Bytes::copy_from_slice).collect();
    let body = futures_util::stream::iter(pieces.into_iter().map(Ok));
    let range = 0..bytes.len() as u64;
    let sum = writer.write(0, range, Box::pin(body)).await?;
    assert_eq!(sum, Checksum::of(bytes));
    writer.finish(sum).await
}

async fn list(endpoint: &dyn Endpoint) -> Result<Vec<Entry>> {
    let mut listing = endpoint.list(b"", true).await?;
    let mut entries = Vec::new();
    loop {
        let page = listing.next_page().await?;
        if page.is_empty() {
            return Ok(entries);
        }
        entries.extend(page);
    }
}

fn noise(len: usize) -> Vec<u8> {
    (0..=250).cycle().take(len).collect()
}

/// Starts a door, which answers writes with an address at a pool, and returns the pool's requests.
/// Both share `files`.
async fn door_and_pool(files: &Files, at_once: bool) -> (Server, Arc<Mutex<Vec<Asked>>>, Server) {
    let asked_there = Arc::new(Mutex::new(Vec::new()));
    let (seen, held) = (Arc::clone(&asked_there), Arc::clone(files));
    let pool = Server::start(move |asked| {
        let path = asked.target.split('?').next().unwrap().to_owned();
        let stored = answer(
            &Asked {
                method: asked.method.clone(),
                target: path,
                range: None,
                headers: Vec::new(),
                body: asked.body.clone(),
            },
            &held,
        );
        seen.lock().unwrap().push(Asked {
            method: asked.method.clone(),
            target: asked.target.clone(),
            range: None,
            headers: asked.headers.clone(),
            body: Vec::new(),
        });
        stored
    })
    .await;
    let pool_url = pool.url();
    let (held, late_url) = (Arc::clone(files), pool_url.clone());
    let sent_on = |url: &str, asked: &Asked| {
        let to = format!("location: {url}{}?once=hush\r\n", asked.target);
        Answer::sized(307, &to, "")
    };
    let door = Server::start_door(
        move |asked| at_once.then(|| sent_on(&pool_url, asked)),
        move |asked| match &*asked.method {
            "PUT" | "GET" => sent_on(&late_url, asked),
            _ => answer(asked, &held),
        },
    )
    .await;
    (door, asked_there, pool)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_goes_to_where_the_door_says_and_once() {
    let files = files(&[]);
    let (door, asked_there, _pool) = door_and_pool(&files, true).await;
    let endpoint = dav(&door).await;
    put(&*endpoint, b"small", b"small").await.unwrap();
    let large = noise(LARGE_BYTES);
    write(&*endpoint, b"large", &large).await.unwrap();
    let held = files.lock().unwrap().clone();
    let names: Vec<_> = held.keys().map(String::as_str).collect();
    assert_eq!(names, ["/t/large", "/t/small"]);
    assert!(held["/t/large"] == large && held["/t/small"] == b"small");
    for asked in asked_there.lock().unwrap().iter() {
        assert_eq!(asked.method, "PUT");
        assert_eq!(
            asked.header("authorization"),
            None,
            "credentials went along"
        );
    }
    assert_eq!(asked_there.lock().unwrap().len(), 2);
    shown("WebDAV", "a write is sent on to another host", End::Right);
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_go_along_to_hosts_that_the_profile_names() {
    let files = files(&[("/t/x", "content")]);
    let (door, asked_there, _pool) = door_and_pool(&files, true).await;
    let address = format!("{}/t", door.url().replace("http://", "webdav://"));
    let profile = "[me]\ntoken = \"hush\"\ncredentials_for = [\"127.0.0.1\"]\n";
    let endpoint = open(&address, profile).await.unwrap();
    put(&*endpoint, b"small", b"small").await.unwrap();
    let entry = endpoint.stat(b"x", true).await.unwrap().unwrap();
    let whole = endpoint.get(b"x", &entry).await.unwrap();
    assert_eq!(whole.data.concat(), b"content");
    let asked_there = asked_there.lock().unwrap();
    assert_eq!(asked_there.len(), 3, "written, read back and read");
    for asked in asked_there.iter() {
        assert_eq!(asked.header("authorization"), Some("Bearer hush"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_door_that_reads_first_is_answered_again_where_that_can_be() {
    let files = files(&[]);
    let (door, _, _pool) = door_and_pool(&files, false).await;
    let endpoint = dav(&door).await;
    put(&*endpoint, b"small", b"small").await.unwrap();
    assert_eq!(files.lock().unwrap()["/t/small"], b"small");
    // A stream has no copy; its writer begins again.
    let large = write(&*endpoint, b"large", &noise(LARGE_BYTES)).await;
    let error = says(large, "too late where the file is to go");
    assert!(error.is_temporary() && !error.to_string().contains("hush"));
    shown(
        "WebDAV",
        "a write is sent on only after the bytes came",
        End::Refused,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_says_nothing_of_a_body_gets_it() {
    let files = files(&[]);
    let held = Arc::clone(&files);
    let server = Server::start_silent(move |asked| answer(asked, &held)).await;
    let endpoint = dav(&server).await;
    for name in ["a", "b"] {
        write(&*endpoint, name.as_bytes(), &noise(LARGE_BYTES))
            .await
            .unwrap();
    }
    assert_eq!(files.lock().unwrap().len(), 2);
    shown("WebDAV", "Expect: 100-continue is passed over", End::Right);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_before_the_body_is_told_as_it_is() {
    let server = Server::start_door(
        |_| {
            let kind = "content-type: text/plain\r\n";
            Some(Answer::sized(507, kind, "quota of group x is used up"))
        },
        |_| Answer::sized(404, "", ""),
    )
    .await;
    let endpoint = dav(&server).await;
    let error = says(write(&*endpoint, b"x", &noise(LARGE_BYTES)).await, "quota");
    assert_eq!(error.kind(), ErrorKind::Full);
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_were_stored_otherwise_are_refused() {
    for told in [
        "digest: adler32=00000001\r\n",
        "repr-digest: adler=:AAAAAQ==:\r\n",
        "oc-checksum: MD5:00000000000000000000000000000001\r\n",
    ] {
        let files = files(&[]);
        let held = Arc::clone(&files);
        let server = Server::start(move |asked| {
            let answer = answer(asked, &held);
            if asked.method == "PUT" {
                assert_eq!(asked.header("want-digest"), Some("adler32"));
                return Answer::sized(201, told, "");
            }
            answer
        })
        .await;
        let endpoint = dav(&server).await;
        let error = says(put(&*endpoint, b"x", b"content").await, "another checksum");
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        // The algorithm of a stream is chosen before the server tells its own.
        if !told.starts_with("oc-") {
            says(
                write(&*endpoint, b"y", &noise(LARGE_BYTES)).await,
                "another checksum",
            );
        }
        assert!(files.lock().unwrap().keys().all(|name| name.contains("/.")));
    }
    shown(
        "WebDAV",
        "another checksum is told of what was written",
        End::Refused,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_another_size_than_was_sent_is_refused() {
    let files = files(&[]);
    let held = Arc::clone(&files);
    let server = Server::start(move |asked| {
        let stored = answer(asked, &held);
        if asked.method == "PUT" {
            held.lock()
                .unwrap()
                .insert(asked.target.clone(), b"c".to_vec());
        }
        stored
    })
    .await;
    let endpoint = dav(&server).await;
    says(
        put(&*endpoint, b"x", b"content").await,
        "holds 1 bytes of 7",
    );
    assert!(!files.lock().unwrap().contains_key("/t/x"));
    shown(
        "WebDAV",
        "a write succeeds and another size is there",
        End::Refused,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_whose_answer_is_lost_is_looked_for() {
    for lost in ["PUT", "MOVE"] {
        let files = files(&[("/t/large", "older")]);
        let held = Arc::clone(&files);
        let left = AtomicUsize::new(1);
        let server = Server::start(move |asked| {
            let answer = answer(asked, &held);
            let is_done = answer.status < 300 && asked.method == lost;
            match is_done
                && left
                    .fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1))
                    .is_ok()
            {
                true => Answer::lost(),
                false => answer,
            }
        })
        .await;
        let endpoint = dav(&server).await;
        let large = noise(LARGE_BYTES);
        write(&*endpoint, b"large", &large).await.unwrap();
        assert!(files.lock().unwrap()["/t/large"] == large, "{lost}");
    }
    shown(
        "WebDAV",
        "the answer to a write or a move is lost",
        End::Right,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_that_is_done_and_refused_is_done() {
    let files = files(&[]);
    let held = Arc::clone(&files);
    let server = Server::start(move |asked| {
        let answer = answer(asked, &held);
        match &*asked.method {
            "MOVE" => Answer::sized(412, "", ""),
            _ => answer,
        }
    })
    .await;
    let endpoint = dav(&server).await;
    let large = noise(LARGE_BYTES);
    write(&*endpoint, b"large", &large).await.unwrap();
    assert!(files.lock().unwrap()["/t/large"] == large);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_writers_of_one_name_have_a_name_each_until_they_are_done() {
    let files = files(&[]);
    let held = Arc::clone(&files);
    let server = Server::start(move |asked| answer(asked, &held)).await;
    let (bytes, others) = (noise(LARGE_BYTES), vec![7; LARGE_BYTES]);
    let body = |bytes: &[u8]| {
        let pieces = vec![Ok(Bytes::copy_from_slice(bytes))];
        Box::pin(futures_util::stream::iter(pieces))
    };
    let (one, other) = (dav(&server).await, dav(&server).await);
    let spec = spec(bytes.len());
    let range = 0..bytes.len() as u64;
    let first = one.create(b"x", &spec).await.unwrap();
    let sum = first.write(0, range.clone(), body(&bytes)).await.unwrap();
    let second = other.create(b"x", &spec).await.unwrap();
    second.write(0, range, body(&others)).await.unwrap();
    first.finish(sum).await.unwrap();
    assert!(files.lock().unwrap()["/t/x"] == bytes, "the other's bytes");
    shown("WebDAV", "two write one name", End::Right);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_writer_left_is_removed_by_the_next() {
    let files = files(&[]);
    let held = Arc::clone(&files);
    let server = Server::start(move |asked| answer(asked, &held)).await;
    let bytes = noise(LARGE_BYTES);
    let names = || files.lock().unwrap().keys().cloned().collect::<Vec<_>>();
    let (endpoint, spec) = (dav(&server).await, spec(bytes.len()));
    let begin = async || {
        let writer = endpoint.create(b"x", &spec).await.unwrap();
        let pieces = vec![Ok(Bytes::copy_from_slice(&bytes))];
        let body = Box::pin(futures_util::stream::iter(pieces));
        let sum = writer.write(0, 0..bytes.len() as u64, body).await.unwrap();
        (writer, sum)
    };
    // Like a killed process: it sends nothing more.
    drop(begin().await);
    let left = names();
    assert_eq!(left.len(), 1, "{left:?}");
    let (writer, sum) = begin().await;
    assert!(names().len() == 1 && names() != left, "{:?}", names());
    writer.finish(sum).await.unwrap();
    assert_eq!(names(), ["/t/x"]);
    // An existing file is not written again.
    drop(begin().await);
    assert_eq!(names().len(), 2);
    endpoint.forget_unfinished(b"x", &spec.origin).await;
    assert_eq!(names(), ["/t/x"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_that_was_not_done_is_no_move() {
    let files = files(&[]);
    let held = Arc::clone(&files);
    let server = Server::start(move |asked| match &*asked.method {
        "MOVE" => {
            let path = &asked.target;
            about(&format!(
                "<x:response><x:href>{path}</x:href>\
                 <x:status>HTTP/1.1 423 Locked</x:status></x:response>"
            ))
        }
        _ => answer(asked, &held),
    })
    .await;
    let endpoint = dav(&server).await;
    says(put(&*endpoint, b"x", b"content").await, "423 Locked");
    assert!(!files.lock().unwrap().contains_key("/t/x"));
    shown(
        "WebDAV",
        "an error is told inside of a success",
        End::Refused,
    );
    for status in [201, 202, 204] {
        let held = Arc::clone(&files);
        let server = Server::start(move |asked| match &*asked.method {
            "MOVE" => Answer::sized(status, "", ""),
            _ => answer(asked, &held),
        })
        .await;
        let endpoint = dav(&server).await;
        let written = put(&*endpoint, b"x", b"content").await;
        says(written, "not given it its name");
    }
    shown("WebDAV", "a move is only said to be done", End::Refused);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_that_is_done_later_is_waited_for() {
    let files = files(&[]);
    let held = Arc::clone(&files);
    let server = Server::start(move |asked| match &*asked.method {
        "MOVE" => {
            let (later, held) = (asked.clone(), Arc::clone(&held));
            std::thread::spawn(move || {
                std::thread::sleep(std::time::Duration::from_millis(500));
                answer(&later, &held)
            });
            Answer::sized(202, "", "")
        }
        _ => answer(asked, &held),
    })
    .await;
    let endpoint = dav(&server).await;
    put(&*endpoint, b"x", b"content").await.unwrap();
    assert!(files.lock().unwrap().contains_key("/t/x"));
    shown(
        "WebDAV",
        "a move is taken note of and done later",
        End::Right,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tag_without_quotes_is_no_change() {
    let server = Server::start(|asked| match &*asked.method {
        "PROPFIND" => about(&told(
            "/t/x",
            "<x:getcontentlength>7</x:getcontentlength><x:getetag>v1</x:getetag>",
        )),
        _ => {
            let condition = asked.header("if-match");
            assert!(condition.is_none_or(|tag| tag == "\"v1\""), "{condition:?}");
            Answer::sized(200, "etag: \"v1\"\r\n", "content")
        }
    })
    .await;
    let endpoint = dav(&server).await;
    let entry = endpoint.stat(b"x", true).await.unwrap().unwrap();
    let whole = endpoint.get(b"x", &entry).await.unwrap();
    assert_eq!(whole.data.concat(), b"content");
    let reader = endpoint.open(b"x", &entry).await.unwrap();
    assert_eq!(reader.entry().size, 7);
    shown("WebDAV", "a tag of a version has no quotes", End::Right);
}

#[tokio::test(flavor = "multi_thread")]
async fn listings_are_read_as_servers_write_them() {
    let server = Server::start(|asked| {
        let sized = |bytes| format!("<x:getcontentlength>{bytes}</x:getcontentlength>");
        let host = asked.header("host").unwrap();
        match (&*asked.method, &*asked.target) {
            ("PROPFIND", _) => {
                let mut text = told(&format!("http://{host}/%74/"), FOLDER);
                text += &told("/t/a%20b", &sized(1));
                text += &told(&format!("http://{host}/t/%61%2b"), &sized(2));
                text += &told("/t/100% raw", &sized(3));
                text += &told("/t/unsized", "<x:resourcetype/>");
                text += &told("/t/chunked", "<x:resourcetype/>");
                let _ = write!(
                    text,
                    "<x:response><x:href>/t/gone</x:href><x:status>HTTP/1.1 404 Not Found\
                     </x:status></x:response><x:response><x:href>/t/secret</x:href>\
                     <x:status>HTTP/1.1 403 Forbidden</x:status></x:response>"
                );
                about(&text)
            }
            (_, "/t/unsized") => Answer::sized(200, "", "four"),
            (_, "/t/chunked") => {
                let chunked = "transfer-encoding: chunked\r\n";
                Answer::new(200, chunked, "1\r\nx\r\n0\r\n\r\n")
            }
            (_, "/t/secret") => Answer::sized(403, "", ""),
            _ => Answer::sized(404, "", ""),
        }
    })
    .await;
    let endpoint = dav(&server).await;
    let entries = list(&*endpoint).await.unwrap();
    let found: Vec<_> = entries
        .iter()
        .map(|entry| (String::from_utf8_lossy(&entry.name), entry.kind, entry.size))
        .collect();
    let wanted = [
        ("a b".into(), Kind::File, 1),
        ("a+".into(), Kind::File, 2),
        ("100% raw".into(), Kind::File, 3),
        ("unsized".into(), Kind::File, 4),
        ("chunked".into(), Kind::File, 0),
        ("secret".into(), Kind::File, 0),
    ];
    assert_eq!(found, wanted);
    shown(
        "WebDAV",
        "paths are whole addresses, or escaped otherwise",
        End::Right,
    );
    shown("WebDAV", "a listing leaves a size out", End::Right);
    let chunked = endpoint.get(b"chunked", &entries[4]).await;
    says(chunked, "longer");
    let secret = endpoint.get(b"secret", &entries[5]).await;
    assert_eq!(secret.unwrap_err().kind(), ErrorKind::PermissionDenied);
    shown("WebDAV", "one file of a tree is forbidden", End::LeftOut);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_that_is_cut_is_not_all() {
    let server = Server::start(|_| {
        let whole = about(&(told("/t/", FOLDER) + &told("/t/a", "")));
        let text = String::from_utf8(whole.body).unwrap();
        let cut = text.replace("</x:multistatus>", "");
        // Its end is that of the connection.
        Answer::new(207, "", cut)
    })
    .await;
    says(list(&*dav(&server).await).await, "ended early");
    shown("WebDAV", "a listing is cut short", End::Refused);
}

#[tokio::test(flavor = "multi_thread")]
async fn times_that_are_not_kept_are_counted() {
    for (accepted, lost) in [("", 2), ("x-oc-mtime: accepted\r\n", 0)] {
        let held = files(&[]);
        let server = Server::start(move |asked| {
            let answer = answer(asked, &held);
            match &*asked.method {
                "PUT" => Answer::sized(answer.status, accepted, ""),
                _ => answer,
            }
        });
        let server = server.await;
        let endpoint = dav(&server).await;
        let given = FileSpec {
            mtime: Some(FileTime {
                secs: 1_600_000_000,
                nanos: 0,
            }),
            ..spec(5)
        };
        let (data, sum) = (Bytes::from_static(b"bytes"), Checksum::of(b"bytes"));
        let stored = endpoint.put(b"small", &given, vec![data.clone()], sum);
        stored.await.unwrap();
        let writer = endpoint.create(b"large", &given).await.unwrap();
        let body = Box::pin(futures_util::stream::iter([Ok(data)]));
        writer.write(0, 0..5, body).await.unwrap();
        writer.finish(sum).await.unwrap();
        assert_eq!(endpoint.unkept().times, lost);
        // This one reports no times at all.
        assert_eq!(endpoint.learn_time_step_ns(b"x").await.unwrap(), None);
        assert_eq!(endpoint.capabilities().mtime_step_ns, None);
        assert_eq!(endpoint.unkept().times, lost, "a trial is no file");
    }
    shown("WebDAV", "times are not kept", End::Right);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_asks_to_log_in_is_no_file() {
    let is_page = "content-type: text/html\r\n";
    for (headers, page, said) in [
        (is_page, "<p>Please log in</p>", "probably a login"),
        ("", "Please log in", "changed"),
        ("etag: \"v\"\r\n", "short", "changed"),
    ] {
        let server = Server::start(move |asked| match (&*asked.method, &*asked.target) {
            ("PROPFIND", "/t/small") => about(&told(
                "/t/small",
                "<x:getcontentlength>9</x:getcontentlength>",
            )),
            ("PROPFIND", _) => about(&told(
                "/t/large",
                "<x:getcontentlength>9000000</x:getcontentlength>",
            )),
            (_, "/login") => Answer::sized(200, headers, page),
            _ => Answer::sized(302, "location: /login\r\n", ""),
        });
        let server = server.await;
        let endpoint = dav(&server).await;
        let small = endpoint.stat(b"small", true).await.unwrap().unwrap();
        says(endpoint.get(b"small", &small).await.map(|_| ()), said);
        let large = endpoint.stat(b"large", true).await.unwrap().unwrap();
        says(endpoint.open(b"large", &large).await.map(|_| ()), said);
    }
    shown(
        "web, WebDAV",
        "another size comes than was listed, as of a page that asks to log in",
        End::Refused,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_file_of_that_size_is_not_what_was_moved() {
    let held = files(&[("/t/x", "older")]);
    let files = Arc::clone(&held);
    // The written file is gone before it is moved.
    let server = Server::start(move |asked| match &*asked.method {
        "MOVE" => {
            let path = asked.target.trim_end_matches('/');
            held.lock().unwrap().remove(path);
            Answer::sized(404, "", "")
        }
        _ => answer(asked, &held),
    })
    .await;
    let endpoint = dav(&server).await;
    assert!(put(&*endpoint, b"x", b"newer").await.is_err());
    assert_eq!(files.lock().unwrap()["/t/x"], b"older");
    let server = format!("{}/t/x", server.url().replace("http://", "webdav://"));
    let named = open(&server, "[me]\nuser = \"u\"\npassword = \"p\"\n")
        .await
        .unwrap();
    assert_eq!(named.learn_time_step_ns(b"").await.unwrap(), None);
    assert_eq!(files.lock().unwrap().len(), 1, "something was tried");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_that_says_it_leaves_out_the_rest_is_refused() {
    let server = Server::start(|asked| match &*asked.method {
        "PROPFIND" => {
            let file = told("/t/a", "<x:getcontentlength>1</x:getcontentlength>");
            let rest = "<x:response><x:href>/t/</x:href>\
                        <x:status>HTTP/1.1 507 Insufficient Storage</x:status></x:response>";
            about(&format!("{}{file}{rest}", told("/t/", FOLDER)))
        }
        _ => Answer::sized(404, "", ""),
    })
    .await;
    let endpoint = dav(&server).await;
    says(list(&*endpoint).await, "507");
}
