//! Probes: a relay takes bytes of no meaning, says when they came, and keeps nothing.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::time::Duration;

use posthaste_endpoint::{
    ErrorKind,
    relay::{Credential, DatasetId, Scope, mint, wire},
};
use posthaste_types::{ByteRate, Bytes as Amount};
use tokio::time::Instant;

#[path = "support/raw.rs"]
mod raw;
#[path = "support/running.rs"]
mod running;

use raw::send_raw;
use running::{Running, later};

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_is_counted_as_it_comes_and_nothing_of_it_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let relay = Running::start(dir.path(), |_| ()).await;
    let client = relay.client();
    let probed = client
        .probe(Amount::mebi(12), |_, _, _| true)
        .await
        .unwrap();
    assert_eq!(probed.sent, Amount::mebi(12));
    assert!(probed.round_trip > Duration::ZERO);
    assert_eq!(probed.marks.last().unwrap().1, Amount::mebi(12));
    assert!(
        probed
            .marks
            .is_sorted_by(|one, next| one.0 < next.0 && one.1 < next.1)
    );
    let status = client.status().await.unwrap();
    assert_eq!(
        (status.used, status.received),
        (Amount::ZERO, Amount::mebi(12))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_probe_ends_when_its_sender_has_seen_enough_and_shows_the_limited_rate() {
    let dir = tempfile::tempdir().unwrap();
    let rate = 4 << 20;
    let relay = Running::start(dir.path(), |options| {
        options.rate = Some(ByteRate::new(rate));
    })
    .await;
    let started = Instant::now();
    let goes_on = |_, since, _| since < Duration::from_millis(1500);
    let probed = relay
        .client()
        .probe(Amount::mebi(256), goes_on)
        .await
        .unwrap();
    let took = started.elapsed();
    assert!(took < Duration::from_secs(4), "{took:?}");
    let at = |least: u64| {
        let least = Duration::from_millis(least);
        *probed
            .marks
            .iter()
            .find(|(after, _)| *after >= least)
            .unwrap()
    };
    let ((from, before), (to, after)) = (at(300), at(1300));
    let seen = ByteRate::over(after - before, to - from).get();
    assert!(seen.abs_diff(rate) * 10 < rate, "{seen} of {rate}");
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_are_bounded_and_for_those_who_may_write() {
    let dir = tempfile::tempdir().unwrap();
    let relay = Running::start(dir.path(), |options| {
        options.rate = Some(ByteRate::new(1 << 20));
    })
    .await;
    let dataset = DatasetId::random().unwrap();
    let token = mint(&relay.secret, Scope::Read, Some(&dataset), later());
    let reader = relay.client_with(Credential::Token(token));
    let refused = reader.probe(Amount::new(10), |_, _, _| true).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::PermissionDenied);
    let client = relay.client();
    let probe = || client.probe(Amount::mebi(3), |_, _, _| true);
    let (one, two, three) = tokio::join!(probe(), probe(), async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        probe().await
    });
    assert!(one.is_ok() && two.is_ok(), "{one:?} {two:?}");
    assert_eq!(three.unwrap_err().kind(), ErrorKind::Busy);
    // The next finds the way free again.
    assert!(client.probe(Amount::new(1), |_, _, _| true).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_sends_more_than_a_probe_is_told_so() {
    let dir = tempfile::tempdir().unwrap();
    let relay = Running::start(dir.path(), |_| ()).await;
    let token = mint(&relay.secret, Scope::Write, None, later());
    let most = usize::try_from(wire::PROBE_BYTES_MAX).unwrap();
    let size = most + 1;
    let head = format!(
        "POST /v1/probe HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\ncontent-length: {size}\r\n\r\n"
    );
    let mut request = head.into_bytes();
    request.resize(request.len() + size, 7);
    let answer = send_raw(&relay, &request, true).await;
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
}
