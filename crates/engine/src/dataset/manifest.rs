//! Information with which the far end puts a dataset together and knows that it is whole.

use std::collections::HashSet;

use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_types::{Bytes, ChunkIndex, Code, Digest, FragmentIndex, Record, TAG_BYTES};

use super::{
    DatasetId, Extra, FileEntry, FileKind, FileList, NOBODY_KNOWS, extra::ATTRIBUTES_BYTES_MAX,
};
use crate::{
    envelope::{self, Cipher, age::Identity},
    stripe::digest_of,
};

/// First bytes of every manifest; the number is that of the format. A release that knows no
/// left-out files refuses a manifest with one: it would make files of them.
const MAGIC: &[u8] = b"posthaste-manifest-1\n";
/// First bytes of the manifest of an encrypted dataset, once its envelope is open.
const MAGIC_ENCRYPTED: &[u8] = b"posthaste-manifest-2\n";
/// Longest path and link target, like Linux's `PATH_MAX`.
const PATH_BYTES_MAX: usize = 4096;
/// Longest component of a path, like Linux's `NAME_MAX`.
const NAME_BYTES_MAX: usize = 255;
/// Maximum of chunks: 2^24 of the largest size are 4 PiB.
const CHUNKS_MAX: u64 = 1 << 24;

/// Digests of one chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkDigests {
    /// Digest of the chunk itself, as depots store it.
    pub chunk: Digest,
    /// Digests of its k + m fragments, in order.
    pub fragments: Vec<Digest>,
    /// Keyed digest of its content: in encrypted datasets only.
    pub content: Option<Digest>,
}

/// Sealed dataset: its files, and the digests of all chunks and fragments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// Its name at depots.
    pub dataset: DatasetId,
    /// Code of its chunks.
    pub code: Code,
    /// Size of every chunk but the last.
    pub chunk_size: Bytes,
    /// Its files.
    pub list: FileList,
    /// Digests of its chunks, in order.
    pub chunks: Vec<ChunkDigests>,
    /// Cipher that decrypts its chunks, if they are encrypted.
    pub cipher: Option<Cipher>,
}

impl Manifest {
    /// Returns the manifest's one byte form, without the key of an encrypted dataset: that belongs
    /// into an [`envelope`], with these bytes encrypted.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let magic = match self.cipher {
            None => MAGIC,
            Some(_) => MAGIC_ENCRYPTED,
        };
        let mut out = magic.to_vec();
        out.extend_from_slice(self.dataset.as_bytes());
        out.extend_from_slice(&[self.code.data(), self.code.parity()]);
        self.chunk_size.get().write(&mut out);
        self.list.write(&mut out);
        (self.chunks.len() as u64).write(&mut out);
        for chunk in &self.chunks {
            let digests = chunk.content.iter().chain([&chunk.chunk]);
            for digest in digests.chain(&chunk.fragments) {
                out.extend_from_slice(digest.as_bytes());
            }
        }
        out
    }

    /// Returns the BLAKE3 digest of [`Self::to_bytes`].
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::new(*blake3::hash(&self.to_bytes()).as_bytes())
    }

    /// Reads a manifest from outside. It never panics, whatever the bytes. Its result names nothing
    /// outside a destination: no path leaves it, every parent is a listed directory, offsets and
    /// counts agree with the sizes.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for anything else.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        Self::read(bytes, None)
    }

    /// Reads a manifest, or opens the envelope it is in with the first identity that fits.
    ///
    /// # Errors
    /// Errors of [`Self::from_bytes`] and [`envelope::open`].
    pub fn open(bytes: &[u8], identities: &[Identity]) -> Result<Self> {
        if !envelope::is_envelope(bytes) {
            return Self::from_bytes(bytes);
        }
        let (cipher, text) = envelope::open(bytes, identities)?;
        Self::read(&text, Some(cipher))
    }

    /// Reads a manifest, or opens the envelope it is in with the cipher of its dataset.
    ///
    /// # Errors
    /// Errors of [`Self::from_bytes`] and [`envelope::open_with`].
    pub fn open_with(bytes: &[u8], cipher: Option<Cipher>) -> Result<Self> {
        match cipher {
            None => Self::from_bytes(bytes),
            Some(cipher) => Self::read(&envelope::open_with(bytes, &cipher)?, Some(cipher)),
        }
    }

    fn read(bytes: &[u8], cipher: Option<Cipher>) -> Result<Self> {
        read(bytes, cipher).map_err(|why| {
            Error::new(ErrorKind::Invalid, "read", "the manifest")
                .cause(why)
                .hint("it is damaged, or of another release")
        })
    }

    /// Returns the digest that a fragment must have; that of the chunk for
    /// [`FragmentIndex::WHOLE`].
    #[must_use]
    pub fn fragment_digest(&self, chunk: ChunkIndex, fragment: FragmentIndex) -> Option<Digest> {
        let digests = self.chunks.get(usize::try_from(chunk.get()).ok()?)?;
        if fragment == FragmentIndex::WHOLE {
            return Some(digests.chunk);
        }
        digests.fragments.get(usize::from(fragment.get())).copied()
    }

    /// Returns the bytes in chunk `chunk`.
    #[must_use]
    pub fn chunk_bytes(&self, chunk: u32) -> usize {
        self.list.chunk_bytes(chunk, self.chunk_size)
    }

    /// Returns the bytes of chunk `chunk` as depots store it: with its tag, if it is encrypted.
    #[must_use]
    pub fn stored_bytes(&self, chunk: u32) -> Bytes {
        let bytes = Bytes::new(self.chunk_bytes(chunk) as u64);
        match self.cipher {
            Some(_) if bytes > Bytes::ZERO => bytes + TAG_BYTES,
            Some(_) | None => bytes,
        }
    }

    /// Returns whether `bytes` are the content of chunk `chunk`.
    #[must_use]
    pub fn is_content(&self, chunk: u32, bytes: &[u8]) -> bool {
        let at = usize::try_from(chunk).unwrap_or(usize::MAX);
        let Some(digests) = self.chunks.get(at) else {
            return false;
        };
        match &self.cipher {
            None => digests.chunk == digest_of(bytes),
            Some(cipher) => digests.content == Some(cipher.digest(bytes)),
        }
    }
}

