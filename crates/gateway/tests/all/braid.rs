//! Streams that several connections carry between real gateways on real sockets.

use crate::support::streams;

use std::{
    io::ErrorKind,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use posthaste_endpoint::gateway::{
    BraidId, Opened, Passage, Target, ask, connect_through, join, mint_for_joining,
};
use socket2::SockRef;
use streams::{Mirror, PATIENCE, Running, all_of, assert_mirrors, loopback, noise};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
    sync::oneshot,
    task::JoinSet,
    time::timeout,
};

/// Targets on this machine, in the form of rules.
const HERE: &str = "127.0.0.0/8:*";

/// Two gateways: the first reaches all targets over the second, with so many connections.
struct Chain {
    near: Running,
    far: Running,
}

impl Chain {
    async fn start(more: &str) -> Self {
        let far = Running::start(loopback()).await;
        let near = Running::start(far.table_to(HERE, HERE, None, more)).await;
        Self { near, far }
    }

    /// Returns a stream whose further connections have joined, and its other end.
    async fn open(&self, joined: u64) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target: Target = listener.local_addr().unwrap().to_string().parse().unwrap();
        let hops = [self.near.hop()];
        let (opened, accepted) = tokio::join!(connect_through(&hops, &target), listener.accept());
        let (stream, early) = opened.unwrap();
        assert!(early.is_empty());
        self.far.until("joined", joined).await;
        (stream, accepted.unwrap().0)
    }
}

async fn assert_reset(end: &mut TcpStream) {
    let mut room = vec![0; 1 << 16];
    loop {
        match timeout(PATIENCE, end.read(&mut room)).await.unwrap() {
            Ok(count) => assert_ne!(count, 0, "it ended as if it were whole"),
            Err(cause) => {
                assert_eq!(cause.kind(), ErrorKind::ConnectionReset);
                return;
            }
        }
    }
}

/// Proxy that carries connections to a place, and breaks one on demand.
struct Wire {
    local: SocketAddr,
    cuts: Arc<Mutex<Vec<oneshot::Sender<bool>>>>,
    _serving: JoinSet<()>,
}

impl Wire {
    async fn to(place: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let local = listener.local_addr().unwrap();
        let cuts = Arc::<Mutex<Vec<_>>>::default();
        let kept = Arc::clone(&cuts);
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut carrying = JoinSet::new();
            while let Ok((mut here, _)) = listener.accept().await {
                let mut there = TcpStream::connect(place).await.unwrap();
                let (cut, told) = oneshot::channel::<bool>();
                kept.lock().unwrap().push(cut);
                carrying.spawn(async move {
                    tokio::select! {
                        _ = copy_bidirectional(&mut here, &mut there) => {}
                        Ok(reset) = told => {
                            let linger = reset.then_some(Duration::ZERO);
                            for end in [&here, &there] {
                                SockRef::from(end).set_linger(linger).unwrap();
                            }
                        }
                    }
                });
            }
        });
        Self {
            local,
            cuts,
            _serving: serving,
        }
    }

    /// Ends the connection of this number, by a reset or like an ordinary end.
    fn cut(&self, number: usize, reset: bool) {
        let cut = self.cuts.lock().unwrap().remove(number);
        cut.send(reset).unwrap();
    }
}

#[tokio::test]
async fn a_stream_over_several_connections_passes_whole_both_ways_and_half_closed() {
    let mirror = Mirror::start().await;
    let chain = Chain::start("connections = 4").await;
    for (turn, size) in [0, 1, 100, 40_000_000].into_iter().enumerate() {
        let (stream, early) = connect_through(&[chain.near.hop()], &mirror.target)
            .await
            .unwrap();
        if turn == 3 {
            chain.far.until("joined", 3).await;
        }
        assert_mirrors(stream, early, size).await;
    }
    for gateway in [&chain.near, &chain.far] {
        gateway.until("braids", 4).await;
        let counts = gateway.counts().await;
        assert_eq!(counts["carried_bytes"], 2 * 40_000_101, "{counts}");
        assert_eq!(counts["broken"], 0, "{counts}");
    }
}

