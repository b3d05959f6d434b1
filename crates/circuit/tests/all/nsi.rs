//! Requester of NSI-CS against its stand-in, over a real socket.

use std::time::Duration;

use posthaste_circuit::{Ask, Change, Id, Provider, State, What};
use posthaste_endpoint::ErrorKind;
use posthaste_testbed::{Fault, NsiHabits, NsiStandIn};
use posthaste_types::ByteRate;
use tempfile::TempDir;

use crate::support::asking;

use asking::{
    ask_for, client_of, granted, in_s, puts_volumes_in_time, refused, reserve, terms, volume,
};

const TOKEN: &str = "a-token-that-nobody-may-see";
const MBIT: u64 = 125_000;

/// Habits of providers: by the book, forgetful, talkative.
const HABITS: [NsiHabits; 3] = [
    NsiHabits {
        forgets: false,
        shows_held: false,
        stalls: false,
        spoils_commits: false,
    },
    NsiHabits {
        forgets: true,
        shows_held: false,
        stalls: false,
        spoils_commits: false,
    },
    NsiHabits {
        forgets: false,
        shows_held: true,
        stalls: false,
        spoils_commits: false,
    },
];

fn stp(port: &str, vlans: &str) -> String {
    format!("{}{port}?vlan={vlans}", NsiStandIn::NETWORK)
}

/// Line of a circuit's text that sets the timeout.
const PATIENT: &str = "patience_s = 60";

/// Returns the text of a circuit of `server` between two STPs, with a client's token.
fn text(server: &NsiStandIn, stps: [&str; 2]) -> String {
    format!(
        r#"
        [[circuit]]
        name = "far"
        provider = "nsi"
        address = "{}"
        token_file = "token"
        rate_max = "10Gbit"
        lead_time_s = 60
        {PATIENT}
        requester_nsa = "{}"
        provider_nsa = "{}"
        stps = ["{}", "{}"]
        "#,
        server.address(),
        NsiStandIn::REQUESTER,
        NsiStandIn::PROVIDER,
        stps[0],
        stps[1]
    )
}

fn client(server: &NsiStandIn, token: &str) -> (Box<dyn Provider>, TempDir) {
    let [a, z] = [stp("lbl", "1780-1790"), stp("iu", "1780-1790")];
    client_of(&text(server, [&a, &z]), token)
}

/// Returns a client with this timeout.
fn patient(server: &NsiStandIn, patience_s: u64) -> (Box<dyn Provider>, TempDir) {
    let [a, z] = [stp("lbl", "1780-1790"), stp("iu", "1780-1790")];
    let text = text(server, [&a, &z]).replace(PATIENT, &format!("patience_s = {patience_s}"));
    client_of(&text, TOKEN)
}

fn ask(key: &str, mbit: u64, from_s: i64, until_s: i64) -> Ask {
    ask_for(key, terms(mbit * MBIT, from_s, until_s))
}

fn rate(mbit: u64) -> Change {
    Change {
        rate: Some(ByteRate::new(mbit * MBIT)),
        ..Change::default()
    }
}

#[tokio::test]
async fn a_reservation_lives_as_nsi_says() {
    for habits in HABITS {
        let server = NsiStandIn::start(1000, Some(TOKEN)).unwrap();
        server.behave(habits);
        let (provider, _folder) = client(&server, TOKEN);
        let wish = ask("r7-1", 400, 600, 4200);
        let held = granted(provider.hold(&wish).await.unwrap());
        assert_eq!(What::Fixed(held.granted), wish.what);
        let status = provider.status(&held.id).await.unwrap();
        assert_eq!(status.state, State::Held { expires: None });
        assert_eq!(status.key.as_deref(), Some("r7-1"));
        assert_eq!(status.terms.map(What::Fixed), Some(wish.what));
        assert_eq!(provider.list().await.unwrap().len(), 1, "holds are listed");

        granted(provider.commit(&held.id).await.unwrap());
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
        assert_eq!((server.taken(), server.left()), (0, 0));
        // A reservation that ends by itself is over, too.
        let id = reserve(&*provider, &ask("r7-2", 400, 1200, 4200)).await;
        server.pass(3600);
        assert_eq!(provider.status(&id).await.unwrap().state, State::Over);
        provider.release(&id).await.unwrap();
    }
}

