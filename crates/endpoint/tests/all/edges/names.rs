//! Names that are invalid, or have a special meaning.

use posthaste_endpoint::{
    ErrorKind, Kind, is_unfinished,
    posix::{DraftRules, Posix},
};
use posthaste_testbed::odd::{Answer, Asked, Server};

use crate::edges::{
    put, s3, says, spec, stores,
    table::{End, shown},
    web,
    web::list,
};

#[tokio::test(flavor = "multi_thread")]
async fn links_that_no_name_can_stand_for_are_listed() {
    let page = "<html><a href=\"a%2fb\">1</a><a href=\"%00c\">2</a><a href=\"d?download=1\">3</a>\
        <a href=\"e//f\">4</a><a href=\"sub/deep\">5</a><a href=\"gone\">6</a><a href=\"g\">7</a>\
        <a href=\"g?raw=1\">8</a><a href=\"?C=N;O=D\">9</a><a href=\"//elsewhere/h\">10</a></html>";
    let server = Server::start(move |asked| match &*asked.target {
        "/t/" => Answer::sized(200, "content-type: text/html\r\n", page),
        "/t/g" => Answer::sized(200, "", "content"),
        _ => Answer::sized(404, "", ""),
    })
    .await;
    let endpoint = web(&server).await;
    let entries = list(&*endpoint).await.unwrap();
    let names: Vec<_> = entries
        .iter()
        .map(|entry| String::from_utf8_lossy(&entry.name))
        .collect();
    // The copy reports each but the last as left out.
    assert_eq!(
        names,
        [
            "a/b",
            "\0c",
            "d?download=1",
            "e//f",
            "sub/deep",
            "gone",
            "g"
        ]
    );
    let error = says(endpoint.get(b"d?download=1", &entries[2]).await, "download");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    shown(
        "web",
        "an index has links that no name stands for",
        End::LeftOut,
    );
    shown(
        "web",
        "an index has links to what is not there",
        End::LeftOut,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_unfinished_copies_are_listed() {
    let name = ".x.0123456789ab.posthaste-partial";
    assert!(is_unfinished(name.as_bytes()));
    let of_web = Server::start(move |asked| {
        let page = format!("<html><a href=\"{name}\">x</a></html>");
        match asked.target.ends_with('/') {
            true => Answer::sized(200, "content-type: text/html\r\n", page),
            false => Answer::sized(200, "", "content"),
        }
    })
    .await;
    let of_s3 = Server::start(move |_| stores::page(&[(name, 7)], "")).await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(name), "content").unwrap();
    let files = Posix::new(folder.path().to_owned(), DraftRules::default());
    for entries in [
        list(&*web(&of_web).await).await.unwrap(),
        stores::list(&*s3(&of_s3)).await.unwrap(),
        list(&files).await.unwrap(),
    ] {
        // The copy reports it as left out.
        assert_eq!(entries.len(), 1);
        assert_eq!((&*entries[0].name, entries[0].size), (name.as_bytes(), 7));
    }
    shown(
        "files, S3, web",
        "a name is that of an unfinished copy",
        End::LeftOut,
    );
}

/// Answers like a store with a file `x`, a link `x`, a link `l`, and a link `d` beside a key below
/// `d/`.
fn store(asked: &Asked) -> Answer {
    let (path, query) = asked.target.split_once('?').unwrap_or((&asked.target, ""));
    let below = [("d%2F", "d/e"), ("x%2F", ""), ("l%2F", ""), ("new%2F", "")];
    let below = below
        .iter()
        .find(|(prefix, _)| query.contains(&format!("prefix=t%2F{prefix}")));
    match (&*asked.method, path.trim_start_matches("/b/t/")) {
        (_, "x" | "x.rclonelink" | "l.rclonelink" | "d.rclonelink") => {
            Answer::sized(200, "etag: \"e\"\r\n", "target")
        }
        ("PUT", _) => stores::stored(asked),
        ("GET", _) if query.contains("list-type") => match below {
            Some((_, "")) => stores::page(&[], ""),
            Some((_, key)) => stores::page(&[(key, 6)], ""),
            None => stores::page(
                &[
                    ("d.rclonelink", 6),
                    ("d/e", 6),
                    ("l.rclonelink", 6),
                    ("x", 6),
                    ("x.rclonelink", 6),
                ],
                "",
            ),
        },
        _ => Answer::sized(404, "", ""),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_link_and_a_file_of_one_name_the_link_is_left_out() {
    let server = Server::start(store).await;
    let endpoint = s3(&server);
    let entries = stores::list(&*endpoint).await.unwrap();
    let links = entries.iter().filter(|entry| entry.kind == Kind::Link);
    assert_eq!(links.count(), 3);
    assert_eq!(endpoint.read_link(b"l").await.unwrap(), b"target");
    for name in [&b"x"[..], b"d"] {
        let error = says(endpoint.read_link(name).await, "stands for");
        assert_eq!(error.kind(), ErrorKind::Conflict);
        let made = endpoint.make_link(name, b"target", &spec(b"")).await;
        assert_eq!(says(made, "remove it there").kind(), ErrorKind::Conflict);
    }
    endpoint
        .make_link(b"new", b"target", &spec(b""))
        .await
        .unwrap();
    shown(
        "S3",
        "a link and something else have one name",
        End::LeftOut,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_would_be_a_link_there_is_left_out() {
    let server = Server::start(store).await;
    let endpoint = s3(&server);
    let error = says(put(&*endpoint, b"y.rclonelink", b"abc").await, "rename it");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(
        endpoint
            .create(b"y.rclonelink", &spec(b"abc"))
            .await
            .is_err()
    );
    put(&*endpoint, b".rclonelink", b"abc").await.unwrap();
    shown("S3", "a file's name stands for a link there", End::LeftOut);
}
