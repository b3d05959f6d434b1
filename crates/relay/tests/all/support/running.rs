//! Relay in this process, on a real port, and what tests put on it.

use std::{net::SocketAddr, path::Path, time::Duration};

use bytes::Bytes;
use posthaste_endpoint::{
    ErrorKind,
    relay::{Credential, RelayAddress, RelayClient, read_secret_file},
};
use posthaste_relay::{Relay, RelayOptions};
use posthaste_testbed::free_port;
use posthaste_types::{Bytes as Amount, Digest, Timestamp};
use tokio::task::JoinSet;

/// Relay that ends with its test.
pub struct Running {
    pub address: RelayAddress,
    pub secret: [u8; 32],
    pub local: SocketAddr,
    serving: JoinSet<()>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
}

impl Running {
    pub async fn start(dir: &Path, change: impl FnOnce(&mut RelayOptions)) -> Self {
        let mut options = RelayOptions {
            dir: dir.to_owned(),
            // Nobody else listens there when it was killed.
            listen: ([127, 0, 0, 1], free_port().unwrap()).into(),
            bucket: None,
            capacity: Amount::mebi(64),
            rate: None,
            name: "test".into(),
            flush: false,
            join: None,
            advertise: None,
            hours: None,
            load_from: "/proc/loadavg".into(),
        };
        change(&mut options);
        let relay = open(&options).await;
        let address = relay.address();
        let (secret, local) = (
            read_secret_file(relay.secret_file()).unwrap(),
            relay.local(),
        );
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            relay.run(async { drop(stopped.await) }).await.unwrap();
        });
        Self {
            address,
            secret,
            local,
            serving,
            stop: Some(stop),
        }
    }

    pub fn client(&self) -> RelayClient {
        self.client_with(Credential::Secret(self.secret))
    }

    pub fn client_with(&self, credential: Credential) -> RelayClient {
        RelayClient::new(self.address.clone(), credential).unwrap()
    }

    /// Ends it like a killed relay: connections break.
    pub async fn kill(mut self) {
        self.serving.shutdown().await;
    }

    pub async fn stop(mut self) {
        drop(self.stop.take());
        while let Some(ended) = self.serving.join_next().await {
            ended.unwrap();
        }
    }
}

/// Opens it, waiting for what a killed one still had under way to end.
async fn open(options: &RelayOptions) -> Relay {
    // A minute.
    for _ in 0..1200 {
        match Relay::open(options.clone()).await {
            Err(error) if error.kind() == ErrorKind::Conflict => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            opened => return opened.unwrap(),
        }
    }
    panic!("another relay still runs in {}", options.dir.display())
}

pub fn digest(bytes: &[u8]) -> Digest {
    Digest::new(*blake3::hash(bytes).as_bytes())
}

pub fn noise(seed: u64, size: usize) -> Bytes {
    posthaste_testbed::noise(seed, size).into()
}

pub fn later() -> Timestamp {
    in_seconds(3600)
}

#[expect(
    clippy::disallowed_methods,
    reason = "tests tell real relays when to forget"
)]
pub fn in_seconds(seconds: i64) -> Timestamp {
    let now = std::time::SystemTime::now();
    let now_s = now.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    Timestamp::from_secs(now_s.checked_add_signed(seconds).unwrap())
}
