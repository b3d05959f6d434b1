//! An unreadable object of a tree is left out and named, and the rest arrives.

use std::{fs, net::SocketAddr};

use posthaste_testbed::{
    S3Server, WebFace, WebServer,
    odd::{Answer, Server, Spoils, front},
};
use tokio::task::block_in_place;

use crate::copy::{
    table::{End, shown},
    world::{World, lines_of},
};

/// Copies a tree of `a`, `b` and `c` of which `b` can't be read.
fn copies_all_but_one(profile: &str, from: &str, words: &str) {
    let world = World::new()
        .with_profiles(profile)
        .with_arguments(&["--profile", "p"]);
    let output = block_in_place(|| world.cp([from, "back"]).output().unwrap());
    let lines = lines_of(&output);
    assert_eq!(output.status.code(), Some(6), "{lines}");
    assert!(lines.contains("t/b") && lines.contains(words), "{lines}");
    for name in ["back/a", "back/c"] {
        assert_eq!(fs::read(world.path(name)).unwrap(), b"x");
    }
    assert!(!world.path("back/b").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn one_archived_object_of_azure_is_left_out() {
    let server = Server::start(|asked| {
        let path = asked.target.split('?').next().unwrap_or_default();
        match path {
            "/a/b/t/b" => Answer::sized(409, "x-ms-error-code: BlobArchived\r\n", ""),
            "/a/b/t/a" | "/a/b/t/c" => Answer::sized(200, "etag: \"e\"\r\n", "x"),
            "/a/b" => {
                let object = |name| {
                    format!(
                        "<Blob><Name>t/{name}</Name><Properties>\
                         <Content-Length>1</Content-Length></Properties></Blob>"
                    )
                };
                let objects = ["a", "b", "c"].map(object).concat();
                let text =
                    format!("<EnumerationResults><Blobs>{objects}</Blobs></EnumerationResults>");
                Answer::sized(200, "", text)
            }
            _ => Answer::sized(404, "", ""),
        }
    })
    .await;
    let profile = format!("[p]\nendpoint = \"{}/a\"\nanonymous = true\n", server.url());
    copies_all_but_one(&profile, "az://b/t/", "it is archived: rehydrate it first");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_forbidden_object_of_gcs_is_left_out() {
    let server = Server::start(|asked| {
        let path = asked.target.split('?').next().unwrap_or_default();
        match path {
            "/storage/v1/b/b/o/t%2Fb" => {
                let why = "Anonymous caller does not have storage.objects.get access";
                Answer::sized(401, "", why)
            }
            "/storage/v1/b/b/o/t%2Fa" | "/storage/v1/b/b/o/t%2Fc" => Answer::sized(200, "", "x"),
            "/storage/v1/b/b/o" => {
                let item = |name| format!(r#"{{"name":"t/{name}","size":"1","generation":"1"}}"#);
                let items = ["a", "b", "c"].map(item).join(",");
                Answer::sized(200, "", format!(r#"{{"items":[{items}]}}"#))
            }
            _ => Answer::sized(404, "", ""),
        }
    })
    .await;
    let profile = format!("[p]\nendpoint = \"{}\"\nanonymous = true\n", server.url());
    copies_all_but_one(&profile, "gs://b/t/", "it is not public");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_a_size_that_makes_no_sense_is_left_out() {
    for size in ["18446744073709551615", "-1", "1e30"] {
        let sizes = [("a", "1"), ("b", size), ("c", "1")];
        let server = Server::start(move |asked| {
            let line = |(name, size)| format!(r#"{{"name":"{name}","type":"file","size":{size}}}"#);
            let of_azure = |(name, size)| {
                format!(
                    "<Blob><Name>t/{name}</Name><Properties><Content-Length>{size}</Content-Length>\
                    </Properties></Blob>"
                )
            };
            let item =
                |(name, size)| format!(r#"{{"name":"t/{name}","size":"{size}","generation":"1"}}"#);
            let object = |(name, size)| {
                format!("<Contents><Key>t/{name}</Key><Size>{size}</Size></Contents>")
            };
            match asked.target.split('?').next().unwrap() {
                "/t/" => {
                    let headers = "content-type: application/json\r\n";
                    let lines = sizes.map(line).join(",");
                    Answer::sized(200, headers, format!("[{lines}]"))
                }
                "/a/c" => {
                    let in_azure = sizes.map(of_azure).concat();
                    let page = format!(
                        "<EnumerationResults><Blobs>{in_azure}</Blobs></EnumerationResults>"
                    );
                    Answer::sized(200, "", page)
                }
                "/storage/v1/b/b/o" => {
                    let items = sizes.map(item).join(",");
                    Answer::sized(200, "", format!(r#"{{"items":[{items}]}}"#))
                }
                "/s" | "/s/" => {
                    let objects = sizes.map(object).concat();
                    let page = format!("<ListBucketResult>{objects}</ListBucketResult>");
                    Answer::sized(200, "", page)
                }
                path if path.ends_with("/a")
                    || path.ends_with("/c")
                    || path.ends_with("Fa")
                    || path.ends_with("Fc") =>
                {
                    Answer::sized(200, "etag: \"e\"\r\n", "x")
                }
                _ => Answer::sized(404, "", ""),
            }
        })
        .await;
        let url = server.url();
        let anonymous = format!("[p]\nendpoint = \"{url}\"\nanonymous = true\n");
        let azure = anonymous.replace(&url, &format!("{url}/a"));
        for (profile, from) in [
            ("[p]\n", format!("{url}/t/")),
            (&*anonymous, "s3://s/t/".to_owned()),
            (&*anonymous, "gs://b/t/".to_owned()),
            (&*azure, "az://c/t/".to_owned()),
        ] {
            copies_all_but_one(profile, &from, "makes no sense");
        }
    }
    shown(
        "S3, Azure, Google, web",
        "a size makes no sense",
        End::LeftOut,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn one_file_that_a_server_spoils_is_one() {
    let server = Server::start(|asked| match &*asked.target {
        "/t/" => {
            let line = |name| format!(r#"{{"name":"{name}","type":"file","size":1}}"#);
            let lines = ["a", "b", "c"].map(line).join(",");
            let headers = "content-type: application/json\r\n";
            Answer::sized(200, headers, format!("[{lines}]"))
        }
        "/t/b" => Answer::sized(206, "content-range: bytes 0-0/1\r\n", "x"),
        "/t/a" | "/t/c" => Answer::sized(200, "", "x"),
        _ => Answer::sized(404, "", ""),
    })
    .await;
    let from = format!("{}/t/", server.url());
    copies_all_but_one("[p]\n", &from, "where all of it was asked for");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_file_for_which_a_server_wants_other_credentials_is_one() {
    let server = Server::start(|asked| match &*asked.target {
        "/t/" | "/all/" => {
            let line = |name| format!(r#"{{"name":"{name}","type":"file","size":1}}"#);
            let lines = ["a", "b", "c", "d", "e", "f"].map(line).join(",");
            let headers = "content-type: application/json\r\n";
            Answer::sized(200, headers, format!("[{lines}]"))
        }
        "/t/b" => Answer::sized(401, "www-authenticate: Basic\r\n", ""),
        target if target.starts_with("/t/") => Answer::sized(200, "", "x"),
        _ => Answer::sized(401, "www-authenticate: Basic\r\n", ""),
    })
    .await;
    copies_all_but_one("[p]\n", &format!("{}/t/", server.url()), "401");
    shown(
        "web",
        "the credentials are refused for one of many",
        End::LeftOut,
    );
    // Where they are good for nothing, that is said, before an account is locked.
    let world = World::new();
    let from = format!("{}/all/", server.url());
    let output = block_in_place(|| world.cp([&*from, "back"]).output().unwrap());
    let lines = lines_of(&output);
    assert_eq!(output.status.code(), Some(7), "{lines}");
    for (one, code) in [("t/b", 7), ("t/a", 0)] {
        let from = format!("{}/{one}", server.url());
        let output = block_in_place(|| world.cp([&*from, "one"]).output().unwrap());
        let lines = lines_of(&output);
        assert_eq!(output.status.code(), Some(code), "{lines}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_leads_to_a_login_is_no_file_and_no_directory() {
    let server = Server::start(|asked| {
        let page = "content-type: text/html\r\n";
        match &*asked.target {
            "/t/" => Answer::sized(
                200,
                page,
                "<html><a href=\"a\">a</a><a href=\"b\">b</a><a href=\"c\">c</a></html>",
            ),
            "/u/" => Answer::sized(
                200,
                page,
                "<html><a href=\"a\">a</a><a href=\"t/\">t/</a><a href=\"i.html\">i</a></html>",
            ),
            "/t/b" | "/u/t/" | "/v/" | "/data.nc" => {
                Answer::sized(302, "location: /sso/login?next=x\r\n", "")
            }
            "/u/i.html" => Answer::sized(302, "location: /pages/i2.html\r\n", ""),
            "/pages/i2.html" => Answer::sized(200, page, "page"),
            "/sso/login?next=x" => Answer::sized(
                200,
                page,
                "<html><a href=\"register\">r</a><input type='password'></html>",
            ),
            _ => Answer::sized(200, "", "x"),
        }
    })
    .await;
    copies_all_but_one("[p]\n", &format!("{}/t/", server.url()), "probably a login");
    shown(
        "web",
        "an address of a tree leads to a page, as of a login",
        End::LeftOut,
    );
    let copied = |path: &str| {
        let world = World::new();
        let from = format!("{}/{path}", server.url());
        let output = block_in_place(|| world.cp(["-r", &*from, "back"]).output().unwrap());
        (output.status.code(), lines_of(&output), world)
    };
    // A directory of the tree, while a page may lie at another address.
    let (code, lines, world) = copied("u/");
    assert_eq!(code, Some(6), "{lines}");
    assert!(lines.contains("u/t") && lines.contains("probably a login"));
    assert_eq!(fs::read(world.path("back/a")).unwrap(), b"x");
    assert_eq!(fs::read(world.path("back/i.html")).unwrap(), b"page");
    // All of it, and one file.
    for path in ["v/", "data.nc"] {
        let (code, lines, world) = copied(path);
        assert_ne!(code, Some(0), "{path}: {lines}");
        assert!(lines.contains("probably a login"), "{path}: {lines}");
        let left = fs::read_dir(world.path("back")).into_iter().flatten();
        assert_eq!(left.count(), 0, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_comes_spoiled_each_time_is_left_out_and_alone_is_no_matter_of_time() {
    let s3 = S3Server::start().unwrap();
    let up = World::new().with_s3(&s3);
    fs::create_dir(up.path("t")).unwrap();
    for name in ["a", "b", "c"] {
        fs::write(up.path("t").join(name), vec![7; 100_000]).unwrap();
    }
    block_in_place(|| up.copy(["t", "s3://testbed/t"]));
    let front = front(s3.address(), Spoils::Bits, |asked| {
        asked.method == "GET" && asked.target.contains("/t/b")
    })
    .await;
    let profile = format!(
        "[p]\nendpoint = \"{}\"\naccess_key_id = \"{}\"\nsecret_access_key = \"{}\"\n",
        front.url(),
        S3Server::ACCESS_KEY,
        S3Server::SECRET_KEY
    );
    let world = World::new()
        .with_profiles(&profile)
        .with_arguments(&["--profile", "p"]);
    for (from, code) in [("s3://testbed/t/", 6), ("s3://testbed/t/b", 1)] {
        let output = block_in_place(|| world.cp([from, "back"]).output().unwrap());
        let lines = lines_of(&output);
        assert_eq!(output.status.code(), Some(code), "{from}: {lines}");
        assert!(lines.contains("t/b"), "{lines}");
        let there = world.path("back");
        assert!(!there.join("b").exists() && !there.is_file(), "{lines}");
        if code == 6 {
            assert_eq!(fs::read_dir(&there).unwrap().count(), 2, "{lines}");
            fs::remove_dir_all(there).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_byte_that_a_server_keeps_otherwise_is_found_by_verify() {
    let web = WebServer::start().unwrap();
    let port = web.port(WebFace::Dav);
    let real = SocketAddr::from(([127, 0, 0, 1], port));
    let front = front(real, Spoils::Sent, |asked| {
        asked.method == "PUT" && asked.body.len() > 50_000
    })
    .await;
    let world = World::new();
    fs::create_dir(world.path("t")).unwrap();
    for (name, size) in [("a", 10), ("b", 100_000), ("c", 10)] {
        fs::write(world.path("t").join(name), vec![7; size]).unwrap();
    }
    let address = web.address(WebFace::Dav, "t");
    let address = address.replace(&port.to_string(), &front.address().port().to_string());
    let one = format!("{address}-one");
    // A server's own copy is not asked for then.
    let (from, copied) = (format!("{address}/a"), format!("{address}/d"));
    for (words, code) in [
        (["t/", &address, "--verify"], 6),
        (["t/b", &one, "--verify"], 1),
        ([&from, &copied, "--verify"], 0),
    ] {
        let output = block_in_place(|| world.cp(words).output().unwrap());
        let lines = lines_of(&output);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {lines}");
        let said = "what was read back is not what was written";
        assert_eq!(lines.contains(said), code != 0, "{lines}");
    }
    shown(
        "WebDAV",
        "one bit of what is kept is another, and `--verify` reads it back",
        End::LeftOut,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_with_a_page_that_is_no_index_is_left_out() {
    let server = Server::start(|asked| {
        let html = "content-type: text/html\r\n";
        match &*asked.target {
            "/t/" => {
                let links = ["a", "b/", "c"].map(|name| format!("<a href=\"{name}\">{name}</a>"));
                Answer::sized(200, html, format!("<html>{}</html>", links.concat()))
            }
            "/t/b/" => Answer::sized(200, html, "<html>welcome</html>"),
            "/t/a" | "/t/c" => Answer::sized(200, "", "x"),
            _ => Answer::sized(404, "", ""),
        }
    })
    .await;
    copies_all_but_one("[p]\n", &format!("{}/t/", server.url()), "no list of files");
    let from = format!("{}/t/b/", server.url());
    let world = World::new();
    let output = block_in_place(|| world.cp([&*from, "alone"]).output().unwrap());
    let lines = lines_of(&output);
    assert!(!output.status.success(), "{lines}");
    assert!(lines.contains("no list of files"), "{lines}");
    shown(
        "web",
        "one directory of many has a page that is no index",
        End::LeftOut,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_with_the_name_of_the_directory_is_left_out() {
    let server = Server::start(|asked| {
        let (path, query) = asked.target.split_once('?').unwrap_or((&asked.target, ""));
        match path {
            "/b/t" | "/b/t/a" | "/b/t/c" => Answer::sized(200, "etag: \"e\"\r\n", "x"),
            _ if query.contains("list-type") => {
                let key = |name| {
                    format!(
                        "<Contents><Key>t/{name}</Key><Size>1</Size><ETag>\"e\"</ETag></Contents>"
                    )
                };
                let keys = ["a", "c"].map(key).concat();
                Answer::sized(
                    200,
                    "",
                    format!("<ListBucketResult>{keys}</ListBucketResult>"),
                )
            }
            _ => Answer::sized(404, "", ""),
        }
    })
    .await;
    let profile = format!("[p]\nendpoint = \"{}\"\nanonymous = true\n", server.url());
    let world = World::new()
        .with_profiles(&profile)
        .with_arguments(&["--profile", "p"]);
    let output = block_in_place(|| world.cp(["s3://b/t", "back"]).output().unwrap());
    let lines = lines_of(&output);
    assert_eq!(output.status.code(), Some(6), "{lines}");
    assert!(lines.contains("s3://b/t: an object there"), "{lines}");
    for name in ["back/a", "back/c"] {
        assert_eq!(fs::read(world.path(name)).unwrap(), b"x");
    }
}
