//! Reservations of bandwidth at whoever sells them.
//!
//! A [`Circuit`] is a way on which rate can be reserved, as an operator wrote it down in `circuits.toml`: who sells it,
//! between which two ends, what it leads to. A [`Provider`] is the conversation with who sells it. What is asked
//! for carries a key that its asker made up, so that whoever loses an answer asks again and gets the same
//! reservation, never a second one.
//!
//! ```text
//!   hold ──► held ──► commit ──► reserved ──► up ──► over
//!    │        └ nobody commits: over       └► failed
//!    └► refused: what would fit, where that is known
//! ```
//!
//! "No" is no error: a calendar that is full answers [`Answer::Refused`], and only what is broken, silent or does not
//! know us is a [`posthaste_endpoint::Error`].

mod circuit;
mod clock;
mod line;
mod local;
mod nsi;
mod oscars;
mod place;
mod provider;
mod rate;
mod web;

pub use circuit::{
    Approach, CIRCUITS_MAX, Circuit, Credential, Fixture, Flow, Local, Nsi, Oscars, parse_circuits,
    read_circuits,
};
pub use place::{Placing, place};
pub use provider::{
    Answer, Ask, Capabilities, Change, Held, Id, KEY_BYTES_MAX, Provider, Refusal, State, Status,
    Terms, What,
};
pub use rate::{read_rate, show_rate};

use posthaste_endpoint::Result;

/// A client for whoever sells `circuit`. Nothing is asked yet.
///
/// # Errors
/// Those of the files it names: credentials and certificates.
pub fn open(circuit: &Circuit) -> Result<Box<dyn Provider>> {
    Ok(match &circuit.approach {
        Approach::Local(local) => {
            Box::new(local::LocalClient::new(circuit.clone(), local.clone())?)
        }
        Approach::Oscars(oscars) => {
            Box::new(oscars::OscarsClient::new(circuit.clone(), oscars.clone())?)
        }
        Approach::Nsi(nsi) => Box::new(nsi::NsiClient::new(circuit.clone(), nsi.clone())?),
    })
}
