//! The client side of a relay: a depot that lends disk over HTTP/1.1 and TLS 1.3.
//!
//! A relay is identified by its address and by the fingerprint of its key, pinned when it was
//! added; no certificate authority is involved. A relay creates a secret at its first start, which
//! never crosses the wire. Its holder mints short-lived tokens, each for one scope and one dataset
//! ([`mint`]), and the relay checks them without keeping state. `docs/reference/relay-protocol.md`
//! is the protocol.

mod address;
mod cargo;
mod client;
mod connection;
mod delete;
mod departure;
mod doubt;
mod exchange;
mod forward;
mod gather;
mod growing;
pub mod join;
mod measure;
mod order;
mod passes;
pub(crate) mod pin;
mod place;
mod probe;
mod probe_store;
mod pulse;
mod scatter;
mod secret_file;
mod space;
mod status;
mod stream;
mod token;
mod turnstile;
mod way;
pub mod wire;

pub(crate) use address::from_hex;
pub use address::{DatasetId, DatasetIdError, Fingerprint, FingerprintError, RelayAddress};
pub use client::RelayClient;
pub use departure::Departure;
pub use gather::Rebuilt;
pub use growing::{Growing, Grown};
pub use measure::Measured;
pub use passes::{read_by_pass, send_by_pass};
pub use pin::{crypto_provider, fingerprint_of};
pub use place::is_loopback;
pub use probe::Probed;
pub use scatter::{Coded, Scattering};
pub use secret_file::{
    check_own_folder, check_owner, is_constant, read_or_make, read_or_make_secret, read_secret_file,
};
pub use space::SpaceAnswer;
pub use status::{Draining, RelayStatus};
pub use token::{Credential, Refusal, Scope, TOKEN_LIFETIME_S, is_for_all, mint, verify};
pub use turnstile::Haste;