impl FileList {
    /// Returns the list's one byte form, as in a manifest.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out);
        out
    }

    /// Reads a list, as carefully as [`Manifest::from_bytes`].
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for anything that is no list.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let mut input = bytes;
        let list = read_list(&mut input).and_then(|list| {
            if input.is_empty() {
                Ok(list)
            } else {
                Err("something follows its end")
            }
        });
        list.map_err(|why| Error::new(ErrorKind::Invalid, "read", "a list of files").cause(why))
    }

    fn write(&self, out: &mut Vec<u8>) {
        // If nothing more is known of any file, the form is that of former releases.
        let has_more = |file: &FileEntry| file.owner != NOBODY_KNOWS || file.extra.is_some();
        let has_extras = self.files.iter().any(has_more);
        if has_extras {
            WITH_EXTRAS.write(out);
        }
        (self.files.len() as u64).write(out);
        for file in &self.files {
            write_file(file, out);
            if has_extras {
                write_extras(file, out);
            }
        }
    }
}

/// Mark before a list whose files have owners and further attributes: more files than any list has.
const WITH_EXTRAS: u64 = u64::MAX;

fn write_extras(file: &FileEntry, out: &mut Vec<u8>) {
    file.owner.write(out);
    file.group.write(out);
    file.changed_ns.write(out);
    let extra = file.extra.as_deref();
    let same_as = extra.and_then(|extra| extra.same_as);
    same_as.map_or(0, |place| place as u64 + 1).write(out);
    let attributes = extra.map_or(&[][..], |extra| &extra.attributes);
    (attributes.len() as u64).write(out);
    for (name, value) in attributes {
        write_text(name, out);
        write_text(value, out);
    }
}

