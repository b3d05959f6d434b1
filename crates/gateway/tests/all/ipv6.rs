//! Streams over IPv6 through real gateways, on the loopback address.

use crate::support::streams;

use posthaste_endpoint::{ErrorKind, gateway::connect_through};
use posthaste_gateway::Table;
use streams::{Mirror, Running, assert_mirrors};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

const HERE: &str = "[::1/128]:*";

fn here() -> Table {
    Table::default().allowing([HERE.parse().unwrap()])
}

#[tokio::test]
async fn connect_and_networks_of_tables_take_ipv6() {
    let mirror = Mirror::at("[::1]:0").await;
    let far = Running::at("[::1]:0", here()).await;
    for more in ["", "connections = 3"] {
        let table = far.table_to(HERE, "[::/64]:*", None, more);
        let near = Running::at("[::1]:0", table).await;
        let (stream, early) = connect_through(&[near.hop()], &mirror.target)
            .await
            .unwrap();
        assert_mirrors(stream, early, 1_000_000).await;
    }
    far.until("opened", 2).await;
    far.until("braids", 1).await;
    // A rule of another network does not allow this one.
    let other = Table::default().allowing(["[2001:db8::/32]:*".parse().unwrap()]);
    let other = Running::at("[::1]:0", other).await;
    let error = connect_through(&[other.hop()], &mirror.target)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
}

#[tokio::test]
async fn socks_takes_an_ipv6_address() {
    let mirror = Mirror::at("[::1]:0").await;
    let gateway = Running::at("[::1]:0", here()).await;
    let mut stream = TcpStream::connect(gateway.local).await.unwrap();
    stream.write_all(&[5, 1, 2]).await.unwrap();
    let mut two = [0; 2];
    stream.read_exact(&mut two).await.unwrap();
    let token = gateway.token();
    let size = u8::try_from(token.len()).unwrap();
    let shown = [&[1, 1, b'x', size], token.as_bytes()].concat();
    stream.write_all(&shown).await.unwrap();
    stream.read_exact(&mut two).await.unwrap();
    assert_eq!(two, [1, 0]);
    let mut ask = vec![5, 1, 0, 4];
    ask.extend(std::net::Ipv6Addr::LOCALHOST.octets());
    ask.extend(mirror.target.port.to_be_bytes());
    stream.write_all(&ask).await.unwrap();
    let mut reply = [0; 10];
    stream.read_exact(&mut reply).await.unwrap();
    assert_eq!(reply[..2], [5, 0]);
    assert_mirrors(stream, Vec::new(), 100_000).await;
}
