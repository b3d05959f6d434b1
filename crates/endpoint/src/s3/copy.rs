//! Copies that the store makes among its own objects.

use std::{
    ops::Range,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use futures_util::{StreamExt, TryStreamExt, stream};
use http::Method;

use super::{
    client::{Call, S3Client},
    headers::{checksum_in, crc32c_in, entry_of, is_encrypted, metadata_of, sum_in},
    held,
    multipart::{Multipart, Stored, is_made_of},
    object::head,
    refusal::is_not_understood,
    upload::LIMITS,
    wire::{Made, encode},
};
use crate::{
    Checksum, Error, ErrorKind, Kind, Locus, Result, StoredSum,
    checksum::Crc32c,
    endpoint::{FileSpec, unsupported},
    objects::{Head, check_held, is_kept_as, may_be_done},
    web::text_of,
};

/// Largest object that is copied in one request; larger ones are copied in segments of this size.
/// So no request takes long, several run at once, and Amazon's limit of 5 GiB a request is far
/// away.
const STEP_BYTES: u64 = 64 << 20;

/// Most segments in progress at once. They cost nothing here, and a store has limits of its own.
const SEGMENTS_AT_ONCE: usize = 8;

/// Attempts at each segment, and the first pause between them; each pause doubles.
const TRIES: u32 = 5;
const PAUSE_MIN: Duration = Duration::from_millis(500);

/// Time that the store may copy before it answers.
const STORE_WORKS_FOR: Duration = Duration::from_secs(600);

/// Object to copy, as it is now.
struct Source {
    /// Bucket and key, percent-encoded.
    name: String,
    /// Attributes that the copy keeps, and the version of the source.
    spec: FileSpec,
    checksum: Option<Checksum>,
    crc32c: Option<Crc32c>,
    /// Checksum that the store keeps of it.
    told: Option<StoredSum>,
}

/// Copies `from`, a bucket and a key, to `key`.
pub(super) async fn copy(
    client: &Arc<S3Client>,
    from: &str,
    key: &str,
    spec: &FileSpec,
) -> Result<()> {
    let copied = async {
        let source = look_at(client, from, key, spec).await?;
        if spec.size <= STEP_BYTES {
            let etag = whole(client, &source, key).await?;
            compare(client, from, key, (spec.version.as_deref(), &etag)).await?;
        } else {
            in_segments(client, &source, key).await?;
        }
        check_held(&**client, key, spec, spec.size).await?;
        check_told(client, &source, key).await
    };
    copied.await.map_err(|error| {
        // Permission to read and write does not imply permission to copy: tags, say, have one of
        // their own.
        if error.kind() == ErrorKind::PermissionDenied || is_not_understood(&error) {
            let shown = client.show(key);
            return Error::new(ErrorKind::Unsupported, "copy on the server to", shown)
                .cause(error)
                .at(Locus::Destination);
        }
        error
    })
}

/// Requests the facts that a listing lacks; a caller that has them saves the request.
async fn look_at(client: &S3Client, from: &str, key: &str, spec: &FileSpec) -> Result<Source> {
    let unusable = || unsupported("copy on the server to", client.show(key));
    let mut source = Source {
        name: encode(from, true),
        spec: spec.clone(),
        checksum: None,
        crc32c: None,
        told: None,
    };
    if spec.mtime.is_some() && spec.size <= STEP_BYTES {
        return Ok(source);
    }
    let (bucket, from) = from.split_once('/').ok_or_else(unusable)?;
    let bucket = client.sibling(bucket);
    let fail = |kind| Error::new(kind, "copy", bucket.show(from)).at(Locus::Source);
    let head = head(&bucket, from, "copy").await?;
    let Head { headers, size } = head.ok_or_else(|| fail(ErrorKind::NotFound))?;
    let entry = entry_of(&headers, size, Kind::File);
    let is_other = spec.version.is_some() && spec.version != entry.version;
    if is_other || entry.size != spec.size {
        return Err(fail(ErrorKind::Changed)
            .cause("it changed since it was listed")
            .hint("copy it again when nothing writes to it"));
    }
    source.checksum = checksum_in(&headers);
    source.crc32c = crc32c_in(&headers);
    source.told = sum_in(client, &headers);
    source.spec.mtime = spec.mtime.or(entry.mtime);
    source.spec.mode = spec.mode.or(entry.mode);
    source.spec.version = entry.version;
    Ok(source)
}

/// Compares the ETags of a source and of its copy, where both are MD5s. If they differ, both are
/// read: the store may have ETags of another kind.
async fn compare(
    client: &S3Client,
    from: &str,
    key: &str,
    (version, etag): (Option<&str>, &str),
) -> Result<()> {
    if !version.is_some_and(|version| held::are_two(client, version, etag)) {
        return Ok(());
    }
    let (bucket, from) = from.split_once('/').unwrap_or_default();
    let read = held::read_back(&client.sibling(bucket), from).await?;
    held::prove(client, key, etag, read.facts()).await
}

/// Compares the checksums that the store keeps of a source and of its copy.
async fn check_told(client: &S3Client, source: &Source, key: &str) -> Result<()> {
    let Some(told) = source.told else {
        return Ok(());
    };
    let Ok(Some(Head { headers, .. })) = head(client, key, "look at").await else {
        return Ok(());
    };
    match sum_in(client, &headers) {
        Some(found) if told.contradicts(found) => {
            Err(held::differs_there(client, key, text_of(&headers, "etag")).await)
        }
        Some(_) | None => Ok(()),
    }
}

/// Copies in one request, and returns the ETag of the copy.
async fn whole(client: &S3Client, source: &Source, key: &str) -> Result<String> {
    let copied = client.sums.write(|sum| {
        let mut call = Call::new(Method::PUT, key, "copy on the server to")
            .header("x-amz-copy-source", &*source.name)
            .header("x-amz-metadata-directive", "REPLACE")
            .patience(STORE_WORKS_FOR)
            .at(Locus::Destination);
        if let Some(version) = &source.spec.version {
            call = call.header("x-amz-copy-source-if-match", &**version);
        }
        if let Some(algorithm) = sum.algorithm() {
            call = call.header("x-amz-checksum-algorithm", algorithm);
        }
        call.headers.extend(metadata_of(&source.spec, Kind::File));
        client.ask_headed_xml::<Made>(call)
    });
    let (headers, made) = copied.await?;
    // The ETag of an encrypted object is none of its bytes.
    Ok(if is_encrypted(&headers) {
        String::new()
    } else {
        made.etag
    })
}

async fn in_segments(client: &Arc<S3Client>, source: &Source, key: &str) -> Result<()> {
    let summed = !client.miscounts.load(Relaxed);
    if try_segments(client, source, key, summed).await? {
        return Ok(());
    }
    client.miscounts.store(true, Relaxed);
    try_segments(client, source, key, false).await.map(|_| ())
}

/// Copies in segments; the store keeps a checksum of them if they are `summed`. Returns false if
/// the store can't be trusted with that.
async fn try_segments(
    client: &Arc<S3Client>,
    source: &Source,
    key: &str,
    summed: bool,
) -> Result<bool> {
    let (client, key) = (Arc::clone(client), key.to_owned());
    let upload = Multipart::initiate(client, key, &source.spec, summed).await?;
    let copied = fill(&upload, source, summed).await;
    if !matches!(copied, Ok(true)) {
        upload.abort().await;
    }
    copied
}

async fn fill(upload: &Multipart, source: &Source, summed: bool) -> Result<bool> {
    let Source { name, spec, .. } = source;
    let copy = |(index, range): (u64, Range<u64>)| async move {
        let version = spec.version.as_deref();
        let copy = || upload.copy(index, name, version, range.clone());
        let stored = patiently(copy).await?;
        let stored = Stored {
            checksum: stored.checksum.filter(|_| summed),
            crc32c: stored.crc32c.filter(|_| summed),
            ..stored
        };
        Ok::<_, Error>((index, range.clone(), stored))
    };
    let mut ranges = ranges(spec.size);
    let mut segments = Vec::new();
    for first in ranges.by_ref().take(1) {
        let (index, range, stored) = match copy(first).await {
            Ok(copied) => copied,
            // MinIO rejects copied segments if every segment must come with a checksum.
            Err(error) if summed && is_not_understood(&error) => return Ok(false),
            Err(error) => return Err(error),
        };
        // versitygw 1.8 reports the whole object's checksum as that of each segment.
        let is_of_all = stored.checksum.is_some() && stored.checksum == source.checksum
            || stored.crc32c.is_some() && stored.crc32c == source.crc32c;
        if is_of_all {
            return Ok(false);
        }
        segments.push((index, range, stored));
    }
    let rest = stream::iter(ranges).map(copy).buffered(SEGMENTS_AT_ONCE);
    segments.extend(rest.try_collect::<Vec<_>>().await?);
    let sums = segments.iter().try_fold(Checksum::EMPTY, |sum, segment| {
        let (_, range, stored) = segment;
        Some(sum.then(stored.checksum?, range.end - range.start))
    });
    let others = segments.iter().try_fold(Crc32c::EMPTY, |sum, segment| {
        let (_, range, stored) = segment;
        Some(sum.then(stored.crc32c?, range.end - range.start))
    });
    let stored = segments.iter().map(|(index, _, stored)| (*index, stored));
    // The store compares the checksum that the source has kept, rather than that of the new copy.
    let whole = source.checksum.or(sums).filter(|_| summed);
    let crc32c = source.crc32c.or(others).filter(|_| summed);
    let made = async || {
        let made = upload.put_together(stored.clone(), (whole, crc32c), false);
        made.await.map(|(is_right, _)| is_right)
    };
    match patiently(made).await {
        Err(error) if may_be_done(&error) => {
            let found = head(&upload.client, &upload.key, "look at").await?;
            let is_made = |Head { headers, size }: &Head| {
                is_kept_as(&entry_of(headers, *size, Kind::File), spec, spec.size)
                    && is_made_of(headers, stored.map(|(_, stored)| stored), whole, crc32c)
            };
            found
                .is_some_and(|found| is_made(&found))
                .then_some(true)
                .ok_or(error)
        }
        made => made,
    }
}

/// Retries temporary failures: one segment of thousands must not cost the others.
async fn patiently<T, F: Future<Output = Result<T>>>(request: impl Fn() -> F) -> Result<T> {
    let mut pause = PAUSE_MIN;
    for _ in 1..TRIES {
        match request().await {
            Err(error) if error.is_temporary() => {
                tokio::time::sleep(error.pause().unwrap_or(pause)).await;
                pause *= 2;
            }
            ended => return ended,
        }
    }
    request().await
}

fn ranges(size: u64) -> impl Iterator<Item = (u64, Range<u64>)> {
    let step = STEP_BYTES.max(size.div_ceil(LIMITS.segments_max));
    (0..size.div_ceil(step)).map(move |index| {
        let start = index * step;
        (index, start..(start + step).min(size))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_of_any_size_are_covered_without_gaps() {
        for size in [STEP_BYTES + 1, 5 << 30, 5 << 40] {
            let ranges: Vec<_> = ranges(size).collect();
            assert!(ranges.len() as u64 <= LIMITS.segments_max, "{size}");
            let mut end = 0;
            for (index, (number, range)) in ranges.into_iter().enumerate() {
                assert_eq!((number, range.start), (index as u64, end));
                assert!(range.end - range.start <= 5 << 30);
                end = range.end;
            }
            assert_eq!(end, size);
        }
    }
}
