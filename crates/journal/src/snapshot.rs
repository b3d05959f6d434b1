//! Storage of the mind's snapshots: compressed, because most of its requests are alike and it is
//! written every few seconds.

use std::borrow::Cow;

use crate::database::{Trouble, TroubleKind};

/// First bytes of a compressed snapshot. Older snapshots begin with the number of their layout,
/// which is small.
const COMPRESSED: [u8; 4] = *b"\xfflz4";

/// Compresses a snapshot for storage.
pub(crate) fn pack(snapshot: &[u8]) -> Cow<'_, [u8]> {
    // The length has 32 bits.
    if u32::try_from(snapshot.len()).is_err() {
        return Cow::Borrowed(snapshot);
    }
    let mut packed = COMPRESSED.to_vec();
    packed.extend(lz4_flex::block::compress_prepend_size(snapshot));
    Cow::Owned(packed)
}

/// Returns the original snapshot.
pub(crate) fn unpack(kept: Vec<u8>) -> Result<Vec<u8>, Trouble> {
    match kept.strip_prefix(&COMPRESSED) {
        None => Ok(kept),
        Some(packed) => lz4_flex::block::decompress_size_prepended(packed)
            .map_err(|cause| Trouble::new(TroubleKind::Other, cause)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_is_kept_small_and_comes_back_as_it_was() {
        let snapshot: Vec<u8> = (0..200_000_u32)
            .flat_map(|at| (at / 100).to_le_bytes())
            .collect();
        let packed = pack(&snapshot).into_owned();
        assert!(packed.len() < snapshot.len() / 10, "{}", packed.len());
        assert_eq!(unpack(packed.clone()).unwrap(), snapshot);
        assert_eq!(unpack(pack(&[]).into_owned()).unwrap(), [0; 0]);
        let of_before = [42, 0, 0, 0, 7];
        assert_eq!(unpack(of_before.to_vec()).unwrap(), of_before);
        assert!(unpack(packed[..packed.len() / 2].to_vec()).is_err());
    }
}
