//! Checks that several sources hold the same bytes, before anything is promised.
//!
//! If two stores report checksums of a file, those are compared. Without checksums, some bytes are
//! read at each source: both ends of each run that lies at the same sources, and blocks spread
//! evenly over it. That detects another version of a large file even if only its middle differs.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Range,
    sync::Arc,
};

use futures_util::{StreamExt, stream, stream::FuturesUnordered};
use posthaste_endpoint::{Endpoint, Locus, Result, StoredSum};

use super::{list::List, union::differs};

/// Bytes read at each end of a run, at each source.
const END_BYTES: u64 = 64 << 10;
/// Bytes read in one block between the ends.
const BLOCK_BYTES: u64 = 16 << 10;
/// Limits of such blocks, for one run and in total: some MiB at each source.
const BLOCKS_OF_RUN: u64 = 64;
const BLOCKS_MAX: u64 = 256;
/// Least bytes of a run per sampled block, so that samples stay a small share of the data.
const BYTES_OF_BLOCK: u64 = 1 << 20;
/// Files whose checksums are requested because their lists may contradict each other.
const DOUBTS_MAX: usize = 64;
/// Reads at once, of all sources together.
const SAMPLED_AT_ONCE: usize = 16;

/// Range of a file that must be equal at all sources of its run.
type Block = (usize, Range<u64>);

/// Checks that several sources hold the same bytes, by their checksums and by samples.
///
/// # Errors
/// [`posthaste_endpoint::ErrorKind::Conflict`] if they differ, with the file and both sources; the
/// endpoints' own errors.
pub(super) async fn compare(
    addresses: &[String],
    endpoints: &[Arc<dyn Endpoint>],
    list: &Arc<List>,
) -> Result<()> {
    let samples = blocks(list).into_iter().flat_map(|(places, block)| {
        let places = places.into_iter();
        places.map(move |place| (place, block.clone()))
    });
    let mut samples = stream::iter(samples);
    let mut sampling = FuturesUnordered::new();
    let mut known = Known::default();
    loop {
        while sampling.len() < SAMPLED_AT_ONCE
            && let Some((place, block)) = samples.next().await
        {
            let (endpoint, list) = (Arc::clone(&endpoints[place]), Arc::clone(list));
            sampling.push(sample(endpoint, list, place, block));
        }
        let Some(sampled) = sampling.next().await else {
            return Ok(());
        };
        let sampled = sampled.map_err(|error| error.at(Locus::Source))?;
        let shown = String::from_utf8_lossy(&list.files[sampled.block.0].path);
        let shown = shown.escape_debug().to_string();
        if let Some((other, place, why)) = known.contradiction(sampled) {
            let (one, other) = (place.min(other), place.max(other));
            let what = format!("{shown}: {why}");
            return Err(differs(&addresses[one], &addresses[other], &what));
        }
    }
}

/// Samples so far, each with its first source.
#[derive(Default)]
struct Known {
    blocks: HashMap<Block, (usize, blake3::Hash)>,
    sums: BTreeMap<usize, Vec<(usize, StoredSum)>>,
}

struct Sampled {
    place: usize,
    block: Block,
    digest: blake3::Hash,
    told: Option<StoredSum>,
}

impl Known {
    /// Returns the two sources that contradict each other, and the evidence.
    fn contradiction(&mut self, sampled: Sampled) -> Option<(usize, usize, &'static str)> {
        let Sampled {
            place,
            block,
            digest,
            told,
        } = sampled;
        let file = block.0;
        if let Some(told) = told {
            let sums = self.sums.entry(file).or_default();
            if let Some((other, _)) = sums.iter().find(|(_, sum)| sum.contradicts(told)) {
                return Some((*other, place, "the checksums that they keep differ"));
            }
            sums.push((place, told));
        }
        let first = self.blocks.entry(block);
        let (other, first) = *first.or_insert((place, digest));
        (first != digest).then_some((other, place, "the data itself differs"))
    }
}

/// Returns the blocks to read, and the sources to read each from.
fn blocks(list: &List) -> Vec<(Vec<usize>, Block)> {
    let starts = list.starts();
    let shared: Vec<usize> = (0..list.runs.len())
        .filter(|run| list.runs[*run].places.len() > 1)
        .collect();
    let most = BLOCKS_OF_RUN.min(BLOCKS_MAX / (shared.len() as u64).max(1));
    let (mut blocks, mut doubts) = (Vec::new(), 0);
    for run in shared {
        let places = list.runs[run].places.iter();
        let places: Vec<usize> = places.map(|place| *place as usize).collect();
        let mut of_run: BTreeSet<(usize, u64, u64)> = BTreeSet::new();
        let files = list.files_of(run);
        let size = |file: usize| list.files[file].size;
        let mut full = files.clone().filter(|file| size(*file) > 0);
        let first = full.next();
        let last = full.next_back().or(first);
        if let (Some(first), Some(last)) = (first, last) {
            let (begins, ends) = (starts[first], starts[last] + size(last));
            of_run.insert((first, 0, END_BYTES.min(size(first))));
            of_run.insert((last, size(last).saturating_sub(END_BYTES), size(last)));
            let count = ((ends - begins) / BYTES_OF_BLOCK).min(most);
            for number in 1..=count {
                let at = begins + (ends - begins) / (count + 1) * number;
                for piece in list.pieces(&starts, at..ends.min(at + BLOCK_BYTES)) {
                    of_run.insert((piece.file, piece.range.start, piece.range.end));
                }
            }
        }
        for file in files.filter(|file| list.may_differ(*file)) {
            if doubts < DOUBTS_MAX {
                doubts += 1;
                of_run.insert((file, 0, 0));
            }
        }
        let of_run = of_run.into_iter();
        blocks.extend(of_run.map(|(file, from, to)| (places.clone(), (file, from..to))));
    }
    blocks
}

/// Reads a block, and asks for the source's checksum of its file.
async fn sample(
    endpoint: Arc<dyn Endpoint>,
    list: Arc<List>,
    place: usize,
    block: Block,
) -> Result<Sampled> {
    let mut hasher = blake3::Hasher::new();
    let mut told = None;
    let (file, range) = block.clone();
    if let Some(entry) = list.entry(place, file) {
        let reader = endpoint.open(list.path_there(place, file), &entry).await?;
        told = reader.stored_sum();
        let mut bytes = reader.read(range).await?;
        while let Some(some) = bytes.next().await {
            hasher.update(&some?);
        }
    }
    Ok(Sampled {
        place,
        block,
        digest: hasher.finalize(),
        told,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampled(place: usize, block: Block, content: &[u8]) -> Sampled {
        Sampled {
            place,
            block,
            digest: blake3::hash(content),
            told: None,
        }
    }

    #[test]
    fn a_source_does_not_contradict_itself_with_two_blocks_that_begin_at_one_place() {
        let mut known = Known::default();
        // Of a file whose lists may differ, nothing is read but its checksum.
        assert_eq!(known.contradiction(sampled(0, (0, 0..0), b"")), None);
        assert_eq!(known.contradiction(sampled(0, (0, 0..4), b"data")), None);
        assert_eq!(known.contradiction(sampled(1, (0, 0..4), b"data")), None);
        let differs = known.contradiction(sampled(1, (0, 0..0), b"other"));
        assert_eq!(differs, Some((0, 1, "the data itself differs")));
    }
}
