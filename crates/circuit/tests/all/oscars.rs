//! Client of OSCARS against its stand-in, over a real socket.

use std::{os::unix::fs::PermissionsExt, time::Duration};

use posthaste_circuit::{Ask, Change, Id, Provider, State, What, open};
use posthaste_endpoint::ErrorKind;
use posthaste_testbed::{Fault, OscarsStandIn};
use posthaste_types::ByteRate;
use tempfile::TempDir;

use crate::support::asking;

use asking::{
    ask_for, circuit, client_of, granted, in_s, puts_volumes_in_time, refused, reserve, terms,
};

const TOKEN: &str = "a-token-that-nobody-may-see";
const MBIT: u64 = 125_000;

/// Returns a client of `server` that shows `token` and waits for answers.
fn client(server: &OscarsStandIn, token: &str) -> (Box<dyn Provider>, TempDir) {
    patient(server, token, 60)
}

/// Returns such a client with this timeout.
fn patient(server: &OscarsStandIn, token: &str, patience_s: u64) -> (Box<dyn Provider>, TempDir) {
    let text = format!(
        r#"
        [[circuit]]
        name = "east"
        provider = "oscars"
        address = "{}"
        token_file = "token"
        rate_max = "10Gbit"
        lead_time_s = 60
        patience_s = {patience_s}
        ends = [
            {{ junction = "lbl-cr6", port = "lbl-cr6:1/1/1", vlan = 3000 }},
            {{ junction = "iu-cr5", port = "iu-cr5:2/1/1", vlan = 3000 }},
        ]
        "#,
        server.address()
    );
    client_of(&text, token)
}

fn ask(key: &str, mbit: u64, from_s: i64, until_s: i64) -> Ask {
    ask_for(key, terms(mbit * MBIT, from_s, until_s))
}

#[tokio::test]
async fn a_reservation_lives_as_oscars_says() {
    let server = OscarsStandIn::start(1000, Some(TOKEN)).unwrap();
    let (provider, _folder) = client(&server, TOKEN);
    let wish = ask("r7-1", 400, 600, 4200);
    let held = granted(provider.hold(&wish).await.unwrap());
    assert_eq!(What::Fixed(held.granted), wish.what);
    let left = held.expires.unwrap().since(in_s(0));
    assert!((600..=900).contains(&left.as_secs()), "{left:?}");
    let status = provider.status(&held.id).await.unwrap();
    assert!(
        matches!(status.state, State::Held { expires: Some(_) }),
        "{status:?}"
    );
    assert_eq!(status.key.as_deref(), Some("r7-1"));
    assert_eq!(provider.list().await.unwrap().len(), 1, "holds are listed");

    granted(provider.commit(&held.id).await.unwrap());
    let status = provider.status(&held.id).await.unwrap();
    assert_eq!(status.state, State::Reserved);
    assert_eq!(status.terms.map(What::Fixed), Some(wish.what));
    server.pass(601);
    assert_eq!(provider.status(&held.id).await.unwrap().state, State::Up);
    assert_eq!(provider.list().await.unwrap()[0].state, State::Up);
    provider.release(&held.id).await.unwrap();
    assert_eq!(provider.status(&held.id).await.unwrap().state, State::Over);
    assert!(provider.list().await.unwrap().is_empty());
    provider.release(&held.id).await.unwrap();
    assert_eq!(server.taken(), 0);
}

#[tokio::test]
async fn whoever_loses_an_answer_asks_again_and_has_one_reservation() {
    let server = OscarsStandIn::start(1000, Some(TOKEN)).unwrap();
    let (provider, _folder) = client(&server, TOKEN);
    // The client repeats each request itself, and here both answers are lost.
    for (key, fault) in [
        ("lost-1", Fault::LoseAnswer),
        ("lost-2", Fault::LoseQuestion),
    ] {
        let wish = ask(key, 400, 600, 4200);
        let lose = |path: &str| (0..2).for_each(|_| server.plan(path, fault));
        lose("/protected/hold");
        let error = provider.hold(&wish).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
        assert!(error.is_temporary());
        let id = granted(provider.hold(&wish).await.unwrap()).id;
        assert_eq!(granted(provider.hold(&wish).await.unwrap()).id, id);
        lose("/conn/commit");
        provider.commit(&id).await.unwrap_err();
        granted(provider.commit(&id).await.unwrap());
        granted(provider.commit(&id).await.unwrap());
        assert_eq!(server.taken(), 1);
        let change = Change {
            rate: Some(ByteRate::new(500 * MBIT)),
            until: Some(in_s(3000)),
            ..Change::default()
        };
        lose("/modify/schedule");
        provider.modify(&id, &change).await.unwrap_err();
        let now = granted(provider.modify(&id, &change).await.unwrap());
        assert_eq!(
            (Some(now.rate), Some(now.until)),
            (change.rate, change.until)
        );
        lose("/conn/release");
        provider.release(&id).await.unwrap_err();
        provider.release(&id).await.unwrap();
        assert_eq!((server.taken(), server.planned()), (0, 0));
    }
    // A single lost answer has no effect.
    server.plan("/protected/hold", Fault::LoseAnswer);
    server.plan("/conn/commit", Fault::LoseAnswer);
    reserve(&*provider, &ask("lost-3", 400, 600, 4200)).await;
    assert_eq!((server.taken(), server.planned()), (1, 0));
}