#[tokio::test]
async fn the_side_that_answers_may_end_first_and_both_may_talk_at_once() {
    let chain = Chain::start("connections = 8").await;
    let (mut client, mut server) = chain.open(7).await;
    let (there, back) = (noise(3_000_000), noise(5_000_000));
    server.write_all(&back).await.unwrap();
    server.shutdown().await.unwrap();
    let mut came = Vec::new();
    client.read_to_end(&mut came).await.unwrap();
    assert!(came == back);
    client.write_all(&there).await.unwrap();
    client.shutdown().await.unwrap();
    assert!(all_of(server).await == there);

    let (client, server) = chain.open(14).await;
    let talk = async |stream: TcpStream, says: &[u8]| {
        let (mut read, mut write) = stream.into_split();
        let mut heard = Vec::new();
        let say = async {
            write.write_all(says).await.unwrap();
            write.shutdown().await.unwrap();
        };
        let (_, heard_all) = tokio::join!(say, read.read_to_end(&mut heard));
        heard_all.unwrap();
        heard
    };
    let (at_client, at_server) = tokio::join!(talk(client, &there), talk(server, &back));
    assert!(at_client == back && at_server == there);
}

#[tokio::test]
async fn a_gateway_between_two_segments_of_several_connections_passes_it_on() {
    let mirror = Mirror::start().await;
    let Chain { near: middle, far } = Chain::start("connections = 3").await;
    let near = Running::start(middle.table_to(HERE, HERE, None, "connections = 5")).await;
    let (stream, early) = connect_through(&[near.hop()], &mirror.target)
        .await
        .unwrap();
    far.until("joined", 2).await;
    middle.until("joined", 4).await;
    assert_mirrors(stream, early, 10_000_000).await;
    middle.until("braids", 2).await;
    assert_eq!(middle.counts().await["carried_bytes"], 20_000_000);
}

#[tokio::test]
async fn when_one_connection_breaks_or_ends_early_both_ends_see_a_reset() {
    for reset in [true, false] {
        for number in [0, 2] {
            let far = Running::start(loopback()).await;
            let wire = Wire::to(far.local).await;
            let table = far.table_to(HERE, HERE, Some(wire.local), "connections = 3");
            let near = Running::start(table).await;
            let chain = Chain { near, far };
            let (mut client, mut server) = chain.open(2).await;
            let mut some = [0; 4];
            client.write_all(b"ping").await.unwrap();
            server.read_exact(&mut some).await.unwrap();
            server.write_all(b"pong").await.unwrap();
            client.read_exact(&mut some).await.unwrap();
            wire.cut(number, reset);
            assert_reset(&mut client).await;
            assert_reset(&mut server).await;
            chain.near.until("broken", 1).await;
            chain.far.until("broken", 1).await;
        }
    }
}

#[tokio::test]
async fn when_a_side_breaks_or_a_gateway_ends_the_other_sees_a_reset() {
    let mut chain = Chain::start("connections = 4").await;
    let (mut client, mut server) = chain.open(3).await;
    client.write_all(b"never read").await.unwrap();
    // Bytes unread at the close would reset the connection.
    server.read_exact(&mut [0; 5]).await.unwrap();
    drop(server);
    assert_reset(&mut client).await;

    let (client, mut server) = chain.open(6).await;
    SockRef::from(&client)
        .set_linger(Some(Duration::ZERO))
        .unwrap();
    drop(client);
    assert_reset(&mut server).await;

    let (mut client, mut server) = chain.open(9).await;
    chain.far.serving.shutdown().await;
    assert_reset(&mut client).await;
    assert_reset(&mut server).await;
}

#[tokio::test]
async fn a_slow_reader_holds_its_sender_back_and_gets_all_in_the_end() {
    let chain = Chain::start("connections = 4\nbuffer = '64KiB'").await;
    let (mut client, mut server) = chain.open(3).await;
    let block = noise(1 << 20);
    let mut sent = Vec::new();
    // No reader: bytes in flight stop at what sockets hold, far below the window for ordering.
    while let Ok(writable) = timeout(Duration::from_secs(1), client.writable()).await {
        writable.unwrap();
        let count = client.try_write(&block).unwrap_or(0);
        sent.extend_from_slice(&block[..count]);
        assert!(sent.len() < 64 << 20, "{}", sent.len());
    }
    drop(block);
    let mut came = Vec::new();
    let read = async { server.read_to_end(&mut came).await.unwrap() };
    client.shutdown().await.unwrap();
    timeout(PATIENCE, read).await.unwrap();
    assert!(came == sent, "{} of {} came", came.len(), sent.len());
}

