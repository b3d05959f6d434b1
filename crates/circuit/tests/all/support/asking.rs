//! Requests to providers, and their expected answers.

#![allow(dead_code, reason = "another crate's tests use a part of it")]

use std::{os::unix::fs::PermissionsExt, path::Path, time::Duration};

use posthaste_circuit::{
    Answer, Ask, Circuit, Held, Id, Provider, Refusal, Terms, What, open, parse_circuits,
};
use posthaste_types::{ByteRate, Bytes, Timestamp};
use tempfile::TempDir;

/// Bytes a second of one megabit a second.
const MBIT: u64 = 125_000;

/// Returns the only circuit of this text.
pub fn circuit(text: &str, folder: &Path) -> Circuit {
    parse_circuits(text, folder).unwrap().remove(0)
}

/// Returns a client of the only circuit of this text, whose `token_file` is called `token`.
pub fn client_of(text: &str, token: &str) -> (Box<dyn Provider>, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, format!("{token}\n")).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    (open(&circuit(text, folder.path())).unwrap(), folder)
}

/// Returns a time so many seconds from now, in whole seconds as providers count.
pub fn in_s(seconds: i64) -> Timestamp {
    let at = jiff::Timestamp::now().as_second() + seconds;
    Timestamp::from_secs(u64::try_from(at).unwrap())
}

/// Returns terms: `rate` in bytes a second, the span in seconds from now.
pub fn terms(rate: u64, from_s: i64, until_s: i64) -> Terms {
    Terms {
        rate: ByteRate::new(rate),
        from: in_s(from_s),
        until: in_s(until_s),
    }
}

/// Builds a request for a fixed rate.
pub fn ask_for(key: &str, terms: Terms) -> Ask {
    Ask {
        key: key.to_owned(),
        what: What::Fixed(terms),
    }
}

pub fn granted<T>(answer: Answer<T>) -> T {
    match answer {
        Answer::Granted(it) => it,
        Answer::Refused(refusal) => panic!("refused: {refusal:?}"),
    }
}

pub fn refused<T: std::fmt::Debug>(answer: Answer<T>) -> Refusal {
    match answer {
        Answer::Granted(it) => panic!("granted: {it:?}"),
        Answer::Refused(refusal) => refusal,
    }
}

/// Holds and commits.
pub async fn reserve(provider: &dyn Provider, ask: &Ask) -> Id {
    let id = granted(provider.hold(ask).await.unwrap()).id;
    granted(provider.commit(&id).await.unwrap());
    id
}

/// Builds a request for a volume that takes 1000 s at 1000 Mbit/s, with this deadline.
pub fn volume(key: &str, deadline_s: i64) -> Ask {
    Ask {
        key: key.to_owned(),
        what: What::Volume {
            bytes: Bytes::new(1000 * 1000 * MBIT),
            earliest: in_s(0),
            deadline: in_s(deadline_s),
            rate_max: ByteRate::new(1000 * MBIT),
        },
    }
}

/// Checks that a provider with a minute of set-up places such a volume in time and refuses one that
/// can't be done. The provider has one reservation afterwards: the one returned.
pub async fn puts_volumes_in_time(provider: &dyn Provider) -> Held {
    let asked = in_s(0);
    let held = granted(provider.hold(&volume("v", 3600)).await.unwrap());
    assert_eq!(held.granted.rate, ByteRate::new(1000 * MBIT));
    assert!(held.granted.volume() >= Bytes::new(1000 * 1000 * MBIT));
    assert!(held.granted.from.since(asked) >= Duration::from_secs(58));
    let no = refused(provider.hold(&volume("w", 1000)).await.unwrap());
    assert!(no.why.contains("deadline"), "{no:?}");
    held
}