#[tokio::test]
async fn a_full_calendar_says_no_and_what_would_fit() {
    let server = OscarsStandIn::start(1000, Some(TOKEN)).unwrap();
    let (provider, _folder) = client(&server, TOKEN);
    reserve(&*provider, &ask("first", 700, 600, 4200)).await;
    let no = refused(provider.hold(&ask("second", 400, 600, 4200)).await.unwrap());
    assert_eq!(no.fits, Some(ByteRate::new(300 * MBIT)));
    server.talks(true);
    let no = refused(provider.hold(&ask("second", 400, 600, 4200)).await.unwrap());
    assert!(no.why.contains("above available"), "{no:?}");
    // The circuit is free before and after, and a rate that fits is granted.
    reserve(&*provider, &ask("behind", 1000, 4300, 8000)).await;
    reserve(&*provider, &ask("second", 300, 600, 4200)).await;
    // The client refuses more than the circuit has without a request.
    let no = refused(
        provider
            .hold(&ask("third", 20_000, 9000, 10_000))
            .await
            .unwrap(),
    );
    assert_eq!(no.fits, Some(ByteRate::new(10_000 * MBIT)));
    // Too short: OSCARS refuses, and a higher rate would not help.
    let no = refused(provider.hold(&ask("third", 10, 9000, 9600)).await.unwrap());
    assert_eq!(no.fits, None, "{no:?}");
}

#[tokio::test]
async fn a_volume_goes_where_it_is_done_in_time() {
    let server = OscarsStandIn::start(10_000, Some(TOKEN)).unwrap();
    let (provider, _folder) = client(&server, TOKEN);
    puts_volumes_in_time(&*provider).await;
    assert_eq!(server.taken(), 1);
}

#[tokio::test]
async fn a_hold_that_nobody_commits_is_gone() {
    let server = OscarsStandIn::start(1000, Some(TOKEN)).unwrap();
    let (provider, _folder) = client(&server, TOKEN);
    let wish = ask("slow", 1000, 3600, 7200);
    let held = granted(provider.hold(&wish).await.unwrap());
    server.pass(600);
    let again = granted(provider.hold(&wish).await.unwrap());
    assert!(
        again.expires > held.expires,
        "asked again, it is kept longer"
    );
    server.pass(901);
    let no = refused(provider.commit(&held.id).await.unwrap());
    assert!(no.why.contains("expired"), "{no:?}");
    assert_eq!(
        provider.status(&held.id).await.unwrap_err().kind(),
        ErrorKind::NotFound
    );
    provider.release(&held.id).await.unwrap();
    // A restart forgets holds, and nothing else.
    let kept = reserve(&*provider, &ask("kept", 300, 3600, 7200)).await;
    let lost = granted(
        provider
            .hold(&ask("forgotten", 300, 3600, 7200))
            .await
            .unwrap(),
    )
    .id;
    server.restart();
    refused(provider.commit(&lost).await.unwrap());
    assert_eq!(provider.status(&kept).await.unwrap().state, State::Reserved);
    reserve(&*provider, &ask("forgotten", 300, 3600, 7200)).await;
}

#[tokio::test]
async fn what_is_reserved_can_be_changed_as_far_as_it_fits() {
    let server = OscarsStandIn::start(1000, Some(TOKEN)).unwrap();
    let (provider, _folder) = client(&server, TOKEN);
    let id = reserve(&*provider, &ask("mine", 400, 600, 4200)).await;
    reserve(&*provider, &ask("other", 500, 600, 4200)).await;
    reserve(&*provider, &ask("next", 800, 5000, 9000)).await;
    let rate = |mbit| Change {
        rate: Some(ByteRate::new(mbit * MBIT)),
        ..Change::default()
    };
    let end = |until_s| Change {
        until: Some(in_s(until_s)),
        ..Change::default()
    };
    assert_eq!(
        granted(provider.modify(&id, &rate(500)).await.unwrap())
            .rate
            .get(),
        500 * MBIT
    );
    let no = refused(provider.modify(&id, &rate(501)).await.unwrap());
    assert_eq!(no.fits, Some(ByteRate::new(500 * MBIT)));
    let wish = end(4900);
    assert_eq!(
        Some(granted(provider.modify(&id, &wish).await.unwrap()).until),
        wish.until
    );
    // OSCARS reports this one as a success.
    let no = refused(provider.modify(&id, &end(6000)).await.unwrap());
    assert!(no.why.contains("did not change"), "{no:?}");
    // Both or none.
    let both = Change {
        rate: rate(450).rate,
        ..end(6000)
    };
    refused(provider.modify(&id, &both).await.unwrap());
    let now = provider.status(&id).await.unwrap().terms.unwrap();
    assert_eq!((now.rate.get(), Some(now.until)), (500 * MBIT, wish.until));
    let wish = end(3600);
    assert_eq!(
        Some(granted(provider.modify(&id, &wish).await.unwrap()).until),
        wish.until
    );
    let start = Change {
        from: Some(in_s(900)),
        ..Change::default()
    };
    assert_eq!(
        provider.modify(&id, &start).await.unwrap_err().kind(),
        ErrorKind::Unsupported
    );
    assert!(!provider.capabilities().moves_start);
}

