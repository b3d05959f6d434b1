//! Relay in this process, reached over real TLS sockets.

use std::{
    fs,
    net::SocketAddr,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::Bytes;
use posthaste_endpoint::{
    ErrorKind,
    relay::{Credential, DatasetId, Fingerprint, RelayAddress, RelayClient, Scope, mint, wire},
};
use posthaste_relay::{Relay, RelayOptions};
use posthaste_testbed::make_empty_files;
use posthaste_types::{ByteRate, Bytes as Amount, ChunkIndex, FragmentIndex};
use tokio::{
    net::TcpStream,
    task::JoinSet,
    time::{Instant, timeout},
};

use crate::support::raw::send_raw;
use crate::support::running::{Running, digest, in_seconds, later, noise};

const F0: FragmentIndex = FragmentIndex::new(0);

/// Time limit of everything that comes about by itself, on any machine.
const PATIENCE: Duration = Duration::from_secs(120);

async fn put(
    client: &RelayClient,
    id: &DatasetId,
    chunk: u32,
    bytes: &Bytes,
) -> Result<(), ErrorKind> {
    let stored = client
        .put_fragment(
            id,
            ChunkIndex::new(chunk),
            F0,
            bytes.clone(),
            digest(bytes),
            later(),
        )
        .await;
    stored.map_err(|error| error.kind())
}

/// Returns every file below `dir`.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for item in fs::read_dir(dir).unwrap() {
        let path = item.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path))
        } else {
            found.push(path)
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_stored_comes_back_and_survives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (id, sizes) = (DatasetId::random().unwrap(), [0, 1, 65_537, 3 << 20]);
    for round in 0..2 {
        let relay = Running::start(dir.path(), |options| options.flush = true).await;
        let client = relay.client();
        for (chunk, size) in sizes.into_iter().enumerate() {
            let (chunk, bytes) = (
                u32::try_from(chunk).unwrap() * 5000,
                noise(size as u64, size),
            );
            if round == 0 {
                put(&client, &id, chunk, &bytes).await.unwrap();
            }
            let index = ChunkIndex::new(chunk);
            let read = client
                .get_fragment(&id, index, F0, digest(&bytes))
                .await
                .unwrap();
            assert_eq!(read, bytes);
        }
        let manifest = noise(9, 1000);
        client
            .put_manifest(&id, manifest.clone(), digest(&manifest), later())
            .await
            .unwrap();
        assert_eq!(client.get_manifest(&id, None).await.unwrap(), manifest);
        let held = client.inventory(&id).await.unwrap();
        let chunks: Vec<u32> = held.iter().map(|(chunk, _, _)| chunk.get()).collect();
        assert_eq!(chunks, [0, 5000, 10_000, 15_000]);
        let status = client.status().await.unwrap();
        assert_eq!(status.used.get(), sizes.iter().sum::<usize>() as u64 + 1000);
        assert_eq!(status.free + status.used, status.capacity);
        relay.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fragment_that_was_damaged_in_place_is_not_proven_and_may_be_stored_again() {
    let dir = tempfile::tempdir().unwrap();
    let relay = Running::start(dir.path(), |_| ()).await;
    let (client, id) = (relay.client(), DatasetId::random().unwrap());
    let bytes = noise(1, 1 << 20);
    for chunk in 0..3 {
        put(&client, &id, chunk, &bytes).await.unwrap();
    }
    let chunks = |held: Vec<wire::Held>| {
        let chunks = held.into_iter().map(|(chunk, ..)| chunk.get());
        chunks.collect::<Vec<u32>>()
    };
    assert_eq!(chunks(client.proven(&id).await.unwrap()), [0, 1, 2]);
    let path = files(&dir.path().join("datasets"))
        .into_iter()
        .find(|path| {
            path.file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .starts_with("1.0.")
        });
    let path = path.unwrap();
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(b"damaged", 1000).unwrap();
    file.set_modified(modified).unwrap();
    drop(file);
    assert_eq!(chunks(client.inventory(&id).await.unwrap()), [0, 1, 2]);
    assert_eq!(chunks(client.proven(&id).await.unwrap()), [0, 2]);
    assert_eq!(chunks(client.inventory(&id).await.unwrap()), [0, 2]);
    put(&client, &id, 1, &bytes).await.unwrap();
    assert_eq!(chunks(client.proven(&id).await.unwrap()), [0, 1, 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn storing_again_changes_nothing_and_storing_something_else_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let relay = Running::start(dir.path(), |_| ()).await;
    let (client, id) = (relay.client(), DatasetId::random().unwrap());
    let bytes = noise(1, 1 << 20);
    put(&client, &id, 0, &bytes).await.unwrap();
    put(&client, &id, 0, &bytes).await.unwrap();
    assert_eq!(
        put(&client, &id, 0, &noise(2, 1 << 20)).await,
        Err(ErrorKind::Conflict)
    );
    assert_eq!(client.status().await.unwrap().used, Amount::mebi(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_bytes_are_not_kept() {
    let dir = tempfile::tempdir().unwrap();
    let relay = Running::start(dir.path(), |_| ()).await;
    let (client, id) = (relay.client(), DatasetId::random().unwrap());
    let wrong = digest(b"something else");
    let stored = client
        .put_fragment(
            &id,
            ChunkIndex::new(0),
            F0,
            noise(1, 5 << 20),
            wrong,
            later(),
        )
        .await;
    assert_eq!(stored.unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(client.status().await.unwrap().used, Amount::ZERO);
    assert_eq!(client.inventory(&id).await.unwrap(), []);
    assert!(files(&dir.path().join("incoming")).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fragment_damaged_on_disk_is_noticed_by_who_reads_it() {
    let dir = tempfile::tempdir().unwrap();
    let relay = Running::start(dir.path(), |_| ()).await;
    let (client, id) = (relay.client(), DatasetId::random().unwrap());
    let bytes = noise(1, 100_000);
    put(&client, &id, 0, &bytes).await.unwrap();
    let file = files(&dir.path().join("datasets"))
        .into_iter()
        .find(|file| fs::metadata(file).unwrap().len() == 100_000)
        .unwrap();
    for damage in [&b"x"[..], &bytes[..50_000]] {
        fs::write(&file, damage).unwrap();
        let read = client
            .get_fragment(&id, ChunkIndex::new(0), F0, digest(&bytes))
            .await;
        assert_eq!(read.unwrap_err().kind(), ErrorKind::Corrupt);
    }
    fs::remove_file(&file).unwrap();
    let read = client
        .get_fragment(&id, ChunkIndex::new(0), F0, digest(&bytes))
        .await;
    assert_eq!(read.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test(flavor = "multi_thread")]
async fn capacity_holds_to_the_byte_even_for_uploads_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let relay = Running::start(dir.path(), |options| options.capacity = Amount::mebi(4)).await;
    let (client, id) = (relay.client(), DatasetId::random().unwrap());
    let mut uploads = JoinSet::new();
    for chunk in 0..12 {
        let client = client.clone();
        uploads.spawn(async move { put(&client, &id, chunk, &noise(0, 1 << 20)).await });
    }
    let results = uploads.join_all().await;
    assert!(
        results
            .iter()
            .all(|result| matches!(result, Ok(()) | Err(ErrorKind::Full)))
    );
    // Space set aside for uploads that end may have caused refusals; all of it is free again.
    for chunk in 20..24 {
        let _ = put(&client, &id, chunk, &noise(0, 1 << 20)).await;
    }
    let status = client.status().await.unwrap();
    assert_eq!((status.used, status.free), (Amount::mebi(4), Amount::ZERO));
    let error = client
        .put_fragment(
            &id,
            ChunkIndex::new(99),
            F0,
            noise(0, 1),
            digest(&noise(0, 1)),
            later(),
        )
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("0 of 4194304 bytes are free"),
        "{error}"
    );
    client.delete_dataset(&id).await.unwrap();
    client.delete_dataset(&id).await.unwrap();
    assert_eq!(client.status().await.unwrap().used, Amount::ZERO);
    assert!(files(&dir.path().join("datasets")).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn datasets_are_forgotten_when_the_latest_expiry_has_passed() {
    let dir = tempfile::tempdir().unwrap();
    let relay = Running::start(dir.path(), |_| ()).await;
    let client = relay.client();
    let (short, long) = (DatasetId::random().unwrap(), DatasetId::random().unwrap());
    let bytes = noise(1, 1000);
    let store = async |id, chunk, expires| {
        let chunk = ChunkIndex::new(chunk);
        client
            .put_fragment(id, chunk, F0, bytes.clone(), digest(&bytes), expires)
            .await
    };
    // For a second or two; again where so much had passed before it was stored.
    let store_briefly = async |id| loop {
        match store(id, 0, in_seconds(2)).await {
            Err(error) if error.kind() == ErrorKind::Invalid => {}
            stored => break stored.unwrap(),
        }
    };
    store(&long, 1, later()).await.unwrap();
    store_briefly(&long).await;
    store_briefly(&short).await;
    assert_eq!(
        store(&long, 2, in_seconds(-1)).await.unwrap_err().kind(),
        ErrorKind::Invalid
    );
    let gone = async {
        while !client.inventory(&short).await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    timeout(PATIENCE, gone).await.expect("still there");
    assert_eq!(client.inventory(&long).await.unwrap().len(), 2);
    assert_eq!(client.status().await.unwrap().used.get(), 2000);
    store_briefly(&short).await;
    relay.stop().await;
    tokio::time::sleep(Duration::from_millis(3200)).await;
    let relay = Running::start(dir.path(), |_| ()).await;
    assert_eq!(
        relay.client().status().await.unwrap().used.get(),
        2000,
        "removed at the start"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_pinned_key_is_spoken_to() {
    let dir = tempfile::tempdir().unwrap();
    let mut relay = Running::start(dir.path(), |_| ()).await;
    relay.address.fingerprint = Fingerprint::new([1; 32]);
    let error = relay.client().status().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated);
    assert!(!error.is_temporary());
    assert!(error.to_string().contains("sha256:"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_only_connects_takes_nobodys_place() {
    let dir = tempfile::tempdir().unwrap();
    let relay = Running::start(dir.path(), |_| ()).await;
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(TcpStream::connect(relay.local).await.unwrap());
    }
    let status = relay.client().status().await.unwrap();
    assert_eq!(status.connections, 1, "that of who asks");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_good_tokens_open() {
    let dir = tempfile::tempdir().unwrap();
    let relay = Running::start(dir.path(), |_| ()).await;
    let (mine, other) = (DatasetId::random().unwrap(), DatasetId::random().unwrap());
    let bytes = noise(1, 4 << 20);
    put(&relay.client(), &mine, 0, &bytes).await.unwrap();
    let with = |token: String| relay.client_with(Credential::Token(token));
    let reader = with(mint(&relay.secret, Scope::Read, Some(&mine), later()));
    let read = |client: RelayClient, id| {
        let digest = digest(&bytes);
        async move {
            client
                .get_fragment(&id, ChunkIndex::new(0), F0, digest)
                .await
        }
    };
    assert_eq!(read(reader.clone(), mine).await.unwrap(), bytes);
    assert_eq!(
        read(reader.clone(), other).await.unwrap_err().kind(),
        ErrorKind::PermissionDenied
    );
    assert_eq!(
        put(&reader, &mine, 1, &bytes).await,
        Err(ErrorKind::PermissionDenied)
    );
    let deleted = reader.delete_dataset(&mine).await;
    assert_eq!(deleted.unwrap_err().kind(), ErrorKind::PermissionDenied);
    for token in [
        mint(&relay.secret, Scope::All, None, in_seconds(-5)),
        mint(&[0; 32], Scope::All, None, later()),
        "ph1".into(),
        String::new(),
    ] {
        let client = with(token);
        assert_eq!(
            put(&client, &mine, 2, &bytes).await,
            Err(ErrorKind::Unauthenticated)
        );
        assert_eq!(
            client.status().await.unwrap_err().kind(),
            ErrorKind::Unauthenticated
        );
    }
    assert_eq!(relay.client().inventory(&mine).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_of_all_clients_share_the_rate() {
    let dir = tempfile::tempdir().unwrap();
    let rate = ByteRate::new(4 << 20);
    let relay = Running::start(dir.path(), |options| options.rate = Some(rate)).await;
    let (client, id) = (relay.client(), DatasetId::random().unwrap());
    assert_eq!(client.status().await.unwrap().rate_limit, Some(rate));
    let start = Instant::now();
    let mut uploads = JoinSet::new();
    for chunk in 0..4 {
        let client = client.clone();
        uploads.spawn(async move { put(&client, &id, chunk, &noise(0, 2 << 20)).await });
    }
    uploads
        .join_all()
        .await
        .into_iter()
        .for_each(|result| result.unwrap());
    let took = start.elapsed();
    // The rest of the time is up to the machine.
    assert!(took.as_secs_f64() > 1.8, "8 MiB at 4 MiB/s took {took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inventory_of_many_pages_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let id = DatasetId::random().unwrap();
    let count = wire::INVENTORY_PAGE_MAX + 10;
    let dataset = dir.path().join("datasets").join(id.to_string());
    fs::create_dir_all(&dataset).unwrap();
    fs::write(dataset.join("expires"), "99999999999").unwrap();
    let empty = digest(b"");
    for group in 0..count.div_ceil(4096) {
        let folder = dataset.join(group.to_string());
        fs::create_dir(&folder).unwrap();
        let chunks = group * 4096..count.min((group + 1) * 4096);
        make_empty_files(&folder, chunks.map(|chunk| format!("{chunk}.3.{empty}"))).unwrap();
    }
    let relay = Running::start(dir.path(), |_| ()).await;
    let held = relay.client().inventory(&id).await.unwrap();
    assert_eq!(held.len(), count);
    assert!(held.is_sorted() && held.iter().all(|held| held.2 == empty));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_says_its_hours_and_takes_what_comes_at_any_other() {
    let dir = tempfile::tempdir().unwrap();
    let relay = Running::start(dir.path(), |_| ()).await;
    assert_eq!(relay.client().status().await.unwrap().hours, None);
    relay.stop().await;
    for hours in ["00-12", "12-24"] {
        let relay = Running::start(dir.path(), |options| options.hours = Some(hours.into())).await;
        let (client, id) = (relay.client(), DatasetId::random().unwrap());
        let said = client.status().await.unwrap().hours.unwrap();
        assert_eq!(said.open, hours);
        assert!(said.ahead_of_utc_min.abs() <= 14 * 60);
        put(&client, &id, 0, &noise(1, 1000)).await.unwrap();
        relay.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_relays_never_share_a_port_or_a_directory() {
    let (dir, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let relay = Running::start(dir.path(), |_| ()).await;
    let open = async |dir: &Path, listen: SocketAddr| {
        let (dir, capacity) = (dir.to_owned(), Amount::mebi(1));
        let name = "second".into();
        let options = RelayOptions {
            dir,
            listen,
            bucket: None,
            capacity,
            rate: None,
            name,
            flush: false,
            join: None,
            advertise: None,
            hours: None,
            load_from: "/proc/loadavg".into(),
        };
        Relay::open(options)
            .await
            .err()
            .expect("opened twice")
            .kind()
    };
    assert_eq!(open(other.path(), relay.local).await, ErrorKind::Conflict);
    assert_eq!(
        open(dir.path(), "127.0.0.1:0".parse().unwrap()).await,
        ErrorKind::Conflict
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_and_truncated_requests_leave_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let relay = Running::start(dir.path(), |_| ()).await;
    let id = DatasetId::random().unwrap();
    let token = mint(&relay.secret, Scope::Write, Some(&id), later());
    let head = |length: &str, digest: &str| {
        format!(
            "PUT /v1/datasets/{id}/fragments/0/0 HTTP/1.1\r\nhost: x\r\n\
             authorization: Bearer {token}\r\n{length}posthaste-digest: {digest}\r\n\
             posthaste-expires: {}\r\n\r\n",
            later().as_micros() / 1_000_000
        )
    };
    let good = digest(b"12345").to_string();
    for seed in 0..20 {
        send_raw(
            &relay,
            &noise(seed, 1 + usize::try_from(seed).unwrap() * 97),
            seed % 2 == 0,
        )
        .await;
    }
    for (request, status) in [
        ("GET / HTTP/1.1\r\nhost: x\r\n\r\n".into(), "404"),
        ("BREW /v1/status HTTP/1.1\r\nhost: x\r\n\r\n".into(), "405"),
        ("GET /v1/status HTTP/1.1\r\nhost: x\r\n\r\n".into(), "401"),
        (
            format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(1 << 20)),
            "4",
        ),
        (head("", &good), "400"),
        (head("content-length: 99999999999\r\n", &good), "400"),
        (head("content-length: -1\r\n", &good), "400"),
        (
            head("content-length: 5\r\ncontent-length: 6\r\n", &good),
            "400",
        ),
        (head("content-length: 5\r\n", "zz"), "400"),
        (head("content-length: 5\r\n", &good) + "12346", "422"),
        (head("content-length: 5\r\n", &good) + "123", "400"),
        (
            head("transfer-encoding: chunked\r\n", &good) + "5\r\n12345\r\n0\r\n\r\n",
            "400",
        ),
    ] {
        let answer = send_raw(&relay, request.as_bytes(), true).await;
        let answer = String::from_utf8_lossy(&answer);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{request:.80} {answer}"
        );
    }
    let status = relay.client().status().await.unwrap();
    assert_eq!((status.used, status.free), (Amount::ZERO, status.capacity));
    assert!(files(&dir.path().join("incoming")).is_empty());
    assert_eq!(relay.client().inventory(&id).await.unwrap(), []);
    let whole = head("content-length: 5\r\n", &good) + "12345";
    assert!(
        send_raw(&relay, whole.as_bytes(), true)
            .await
            .starts_with(b"HTTP/1.1 201")
    );
    assert_eq!(relay.client().inventory(&id).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_gives_way_to_others_is_stored_all_the_same_and_counted_with_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let relay = Running::start(dir.path(), |_| ()).await;
    let (client, id) = (relay.client(), DatasetId::random().unwrap());
    let (humble, bytes) = (client.humble(), noise(1, 4 << 20));
    let storing = timeout(PATIENCE, put(&humble, &id, 0, &bytes));
    storing.await.expect("it waited").unwrap();
    assert!(client.sent() > Amount::new(4 << 20));
    put(&client, &id, 1, &bytes).await.unwrap();
    assert_eq!(humble.inventory(&id).await.unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_survives_a_relay_that_restarts_and_tells_one_that_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let relay = Running::start(dir.path(), |_| ()).await;
    let (client, local) = (relay.client(), relay.local);
    client.status().await.unwrap();
    relay.stop().await;
    let error = client.status().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    assert!(error.is_temporary());
    let _relay = Running::start(dir.path(), |options| options.listen = local).await;
    client.status().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_falls_silent_is_given_up() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", silent.local_addr().unwrap());
    let address = RelayAddress {
        url,
        fingerprint: Fingerprint::new([0; 32]),
    };
    let client = RelayClient::new(address, Credential::Secret([0; 32])).unwrap();
    let error = timeout(PATIENCE, client.status())
        .await
        .expect("waited too long");
    assert_eq!(error.unwrap_err().kind(), ErrorKind::TimedOut);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_busy_with_fragments_still_tells_how_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let rate = ByteRate::new(1 << 20);
    let relay = Running::start(dir.path(), |options| options.rate = Some(rate)).await;
    let (client, id) = (relay.client(), DatasetId::random().unwrap());
    let mut uploads = JoinSet::new();
    for chunk in 0..20 {
        let client = client.clone();
        uploads.spawn(async move { put(&client, &id, chunk, &noise(0, 4 << 20)).await });
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    // All fragments together take 80 seconds.
    let status = timeout(Duration::from_secs(20), client.status())
        .await
        .expect("it waited");
    assert_eq!(status.unwrap().used, Amount::ZERO);
}
