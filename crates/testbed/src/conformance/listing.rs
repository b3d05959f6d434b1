//! Names, trees and links.

use futures_util::{StreamExt, TryStreamExt, stream};

use super::{
    ErrorKind, FileSpec, Kind, MODE, Stage, WRITES_AT_ONCE, all_of, assert_refused, join, spec,
};

/// Names every endpoint keeps as they are.
const PLAIN: [&str; 8] = ["a b", "a+b", "a%20b", "a&<>b", "é", "~", "'$(x)'", "a#b?c"];

/// Names that some protocols can't express. Those must report an error.
const STRANGE: [&[u8]; 4] = [b"new\nline", b"a\"b", b"back\\slash", b"caf\xe9"];

pub(super) async fn shows_names_as_they_are(stage: &Stage) {
    stage.through.make_directory(b"names").await.unwrap();
    let mut wanted: Vec<Vec<u8>> = PLAIN.iter().map(|name| name.as_bytes().to_vec()).collect();
    if stage.can.ascii_names {
        wanted.retain(|name| name.is_ascii());
        let refused = stage.try_put("names/é".as_bytes(), b"refused").await;
        assert_refused(refused, ErrorKind::Unsupported, "a name beyond ASCII");
    }
    let plain_count = wanted.len();
    wanted.extend((0..stage.scale.listed_files).map(|index| format!("page-{index:04}").into()));
    let writes = wanted.iter().map(|name| async move {
        let path = join(b"names", name);
        stage.try_put(&path, name).await
    });
    let writes = stream::iter(writes).buffer_unordered(WRITES_AT_ONCE);
    writes.try_collect::<Vec<()>>().await.unwrap();
    let mut odd = Vec::new();
    for name in STRANGE {
        if std::str::from_utf8(name).is_err() && !stage.can.byte_names {
            continue;
        }
        match stage.try_put(&join(b"names", name), name).await {
            Ok(()) => odd.push(name.to_vec()),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}"),
        }
    }
    let plain = wanted.iter().take(plain_count).cloned();
    for name in plain.chain(odd.iter().cloned()).collect::<Vec<_>>() {
        assert_eq!(stage.read(&join(b"names", &name)).await, name);
    }
    if !stage.can.lists {
        return;
    }
    wanted.extend(odd);
    wanted.sort();
    let mut found = stage.entries(b"names").await;
    found.sort_by(|a, b| a.name.cmp(&b.name));
    for entry in &found {
        assert_eq!(entry.kind, Kind::File);
        assert_eq!(entry.size, entry.name.len() as u64);
        if stage.can.mtimes_listed {
            stage.is_dressed(entry, MODE);
        }
    }
    let found: Vec<_> = found.into_iter().map(|entry| entry.name).collect();
    assert_eq!(found, wanted);
}

/// Paths relative to the directory, directories before their content, as a walk finds them.
pub(super) async fn a_tree_is_listed_at_once(stage: &Stage) {
    for directory in [&b"tree"[..], b"tree/a", b"tree/a/deep", b"tree/a-b"] {
        stage.through.make_directory(directory).await.unwrap();
    }
    for file in ["tree/0", "tree/a/deep/x", "tree/a/y", "tree/a-b/z"] {
        stage.put(file.as_bytes(), file.as_bytes()).await;
    }
    let Some(listing) = stage.endpoint.list_tree(b"tree").await.unwrap() else {
        return;
    };
    let entries = all_of(listing).await;
    for (place, entry) in entries.iter().enumerate() {
        if let Some(cut) = entry.name.iter().rposition(|&byte| byte == b'/') {
            let above = entries[..place].iter();
            let known = above
                .filter(|above| above.kind == Kind::Directory)
                .any(|above| above.name == entry.name[..cut]);
            assert!(known, "{:?} comes before its directory", entry.name);
        }
    }
    let mut names: Vec<_> = entries
        .iter()
        .map(|entry| (String::from_utf8_lossy(&entry.name), entry.kind))
        .collect();
    names.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(
        names,
        [
            ("0".into(), Kind::File),
            ("a".into(), Kind::Directory),
            ("a-b".into(), Kind::Directory),
            ("a-b/z".into(), Kind::File),
            ("a/deep".into(), Kind::Directory),
            ("a/deep/x".into(), Kind::File),
            ("a/y".into(), Kind::File),
        ]
    );
}

pub(super) async fn links_point_where_they_were_told(stage: &Stage) {
    let endpoint = &stage.endpoint;
    endpoint.make_directory(b"links").await.unwrap();
    let spec = FileSpec {
        mode: None,
        ..spec(0, "test:link")
    };
    if !stage.can.links {
        let made = endpoint.make_link(b"links/link", b"nowhere", &spec).await;
        assert_refused(made, ErrorKind::Unsupported, "make_link");
        return;
    }
    for target in [b"../small/file".as_slice(), b"nowhere"] {
        let making = endpoint.make_link(b"links/link", target, &spec);
        making.await.unwrap();
        assert_eq!(stage.entry(b"links/link").await.kind, Kind::Link);
        assert_eq!(endpoint.read_link(b"links/link").await.unwrap(), target);
    }
    if stage.can.lists {
        assert_eq!(
            stage.names(b"links").await,
            [(b"link".to_vec(), Kind::Link)]
        );
    }
}
