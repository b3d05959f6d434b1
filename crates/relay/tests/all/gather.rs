//! Gathers by a relay: it fetches fragments of a chunk from others and rebuilds it, on the order of
//! a caller with the right to write there.

use std::{path::Path, time::Duration};

use bytes::Bytes;
use posthaste_endpoint::{
    ErrorKind,
    relay::{Credential, Rebuilt, RelayClient, Scope, mint, wire::GatherEnd},
};
use posthaste_engine::stripe::Stripe;
use posthaste_types::{Bytes as Amount, Digest, FragmentIndex};

use crate::support::running::{Running, later, noise};
use crate::support::striped::{CHUNK, DATASET, SIZE, code, fragment, stripe};

/// Three relays that hold a fragment each of a chunk coded 2+1, and one that holds nothing.
struct Scene {
    relays: Vec<Running>,
    to: Running,
    stripe: Stripe,
    _dirs: Vec<tempfile::TempDir>,
}

impl Scene {
    async fn new() -> Self {
        Self::with(Amount::mebi(8)).await
    }

    async fn with(capacity: Amount) -> Self {
        let dirs: Vec<_> = (0..4).map(|_| tempfile::tempdir().unwrap()).collect();
        let path = |n: usize| -> &Path { dirs[n].path() };
        let stripe = stripe();
        let mut relays = Vec::new();
        for n in 0..3usize {
            let relay = Running::start(path(n), |_| ()).await;
            let (bytes, digest) = (stripe.fragments[n].clone(), stripe.digests[n]);
            let client = relay.client();
            let put = client.put_fragment(&DATASET, CHUNK, fragment(n), bytes, digest, later());
            put.await.unwrap();
            relays.push(relay);
        }
        let to = Running::start(path(3), |options| options.capacity = capacity).await;
        Self {
            relays,
            to,
            stripe,
            _dirs: dirs,
        }
    }

    fn rebuilt(&self) -> Rebuilt {
        Rebuilt {
            chunk: CHUNK,
            size: SIZE as u64,
            digest: self.stripe.chunk_digest,
            code: code(),
            keep: None,
        }
    }

    fn from(&self, places: &[usize]) -> Vec<(RelayClient, FragmentIndex, Digest)> {
        let sender = |&n: &usize| (self.relays[n].client(), fragment(n), self.stripe.digests[n]);
        places.iter().map(sender).collect()
    }

    async fn gather(&self, places: &[usize]) -> posthaste_endpoint::Result<GatherEnd> {
        let to = self.to.client();
        let from = self.from(places);
        to.gather(&DATASET, self.rebuilt(), &from, later()).await
    }

    async fn read(&self) -> posthaste_endpoint::Result<Bytes> {
        let to = self.to.client();
        let digest = self.stripe.chunk_digest;
        to.get_fragment(&DATASET, CHUNK, FragmentIndex::WHOLE, digest)
            .await
    }