/// Reads what a file at this place in its list has besides.
fn read_extras(input: &mut &[u8], place: usize, file: &mut FileEntry) -> Result<(), Why> {
    file.owner = u32::read(input).map_err(|_| CUT)?;
    file.group = u32::read(input).map_err(|_| CUT)?;
    file.changed_ns = i64::read(input).map_err(|_| CUT)?;
    let mut extra = Extra::default();
    if let Some(same_as) = number(input)?.checked_sub(1) {
        let same_as = usize::try_from(same_as).unwrap_or(usize::MAX);
        if same_as >= place || file.kind == FileKind::Directory {
            return Err("a file in it is the same as none before it");
        }
        extra.same_as = Some(same_as);
    }
    let mut left = ATTRIBUTES_BYTES_MAX;
    for _ in 0..number(input)? {
        let name = text_within(input, NAME_BYTES_MAX)?;
        let value = text_within(input, left)?;
        if name.is_empty() || name.contains(&0) {
            return Err("an attribute in it has no name");
        }
        left = left.saturating_sub(name.len() + value.len());
        extra.attributes.push((name, value));
    }
    file.extra = (extra != Extra::default()).then(|| Box::new(extra));
    Ok(())
}

fn write_file(file: &FileEntry, out: &mut Vec<u8>) {
    write_text(&file.path, out);
    match &file.kind {
        FileKind::Regular => {
            out.push(0);
            file.size.write(out);
        }
        FileKind::Directory => out.push(1),
        FileKind::Symlink { target } => {
            out.push(2);
            write_text(target, out);
        }
        FileKind::LeftOut => {
            out.push(3);
            file.size.write(out);
        }
    }
    file.mode.write(out);
    file.mtime_s.write(out);
    file.mtime_ns.write(out);
    file.inode.write(out);
}

fn write_text(text: &[u8], out: &mut Vec<u8>) {
    (text.len() as u64).write(out);
    out.extend_from_slice(text);
}

type Why = &'static str;

fn read(bytes: &[u8], cipher: Option<Cipher>) -> Result<Manifest, Why> {
    let magic = match cipher {
        None => MAGIC,
        Some(_) => MAGIC_ENCRYPTED,
    };
    let mut input = bytes
        .strip_prefix(magic)
        .ok_or("it does not start as a manifest")?;
    let dataset = DatasetId::new(take(&mut input)?);
    let [data, parity] = take(&mut input)?;
    let code = Code::new(data, parity).map_err(|_| "its code is impossible")?;
    let chunk_size = number(&mut input)?;
    if chunk_size == 0 || chunk_size > super::CHUNK_SIZE_MAX {
        return Err("its chunk size is impossible");
    }
    let list = read_list(&mut input)?;
    let chunk_size = Bytes::new(chunk_size);
    let count = number(&mut input)?;
    if count > CHUNKS_MAX || count != Bytes::new(list.bytes).pieces(chunk_size) {
        return Err("its chunks do not make up its files");
    }
    let per_chunk = (usize::from(cipher.is_some()) + 1 + usize::from(code.total())) * 32;
    if input.len() != usize::try_from(count).map_err(|_| CUT)? * per_chunk {
        return Err("it is cut off or has something after its end");
    }
    let chunks = input
        .chunks_exact(per_chunk)
        .map(|mut digests| {
            let content = cipher.as_ref().map(|_| take(&mut digests)).transpose()?;
            let chunk = Digest::new(take(&mut digests)?);
            let rest = digests.chunks_exact(32);
            let fragments = rest.map(|mut digest| take(&mut digest).map(Digest::new));
            Ok(ChunkDigests {
                chunk,
                fragments: fragments.collect::<Result<_, Why>>()?,
                content: content.map(Digest::new),
            })
        })
        .collect::<Result<_, Why>>()?;
    Ok(Manifest {
        dataset,
        code,
        chunk_size,
        list,
        chunks,
        cipher,
    })
}

const CUT: Why = "it is cut off";

fn take<const N: usize>(input: &mut &[u8]) -> Result<[u8; N], Why> {
    let (bytes, rest) = input.split_first_chunk().ok_or(CUT)?;
    *input = rest;
    Ok(*bytes)
}

fn number(input: &mut &[u8]) -> Result<u64, Why> {
    u64::read(input).map_err(|_| CUT)
}

fn text(input: &mut &[u8]) -> Result<Vec<u8>, Why> {
    text_within(input, PATH_BYTES_MAX)
}

fn text_within(input: &mut &[u8], most: usize) -> Result<Vec<u8>, Why> {
    let length = usize::try_from(number(input)?).map_err(|_| CUT)?;
    if length > most {
        return Err("a name in it is too long");
    }
    let (text, rest) = input.split_at_checked(length).ok_or(CUT)?;
    *input = rest;
    Ok(text.to_vec())
}

