//! Coding by a relay: it gets a whole chunk, keeps a fragment and sends the others, on the order of
//! a caller with the right to write to all of them.

use std::{collections::BTreeMap, path::Path};

use posthaste_endpoint::{
    ErrorKind,
    relay::{
        Coded, Credential, RelayClient, Scope, mint,
        wire::{PieceEnd, kind_of},
    },
};
use posthaste_engine::stripe::Stripe;
use posthaste_types::{Bytes as Amount, ChunkIndex, Digest, FragmentIndex};

use crate::support::running::{Running, later, noise};
use crate::support::striped::{CHUNK, DATASET, SIZE, code, fragment, stripe};

/// Relay that codes, and two that get a fragment each of a chunk coded 2+1.
struct Scene {
    relays: Vec<Running>,
    stripe: Stripe,
    _dirs: Vec<tempfile::TempDir>,
}

impl Scene {
    async fn new() -> Self {
        Self::with(Amount::mebi(64)).await
    }

    /// Starts the relays, the last of which has this capacity.
    async fn with(capacity: Amount) -> Self {
        let dirs: Vec<_> = (0..3).map(|_| tempfile::tempdir().unwrap()).collect();
        let path = |n: usize| -> &Path { dirs[n].path() };
        let stripe = stripe();
        let mut relays = Vec::new();
        for n in 0..3usize {
            let capacity = if n == 2 { capacity } else { Amount::mebi(64) };
            relays.push(Running::start(path(n), |options| options.capacity = capacity).await);
        }
        Self {
            relays,
            stripe,
            _dirs: dirs,
        }
    }

    fn coded(&self) -> Coded {
        Coded {
            chunk: CHUNK,
            bytes: noise(1, SIZE),
            digest: self.stripe.chunk_digest,
            code: code(),
            keep: (fragment(0), self.stripe.digests[0]),
        }
    }

    fn to(&self) -> Vec<(RelayClient, FragmentIndex, Digest)> {
        let taker = |n: usize| (self.relays[n].client(), fragment(n), self.stripe.digests[n]);
        vec![taker(1), taker(2)]
    }

    /// Scatters a chunk and returns the end of each fragment.
    async fn scatter(&self, coded: &Coded) -> posthaste_endpoint::Result<BTreeMap<u8, PieceEnd>> {
        let client = self.relays[0].client();
        let mut scattering = client.scatter(&DATASET, coded, &self.to(), later()).await?;
        let mut ends = BTreeMap::new();
        while let Some(end) = scattering.next().await? {
            ends.insert(end.fragment, end);
        }
        Ok(ends)
    }