/// Answers a CONNECT like a gateway that knows no braids, and mirrors.
async fn old_gateway() -> (SocketAddr, JoinSet<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let local = listener.local_addr().unwrap();
    let mut serving = JoinSet::new();
    serving.spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_buf(&mut head).await.unwrap();
        }
        let head = String::from_utf8(head).unwrap();
        assert!(head.contains("Posthaste-Connections: 4\r\n"), "{head}");
        stream
            .write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")
            .await
            .unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await.unwrap();
        bytes.reverse();
        stream.write_all(&bytes).await.unwrap();
    });
    (local, serving)
}

#[tokio::test]
async fn to_a_gateway_that_does_not_know_it_one_connection_leads() {
    let far = Running::start(loopback()).await;
    let (old, _serving) = old_gateway().await;
    let table = far.table_to(HERE, HERE, Some(old), "connections = 4");
    let near = Running::start(table).await;
    let target = "127.0.0.1:9".parse().unwrap();
    let (stream, early) = connect_through(&[near.hop()], &target).await.unwrap();
    assert_mirrors(stream, early, 1_000_000).await;
    assert_eq!(near.counts().await["braids"], 0);
}

#[tokio::test]
async fn beyond_the_budget_one_connection_carries_a_stream() {
    let chain = Chain::start("connections = 2").await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target: Target = listener.local_addr().unwrap().to_string().parse().unwrap();
    let hops = [chain.near.hop()];
    let mut kept = Vec::new();
    // Each stream is open at both ends before the next one is.
    for _ in 0..70 {
        let (opened, accepted) = tokio::join!(connect_through(&hops, &target), listener.accept());
        kept.push((opened.unwrap().0, accepted.unwrap().0));
    }
    for (client, server) in &mut kept {
        client.write_all(b"ping").await.unwrap();
        let mut some = [0; 4];
        server.read_exact(&mut some).await.unwrap();
        assert_eq!(&some, b"ping");
    }
    assert_eq!(chain.near.counts().await["braids"], 64);
    assert_eq!(chain.near.counts().await["open"], 70);
}

/// Near end of a braid by hand, to send frames that no gateway sends.
struct Hand {
    far: Running,
    id: BraidId,
    first: TcpStream,
    server: TcpStream,
}

/// Returns a load as it is on the wire.
fn load(offset: u64, bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap();
    let mut frame = vec![2, 0, 0, 0];
    frame.extend(length.to_be_bytes());
    frame.extend(offset.to_be_bytes());
    frame.extend(bytes);
    frame
}

fn end(total: u64, connections: u8) -> Vec<u8> {
    let mut frame = vec![3, connections, 0, 0, 0, 0, 0, 0];
    frame.extend(total.to_be_bytes());
    frame
}

