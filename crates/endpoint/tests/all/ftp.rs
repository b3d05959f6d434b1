//! FTP endpoints against ProFTPD: the common suite, and features only of FTP.

use std::fs;

use bytes::Bytes;
use posthaste_endpoint::{Checksum, Endpoint, Entry, ErrorKind, FileSpec, FileTime, Kind};
use posthaste_testbed::{
    FtpFace, FtpServer,
    conformance::{Scale, open, passes_as_one_file, passes_at_scale, passes_the_suite},
};

/// Sizes for three segments, and for a listing of several pages.
const SOME: Scale = Scale {
    listed_files: 600,
    large_bytes: (40 << 20) + 12_345,
};

#[tokio::test(flavor = "multi_thread")]
async fn ftp_passes_the_suite() {
    let server = FtpServer::start(FtpFace::Plain).unwrap();
    let open = async |below: &str| {
        let address = server.address_below(below);
        open(&address, &server.profile()).await.unwrap()
    };
    passes_the_suite(open("below/root").await).await;
    passes_as_one_file(open("single/file").await).await;
    let commands = server.commands();
    assert!(commands.contains("RANG 350"), "no range was read as one");
}

#[tokio::test(flavor = "multi_thread")]
async fn few_sessions_and_no_ranges_are_enough() {
    let server = FtpServer::start(FtpFace::Few).unwrap();
    let address = server.address_below("root");
    let endpoint = open(&address, &server.profile()).await.unwrap();
    passes_at_scale(endpoint, SOME).await;
    let commands = server.commands();
    let refused = |line: &&str| line.starts_with("RANG 5");
    assert_eq!(commands.lines().filter(refused).count(), 1, "asked again");
    assert!(
        commands.contains("REST 350"),
        "no transfer began inside a file"
    );
    assert!(
        commands.contains("PASS 530"),
        "it never wanted a session more"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn both_kinds_of_tls_pass_the_suite() {
    for face in [FtpFace::Explicit, FtpFace::Implicit] {
        let server = FtpServer::start(face).unwrap();
        let address = server.address_below("root");
        let endpoint = open(&address, &server.profile()).await.unwrap();
        passes_at_scale(endpoint, Scale::SHORT_LISTINGS).await;
        let commands = server.commands();
        assert!(commands.contains("PROT 200"), "data went in the clear");

        // Only the authority that the profile names vouches for the server.
        let stranger = server.profile().replace("ca_file", "# ca_file");
        let error = open(&address, &stranger).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{error}");
        assert!(error.to_string().contains("ca_file"), "{error}");
        assert!(!error.is_temporary());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_never_left_out() {
    let plain = FtpServer::start(FtpFace::Plain).unwrap();
    let address = plain.address_below("root").replace("ftp://", "ftps://");
    let error = open(&address, &plain.profile()).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(
        !plain.commands().contains("USER"),
        "it went on in the clear"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_refused_is_told_why() {
    let server = FtpServer::start(FtpFace::Plain).unwrap();
    let address = server.address_below("x");
    let secret = "hush-hush";
    let wrong = server.profile().replace(FtpServer::PASSWORD, secret);
    let error = open(&address, &wrong).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{error}");
    let shown = format!("{error} {error:?}");
    assert!(
        shown.contains("Login incorrect") && !shown.contains(secret),
        "{shown}"
    );
    assert!(shown.contains("~/.netrc"), "{shown}");

    // A line break would be another command.
    let injected = server
        .profile()
        .replace(FtpServer::PASSWORD, "a\\r\\nDELE x");
    let error = open(&address, &injected).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(!server.commands().contains("DELE"));

    let old = FtpServer::start(FtpFace::Old).unwrap();
    let error = open(&old.address_below("x"), &old.profile()).await;
    let error = error.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("MLSD"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_login_directory_has_a_name() {
    let server = FtpServer::start(FtpFace::Plain).unwrap();
    fs::create_dir_all(server.files().join("deep/er")).unwrap();
    fs::write(server.files().join("deep/er/file"), "x").unwrap();
    std::os::unix::fs::symlink("er/file", server.files().join("deep/link")).unwrap();
    let endpoint = open(&server.address("/~/deep"), &server.profile()).await;
    let endpoint = endpoint.unwrap();
    assert!(
        endpoint.show(b"er").ends_with("/~/deep/er"),
        "{}",
        endpoint.show(b"er")
    );
    let found = endpoint.stat(b"er/file", false).await.unwrap().unwrap();
    assert_eq!((found.kind, found.size), (Kind::File, 1));
    let page = endpoint.list(b"", false).await.unwrap().next_page().await;
    let link = |entry: &&Entry| entry.name == b"link";
    assert_eq!(page.unwrap().iter().find(link).unwrap().kind, Kind::Link);
    let page = endpoint.list(b"", true).await.unwrap().next_page().await;
    assert_eq!(page.unwrap().iter().find(link).unwrap().kind, Kind::File);

    let home = open(&server.address("/~"), &server.profile())
        .await
        .unwrap();
    assert_eq!(
        home.stat(b"", true).await.unwrap().unwrap().kind,
        Kind::Directory
    );
    let missing = home.stat(b"none", true).await.unwrap();
    assert_eq!(missing, None);
    seals_a_directory(&*home).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_transfer_tells_why_and_others_go_on() {
    let server = FtpServer::start(FtpFace::Plain).unwrap();
    let address = server.address_below("");
    let endpoint = open(&address, &server.profile()).await.unwrap();
    let data = vec![Bytes::from_static(b"content")];
    let sum = Checksum::of(b"content");
    let spec = FileSpec {
        size: 7,
        mtime: None,
        mode: Some(0o640),
        origin: "here".into(),
        version: None,
    };
    // From the second transfer on the command is sent before the server reports its port.
    for name in ["first", "second", "none/third", "fourth"] {
        let put = endpoint.put(name.as_bytes(), &spec, data.clone(), sum);
        let outcome = put.await;
        if name.starts_with("none") {
            let error = outcome.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
            let missing = Entry::bare(name.as_bytes().to_vec(), Kind::File);
            let sized = Entry { size: 7, ..missing };
            let error = endpoint.get(name.as_bytes(), &sized).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        } else {
            outcome.unwrap();
            let entry = endpoint.stat(name.as_bytes(), false).await.unwrap();
            let entry = entry.unwrap();
            assert_eq!((entry.size, entry.mode), (7, Some(0o640)));
            let found = endpoint.get(name.as_bytes(), &entry).await.unwrap();
            assert_eq!(found.data.concat(), b"content");
        }
    }
    let commands = server.commands();
    assert_eq!(
        commands.matches("USER 331").count(),
        1,
        "a session was lost"
    );
}

async fn seals_a_directory(endpoint: &dyn Endpoint) {
    let mtime = FileTime {
        secs: 1_500_000_000,
        nanos: 0,
    };
    let wanted = Entry {
        mtime: Some(mtime),
        mode: Some(0o751),
        ..Entry::bare(Vec::new(), Kind::Directory)
    };
    endpoint.make_directory(b"new").await.unwrap();
    endpoint
        .seal_directory(b"new", &wanted, true)
        .await
        .unwrap();
    let found = endpoint.stat(b"new", false).await.unwrap();
    assert_eq!(found, Some(wanted));
}
