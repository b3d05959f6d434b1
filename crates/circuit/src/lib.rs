//! Reservations of bandwidth at providers.
//!
//! A [`Circuit`] is a path on which rate can be reserved, as an operator writes it in
//! `circuits.toml`: its provider, its two ends, and the depots that it leads to. A [`Provider`] is
//! the client of a circuit's provider. Each request carries a key that the caller made up. A caller
//! that loses an answer repeats the request and gets the same reservation, never a second one.
//!
//! ```text
//!   hold ──► held ──► commit ──► reserved ──► up ──► over
//!    │        └ nobody commits: over       └► failed
//!    └► refused: what would fit, where that is known
//! ```
//!
//! A refusal is no error: a full calendar answers [`Answer::Refused`]. Only a provider that is
//! broken, silent or does not accept our credential is a [`posthaste_endpoint::Error`].

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

/// Opens a client for the provider of `circuit`, without sending a request.
///
/// # Errors
/// Errors of the files it names: credentials and certificates.
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
