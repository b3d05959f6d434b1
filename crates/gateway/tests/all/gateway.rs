//! Streams through real gateways on real sockets.

use crate::support::streams;

use std::{net::SocketAddr, time::Duration};

use posthaste_endpoint::{
    ErrorKind,
    gateway::{Hop, Target, connect_through, mint},
    relay::read_secret_file,
};
use posthaste_gateway::{Forward, Gateway, GatewayOptions, LocalDoor, Table};
use streams::{Mirror, PATIENCE, Running, all_of, assert_mirrors, free_place, loopback};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::timeout,
};

#[tokio::test]
async fn a_stream_passes_whole_both_ways_and_half_closed() {
    let (mirror, gateway) = (Mirror::start().await, Running::start(loopback()).await);
    for size in [0, 1, 100, 5_000_000] {
        let (stream, early) = connect_through(&[gateway.hop()], &mirror.target)
            .await
            .unwrap();
        assert_mirrors(stream, early, size).await;
    }
    gateway.until("opened", 4).await;
    assert_eq!(gateway.counts().await["carried_bytes"], 2 * 5_000_101);
    assert_eq!(gateway.counts().await["broken"], 0);
}

#[tokio::test]
async fn a_client_may_say_all_it_has_with_its_greeting_and_end_its_half() {
    let (mirror, far) = (Mirror::start().await, Running::start(loopback()).await);
    let here = "127.0.0.0/8:*";
    for more in ["", "connections = 2"] {
        let near = Running::start(far.table_to(here, here, None, more)).await;
        let mut stream = TcpStream::connect(near.local).await.unwrap();
        let ask = format!(
            "CONNECT {} HTTP/1.1\r\nProxy-Authorization: Bearer {}\r\n\r\nmore",
            mirror.target,
            near.token()
        );
        stream.write_all(ask.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let said = String::from_utf8(all_of(stream).await).unwrap();
        let (head, rest) = said.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert_eq!(rest, "erom");
    }
}

#[tokio::test]
async fn chains_lead_on_by_table_and_by_name_of_each() {
    let mirror = Mirror::start().await;
    let far = Running::start(loopback()).await;
    // By table: the client names only the first.
    let table = far.table_to("127.0.0.0/8:*", &mirror.target.to_string(), None, "");
    let near = Running::start(table).await;
    let (stream, early) = connect_through(&[near.hop()], &mirror.target)
        .await
        .unwrap();
    assert_mirrors(stream, early, 100_000).await;
    far.until("opened", 1).await;
    // By name: the first leads to the second as to any target.
    let other = Running::start(loopback()).await;
    let hops = [other.hop(), near.hop(), far.hop()];
    let (stream, early) = connect_through(&hops, &mirror.target).await.unwrap();
    assert_mirrors(stream, early, 100_000).await;
    for gateway in [&other, &near, &far] {
        gateway.until("opened", 1).await;
    }
}

#[tokio::test]
async fn what_the_other_side_says_first_arrives() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target: Target = listener.local_addr().unwrap().to_string().parse().unwrap();
    let mut greeting = JoinSet::new();
    greeting.spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"SSH-2.0-here\r\n").await.unwrap();
    });
    let (one, other) = (
        Running::start(loopback()).await,
        Running::start(loopback()).await,
    );
    let hops = [one.hop(), other.hop()];
    let (stream, mut said) = connect_through(&hops, &target).await.unwrap();
    said.extend(all_of(stream).await);
    assert_eq!(said, b"SSH-2.0-here\r\n");
}

#[tokio::test]
async fn nobody_gets_in_without_a_token_nor_anywhere_that_is_not_allowed() {
    let mirror = Mirror::start().await;
    let gateway = Running::start(loopback()).await;
    let mut wrong = gateway.hop();
    wrong.secret[0] ^= 1;
    let error = connect_through(&[wrong], &mirror.target).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{error}");
    let narrow = Table::default().allowing([(&mirror.target).into()]);
    let narrow = Running::start(narrow).await;
    let other: Target = gateway.local.to_string().parse().unwrap();
    let error = connect_through(&[narrow.hop()], &other).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    // A star does not allow this machine, by whatever name.
    let star = Table::default().allowing(["*:*".parse().unwrap()]);
    let star = Running::start(star).await;
    for own in ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]"] {
        let own: Target = format!("{own}:{}", mirror.target.port).parse().unwrap();
        let error = connect_through(&[star.hop()], &own).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    }
    // A client without a token gets nowhere.
    let mut stream = TcpStream::connect(gateway.local).await.unwrap();
    let ask = format!("CONNECT {} HTTP/1.1\r\n\r\n", mirror.target);
    stream.write_all(ask.as_bytes()).await.unwrap();
    let said = String::from_utf8(all_of(stream).await).unwrap();
    assert!(said.starts_with("HTTP/1.1 407"), "{said}");
    // A token for one target opens no other.
    let token = mint(&gateway.secret, Some(&other), u64::MAX);
    let said = connect(&gateway, &mirror.target, &token, "").await;
    assert!(said.starts_with("HTTP/1.1 407"), "{said}");
    // An expired token opens nothing.
    let said = connect(
        &gateway,
        &mirror.target,
        &mint(&gateway.secret, None, 1_000),
        "",
    )
    .await;
    assert!(said.contains("407") && said.contains("expired"), "{said}");
}