fn read_list(input: &mut &[u8]) -> Result<FileList, Why> {
    let mut count = number(input)?;
    let has_extras = count == WITH_EXTRAS;
    if has_extras {
        count = number(input)?;
    }
    let mut list = FileList::default();
    for _ in 0..count {
        let mut file = read_file(input)?;
        file.offset = list.bytes;
        if has_extras {
            read_extras(input, list.files.len(), &mut file)?;
        }
        list.bytes = list
            .bytes
            .checked_add(file.size)
            .ok_or("its sizes are impossible")?;
        if list.files.last().is_some_and(|last| last.path >= file.path) {
            return Err("its files are not in order");
        }
        list.files.push(file);
    }
    check_parents(&list)?;
    Ok(list)
}

fn read_file(input: &mut &[u8]) -> Result<FileEntry, Why> {
    let path = text(input)?;
    check_path(&path)?;
    let [tag] = take(input)?;
    let (kind, size) = match tag {
        0 => (FileKind::Regular, number(input)?),
        1 => (FileKind::Directory, 0),
        2 => {
            let target = text(input)?;
            if target.is_empty() || target.contains(&0) {
                return Err("a link in it points nowhere");
            }
            (FileKind::Symlink { target }, 0)
        }
        3 => (FileKind::LeftOut, number(input)?),
        _ => return Err("it has a file of an unknown kind"),
    };
    if path.is_empty() && kind != FileKind::Directory {
        return Err("its root is no directory");
    }
    let mode = u32::read(input).map_err(|_| CUT)?;
    let mtime_s = i64::read(input).map_err(|_| CUT)?;
    let mtime_ns = u32::read(input).map_err(|_| CUT)?;
    let inode = number(input)?;
    if mode > 0o7777 || mtime_ns >= 1_000_000_000 {
        return Err("it has impossible attributes");
    }
    Ok(FileEntry {
        path,
        kind,
        size,
        mode,
        mtime_s,
        mtime_ns,
        inode,
        offset: 0,
        owner: NOBODY_KNOWS,
        group: NOBODY_KNOWS,
        changed_ns: 0,
        extra: None,
    })
}

/// Accepts the root, or plain names with single slashes between them.
fn check_path(path: &[u8]) -> Result<(), Why> {
    let plain = |name: &[u8]| {
        !matches!(name, b"" | b"." | b"..") && name.len() <= NAME_BYTES_MAX && !name.contains(&0)
    };
    if path.is_empty() || path.split(|&byte| byte == b'/').all(plain) {
        Ok(())
    } else {
        Err("a path in it leaves the dataset")
    }
}