#[tokio::test]
async fn what_fails_below_is_told() {
    let server = OscarsStandIn::start(1000, Some(TOKEN)).unwrap();
    let (provider, _folder) = client(&server, TOKEN);
    let id = reserve(&*provider, &ask("mine", 400, 600, 4200)).await;
    server.fail_all();
    assert_eq!(provider.status(&id).await.unwrap().state, State::Failed);
}

#[tokio::test]
async fn a_wrong_token_is_no_refusal_and_is_shown_to_nobody() {
    let server = OscarsStandIn::start(1000, Some("another")).unwrap();
    let (provider, _folder) = client(&server, TOKEN);
    let error = provider
        .hold(&ask("mine", 400, 600, 4200))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated);
    assert!(!error.is_temporary());
    for text in [
        error.to_string(),
        format!("{error:?}"),
        format!("{provider:?}"),
    ] {
        assert!(!text.contains(TOKEN), "{text}");
        assert!(!text.contains('\n'), "{text}");
    }
    assert_eq!(server.taken(), 0);
}

#[tokio::test]
async fn a_server_with_a_fault_is_no_refusal() {
    let server = OscarsStandIn::start(1000, Some(TOKEN)).unwrap();
    let (provider, _folder) = client(&server, TOKEN);
    let (hasty, _other) = patient(&server, TOKEN, 1);
    let wish = ask("mine", 400, 600, 4200);
    for (fault, kind, asks) in [
        (Fault::Garbage, ErrorKind::Other, &provider),
        (Fault::Endless(5 << 20), ErrorKind::Other, &provider),
        (
            Fault::Slow(Duration::from_secs(5)),
            ErrorKind::TimedOut,
            &hasty,
        ),
    ] {
        server.plan("/protected/hold", fault);
        let error = asks.hold(&wish).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{fault:?}: {error}");
        // The hold succeeded, and is found when it is repeated.
        let id = granted(provider.hold(&wish).await.unwrap()).id;
        provider.release(&id).await.unwrap();
        assert_eq!(server.taken(), 0);
    }
    // OSCARS refuses with status 500, too: it is a fault if OSCARS can't say what would fit either.
    server.plan("/protected/hold", Fault::Broken);
    server.plan("/api/pce/paths", Fault::Broken);
    let error = provider.hold(&wish).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    assert!(error.is_temporary());
    assert_eq!(server.planned(), 0);
}

#[tokio::test]
async fn nobody_there_is_said_at_once() {
    let server = OscarsStandIn::start(1000, Some(TOKEN)).unwrap();
    let (provider, _folder) = client(&server, TOKEN);
    drop(server);
    let error = provider.list().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
}

#[tokio::test]
async fn nonsense_is_not_sent() {
    let server = OscarsStandIn::start(1000, Some(TOKEN)).unwrap();
    let (provider, _folder) = client(&server, TOKEN);
    for key in ["", "a b", "ü", &"k".repeat(65)] {
        let error = provider.hold(&ask(key, 1, 600, 4200)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{key}");
    }
    for name in ["", "../../x", "a/b", "a\r\nb"] {
        let error = provider.status(&Id::new(name)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{name}");
    }
}

#[test]
fn a_token_that_others_may_read_is_not_used() {
    let server = OscarsStandIn::start(1000, None).unwrap();
    let (_provider, folder) = client(&server, TOKEN);
    let file = folder.path().join("token");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let text = format!(
        "[[circuit]]\nname='x'\nprovider='oscars'\naddress='{}'\ntoken_file='token'\nrate_max='1Gbit'\n\
         ends=[{{junction='a',port='a:1',vlan=2}},{{junction='b',port='b:1',vlan=2}}]",
        server.address()
    );
    let error = open(&circuit(&text, folder.path())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("chmod 600"), "{error}");
}