    async fn holds(&self, n: usize) -> bool {
        let client = self.relays[n].client();
        let held = client.inventory(&DATASET).await.unwrap();
        assert!(held.len() <= 1, "nothing is kept but a fragment: {held:?}");
        held.first() == Some(&(CHUNK, fragment(n), self.stripe.digests[n]))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_relay_gets_its_fragment_and_the_same_again_changes_nothing() {
    let scene = Scene::new().await;
    assert!(scene.relays[0].client().status().await.unwrap().scatters);
    for _ in 0..2 {
        let ends = scene.scatter(&scene.coded()).await.unwrap();
        assert_eq!(ends.len(), 3);
        assert!(ends.values().all(PieceEnd::is_stored), "{ends:?}");
        for n in 0..3 {
            assert!(scene.holds(n).await, "{n}");
        }
    }
    let used = scene.relays[0].client().status().await.unwrap();
    assert_eq!(used.used.get(), scene.stripe.fragments[0].len() as u64);
    assert_eq!(
        used.free,
        used.capacity - used.used,
        "nothing stays set aside"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn who_can_not_take_its_fragment_costs_the_others_nothing() {
    let mut scene = Scene::with(Amount::new(1000)).await;
    let ends = scene.scatter(&scene.coded()).await.unwrap();
    assert_eq!(kind_of(ends[&2].status), ErrorKind::Full, "{ends:?}");
    assert!(ends[&0].is_stored() && ends[&1].is_stored());
    let client = scene.relays[1].client();
    let to = [(client, fragment(1), scene.stripe.digests[1])];
    scene.relays.remove(1).kill().await;
    let coder = scene.relays[0].client();
    let coded = Coded {
        chunk: ChunkIndex::new(4),
        ..scene.coded()
    };
    let mut scattering = coder.scatter(&DATASET, &coded, &to, later()).await.unwrap();
    let mut ends = BTreeMap::new();
    while let Some(end) = scattering.next().await.unwrap() {
        ends.insert(end.fragment, end);
    }
    assert!(ends[&0].is_stored());
    assert_eq!(kind_of(ends[&1].status), ErrorKind::Busy, "{ends:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_not_the_chunk_and_fragments_that_are_not_its_count_nowhere() {
    let scene = Scene::new().await;
    let mut damaged = scene.coded();
    damaged.bytes = noise(2, SIZE);
    let refused = scene.scatter(&damaged).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Corrupt);
    // As if the relay had coded it wrongly: the result has another digest.
    let mut other = scene.coded();
    other.keep.1 = scene.stripe.digests[1];
    let ends = scene.scatter(&other).await.unwrap();
    assert_eq!(kind_of(ends[&0].status), ErrorKind::Corrupt);
    assert!(ends[&1].is_stored() && ends[&2].is_stored());
    assert!(!scene.holds(0).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_stored_before_the_relay_died_is_found() {
    let mut scene = Scene::new().await;
    let client = scene.relays[0].client();
    let (coded, to) = (scene.coded(), scene.to());
    let mut scattering = client
        .scatter(&DATASET, &coded, &to, later())
        .await
        .unwrap();
    let first = scattering.next().await.unwrap().unwrap();
    assert!(first.is_stored());
    scene.relays.remove(0).kill().await;
    // Only what it reported is sure; the rest either lies there whole or does not.
    let mut told = vec![first.fragment];
    while let Ok(Some(end)) = scattering.next().await {
        told.push(end.fragment);
    }
    for (relay, n) in scene.relays.iter().zip(1..) {
        let held = relay.client().inventory(&DATASET).await.unwrap();
        let is_there = held == [(CHUNK, fragment(n), scene.stripe.digests[n])];
        assert!(is_there || held.is_empty(), "{held:?}");
        assert!(is_there || !told.contains(&fragment(n).get()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_who_may_write_there_is_served_and_nonsense_is_refused() {
    let scene = Scene::new().await;
    let relay = &scene.relays[0];
    let read_only = mint(&relay.secret, Scope::Read, Some(&DATASET), later());
    let reader = relay.client_with(Credential::Token(read_only));
    let refused = reader
        .scatter(&DATASET, &scene.coded(), &scene.to(), later())
        .await;
    assert_eq!(refused.err().unwrap().kind(), ErrorKind::PermissionDenied);
    let mut twice = scene.coded();
    twice.keep.0 = fragment(1);
    let refused = scene.scatter(&twice).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    let mut beyond = scene.coded();
    beyond.keep.0 = fragment(3);
    assert_eq!(
        scene.scatter(&beyond).await.unwrap_err().kind(),
        ErrorKind::Invalid
    );
    assert!(!scene.holds(0).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_leaves_ends_what_it_asked_for() {
    let scene = Scene::new().await;
    let client = scene.relays[0].client();
    let (coded, to) = (scene.coded(), scene.to());
    drop(
        client
            .scatter(&DATASET, &coded, &to, later())
            .await
            .unwrap(),
    );
    // A repetition is accepted, whatever came of the first.
    let ends = scene.scatter(&coded).await.unwrap();
    let is_well = |end: &PieceEnd| end.is_stored() || kind_of(end.status) == ErrorKind::Busy;
    assert!(ends.values().all(is_well), "{ends:?}");
}
