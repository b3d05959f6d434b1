//! Connections to a relay that are streams of reservations, through a model of a gateway.

use std::sync::{Arc, Mutex};

use posthaste_endpoint::{
    ErrorKind,
    gateway::{Hop, Way, read_head},
    relay::{Credential, RelayClient},
};
use tokio::{
    io::{AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use crate::support::running::Running;

/// Model that leads every stream to one place, and notes the reservation that each names.
struct Door {
    address: String,
    named: Arc<Mutex<Vec<Option<String>>>>,
    _serving: JoinSet<()>,
}

impl Door {
    async fn to(relay: &Running) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (place, named) = (relay.local, Arc::<Mutex<Vec<_>>>::default());
        let address = listener.local_addr().unwrap().to_string();
        let mut serving = JoinSet::new();
        let notes = Arc::clone(&named);
        serving.spawn(async move {
            let mut streams = JoinSet::new();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let notes = Arc::clone(&notes);
                streams.spawn(async move {
                    let mut client = client;
                    let (head, _) = read_head(&mut client, Vec::new()).await.unwrap();
                    let head = String::from_utf8(head).unwrap();
                    let mut lines = head.lines();
                    let named = lines.find_map(|line| line.strip_prefix("Posthaste-Reservation: "));
                    notes.lock().unwrap().push(named.map(str::to_owned));
                    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
                    let mut end = TcpStream::connect(place).await.unwrap();
                    // The stream ends with the connection.
                    let _ = copy_bidirectional(&mut client, &mut end).await;
                });
            }
        });
        Self {
            address,
            named,
            _serving: serving,
        }
    }

    fn named(&self) -> Vec<Option<String>> {
        self.named.lock().unwrap().clone()
    }
}

fn by(door: &Door, relay: &Running) -> RelayClient {
    let hop = Hop {
        address: door.address.parse().unwrap(),
        secret: [7; 32],
    };
    let way = Way {
        name: "door".to_owned(),
        hops: vec![hop],
    };
    let credential = Credential::Secret(relay.secret);
    RelayClient::by_ways(
        relay.address.clone(),
        credential,
        vec![way, Way::straight()],
    )
    .unwrap()
}

#[tokio::test]
async fn streams_of_different_reservations_never_share_a_connection() {
    let dir = tempfile::tempdir().unwrap();
    let relay = Running::start(dir.path(), |_| {}).await;
    let door = Door::to(&relay).await;
    let client = by(&door, &relay);
    let (night, day) = (
        client.reserved("night-7").unwrap(),
        client.reserved("day").unwrap(),
    );
    // Each is used twice, in turns: its own client uses a kept connection again.
    for _ in 0..2 {
        for one in [&client, &night, &client.humble(), &day, &night.clone()] {
            one.status().await.unwrap();
        }
    }
    let name = |name: &str| Some(format!("{name}; optional"));
    let mut named = door.named();
    named.sort();
    // Connections that give way were made anew for each turn.
    assert_eq!(named, [None, None, None, name("day"), name("night-7")]);
    assert!(night.sent() == client.sent() && client.sent().get() > 0);
    let error = client.reserved("night 7").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
}
