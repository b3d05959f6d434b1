//! Two writers of one name: the result is from one of them, and only that one hears of success.

use std::ops::Range;

use posthaste_endpoint::Writer;

use super::{
    Bytes, Checksum, ErrorKind, FileSpec, Result, Stage, body, collect, noise, small::OTHER_MTIME,
    spec,
};

/// Rounds in which two writers put small files at the same time.
const ROUNDS: usize = 20;

/// Checks two writers whose files have the same name and size, as copies of a folder on two
/// machines do.
pub(super) async fn of_one_name_never_mix(stage: &Stage) {
    large(stage).await;
    small(stage).await;
}

async fn large(stage: &Stage) {
    let path = b"large/both";
    let mine = noise(stage.scale.large_bytes);
    let theirs = crate::noise(1, mine.len());
    let early = spec(mine.len(), "test:both");
    let late = FileSpec {
        mtime: Some(OTHER_MTIME),
        ..early.clone()
    };
    let first = stage.endpoint.create(path, &early).await.unwrap();
    let step = usize::try_from(first.segment_size()).unwrap();
    // All but the last segment, then the rest.
    let cut = (mine.len() - 1) / step * step;
    write(&*first, &mine, 0..cut.min(step)).await.unwrap();
    let second = stage.endpoint.create(path, &late).await;
    if let Ok(second) = &second {
        // The writer may already report the failure here.
        let _ = write(&**second, &theirs, 0..cut).await;
    }
    let mut arrived = Vec::new();
    if finish(&*first, &mine, cut.min(step)).await.is_ok() {
        arrived.push(&mine);
        assert!(read(stage, path).await == mine, "it is not of the first");
    }
    match second {
        Ok(second) if finish(&*second, &theirs, cut).await.is_ok() => arrived.push(&theirs),
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error}"),
    }
    // If both writers reported failure, the file counts as absent.
    match arrived.last() {
        Some(last) => assert!(&read(stage, path).await == *last, "it is not of the last"),
        None => assert!(!stage.is_there(path).await, "somebody's is there"),
    }
    stage.endpoint.remove(path).await.unwrap();
}

/// Writes these bytes: whole segments, except at the end of the file.
async fn write(writer: &dyn Writer, bytes: &[u8], range: Range<usize>) -> Result<()> {
    let step = usize::try_from(writer.segment_size()).unwrap();
    for start in range.clone().step_by(step) {
        let end = (start + step).min(range.end);
        let segment = &bytes[start..end];
        let sum = writer
            .write(
                (start / step) as u64,
                start as u64..end as u64,
                body(segment),
            )
            .await?;
        assert_eq!(sum, Checksum::of(segment));
    }
    Ok(())
}

/// Writes the rest and finishes, or discards all of it.
async fn finish(writer: &dyn Writer, bytes: &[u8], from: usize) -> Result<()> {
    let written = write(writer, bytes, from..bytes.len()).await;
    let finished = match written {
        Ok(()) => writer.finish(Checksum::of(bytes)).await,
        Err(error) => Err(error),
    };
    if finished.is_err() {
        writer.discard().await;
    }
    finished
}

async fn read(stage: &Stage, path: &[u8]) -> Vec<u8> {
    let found = stage.entry(path).await;
    let reader = stage.endpoint.open(path, &found).await.unwrap();
    collect(reader.read(0..found.size).await.unwrap())
        .await
        .unwrap()
}

async fn small(stage: &Stage) {
    let path = b"small/both";
    let contents = [vec![1; 70_000], vec![2; 70_000]];
    for _ in 0..ROUNDS {
        let puts = contents.iter().zip([super::MTIME, OTHER_MTIME]);
        let puts = puts.map(|(bytes, mtime)| async move {
            let spec = FileSpec {
                mtime: Some(mtime),
                ..spec(bytes.len(), "test:both")
            };
            let data = vec![Bytes::copy_from_slice(bytes)];
            let putting = stage.endpoint.put(path, &spec, data, Checksum::of(bytes));
            putting.await
        });
        let ends = futures_util::future::join_all(puts).await;
        assert!(ends.iter().any(Result::is_ok), "{ends:?}");
        let found = stage.read(path).await;
        let is_of = |end: &Result<()>, bytes: &Vec<u8>| end.is_ok() && *bytes == found;
        let mut of = ends.iter().zip(&contents);
        assert!(of.any(|(end, bytes)| is_of(end, bytes)), "it is mixed");
    }
    stage.endpoint.remove(path).await.unwrap();
}
