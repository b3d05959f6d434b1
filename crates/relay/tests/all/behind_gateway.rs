//! Relay that only a gateway reaches, as its client sees it.

use posthaste_endpoint::{
    ErrorKind,
    gateway::{Hop, Way},
    relay::{Credential, RelayAddress, RelayClient},
};
use posthaste_testbed::free_port;
use tokio::net::TcpListener;

/// Returns an address where nobody listens.
fn closed() -> String {
    format!("127.0.0.1:{}", free_port().unwrap())
}

async fn kind_through(gateway: String) -> ErrorKind {
    let hop = Hop {
        address: gateway.parse().unwrap(),
        secret: [7; 32],
    };
    let way = Way {
        name: "door".to_owned(),
        hops: vec![hop],
    };
    let address = RelayAddress {
        url: format!("https://{}", closed()),
        fingerprint: format!("sha256:{}", "0".repeat(64)).parse().unwrap(),
    };
    let secret = Credential::Secret([9; 32]);
    let ways = vec![way, Way::straight()];
    let client = RelayClient::by_ways(address, secret, ways).unwrap();
    client.status().await.unwrap_err().kind()
}

/// Checks that a refusal says nothing about the relay if no straight way leads there.
#[tokio::test]
async fn what_a_busy_gateway_does_not_reach_in_time_is_not_said_to_be_gone() {
    // The kernel takes connections, and nobody ever reads.
    let busy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let busy = busy.local_addr().map(|at| (at.to_string(), busy)).unwrap();
    assert_eq!(kind_through(busy.0.clone()).await, ErrorKind::TimedOut);
    assert_eq!(kind_through(closed()).await, ErrorKind::Unreachable);
}
