//! Files copied over the distance, and a check of their arrival.

use std::{
    fs::{self, File},
    io::{Read, Write},
    path::Path,
};

use anyhow::{Context, ensure};

use super::super::stage::Noise;

/// Bytes made and compared at a time.
const BLOCK_BYTES: usize = 1 << 20;

const MIB: usize = 1 << 20;
const KIB: usize = 1 << 10;

/// A set of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// A file of 1 GiB.
    Large,
    /// 2,000 files of 100 KiB.
    Small,
    /// 1,000 files of 100 KiB, 20 of 10 MiB, 2 of 200 MiB.
    Mixed,
}

impl Load {
    pub const ALL: [Self; 3] = [Self::Large, Self::Small, Self::Mixed];

    /// Returns its folder's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Large => "large",
            Self::Small => "small",
            Self::Mixed => "mixed",
        }
    }

    /// Returns numbers of files and their bytes. A quick run moves a tenth.
    fn files(self, quick: bool) -> Vec<(usize, usize)> {
        match (self, quick) {
            (Self::Large, false) => vec![(1, 1024 * MIB)],
            (Self::Large, true) => vec![(1, 100 * MIB)],
            (Self::Small, false) => vec![(2000, 100 * KIB)],
            (Self::Small, true) => vec![(200, 100 * KIB)],
            (Self::Mixed, false) => vec![(1000, 100 * KIB), (20, 10 * MIB), (2, 200 * MIB)],
            (Self::Mixed, true) => vec![(100, 100 * KIB), (2, 10 * MIB), (1, 40 * MIB)],
        }
    }

    /// Returns the name for people.
    pub fn title(self, quick: bool) -> String {
        let files = self.files(quick).into_iter().map(|(count, bytes)| {
            let size = if bytes % MIB == 0 {
                format!("{} MiB", bytes / MIB)
            } else {
                format!("{} KiB", bytes / KIB)
            };
            match count {
                1 => format!("one file of {size}"),
                _ => format!("{count} files of {size}"),
            }
        });
        files.collect::<Vec<_>>().join(", ")
    }

    /// Returns the bytes of all of them together.
    pub fn bytes(self, quick: bool) -> usize {
        self.files(quick)
            .iter()
            .map(|(count, bytes)| count * bytes)
            .sum()
    }

    /// Makes them below `folder`, a hundred to a folder; bytes that nothing compresses.
    ///
    /// # Errors
    /// Fails if the disk refuses.
    pub fn make(self, folder: &Path, quick: bool) -> anyhow::Result<()> {
        let mut noise = Noise::new();
        let mut block = vec![0; BLOCK_BYTES];
        for (kind, (count, bytes)) in self.files(quick).into_iter().enumerate() {
            for index in 0..count {
                let below = folder.join(format!("{kind}{:02}", index / 100));
                fs::create_dir_all(&below)?;
                let mut file = File::create(below.join(format!("{index:05}")))?;
                for start in (0..bytes).step_by(BLOCK_BYTES) {
                    let piece = &mut block[..BLOCK_BYTES.min(bytes - start)];
                    noise.fill(piece);
                    file.write_all(piece)?;
                }
            }
        }
        Ok(())
    }
}

/// Compares two trees, byte by byte.
///
/// # Errors
/// Fails if anything is missing, extra or different.
pub fn compare(source: &Path, arrived: &Path) -> anyhow::Result<()> {
    let names = |folder: &Path| -> anyhow::Result<Vec<_>> {
        let entries = fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))?;
        let mut names = entries
            .map(|entry| Ok(entry?.file_name()))
            .collect::<anyhow::Result<Vec<_>>>()?;
        names.sort();
        Ok(names)
    };
    let (sent, came) = (names(source)?, names(arrived)?);
    ensure!(
        sent == came,
        "{} holds {} entries, {} has {}",
        source.display(),
        sent.len(),
        arrived.display(),
        came.len()
    );
    for name in sent {
        let (one, other) = (source.join(&name), arrived.join(&name));
        if one.is_dir() {
            compare(&one, &other)?;
        } else {
            ensure!(
                same_bytes(&one, &other)?,
                "{} did not arrive as it was",
                one.display()
            );
        }
    }
    Ok(())
}

fn same_bytes(one: &Path, other: &Path) -> anyhow::Result<bool> {
    let (mut one, mut other) = (File::open(one)?, File::open(other)?);
    let bytes = one.metadata()?.len();
    if bytes != other.metadata()?.len() {
        return Ok(false);
    }
    let (mut block, mut opposite) = (vec![0; BLOCK_BYTES], vec![0; BLOCK_BYTES]);
    let mut left = usize::try_from(bytes)?;
    while left > 0 {
        let now = left.min(BLOCK_BYTES);
        one.read_exact(&mut block[..now])?;
        other.read_exact(&mut opposite[..now])?;
        if block[..now] != opposite[..now] {
            return Ok(false);
        }
        left -= now;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_as_large_as_they_say() {
        assert_eq!(Load::Large.bytes(false), 1 << 30);
        assert_eq!(Load::Small.bytes(false), 204_800_000);
        assert_eq!(Load::Mixed.bytes(false), 731_545_600);
        assert_eq!(
            Load::Mixed.title(false),
            "1000 files of 100 KiB, 20 files of 10 MiB, 2 files of 200 MiB"
        );
    }

    #[test]
    fn trees_are_the_same_only_when_every_byte_is() {
        let folder = std::env::temp_dir().join(format!("xtask-load-{}", std::process::id()));
        let (one, other) = (folder.join("one"), folder.join("other"));
        for tree in [&one, &other] {
            fs::create_dir_all(tree.join("below")).unwrap();
            fs::write(tree.join("below/file"), b"same").unwrap();
        }
        compare(&one, &other).unwrap();
        fs::write(other.join("below/file"), b"samE").unwrap();
        assert!(compare(&one, &other).is_err());
        fs::write(other.join("below/file"), b"same and more").unwrap();
        assert!(compare(&one, &other).is_err());
        fs::write(other.join("below/file"), b"same").unwrap();
        fs::write(other.join("more"), b"").unwrap();
        assert!(compare(&one, &other).is_err());
        fs::remove_dir_all(folder).unwrap();
    }
}