    async fn is_empty(&self) -> bool {
        let status = self.to.client().status().await.unwrap();
        self.to
            .client()
            .inventory(&DATASET)
            .await
            .unwrap()
            .is_empty()
            && status.used == Amount::ZERO
            && status.free == status.capacity
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn any_fragments_make_the_chunk_and_the_same_again_changes_nothing() {
    let scene = Scene::new().await;
    assert!(scene.to.client().status().await.unwrap().gathers);
    for places in [[2, 0], [0, 1], [1, 2]] {
        let end = scene.gather(&places).await.unwrap();
        assert!(end.is_stored(), "{end:?}");
        assert_eq!(scene.read().await.unwrap(), noise(1, SIZE));
    }
    assert_eq!(
        scene.to.client().inventory(&DATASET).await.unwrap().len(),
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn who_fails_is_told_and_made_up_for_from_the_reserve() {
    let mut scene = Scene::new().await;
    scene.relays.remove(0).kill().await;
    let gone = scene.from(&[0, 1]);
    let mut from = vec![(gone[0].0.clone(), fragment(0), scene.stripe.digests[0])];
    from[0].0 = {
        // Nobody listens there any more.
        let dir = tempfile::tempdir().unwrap();
        let relay = Running::start(dir.path(), |_| ()).await;
        let client = relay.client();
        relay.kill().await;
        client
    };
    from.push((
        scene.relays[0].client(),
        fragment(1),
        scene.stripe.digests[1],
    ));
    from.push((
        scene.relays[1].client(),
        fragment(2),
        scene.stripe.digests[2],
    ));
    let to = scene.to.client();
    let end = to
        .gather(&DATASET, scene.rebuilt(), &from, later())
        .await
        .unwrap();
    assert!(end.is_stored(), "{end:?}");
    let failed: Vec<u8> = end
        .senders
        .iter()
        .filter(|sender| sender.status != 200)
        .map(|sender| sender.fragment)
        .collect();
    assert_eq!(failed, [0], "{end:?}");
    assert_eq!(scene.read().await.unwrap(), noise(1, SIZE));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_held_or_has_another_digest_leaves_nothing_behind() {
    let scene = Scene::new().await;
    let mut from = scene.from(&[0, 1]);
    from[1] = (
        scene.relays[2].client(),
        fragment(1),
        scene.stripe.digests[1],
    );
    let to = scene.to.client();
    let end = to
        .gather(&DATASET, scene.rebuilt(), &from, later())
        .await
        .unwrap();
    assert!(!end.is_stored());
    let missing = end.senders.iter().find(|sender| sender.fragment == 1);
    assert_eq!(missing.unwrap().status, 404, "{end:?}");
    assert!(scene.is_empty().await);
    let other = Rebuilt {
        digest: scene.stripe.digests[0],
        ..scene.rebuilt()
    };
    let from = scene.from(&[0, 1]);
    let end = to.gather(&DATASET, other, &from, later()).await.unwrap();
    assert_eq!(end.status, 422, "{end:?}");
    assert!(scene.is_empty().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_that_make_no_sense_are_refused() {
    let scene = Scene::with(Amount::new(1 << 19)).await;
    let full = scene.gather(&[0, 1]).await.unwrap_err();
    assert_eq!(full.kind(), ErrorKind::Full);
    let scene = Scene::new().await;
    for places in [&[0][..], &[0, 0]] {
        let refused = scene.gather(places).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{places:?}");
    }
    let token = mint(&scene.to.secret, Scope::Read, Some(&DATASET), later());
    let reader = scene.to.client_with(Credential::Token(token));
    let from = scene.from(&[0, 1]);
    let refused = reader
        .gather(&DATASET, scene.rebuilt(), &from, later())
        .await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::PermissionDenied);
    assert!(scene.is_empty().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn when_nobody_waits_for_it_any_more_nothing_is_left() {
    let scene = Scene::new().await;
    let to = scene.to.client();
    let from = scene.from(&[0, 1]);
    let gathering = to.gather(&DATASET, scene.rebuilt(), &from, later());
    let _ = tokio::time::timeout(Duration::from_micros(200), gathering).await;
    // Two minutes.
    for _ in 0..6_000 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let is_whole = scene.read().await.is_ok();
        if is_whole || scene.is_empty().await {
            return;
        }
    }
    panic!("half of it is left");
}

impl Scene {
    /// Orders the relay to keep this fragment, from the holders at these places.
    async fn mend(&self, lost: usize, places: &[usize]) -> posthaste_endpoint::Result<GatherEnd> {
        let keep = Some((fragment(lost), self.stripe.digests[lost]));
        let rebuilt = Rebuilt {
            keep,
            ..self.rebuilt()
        };
        let (to, from) = (self.to.client(), self.from(places));
        to.gather(&DATASET, rebuilt, &from, later()).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_fragment_is_made_again_from_the_others_and_kept_alone() {
    for (lost, places) in [(0, [1, 2]), (1, [0, 2]), (2, [1, 0])] {
        let scene = Scene::new().await;
        assert!(scene.to.client().status().await.unwrap().mends);
        for _ in 0..2 {
            let end = scene.mend(lost, &places).await.unwrap();
            assert!(end.is_stored(), "{end:?}");
        }
        let (to, digest) = (scene.to.client(), scene.stripe.digests[lost]);
        let got = to.get_fragment(&DATASET, CHUNK, fragment(lost), digest);
        assert_eq!(got.await.unwrap(), scene.stripe.fragments[lost]);
        assert_eq!(to.inventory(&DATASET).await.unwrap().len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_out_with_another_digest_is_not_kept() {
    let scene = Scene::new().await;
    let rebuilt = Rebuilt {
        keep: Some((fragment(2), scene.stripe.digests[0])),
        ..scene.rebuilt()
    };
    let (to, from) = (scene.to.client(), scene.from(&[0, 1]));
    let end = to.gather(&DATASET, rebuilt, &from, later()).await.unwrap();
    assert_eq!(end.status, 422, "{end:?}");
    assert!(scene.is_empty().await);
    // A sender of the fragment to be rebuilt makes no sense, nor does a fragment that is not of the
    // code.
    let refused = scene.mend(1, &[0, 1]).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    let rebuilt = Rebuilt {
        keep: Some((FragmentIndex::new(3), scene.stripe.digests[0])),
        ..scene.rebuilt()
    };
    let refused = to.gather(&DATASET, rebuilt, &from, later()).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Invalid);
    assert!(scene.is_empty().await);
}