/// Checks that every file lies in a directory of the list: never in a file, never behind a link.
fn check_parents(list: &FileList) -> Result<(), Why> {
    let directories: HashSet<&[u8]> = list
        .files
        .iter()
        .filter(|file| file.kind == FileKind::Directory)
        .map(|file| file.path.as_slice())
        .collect();
    for file in &list.files {
        let parent = file.path.iter().rposition(|&byte| byte == b'/');
        if parent.is_some_and(|at| !directories.contains(&file.path[..at])) {
            return Err("a path in it leads through something that is no directory");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::DatasetKey;
    use proptest::prelude::*;

    fn file(path: &str, kind: FileKind, size: u64) -> FileEntry {
        let (mode, mtime_s, mtime_ns, inode) = (0o644, -5, 999_999_999, 42);
        let path = path.as_bytes().to_vec();
        FileEntry {
            path,
            kind,
            size,
            mode,
            mtime_s,
            mtime_ns,
            inode,
            offset: 0,
            owner: NOBODY_KNOWS,
            group: NOBODY_KNOWS,
            changed_ns: 0,
            extra: None,
        }
    }

    fn sealed(mut files: Vec<FileEntry>) -> Manifest {
        let mut bytes = 0;
        for file in &mut files {
            file.offset = bytes;
            bytes += file.size;
        }
        let code = Code::new(2, 1).unwrap();
        let chunk_size = Bytes::mebi(1);
        let count = Bytes::new(bytes).pieces(chunk_size);
        let digests = |n: u64| ChunkDigests {
            chunk: Digest::new([u8::try_from(n).unwrap(); 32]),
            fragments: vec![Digest::new([0xff; 32]); 3],
            content: None,
        };
        Manifest {
            dataset: DatasetId::new([3; 16]),
            code,
            chunk_size,
            list: FileList { files, bytes },
            chunks: (0..count).map(digests).collect(),
            cipher: None,
        }
    }

    /// Returns the example as the manifest of an encrypted dataset, in an envelope for `identity`.
    fn encrypted(identity: &Identity) -> (Manifest, Vec<u8>) {
        let key = DatasetKey::random().unwrap();
        let mut manifest = example();
        let cipher = Cipher::new(&key);
        for digests in &mut manifest.chunks {
            digests.content = Some(cipher.digest(digests.chunk.as_bytes()));
        }
        manifest.cipher = Some(cipher.clone());
        let secret = key.to_secret_text();
        let wrapped = envelope::age::wrap(&[identity.recipient()], secret.as_bytes()).unwrap();
        let bytes = envelope::close(&wrapped, &cipher, manifest.to_bytes());
        (manifest, bytes)
    }

    fn example() -> Manifest {
        sealed(vec![
            file("", FileKind::Directory, 0),
            file("d", FileKind::Directory, 0),
            file(
                "d.x",
                FileKind::Symlink {
                    target: b"/etc/passwd".to_vec(),
                },
                0,
            ),
            file("d/f\n", FileKind::Regular, 5 << 20),
            file("y", FileKind::LeftOut, 3 << 20),
            file("z", FileKind::Regular, 1),
        ])
    }

    #[test]
    fn a_manifest_comes_back_as_it_was_written() {
        let manifest = example();
        assert_eq!(
            Manifest::from_bytes(&manifest.to_bytes()).unwrap(),
            manifest
        );
        let empty = sealed(Vec::new());
        assert_eq!(Manifest::from_bytes(&empty.to_bytes()).unwrap(), empty);
    }

    /// Returns the example, with owners and rare attributes.
    fn with_extras() -> Manifest {
        let mut manifest = example();
        for (number, file) in (1000..).zip(&mut manifest.list.files) {
            (file.owner, file.group) = (number, 7);
        }
        let last = manifest.list.files.last_mut().unwrap();
        last.extra = Some(Box::new(Extra {
            same_as: Some(3),
            attributes: vec![
                (b"user.a".to_vec(), vec![0, 255]),
                (b"user.b".to_vec(), vec![]),
            ],
            lacks: None,
        }));
        manifest
    }

    #[test]
    fn owners_other_names_and_attributes_come_back_as_they_were_written() {
        let manifest = with_extras();
        let bytes = manifest.to_bytes();
        assert_eq!(Manifest::from_bytes(&bytes).unwrap(), manifest);
        for end in 0..bytes.len() {
            assert!(
                Manifest::from_bytes(&bytes[..end]).is_err(),
                "{end} bytes were taken"
            );
        }
        let refused = |change: &dyn Fn(&mut Extra)| {
            let mut manifest = with_extras();
            let last = manifest.list.files.last_mut().unwrap();
            change(last.extra.as_mut().unwrap());
            Manifest::from_bytes(&manifest.to_bytes()).is_err()
        };
        assert!(refused(&|extra| extra.same_as = Some(5)), "itself");
        assert!(refused(&|extra| extra.attributes[0].0 = Vec::new()));
        assert!(refused(&|extra| extra.attributes[0].1 = vec![0; 70_000]));
    }

    #[test]
    fn an_encrypted_manifest_opens_for_its_recipient_alone_and_names_nothing() {
        let alice = Identity::random().unwrap();
        let (manifest, bytes) = encrypted(&alice);
        let shown = |name: &[u8]| bytes.windows(name.len()).any(|bytes| bytes == name);
        assert!(!shown(b"passwd") && !shown(&[0xff; 32]) && !shown(&[3; 16]));
        assert_eq!(
            Manifest::open(&bytes, std::slice::from_ref(&alice)).unwrap(),
            manifest
        );
        let others = [Identity::random().unwrap()];
        let refused = Manifest::open(&bytes, &others).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
        assert!(Manifest::from_bytes(&bytes).is_err());
        assert!(
            Manifest::from_bytes(&manifest.to_bytes()).is_err(),
            "without its key"
        );
        let plain = example();
        assert_eq!(Manifest::open(&plain.to_bytes(), &[]).unwrap(), plain);
    }

    #[test]
    fn encrypted_chunks_are_stored_with_a_tag_and_known_by_what_they_hold() {
        let (mut manifest, _) = encrypted(&Identity::random().unwrap());
        assert_eq!(manifest.chunk_bytes(0), 1 << 20);
        assert_eq!(manifest.stored_bytes(0), Bytes::new((1 << 20) + 16));
        assert_eq!(manifest.stored_bytes(8), Bytes::new(1 + 16));
        assert_eq!(manifest.stored_bytes(9), Bytes::ZERO);
        let held = manifest.chunks[0].chunk.as_bytes().to_vec();
        assert!(manifest.is_content(0, &held) && !manifest.is_content(1, &held));
        manifest.cipher = None;
        assert_eq!(manifest.stored_bytes(0), Bytes::mebi(1));
        manifest.chunks[0].chunk = digest_of(b"plain");
        assert!(manifest.is_content(0, b"plain") && !manifest.is_content(9, b"plain"));
    }

    #[test]
    fn a_manifest_that_reaches_outside_is_refused() {
        let link = || {
            file(
                "a",
                FileKind::Symlink {
                    target: b"/etc".to_vec(),
                },
                0,
            )
        };
        for files in [
            vec![file("/etc/passwd", FileKind::Regular, 1)],
            vec![file("..", FileKind::Directory, 0)],
            vec![
                file("a", FileKind::Directory, 0),
                file("a/../../b", FileKind::Regular, 1),
            ],
            vec![link(), file("a/passwd", FileKind::Regular, 1)],
            vec![
                file("a", FileKind::Regular, 1),
                file("a/b", FileKind::Regular, 1),
            ],
            vec![file("a/b", FileKind::Regular, 1)],
            vec![
                file("b", FileKind::Regular, 1),
                file("a", FileKind::Regular, 1),
            ],
            vec![
                file("a", FileKind::Regular, 1),
                file("a", FileKind::Regular, 1),
            ],
            vec![file(
                "",
                FileKind::Symlink {
                    target: b"/".to_vec(),
                },
                0,
            )],
            vec![file("a\0b", FileKind::Regular, 1)],
            vec![file(&"x".repeat(256), FileKind::Regular, 1)],
        ] {
            let shown = format!(
                "{:?}",
                files.iter().map(FileEntry::shown).collect::<Vec<_>>()
            );
            assert!(
                Manifest::from_bytes(&sealed(files).to_bytes()).is_err(),
                "{shown}"
            );
        }
    }

    #[test]
    fn a_manifest_cut_anywhere_or_too_long_is_refused() {
        let mut bytes = example().to_bytes();
        for end in 0..bytes.len() {
            assert!(
                Manifest::from_bytes(&bytes[..end]).is_err(),
                "{end} bytes were taken"
            );
        }
        bytes.push(0);
        assert!(Manifest::from_bytes(&bytes).is_err());
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Manifest::from_bytes(&bytes);
            let _ = Manifest::from_bytes(&[MAGIC, &bytes].concat());
            let cipher = Cipher::new(&DatasetKey::random().unwrap());
            let _ = Manifest::read(&[MAGIC_ENCRYPTED, &bytes].concat(), Some(cipher));
        }

        #[test]
        fn changed_bytes_never_panic_and_what_is_taken_is_consistent(
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)
        ) {
            let mut bytes = example().to_bytes();
            for (at, value) in changes {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            if let Ok(manifest) = Manifest::from_bytes(&bytes) {
                let chunks = u32::try_from(manifest.chunks.len()).unwrap();
                let total: usize = (0..chunks).map(|chunk| manifest.chunk_bytes(chunk)).sum();
                prop_assert_eq!(total as u64, manifest.list.bytes);
                prop_assert_eq!(Manifest::from_bytes(&manifest.to_bytes()).unwrap(), manifest);
            }
        }
    }
}