#[tokio::test]
async fn who_only_connects_keeps_nobody_out() {
    let mirror = Mirror::start().await;
    let gateway = Running::with(loopback(), Vec::new(), 1).await;
    // Each would have its ten seconds, one after the other.
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(TcpStream::connect(gateway.local).await.unwrap());
    }
    let (stream, early) = connect_through(&[gateway.hop()], &mirror.target)
        .await
        .unwrap();
    assert_mirrors(stream, early, 100_000).await;
}

async fn connect(gateway: &Running, target: &Target, token: &str, more: &str) -> String {
    let mut stream = TcpStream::connect(gateway.local).await.unwrap();
    let ask =
        format!("CONNECT {target} HTTP/1.1\r\nProxy-Authorization: Bearer {token}\r\n{more}\r\n");
    stream.write_all(ask.as_bytes()).await.unwrap();
    let mut said = [0; 1024];
    let count = timeout(PATIENCE, stream.read(&mut said))
        .await
        .unwrap()
        .unwrap();
    let said = String::from_utf8_lossy(&said[..count]).into_owned();
    said.lines().next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn loops_and_endless_ways_are_refused() {
    let mirror = Mirror::start().await;
    // Two tables that lead to each other.
    let (first, _held) = free_place();
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("first");
    let table = |via: SocketAddr, secret: std::path::PathBuf| {
        let file = folder.path().join(format!("{}.toml", via.port()));
        let text = format!(
            "allow = ['127.0.0.0/8:*']\n[[route]]\nto = ['*:*', '127.0.0.0/8:*']\nvia = '{via}'\nsecret_file = '{}'\n",
            secret.display()
        );
        std::fs::write(&file, text).unwrap();
        Table::read(&file).unwrap()
    };
    // The secret of the first one, before it has a table.
    let options = |table| GatewayOptions {
        dir: dir.clone(),
        listen: first,
        forwards: Vec::new(),
        table,
        streams_max: 64,
        reserve: Vec::new(),
    };
    drop(Gateway::open(options(loopback())).await.unwrap());
    let second = Running::start(table(first, dir.join("secret"))).await;
    let to_second = table(second.local, second.folder.path().join("gateway/secret"));
    let gateway = Gateway::open(options(to_second)).await.unwrap();
    let secret = read_secret_file(gateway.secret_file()).unwrap();
    let mut serving = JoinSet::new();
    serving.spawn(gateway.run(std::future::pending()));
    let hop = Hop {
        address: first.to_string().parse().unwrap(),
        secret,
    };
    let error = connect_through(&[hop], &mirror.target).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(error.to_string().contains("loop"), "{error}");
    // A path of more gateways than allowed.
    let path = "Posthaste-Path: 1,2,3,4,5,6,7,8\r\n";
    let said = connect(&second, &mirror.target, &second.token(), path).await;
    assert!(said.starts_with("HTTP/1.1 508"), "{said}");
}

#[tokio::test]
async fn a_port_leads_to_its_one_place() {
    let mirror = Mirror::start().await;
    let forward = Forward {
        listen: "127.0.0.1:0".parse().unwrap(),
        target: mirror.target.clone(),
    };
    let gateway = Running::with(Table::default(), vec![forward], 64).await;
    let stream = TcpStream::connect(gateway.forwards[0]).await.unwrap();
    assert_mirrors(stream, Vec::new(), 100_000).await;
}

#[tokio::test]
async fn a_target_that_is_not_there_is_said_to_be() {
    let gateway = Running::start(loopback()).await;
    let (gone, _held) = free_place();
    let gone: Target = gone.to_string().parse().unwrap();
    let error = connect_through(&[gateway.hop()], &gone).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
    assert!(error.to_string().contains("refused"), "{error}");
    gateway.until("failed", 1).await;
}

#[tokio::test]
async fn when_one_side_breaks_the_other_sees_it_break() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target: Target = listener.local_addr().unwrap().to_string().parse().unwrap();
    let gateway = Running::start(loopback()).await;
    let hops = [gateway.hop()];
    let (stream, accepted) = tokio::join!(connect_through(&hops, &target), listener.accept());
    let (mut client, mut server) = (stream.unwrap().0, accepted.unwrap().0);
    server.write_all(b"half of it").await.unwrap();
    let mut some = [0; 10];
    client.read_exact(&mut some).await.unwrap();
    // Bytes unread at the close reset the connection.
    client.write_all(b"never read").await.unwrap();
    timeout(PATIENCE, server.readable()).await.unwrap().unwrap();
    drop(server);
    let ended = timeout(PATIENCE, client.read(&mut some)).await.unwrap();
    assert_eq!(
        ended.unwrap_err().kind(),
        std::io::ErrorKind::ConnectionReset
    );
    gateway.until("broken", 1).await;
}

