//! Chunk coded 2+1, for relays to pass on.

use posthaste_endpoint::relay::DatasetId;
use posthaste_engine::{
    code::Codec,
    stripe::{Stripe, encode_stripe},
};
use posthaste_types::{ChunkIndex, Code, FragmentIndex};

use crate::support::running::noise;

pub const DATASET: DatasetId = DatasetId::new([7; 16]);
pub const CHUNK: ChunkIndex = ChunkIndex::new(3);
pub const SIZE: usize = (1 << 20) + 5;

pub fn code() -> Code {
    Code::new(2, 1).unwrap()
}

pub fn fragment(n: usize) -> FragmentIndex {
    FragmentIndex::new(u8::try_from(n).unwrap())
}

pub fn stripe() -> Stripe {
    let chunk = noise(1, SIZE).to_vec();
    encode_stripe(&Codec::new(code()), None, CHUNK.get(), chunk).unwrap()
}