#[tokio::test]
async fn whoever_loses_an_answer_asks_again_and_has_one_reservation() {
    let server = NsiStandIn::start(1000, Some(TOKEN)).unwrap();
    let (provider, _folder) = client(&server, TOKEN);
    for (number, fault) in [Fault::LoseAnswer, Fault::LoseQuestion]
        .into_iter()
        .enumerate()
    {
        let wish = ask(&format!("lost-{number}"), 400, 600, 4200);
        (0..2).for_each(|_| server.plan("querySummarySync", fault));
        let error = provider.hold(&wish).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
        assert!(error.is_temporary());
        // A reserve is sent once, and then looked for; all other requests are repeated by the
        // client itself.
        server.plan("reserve", fault);
        let first = provider.hold(&wish).await;
        assert_eq!(first.is_ok(), fault == Fault::LoseAnswer, "{first:?}");
        let id = granted(provider.hold(&wish).await.unwrap()).id;
        assert_eq!(granted(provider.hold(&wish).await.unwrap()).id, id);
        for operation in ["reserveCommit", "provision"] {
            (0..2).for_each(|_| server.plan(operation, fault));
            provider.commit(&id).await.unwrap_err();
        }
        granted(provider.commit(&id).await.unwrap());
        assert_eq!(server.taken(), 1);
        let change = Change {
            until: Some(in_s(3000)),
            ..rate(500)
        };
        server.forget_plan();
        server.plan("reserve", fault);
        provider.modify(&id, &change).await.unwrap_err();
        (0..2).for_each(|_| server.plan("reserveCommit", fault));
        provider.modify(&id, &change).await.unwrap_err();
        let now = granted(provider.modify(&id, &change).await.unwrap());
        assert_eq!(
            (Some(now.rate), Some(now.until)),
            (change.rate, change.until)
        );
        (0..2).for_each(|_| server.plan("terminate", fault));
        provider.release(&id).await.unwrap_err();
        provider.release(&id).await.unwrap();
        assert_eq!((server.taken(), server.left()), (0, 0));
        server.forget_plan();
    }
    // A single lost answer has no effect.
    for operation in ["reserve", "reserveCommit", "provision"] {
        server.plan(operation, Fault::LoseAnswer);
    }
    reserve(&*provider, &ask("lost", 400, 600, 4200)).await;
    assert_eq!((server.taken(), server.planned()), (1, 0));
}