#[tokio::test]
async fn when_the_gateway_ends_both_sides_see_a_reset() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target: Target = listener.local_addr().unwrap().to_string().parse().unwrap();
    let mut gateway = Running::start(loopback()).await;
    let hops = [gateway.hop()];
    let (stream, accepted) = tokio::join!(connect_through(&hops, &target), listener.accept());
    let (mut client, mut server) = (stream.unwrap().0, accepted.unwrap().0);
    gateway.serving.shutdown().await;
    for end in [&mut client, &mut server] {
        let read = timeout(PATIENCE, end.read(&mut [0; 1])).await.unwrap();
        let kind = read.unwrap_err().kind();
        assert_eq!(kind, std::io::ErrorKind::ConnectionReset);
    }
}

#[tokio::test]
async fn a_slow_reader_holds_its_sender_back_and_garbage_is_shown_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target: Target = listener.local_addr().unwrap().to_string().parse().unwrap();
    let gateway = Running::start(loopback()).await;
    let hops = [gateway.hop()];
    let (stream, accepted) = tokio::join!(connect_through(&hops, &target), listener.accept());
    let (client, _server) = (stream.unwrap().0, accepted.unwrap().0);
    // No reader: bytes in flight stop at what sockets and one pipe hold.
    let (mut sent, block) = (0, vec![0; 1 << 20]);
    while let Ok(writable) = timeout(Duration::from_secs(1), client.writable()).await {
        writable.unwrap();
        sent += client.try_write(&block).unwrap_or(0);
        assert!(sent < 64 << 20, "{sent}");
    }
    for garbage in [
        &b"\x16\x03\x01\x02\x00\x01\x00"[..],
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x04\x01",
        b"\x05\x01\x00",
        b"\r\n\r\n",
    ] {
        let mut stream = TcpStream::connect(gateway.local).await.unwrap();
        stream.write_all(garbage).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut said = Vec::new();
        // A reset is as good an end.
        let _ = timeout(PATIENCE, stream.read_to_end(&mut said))
            .await
            .unwrap();
        assert!(said.len() < 300, "{}", String::from_utf8_lossy(&said));
    }
    gateway.until("refused", 5).await;
    assert_eq!(gateway.counts().await["open"], 1);
}

#[tokio::test]
async fn a_local_door_leads_who_knows_its_password() {
    let (mirror, gateway) = (Mirror::start().await, Running::start(loopback()).await);
    let door = LocalDoor::open(vec![gateway.hop()]).await.unwrap();
    let (local, password) = (door.local(), door.password().to_owned());
    let mut serving = JoinSet::new();
    serving.spawn(door.run(|_| ()));
    let greet = async |password: &str| {
        let mut stream = TcpStream::connect(local).await.unwrap();
        stream.write_all(&[5, 2, 0, 2]).await.unwrap();
        let mut two = [0; 2];
        stream.read_exact(&mut two).await.unwrap();
        assert_eq!(two, [5, 2]);
        let size = u8::try_from(password.len()).unwrap();
        let shown = [&[1, 1, b'x', size], password.as_bytes()].concat();
        stream.write_all(&shown).await.unwrap();
        stream.read_exact(&mut two).await.unwrap();
        (stream, two[1])
    };
    assert_eq!(greet("wrong").await.1, 1);
    let (mut stream, code) = greet(&password).await;
    assert_eq!(code, 0);
    let port = mirror.target.port.to_be_bytes();
    stream
        .write_all(&[5, 1, 0, 1, 127, 0, 0, 1, port[0], port[1]])
        .await
        .unwrap();
    let mut reply = [0; 10];
    stream.read_exact(&mut reply).await.unwrap();
    assert_eq!(reply[..2], [5, 0]);
    assert_mirrors(stream, Vec::new(), 1_000_000).await;
}
