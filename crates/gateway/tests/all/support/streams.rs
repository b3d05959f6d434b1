//! Gateways and their targets, for tests.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use posthaste_endpoint::{
    gateway::{Hop, Target, mint},
    relay::read_secret_file,
};
use posthaste_gateway::{Forward, Gateway, GatewayOptions, Table};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
    task::JoinSet,
    time::timeout,
};

/// Timeout: long enough for a busy machine, and no test waits longer.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Gateway that ends with its test.
pub struct Running {
    pub local: SocketAddr,
    pub forwards: Vec<SocketAddr>,
    pub secret: [u8; 32],
    pub folder: tempfile::TempDir,
    pub serving: JoinSet<()>,
}

impl Running {
    pub async fn start(table: Table) -> Self {
        Self::with(table, Vec::new(), 128).await
    }

    pub async fn with(table: Table, forwards: Vec<Forward>, streams_max: usize) -> Self {
        Self::open("127.0.0.1:0", table, forwards, streams_max).await
    }

    pub async fn at(listen: &str, table: Table) -> Self {
        Self::open(listen, table, Vec::new(), 64).await
    }

    async fn open(listen: &str, table: Table, forwards: Vec<Forward>, streams_max: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = GatewayOptions {
            dir: folder.path().join("gateway"),
            listen: listen.parse().unwrap(),
            forwards,
            table,
            streams_max,
            reserve: Vec::new(),
        };
        let gateway = Gateway::open(options).await.unwrap();
        let (local, forwards) = (gateway.local(), gateway.forwards());
        let secret = read_secret_file(gateway.secret_file()).unwrap();
        let mut serving = JoinSet::new();
        serving.spawn(gateway.run(std::future::pending()));
        Self {
            local,
            forwards,
            secret,
            folder,
            serving,
        }
    }

    pub fn hop(&self) -> Hop {
        Hop {
            address: self.local.to_string().parse().unwrap(),
            secret: self.secret,
        }
    }

    /// Returns a table that allows `allow` and leads to `to` over this gateway, at `via` if it does
    /// not listen there.
    pub fn table_to(&self, allow: &str, to: &str, via: Option<SocketAddr>, more: &str) -> Table {
        let via = via.unwrap_or(self.local);
        let file = self.folder.path().join(format!("to-{}.toml", via.port()));
        let text = format!(
            "allow = ['{allow}']\n[[route]]\nto = ['{to}']\nvia = '{via}'\nsecret_file = '{}'\n{more}\n",
            self.secret_file().display()
        );
        std::fs::write(&file, text).unwrap();
        Table::read(&file).unwrap()
    }

    pub fn secret_file(&self) -> PathBuf {
        self.folder.path().join("gateway/secret")
    }

    /// Returns a token for all targets that lasts long.
    pub fn token(&self) -> String {
        mint(&self.secret, None, u64::MAX)
    }

    pub async fn counts(&self) -> serde_json::Value {
        let mut stream = TcpStream::connect(self.local).await.unwrap();
        let ask = format!(
            "GET /v1/status HTTP/1.1\r\nAuthorization: Bearer {}\r\n\r\n",
            self.token()
        );
        stream.write_all(ask.as_bytes()).await.unwrap();
        let said = all_of(stream).await;
        serde_json::from_slice(
            &said[said
                .windows(4)
                .position(|four| four == b"\r\n\r\n")
                .unwrap()..],
        )
        .unwrap()
    }

    /// Waits until this counter is at least `least`.
    pub async fn until(&self, count: &str, least: u64) {
        let reached = async {
            while self.counts().await[count].as_u64().unwrap() < least {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(PATIENCE, reached).await.unwrap();
    }
}

/// Returns an address on which nothing listens, and a socket that keeps it from others. A program
/// that reuses addresses may listen there.
pub fn free_place() -> (SocketAddr, TcpSocket) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    socket.set_reuseaddr(true).unwrap();
    (socket.local_addr().unwrap(), socket)
}

/// Returns a table that allows loopback, which rules must name.
pub fn loopback() -> Table {
    Table::default().allowing(["127.0.0.0/8:*".parse().unwrap()])
}

pub async fn all_of(mut stream: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    timeout(PATIENCE, stream.read_to_end(&mut bytes))
        .await
        .unwrap()
        .unwrap();
    bytes
}

/// Server that answers each stream with its bytes reversed, once it has ended.
pub struct Mirror {
    pub target: Target,
    _serving: JoinSet<()>,
}

impl Mirror {
    pub async fn start() -> Self {
        Self::at("127.0.0.1:0").await
    }

    pub async fn at(listen: &str) -> Self {
        let listener = TcpListener::bind(listen).await.unwrap();
        let target = listener.local_addr().unwrap().to_string().parse().unwrap();
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut streams = JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                streams.spawn(async move {
                    let mut bytes = Vec::new();
                    if stream.read_to_end(&mut bytes).await.is_ok() {
                        bytes.reverse();
                        let _ = stream.write_all(&bytes).await;
                    }
                });
            }
        });
        Self {
            target,
            _serving: serving,
        }
    }
}

pub fn noise(size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    blake3::Hasher::new().finalize_xof().fill(&mut bytes);
    bytes
}

/// Sends, ends its direction, and checks the answer.
pub async fn assert_mirrors(mut stream: TcpStream, early: Vec<u8>, size: usize) {
    let mut bytes = noise(size);
    stream.write_all(&bytes).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut back = early;
    back.extend(all_of(stream).await);
    bytes.reverse();
    assert!(back == bytes, "{} of {size} came back", back.len());
}
