//! Files that travel in segments.

use std::{ops::Range, sync::Arc};

use posthaste_endpoint::{Reader, Writer};

use super::{
    Bytes, Checksum, ErrorKind, FileSpec, MODE, Stage, assert_refused, body, collect, noise,
    small::OTHER_MTIME, spec,
};

/// A large file and the size of the endpoint's segments.
struct Cut {
    bytes: Vec<u8>,
    step: usize,
}

impl Cut {
    fn count(&self) -> usize {
        self.bytes.len().div_ceil(self.step)
    }

    fn segment(&self, index: usize) -> &[u8] {
        let start = index * self.step;
        &self.bytes[start..(start + self.step).min(self.bytes.len())]
    }

    fn range(&self, index: usize) -> Range<u64> {
        let start = (index * self.step) as u64;
        start..start + self.segment(index).len() as u64
    }

    async fn write(&self, writer: &Arc<dyn Writer>, index: usize) {
        let segment = self.segment(index);
        let writing = writer.write(index as u64, self.range(index), body(segment));
        assert_eq!(writing.await.unwrap(), Checksum::of(segment));
    }

    fn noted(&self, index: usize) -> (u64, Checksum) {
        (index as u64, Checksum::of(self.segment(index)))
    }
}

fn step_of(writer: &Arc<dyn Writer>) -> usize {
    usize::try_from(writer.segment_size()).unwrap()
}

pub(super) async fn is_continued(stage: &Stage) {
    let bytes = noise(stage.scale.large_bytes);
    let spec = spec(bytes.len(), "test:large");
    let endpoint = &stage.endpoint;
    endpoint.make_directory(b"large").await.unwrap();
    let writer = endpoint.create(b"large/file", &spec).await.unwrap();
    assert!(writer.kept().is_empty());
    let step = step_of(&writer);
    let cut = Cut { bytes, step };
    let last = cut.count() - 1;
    let first = if stage.can.segments_in_any_order {
        assert!(last >= 2, "the suite needs three segments");
        // The last segment first: order must not matter.
        vec![last, 0]
    } else {
        (0..last.max(1)).collect()
    };
    for &index in &first {
        cut.write(&writer, index).await;
    }
    drop(writer);
    assert!(
        !stage.is_there(b"large/file").await,
        "half a file is visible"
    );

    let writer = endpoint.create(b"large/file", &spec).await.unwrap();
    assert_eq!(step_of(&writer), step, "it is cut differently");
    let mut kept: Vec<_> = writer.kept();
    kept.sort_by_key(|kept| kept.0);
    if stage.can.resumes {
        let mut wanted: Vec<_> = first.iter().map(|&index| cut.noted(index)).collect();
        wanted.sort_by_key(|wanted| wanted.0);
        assert_eq!(kept, wanted);
    } else {
        assert!(kept.is_empty(), "it says that it can't be continued");
    }
    for index in 0..cut.count() {
        if !kept.iter().any(|kept| kept.0 == index as u64) {
            cut.write(&writer, index).await;
        }
    }
    writer.finish(Checksum::of(&cut.bytes)).await.unwrap();
    reads_as(stage, &cut.bytes).await;
    if stage.can.lists {
        let names = stage.names(b"large").await;
        assert_eq!(names.len(), 1, "something is left over: {names:?}");
    }
}

/// Checks [`is_continued`] with a length that is unknown until the file ends.
pub(super) async fn of_unknown_length_is_continued(stage: &Stage) {
    let spec = FileSpec {
        size: 0,
        ..spec(0, "test:open-ended")
    };
    let endpoint = &stage.endpoint;
    let path = b"large/open-ended";
    let created = endpoint.create_open_ended(path, &spec).await;
    if !stage.can.open_ended {
        assert_refused(
            created.map(|_| ()),
            ErrorKind::Unsupported,
            "an unknown length",
        );
        return;
    }
    let writer = created.unwrap();
    assert!(writer.kept().is_empty());
    let cut = Cut {
        bytes: noise(stage.scale.large_bytes),
        step: step_of(&writer),
    };
    let last = cut.count() - 1;
    let first = if stage.can.segments_in_any_order {
        vec![last, 0]
    } else {
        vec![0]
    };
    for &index in &first {
        assert_eq!(writer.segment_start(index as u64), cut.range(index).start);
        cut.write(&writer, index).await;
    }
    drop(writer);
    let writer = endpoint.create_open_ended(path, &spec).await.unwrap();
    let mut kept: Vec<_> = writer.kept();
    kept.sort_by_key(|kept| kept.0);
    let mut wanted: Vec<_> = first.iter().map(|&index| cut.noted(index)).collect();
    wanted.sort_by_key(|wanted| wanted.0);
    assert_eq!(
        kept,
        if stage.can.resumes {
            wanted
        } else {
            Vec::new()
        }
    );
    for index in 0..cut.count() {
        if !kept.iter().any(|kept| kept.0 == index as u64) {
            cut.write(&writer, index).await;
        }
    }
    assert!(!stage.is_there(path).await, "half a file is visible");
    let (size, whole) = (cut.bytes.len() as u64, Checksum::of(&cut.bytes));
    writer.finish_at(size, whole).await.unwrap();
    let found = stage.entry(path).await;
    assert_eq!(found.size, size);
    stage.is_dressed(&found, MODE);
    let reader = endpoint.open(path, &found).await.unwrap();
    let read = collect(reader.read(0..size).await.unwrap()).await;
    assert!(read.unwrap() == cut.bytes, "it differs");
    endpoint.remove(path).await.unwrap();
    ends_early(stage, &cut.bytes).await;
}

