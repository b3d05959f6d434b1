//! Vocabulary of all other crates: units, ids, codes and digests.
//!
//! Nothing here decides or does anything. Seconds can't meet bytes because each unit is a type. A
//! value that must outlive the process is a [`Record`], whose bytes depend on nothing but the
//! value. Raw numbers appear only if the name ends in the unit.
#![no_std]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod code;
mod digest;
mod encryption;
mod id;
mod letter;
mod quantity;
pub mod record;
mod time;

pub use code::{Code, CodeError};
pub use digest::{Digest, DigestError};
pub use encryption::{TAG_BYTES, encrypted_sizes};
pub use id::{ChunkIndex, CircuitId, DepotId, FragmentIndex, RequestId, ReservationId, SourceId};
pub use letter::is_obeyed;
pub use quantity::{ByteRate, Bytes, QuantityError};
pub use record::{Malformed, Record};
pub use time::Timestamp;
