//! Web servers with unusual pages.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::SeqCst},
};

use posthaste_endpoint::{Endpoint, Entry, Kind, Result};
use posthaste_testbed::{
    conformance::open,
    odd::{Answer, Server},
};

use crate::edges::{
    says,
    table::{End, shown},
    web,
};

const PAGE: &str = "content-type: text/html\r\n";

pub async fn list(endpoint: &dyn Endpoint) -> Result<Vec<Entry>> {
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

/// Starts a server with this page as its index, and with any file.
async fn index(page: &'static str) -> Server {
    Server::start(move |asked| match asked.target.ends_with('/') {
        true => Answer::sized(200, PAGE, page),
        false => Answer::sized(200, "", asked.target.clone()),
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_a_page_escapes_are_those_of_files() {
    let server = index(
        "<html><a href=\"a&#43;b\">1</a><a href=\"c&#x2B;d\">2</a><a href=\"e&plus;f\">3</a>\
         <a href=\"/%74/g h\">4</a><a href=\"100%\">5</a></html>",
    )
    .await;
    let endpoint = web(&server).await;
    let entries = list(&*endpoint).await.unwrap();
    let found: Vec<_> = entries
        .iter()
        .map(|entry| String::from_utf8_lossy(&entry.name))
        .collect();
    assert_eq!(found, ["a+b", "c+d", "e+f", "g h", "100%"]);
    for entry in &entries {
        let whole = endpoint.get(&entry.name, entry).await.unwrap();
        assert_eq!(whole.data.concat().len() as u64, entry.size);
    }
    shown("web", "an index escapes names in odd ways", End::Right);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_file_that_was_just_listed_is_asked_about_once() {
    let heads = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&heads);
    let server = Server::start(move |asked| match &*asked.target {
        "/t/" => Answer::sized(200, PAGE, "<html><a href=\"big\">big</a></html>"),
        _ => {
            counted.fetch_add(u32::from(asked.method == "HEAD"), SeqCst);
            Answer::sized(
                200,
                "etag: \"e\"\r\naccept-ranges: bytes\r\n",
                vec![7; 9 << 20],
            )
        }
    })
    .await;
    let endpoint = web(&server).await;
    let entries = list(&*endpoint).await.unwrap();
    for asked in [1, 2] {
        let reader = endpoint.open(b"big", &entries[0]).await.unwrap();
        assert_eq!(reader.entry().size, 9 << 20);
        // What was told counts once.
        assert_eq!(heads.load(SeqCst), asked);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_is_cut_is_not_all() {
    let cut = "<html><body><a href=\"a\">a</a>";
    for headers in [
        String::new(),
        format!("content-length: {}\r\n", cut.len()),
        format!("content-length: {}\r\n", cut.len() + 20),
    ] {
        let server =
            Server::start(move |_| Answer::new(200, &format!("{PAGE}{headers}"), cut)).await;
        assert!(list(&*web(&server).await).await.is_err());
    }
    shown("web", "an index is cut short", End::Refused);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_elsewhere_is_read_as_it_is_meant_there() {
    let other = Server::start(|asked| match &*asked.target {
        "/pub/t/" => Answer::sized(200, PAGE, "<html><a href=\"/pub/t/a\">a</a></html>"),
        "/pub/t/a" => Answer::sized(200, "", "content"),
        _ => Answer::sized(404, "", ""),
    })
    .await;
    let url = other.url();
    let server = Server::start(move |asked| {
        let to = format!("location: {url}/pub{}\r\n", asked.target);
        Answer::sized(302, &to, "")
    })
    .await;
    let endpoint = web(&server).await;
    let entries = list(&*endpoint).await.unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!((&*entries[0].name, entries[0].size), (&b"a"[..], 7));
    shown("web", "an index is at another host", End::Right);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_typed_is_what_is_asked() {
    let server = Server::start(|asked| match &*asked.target {
        "/d/" => Answer::sized(200, PAGE, "<html><a href=\"a\">a</a></html>"),
        "/d/a" => Answer::sized(200, "", "content"),
        // A page of its own, at the address without the slash.
        "/d" => Answer::sized(200, PAGE, "<html>welcome</html>"),
        _ => Answer::sized(404, "", ""),
    })
    .await;
    let folder = open(&format!("{}/d/", server.url()), "").await.unwrap();
    let found = folder.stat(b"", true).await.unwrap().unwrap();
    assert_eq!(found.kind, Kind::Directory);
    assert_eq!(list(&*folder).await.unwrap().len(), 1);
    let page = open(&format!("{}/d", server.url()), "").await.unwrap();
    let found = page.stat(b"", true).await.unwrap().unwrap();
    assert_eq!((found.kind, found.size), (Kind::File, 20));
    shown(
        "web",
        "an address means something else without its slash",
        End::Right,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_is_not_all_is_refused() {
    for (page, words) in [
        (
            "<html><a href=\"a\">a</a><a href=\"?page=2\">Next</a></html>",
            "further pages",
        ),
        (
            "<html><base href=\"/other/\"><a href=\"a\">a</a></html>",
            "another address",
        ),
    ] {
        let server = Server::start(move |_| Answer::sized(200, PAGE, page)).await;
        says(list(&*web(&server).await).await, words);
    }
    shown(
        "web",
        "an index has further pages, or its links are meant from elsewhere",
        End::Refused,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_is_no_index_is_no_empty_directory() {
    for page in [
        "",
        "hi",
        "<html><a href=\"/about\">about</a><a href=\"http://other/t/a\">a</a></html>",
        "<html><a href=\"/\">Home</a></html>",
    ] {
        let server = Server::start(move |_| Answer::sized(200, PAGE, page)).await;
        let error = says(list(&*web(&server).await).await, "no list of files");
        assert!(error.to_string().contains("name the files"), "{error}");
    }
    let page = "<html><title>Index of /t/</title><a href=\"../\">../</a></html>";
    let server = Server::start(move |_| Answer::sized(200, PAGE, page)).await;
    assert!(list(&*web(&server).await).await.unwrap().is_empty());
    shown("web", "a page is there that is no index", End::Refused);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_in_json_without_sizes_is_asked_on() {
    let server = Server::start(|asked| match asked.target.ends_with('/') {
        true => Answer::sized(
            200,
            "content-type: application/json\r\n",
            "[{\"name\":\"a\",\"type\":\"file\"}]",
        ),
        false => Answer::sized(200, "", "content"),
    })
    .await;
    let entries = list(&*web(&server).await).await.unwrap();
    assert_eq!(entries[0].size, 7);
    shown("web", "a listing leaves a size out", End::Right);
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_stay_with_the_server_they_are_for() {
    let other = Server::start(|asked| {
        let seen = asked.header("authorization").unwrap_or("none").to_owned();
        Answer::sized(200, "", seen)
    })
    .await;
    let url = other.url();
    let server = Server::start(move |asked| {
        let to = format!("location: {url}{}?once=hush\r\n", asked.target);
        Answer::sized(307, &to, "")
    })
    .await;
    let profile = "[me]\ntoken = \"secret\"\n";
    let address = format!("{}/x", server.url());
    let endpoint = open(&address, profile).await.unwrap();
    let entry = endpoint.stat(b"", true).await.unwrap().unwrap();
    let whole = endpoint.get(b"", &entry).await.unwrap();
    assert_eq!(whole.data.concat(), b"none");
    let error = says(endpoint.list(b"", true).await, "no list");
    assert!(!error.to_string().contains("hush"), "{error}");
    shown("web", "a read is sent on to another host", End::Right);
}