/// Checks that bytes written beyond the end of a file of unknown length are discarded.
async fn ends_early(stage: &Stage, bytes: &[u8]) {
    let (endpoint, path) = (&stage.endpoint, b"large/ends-early");
    let spec = spec(0, "test:ends-early");
    let writer = endpoint.create_open_ended(path, &spec).await.unwrap();
    let cut = Cut {
        bytes: bytes.to_vec(),
        step: step_of(&writer),
    };
    for index in 0..cut.count() {
        cut.write(&writer, index).await;
    }
    // A settle is harmless, whether the endpoint can promise durability or not.
    writer.settle().await.unwrap();
    let size = cut.range(1).start;
    let wanted = &cut.bytes[..usize::try_from(size).unwrap()];
    writer.finish_at(size, Checksum::of(wanted)).await.unwrap();
    let found = stage.entry(path).await;
    assert_eq!(found.size, size, "more or less than was said");
    let reader = endpoint.open(path, &found).await.unwrap();
    let read = collect(reader.read(0..size).await.unwrap()).await;
    assert!(read.unwrap() == wanted, "it differs");
    endpoint.remove(path).await.unwrap();
}

pub(super) async fn is_read_in_ranges(stage: &Stage) {
    let bytes = noise(stage.scale.large_bytes);
    stage.through.make_directory(b"large").await.unwrap();
    stage.put(b"large/file", &bytes).await;
    reads_as(stage, &bytes).await;
}

async fn reads_as(stage: &Stage, bytes: &[u8]) {
    let found = stage.entry(b"large/file").await;
    assert_eq!(found.size, bytes.len() as u64);
    stage.is_dressed(&found, MODE);
    let reader = stage.endpoint.open(b"large/file", &found).await.unwrap();
    assert_eq!(reader.entry().size, bytes.len() as u64);
    if stage.can.stores_checksum() {
        assert_eq!(reader.checksum(), Some(Checksum::of(bytes)));
    }
    let len = bytes.len();
    let ranges = [0..len, 0..10, len / 8..len / 8 * 5 + 1, len - 1..len];
    let counted = if stage.can.ranges { ranges.len() } else { 1 };
    let ranges = ranges.into_iter().take(counted);
    for range in ranges {
        let asked = range.start as u64..range.end as u64;
        let read = collect(reader.read(asked).await.unwrap()).await.unwrap();
        assert!(read == bytes[range.clone()], "{range:?} differs");
    }
    reader.confirm().await.unwrap();
}

pub(super) async fn of_a_changed_source_starts_anew(stage: &Stage) {
    let before = spec(stage.scale.large_bytes, "test:changing");
    let endpoint = &stage.endpoint;
    let writer = endpoint.create(b"large/changing", &before).await.unwrap();
    let cut = Cut {
        bytes: noise(stage.scale.large_bytes),
        step: step_of(&writer),
    };
    cut.write(&writer, 0).await;
    drop(writer);
    let after = FileSpec {
        mtime: Some(OTHER_MTIME),
        ..before
    };
    let writer = endpoint.create(b"large/changing", &after).await.unwrap();
    let kept = writer.kept();
    assert!(kept.is_empty(), "segments of another version are kept");
    writer.discard().await;
    drop(writer);
    assert!(!stage.is_there(b"large/changing").await);
    if stage.can.lists {
        let names = stage.names(b"large").await;
        assert_eq!(names.len(), 1, "something is left over: {names:?}");
    }
}

pub(super) async fn of_a_broken_source_is_not_seen(stage: &Stage) {
    let spec = spec(stage.scale.large_bytes, "test:broken");
    let endpoint = &stage.endpoint;
    let writer = endpoint.create(b"large/broken", &spec).await.unwrap();
    let cut = Cut {
        bytes: noise(stage.scale.large_bytes),
        step: step_of(&writer),
    };
    let range = cut.range(0);
    let half = body(&cut.segment(0)[..cut.segment(0).len() / 2]);
    let outcome = writer.write(0, range, half).await;
    assert!(outcome.is_err(), "half a segment counts as whole");
    writer.discard().await;
    drop(writer);
    assert!(!stage.is_there(b"large/broken").await);
    if stage.can.lists {
        let names = stage.names(b"large").await;
        assert_eq!(names.len(), 1, "something is left over: {names:?}");
    }
}

/// Checks that two versions of a file replaced after it was opened never mix.
pub(super) async fn that_changes_is_noticed(stage: &Stage) {
    let old = noise(100_000);
    let new = vec![7; 90_000];
    stage.put(b"small/changing", &old).await;
    let found = stage.entry(b"small/changing").await;
    let reader = stage.endpoint.open(b"small/changing", &found).await;
    let reader = reader.unwrap();
    let spec = FileSpec {
        mtime: Some(OTHER_MTIME),
        ..spec(new.len(), "test:put")
    };
    let data = vec![Bytes::copy_from_slice(&new)];
    let sum = Checksum::of(&new);
    let replacing = stage.through.put(b"small/changing", &spec, data, sum);
    replacing.await.unwrap();
    let read = read_through(&*reader, old.len() as u64).await;
    match read {
        // An open file may keep its old content.
        Ok(bytes) => assert!(bytes == old, "it is mixed from two versions"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Changed, "{error}"),
    }
    let missing = stage.endpoint.open(b"small/none", &found).await;
    assert_refused(missing.map(|_| ()), ErrorKind::NotFound, "opening nothing");
}

async fn read_through(reader: &dyn Reader, len: u64) -> posthaste_endpoint::Result<Vec<u8>> {
    let bytes = collect(reader.read(0..len).await?).await?;
    reader.confirm().await?;
    Ok(bytes)
}
