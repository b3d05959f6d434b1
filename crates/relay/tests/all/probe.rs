//! Probes: a relay receives bytes without meaning, reports when they came, and keeps nothing.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use posthaste_endpoint::{
    ErrorKind,
    relay::{Credential, DatasetId, RelayClient, Scope, mint, wire},
};
use posthaste_types::{ByteRate, Bytes as Amount};
use tokio::{task::JoinSet, time::Instant};

use crate::support::raw::send_raw;
use crate::support::running::{Running, later};

/// Bytes that may have come before the first mark, and at once after a pause.
const SAVED_UP_MAX: Amount = Amount::new(512 << 10);
/// Bytes after which the sender has seen enough: some seconds of a mebibyte each.
const ENOUGH: Amount = Amount::mebi(3);
/// Span over which a rate is measured.
const WINDOW: Duration = Duration::from_millis(300);

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
    let rate = 1 << 20;
    let relay = Running::start(dir.path(), |options| {
        options.rate = Some(ByteRate::new(rate));
    })
    .await;
    let started = Instant::now();
    let goes_on = |_, _, sent| sent < ENOUGH;
    let probed = relay
        .client()
        .probe(Amount::mebi(256), goes_on)
        .await
        .unwrap();
    let took = started.elapsed();
    // The whole probe would take four minutes.
    assert!(took < Duration::from_secs(120), "{took:?}");
    assert!(probed.sent < Amount::mebi(256));
    let marks = &probed.marks;
    // A relay that is not scheduled only ever takes less.
    for (since, bytes) in marks {
        let most = ByteRate::new(rate).volume(*since) + SAVED_UP_MAX;
        assert!(*bytes <= most, "{bytes} in {since:?} at {rate} B/s");
    }
    // And while it is, it takes what it may.
    let over = |(at, (from, before)): (usize, &(Duration, Amount))| {
        let (to, after) = marks[at..].iter().find(|(to, _)| *to >= *from + WINDOW)?;
        Some(ByteRate::over(*after - *before, *to - *from).get())
    };
    let best = marks.iter().enumerate().filter_map(over).max().unwrap();
    assert!(best * 10 > rate * 8, "{best} of {rate}");
}

/// Bytes that a probe has sent when it waits to be released. The relay has received most of them by
/// then.
const PAUSED_AFTER: Amount = Amount::mebi(8);

/// More bytes than a probe hands over at once.
const SOME: Amount = Amount::mebi(1);

/// Returns when the relay has received so many bytes of probes.
async fn has_taken_in(client: &RelayClient, bytes: Amount) {
    while client.status().await.unwrap().received < bytes {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn probes_are_bounded_and_for_those_who_may_write() {
    let dir = tempfile::tempdir().unwrap();
    let relay = Running::start(dir.path(), |_| ()).await;
    let dataset = DatasetId::random().unwrap();
    let token = mint(&relay.secret, Scope::Read, Some(&dataset), later());
    let reader = relay.client_with(Credential::Token(token));
    let refused = reader.probe(Amount::new(10), |_, _, _| true).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::PermissionDenied);
    let client = relay.client();
    let let_go = Arc::new(AtomicBool::new(false));
    let mut paused = JoinSet::new();
    for paused_before in 0..2 {
        let (client, let_go) = (client.clone(), Arc::clone(&let_go));
        let goes_on = move |_, _, sent| {
            tokio::task::block_in_place(|| {
                while sent >= PAUSED_AFTER && !let_go.load(SeqCst) {
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
            true
        };
        paused.spawn(async move { client.probe(Amount::mebi(10), goes_on).await });
        // More than the earlier probes can have sent: this one is under way, too.
        let enough = PAUSED_AFTER.times(paused_before) + SOME;
        has_taken_in(&relay.client(), enough).await;
    }
    let three = client.probe(Amount::new(1), |_, _, _| true).await;
    let_go.store(true, SeqCst);
    for ended in paused.join_all().await {
        assert!(ended.is_ok(), "{ended:?}");
    }
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

/// Kernels buffer more of a probe than can arrive in its time: what came until then gives the rate
/// all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_probe_of_a_slow_path_tells_its_rate() {
    let dir = tempfile::tempdir().unwrap();
    let rate = 16 << 10;
    let relay = Running::start(dir.path(), |options| {
        options.rate = Some(ByteRate::new(rate));
    })
    .await;
    let client = relay.client();
    // Also where it stands still for as long, it has sent something.
    let probed = client.probe(Amount::mebi(64), |_, since, sent| {
        since < Duration::from_secs(2) || sent < Amount::mebi(1)
    });
    let probed = probed.await.unwrap();
    let (last, carried) = *probed.marks.last().unwrap();
    assert!(last > Duration::from_secs(30), "{last:?}: it was all read");
    let seen = ByteRate::over(carried, last).get();
    // A relay that is not scheduled takes less.
    assert!(seen > rate / 8 && seen < rate * 2, "{seen}");
    // The relay takes the next one.
    let next = client.probe(Amount::new(1), |_, _, _| true).await;
    assert!(next.is_ok(), "{next:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_measures_the_path_to_another_one_at_a_time() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let from = Running::start(dirs[0].path(), |_| ()).await;
    let rate = 2 << 20;
    let to = Running::start(dirs[1].path(), |options| {
        options.rate = Some(ByteRate::new(rate));
    })
    .await;
    let (giver, taker) = (from.client(), to.client());
    assert!(giver.status().await.unwrap().measures);
    let busy = async {
        // The first has begun when its bytes arrive.
        while taker.status().await.unwrap().received == Amount::ZERO {
            tokio::task::yield_now().await;
        }
        giver.measure(&taker, Amount::mebi(1)).await.unwrap_err()
    };
    let (measured, busy) = tokio::join!(giver.measure(&taker, Amount::mebi(64)), busy);
    assert_eq!(busy.kind(), ErrorKind::Busy);
    let measured = measured.unwrap();
    assert!(measured.round_trip > Duration::ZERO);
    assert!(measured.bytes > Amount::ZERO && measured.bytes <= measured.sent);
    let seen = ByteRate::over(measured.bytes, measured.window);
    assert!(seen <= ByteRate::new(2 * rate), "{seen}");
    let status = taker.status().await.unwrap();
    assert_eq!(status.used, Amount::ZERO);

    // A client without access there, or a relay that is not there, is reported.
    let stranger = to.client_with(Credential::Secret([9; 32]));
    let refused = giver.measure(&stranger, Amount::mebi(1)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unauthenticated);
    drop(to);
    assert!(giver.measure(&taker, Amount::mebi(1)).await.is_err());
    // A client without the right to write here measures nothing.
    let reader = mint(
        &from.secret,
        Scope::Read,
        Some(&DatasetId::new([1; 16])),
        later(),
    );
    let reader = from.client_with(Credential::Token(reader));
    let refused = reader.measure(&taker, Amount::mebi(1)).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
}