const HELLO: [u8; 16] = [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

impl Hand {
    async fn open() -> Self {
        let far = Running::start(loopback()).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target: Target = listener.local_addr().unwrap().to_string().parse().unwrap();
        let stream = TcpStream::connect(far.local).await.unwrap();
        let passage = Passage {
            target: &target,
            path: &[],
            reservation: None,
            connections: 3,
        };
        let hop = far.hop();
        let (opened, accepted) = tokio::join!(ask(stream, &hop, &passage), listener.accept());
        let Opened {
            stream,
            early,
            braid,
        } = opened.unwrap();
        let braid = braid.unwrap();
        assert_eq!((braid.connections, early.len()), (3, 0));
        Self {
            far,
            id: braid.id,
            first: stream,
            server: accepted.unwrap().0,
        }
    }

    async fn join(&self, id: BraidId, number: u8) -> posthaste_endpoint::Result<TcpStream> {
        let (hop, address) = (self.far.hop(), self.far.local.ip());
        let joined = join(&hop, address, &Default::default(), (id, number)).await;
        joined.map(|(stream, _)| stream)
    }

    /// Returns the first line of the answer to a connection that wants to join with this token.
    async fn refused(&self, token: &str) -> String {
        let mut stream = TcpStream::connect(self.far.local).await.unwrap();
        let ask = format!("POST /v1/join HTTP/1.1\r\nProxy-Authorization: Bearer {token}\r\n\r\n");
        stream.write_all(ask.as_bytes()).await.unwrap();
        let said = String::from_utf8(all_of(stream).await).unwrap();
        said.lines().next().unwrap().to_owned()
    }
}

#[tokio::test]
async fn strangers_do_not_join_and_disturb_nobody() {
    let mut hand = Hand::open().await;
    let secret = hand.far.secret;
    let good = mint_for_joining(&secret, hand.id, 1, u64::MAX);
    let mut forged = secret;
    forged[0] ^= 1;
    for (token, status) in [
        (String::new(), 407),
        (hand.far.token(), 407),
        (mint_for_joining(&forged, hand.id, 1, u64::MAX), 407),
        (mint_for_joining(&secret, hand.id, 1, 1_000), 407),
        (good.replace(".1.", ".2."), 407),
        (
            mint_for_joining(&secret, BraidId::new([7; 16]), 1, u64::MAX),
            404,
        ),
        (mint_for_joining(&secret, hand.id, 0, u64::MAX), 409),
        (mint_for_joining(&secret, hand.id, 3, u64::MAX), 409),
    ] {
        let said = hand.refused(&token).await;
        assert!(said.contains(&format!(" {status} ")), "{token}: {said}");
    }
    // An accepted connection that sends no hello does not count; its place is gone.
    let mut silent = hand.join(hand.id, 1).await.unwrap();
    silent.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    assert_reset(&mut silent).await;
    assert!(hand.refused(&good).await.contains(" 409 "));
    let gone = hand.join(hand.id, 2).await.unwrap();
    drop(gone);
    // The stream is as it was.
    hand.first.write_all(&load(0, b"whole")).await.unwrap();
    hand.first.write_all(&end(5, 1)).await.unwrap();
    let mut came = Vec::new();
    hand.server.read_to_end(&mut came).await.unwrap();
    assert_eq!(came, b"whole");
    hand.server.shutdown().await.unwrap();
    let mut said = Vec::new();
    hand.first.read_to_end(&mut said).await.unwrap();
    assert_eq!(said, end(0, 1));
    let counts = hand.far.counts().await;
    assert_eq!(
        (&counts["joined"], &counts["broken"]),
        (&0.into(), &0.into())
    );
    // No connection joins a stream that has ended.
    assert!(hand.refused(&good).await.contains(" 404 "));
}

#[tokio::test]
async fn a_connection_that_joins_after_all_was_said_is_waited_for() {
    let mut hand = Hand::open().await;
    let mut second = hand.join(hand.id, 1).await.unwrap();
    hand.first.write_all(&load(4, b"late")).await.unwrap();
    hand.first.write_all(&end(8, 2)).await.unwrap();
    hand.server.shutdown().await.unwrap();
    let mut said = Vec::new();
    hand.first.read_to_end(&mut said).await.unwrap();
    assert_eq!(said, end(0, 1));
    second.write_all(&HELLO).await.unwrap();
    second.write_all(&load(0, b"not ")).await.unwrap();
    second.write_all(&end(8, 2)).await.unwrap();
    said.clear();
    second.read_to_end(&mut said).await.unwrap();
    assert_eq!(said, end(0, 2));
    assert_eq!(all_of(hand.server).await, b"not late");
    assert_eq!(hand.far.counts().await["broken"], 0);
}

#[tokio::test]
async fn what_no_gateway_sends_breaks_the_stream_and_never_ends_it() {
    for nonsense in [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        HELLO.to_vec(),
        // Twice, or overlapping.
        [load(0, b"some"), load(2, b"some")].concat(),
        // An end with a gap before it, before the bytes received, or in another place.
        end(3, 1),
        [load(0, b"some"), end(2, 1)].concat(),
        [load(1, b"some"), end(5, 1)].concat(),
        // A load without its bytes.
        load(0, b"some")[..18].to_vec(),
    ] {
        let mut hand = Hand::open().await;
        hand.first.write_all(&nonsense).await.unwrap();
        hand.first.shutdown().await.unwrap();
        assert_reset(&mut hand.server).await;
        assert_reset(&mut hand.first).await;
        hand.far.until("broken", 1).await;
    }
}