#[tokio::test]
async fn twins_become_one() {
    let server = NsiStandIn::start(1000, Some(TOKEN)).unwrap();
    let (provider, _folder) = client(&server, TOKEN);
    let wish = ask("twin", 300, 600, 4200);
    granted(provider.hold(&wish).await.unwrap());
    server.hear_twice();
    assert_eq!(server.taken(), 2);
    let id = granted(provider.hold(&wish).await.unwrap()).id;
    assert_eq!((server.taken(), server.left()), (1, 1));
    // The committed one is kept.
    server.hear_twice();
    granted(provider.commit(&id).await.unwrap());
    assert_eq!(server.taken(), 2);
    assert_eq!(granted(provider.hold(&wish).await.unwrap()).id, id);
    assert_eq!((server.taken(), server.left()), (1, 1));
    assert_eq!(provider.status(&id).await.unwrap().state, State::Reserved);
    assert_eq!(provider.list().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_full_calendar_says_no_and_what_would_fit() {
    for habits in HABITS {
        let server = NsiStandIn::start(1000, Some(TOKEN)).unwrap();
        server.behave(habits);
        let (provider, _folder) = client(&server, TOKEN);
        reserve(&*provider, &ask("first", 700, 600, 4200)).await;
        let no = refused(provider.hold(&ask("second", 400, 600, 4200)).await.unwrap());
        if habits.forgets {
            assert!(no.why.contains("does not keep why"), "{no:?}");
        } else {
            assert_eq!(no.fits, Some(ByteRate::new(300 * MBIT)));
            assert!(no.why.contains("capacity"), "{no:?}");
        }
        assert_eq!(server.left(), 1, "what was refused is cleared away");
        // The circuit is free before and after, and a rate that fits is granted under the same key.
        reserve(&*provider, &ask("behind", 1000, 4300, 8000)).await;
        reserve(&*provider, &ask("second", 300, 600, 4200)).await;
        // The client refuses more than the circuit has without a request.
        let asked = server.reserves();
        let wish = ask("third", 20_000, 9000, 10_000);
        let no = refused(provider.hold(&wish).await.unwrap());
        assert_eq!(no.fits, Some(ByteRate::new(10_000 * MBIT)));
        assert_eq!(server.reserves(), asked);
    }
}

#[tokio::test]
async fn an_stp_is_one_circuit_at_a_time() {
    let server = NsiStandIn::start(1000, Some(TOKEN)).unwrap();
    let [a, z] = [stp("lbl", "1780"), stp("iu", "1780")];
    let (provider, _folder) = client_of(&text(&server, [&a, &z]), TOKEN);
    reserve(&*provider, &ask("first", 100, 600, 4200)).await;
    let no = refused(provider.hold(&ask("second", 100, 600, 4200)).await.unwrap());
    assert!(no.why.contains("in use") && no.fits.is_none(), "{no:?}");
    reserve(&*provider, &ask("behind", 100, 4300, 8000)).await;
    // An unknown STP is no refusal: it is our own fault.
    let nowhere = "urn:ogf:network:nowhere:1?vlan=7";
    let (provider, _folder) = client_of(&text(&server, [nowhere, &z]), TOKEN);
    let error = provider
        .hold(&ask("third", 1, 600, 4200))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    assert!(error.to_string().contains("00701"), "{error}");
}

#[tokio::test]
async fn a_volume_goes_where_it_is_done_in_time() {
    let server = NsiStandIn::start(10_000, Some(TOKEN)).unwrap();
    let (provider, _folder) = client(&server, TOKEN);
    let held = puts_volumes_in_time(&*provider).await;
    // Repeated a little later, it returns the same, though nothing is committed.
    let again = granted(provider.hold(&volume("v", 3599)).await.unwrap());
    assert_eq!(again, held);
    assert_eq!(server.taken(), 1);
}

#[tokio::test]
async fn a_hold_that_nobody_commits_is_gone() {
    for habits in HABITS {
        let server = NsiStandIn::start(1000, Some(TOKEN)).unwrap();
        server.behave(habits);
        let (provider, _folder) = client(&server, TOKEN);
        let wish = ask("slow", 1000, 3600, 7200);
        let held = granted(provider.hold(&wish).await.unwrap());
        server.pass(181);
        let no = refused(provider.commit(&held.id).await.unwrap());
        assert!(no.why.contains("expired"), "{no:?}");
        assert_eq!(provider.status(&held.id).await.unwrap().state, State::Over);
        assert!(provider.list().await.unwrap().is_empty());
        let id = reserve(&*provider, &wish).await;
        assert_ne!(id, held.id);
        assert_eq!((server.taken(), server.left()), (1, 1));
        let error = provider.status(&Id::new("c-9999")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let no = refused(provider.commit(&Id::new("c-9999")).await.unwrap());
        assert!(no.why.contains("expired"), "{no:?}");
        provider.release(&Id::new("c-9999")).await.unwrap();
    }
}

#[tokio::test]
async fn a_commit_that_fails_leaves_nothing() {
    let server = NsiStandIn::start(1000, Some(TOKEN)).unwrap();
    let (provider, _folder) = client(&server, TOKEN);
    let held = granted(provider.hold(&ask("mine", 1, 600, 4200)).await.unwrap());
    let spoils = NsiHabits {
        spoils_commits: true,
        ..NsiHabits::default()
    };
    server.behave(spoils);
    let no = refused(provider.commit(&held.id).await.unwrap());
    assert!(no.why.contains("a switch is gone"), "{no:?}");
    assert_eq!(server.left(), 0);
    // A change whose commit fails changes nothing either.
    server.behave(NsiHabits::default());
    let id = reserve(&*provider, &ask("mine", 100, 600, 4200)).await;
    server.behave(spoils);
    let no = refused(provider.modify(&id, &rate(200)).await.unwrap());
    assert!(no.why.contains("a switch is gone"), "{no:?}");
    let terms = provider.status(&id).await.unwrap().terms.unwrap();
    assert_eq!(terms.rate.get(), 100 * MBIT);
}

#[tokio::test]
async fn what_is_reserved_can_be_changed_as_far_as_it_fits() {
    for habits in HABITS {
        let server = NsiStandIn::start(1000, Some(TOKEN)).unwrap();
        server.behave(habits);
        let (provider, _folder) = client(&server, TOKEN);
        let id = reserve(&*provider, &ask("mine", 400, 600, 4200)).await;
        reserve(&*provider, &ask("other", 500, 600, 4200)).await;
        reserve(&*provider, &ask("next", 800, 5000, 9000)).await;
        let changed = granted(provider.modify(&id, &rate(500)).await.unwrap());
        assert_eq!(changed.rate.get(), 500 * MBIT);
        // Repeating it does nothing more.
        granted(provider.modify(&id, &rate(500)).await.unwrap());
        let no = refused(provider.modify(&id, &rate(501)).await.unwrap());
        if !habits.forgets {
            assert_eq!(no.fits, Some(ByteRate::new(500 * MBIT)));
        }
        let both = Change {
            from: Some(in_s(900)),
            until: Some(in_s(4900)),
            ..Change::default()
        };
        let changed = granted(provider.modify(&id, &both).await.unwrap());
        assert_eq!(
            (Some(changed.from), Some(changed.until)),
            (both.from, both.until)
        );
        // All or nothing.
        let wish = Change {
            until: Some(in_s(6000)),
            ..rate(450)
        };
        refused(provider.modify(&id, &wish).await.unwrap());
        assert_eq!(provider.status(&id).await.unwrap().terms, Some(changed));
        server.pass(901);
        assert_eq!(provider.status(&id).await.unwrap().state, State::Up);
        granted(provider.modify(&id, &rate(100)).await.unwrap());
        assert_eq!(provider.status(&id).await.unwrap().state, State::Up);
        let no = refused(provider.modify(&id, &rate(20_000)).await.unwrap());
        assert_eq!(no.fits, Some(ByteRate::new(10_000 * MBIT)));
        // A hold is not changed.
        let held = granted(provider.hold(&ask("held", 1, 9000, 9900)).await.unwrap()).id;
        let error = provider.modify(&held, &rate(2)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        assert_eq!(server.taken(), 4);
    }
}

#[tokio::test]
async fn what_fails_below_is_told() {
    let server = NsiStandIn::start(1000, Some(TOKEN)).unwrap();
    let (provider, _folder) = client(&server, TOKEN);
    let id = reserve(&*provider, &ask("mine", 400, 600, 4200)).await;
    server.fail_all();
    assert_eq!(provider.status(&id).await.unwrap().state, State::Failed);
    provider.release(&id).await.unwrap();
    assert_eq!(server.left(), 0);
}

#[tokio::test]
async fn a_wrong_token_is_no_refusal_and_is_shown_to_nobody() {
    let server = NsiStandIn::start(1000, Some("another")).unwrap();
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
    // A requester that the provider does not know.
    let server = NsiStandIn::start(1000, None).unwrap();
    let [a, z] = [stp("lbl", "1-9"), stp("iu", "1-9")];
    let text = text(&server, [&a, &z]).replace(NsiStandIn::REQUESTER, "urn:ogf:network:x:nsa");
    let (provider, _folder) = client_of(&text, TOKEN);
    let error = provider.list().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
    assert_eq!(server.taken(), 0);
}

#[tokio::test]
async fn a_server_with_a_fault_is_no_refusal() {
    let server = NsiStandIn::start(1000, Some(TOKEN)).unwrap();
    let (provider, _folder) = client(&server, TOKEN);
    let wish = ask("mine", 400, 600, 4200);
    for (fault, kind) in [
        (Fault::Garbage, ErrorKind::Other),
        (Fault::Endless(5 << 20), ErrorKind::Other),
    ] {
        server.plan("reserve", fault);
        let error = provider.hold(&wish).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{fault:?}: {error}");
        // The hold succeeded, and is found when it is repeated.
        let id = granted(provider.hold(&wish).await.unwrap()).id;
        provider.release(&id).await.unwrap();
        assert_eq!(server.taken(), 0);
    }
    // The client queries at once after silence. No other answer is as late on a busy machine.
    let (looks, _other) = patient(&server, 5);
    server.plan("reserve", Fault::Slow(Duration::from_secs(60)));
    let id = granted(looks.hold(&wish).await.unwrap()).id;
    provider.release(&id).await.unwrap();
    for operation in ["querySummarySync", "reserve"] {
        server.plan(operation, Fault::Broken);
        let error = provider.hold(&wish).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
        assert!(error.is_temporary());
    }
    assert_eq!((server.taken(), server.planned()), (0, 0));
}

#[tokio::test]
async fn a_provider_that_is_never_done_is_left_in_time() {
    let server = NsiStandIn::start(1000, Some(TOKEN)).unwrap();
    let (provider, _folder) = client(&server, TOKEN);
    let (hasty, _other) = patient(&server, 1);
    let wish = ask("mine", 400, 600, 4200);
    let stalls = NsiHabits {
        stalls: true,
        ..NsiHabits::default()
    };
    server.behave(stalls);
    let error = hasty.hold(&wish).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    assert!(error.is_temporary());
    server.behave(NsiHabits::default());
    let id = granted(provider.hold(&wish).await.unwrap()).id;
    server.behave(stalls);
    let error = hasty.commit(&id).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    server.behave(NsiHabits::default());
    granted(provider.commit(&id).await.unwrap());
    server.behave(stalls);
    let error = hasty.modify(&id, &rate(500)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    assert_eq!(
        provider.status(&id).await.unwrap().state,
        State::Reserved,
        "it lasts while a change is under way"
    );
    server.behave(NsiHabits::default());
    granted(provider.modify(&id, &rate(500)).await.unwrap());
    assert_eq!((server.taken(), server.reserves()), (1, 1));
}

#[tokio::test]
async fn circuits_of_one_provider_do_not_meet() {
    let server = NsiStandIn::start(1000, Some(TOKEN)).unwrap();
    let [a, z, other] = [stp("lbl", "1-9"), stp("iu", "1-9"), stp("anl", "1-9")];
    let (near, _folder) = client_of(&text(&server, [&a, &z]), TOKEN);
    let (far, _folder) = client_of(&text(&server, [&a, &other]), TOKEN);
    let wish = ask("same", 100, 600, 4200);
    let id = reserve(&*near, &wish).await;
    assert_ne!(reserve(&*far, &wish).await, id);
    assert_eq!(near.list().await.unwrap().len(), 1);
    assert_eq!(server.taken(), 2);
}

#[tokio::test]
async fn nobody_there_is_said_at_once() {
    let server = NsiStandIn::start(1000, Some(TOKEN)).unwrap();
    let (provider, _folder) = client(&server, TOKEN);
    drop(server);
    let error = provider.list().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
}

#[tokio::test]
async fn nonsense_is_not_sent() {
    let server = NsiStandIn::start(1000, Some(TOKEN)).unwrap();
    let (provider, _folder) = client(&server, TOKEN);
    for key in ["", "a b", "ü", &"k".repeat(65)] {
        let error = provider.hold(&ask(key, 1, 600, 4200)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{key}");
    }
    for name in ["", "a b", "a\r\nb", "ü", &"n".repeat(257)] {
        let error = provider.status(&Id::new(name)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{name}");
    }
    // Characters of XML go as text.
    let id = Id::new("<a>&");
    let error = provider.status(&id).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    assert_eq!(server.reserves(), 0);
}
