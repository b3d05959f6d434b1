//! Files to copy.

use std::{
    fmt, fs,
    io::Write,
    path::{Path, PathBuf},
};

use super::super::stage::Noise;

/// Bytes made at a time.
const BLOCK_BYTES: usize = 1 << 20;

/// Files copied in one measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// A file of 1 GiB.
    Large,
    /// 10,000 files of 100 KiB.
    Small,
    /// 2,000 files of 100 KiB, for servers that take seconds for hundreds.
    Few,
    /// storkcloud-2013's mix (section 3.1: 10,000 x 1 MB, 100 x 100 MB, 10 x 10 GB), scaled to this
    /// machine.
    Mixed,
}

/// Share of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// All.
    Whole,
    /// A tenth, which shows whether all works and nothing else.
    Quick,
}

/// Factor by which [`Scale::Quick`] is smaller.
const QUICK: usize = 10;

/// Files of one size.
struct Batch {
    files: usize,
    bytes: usize,
}

impl fmt::Display for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { files, bytes } = self;
        if bytes % (1 << 20) == 0 {
            write!(f, "{files} x {} MiB", bytes >> 20)
        } else {
            write!(f, "{files} x {} KiB", bytes >> 10)
        }
    }
}

impl Load {
    pub const ALL: [Self; 4] = [Self::Large, Self::Small, Self::Few, Self::Mixed];

    /// Returns its name below the benchmark's folder, and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Large => "large",
            Self::Small => "small",
            Self::Few => "few",
            Self::Mixed => "mixed",
        }
    }

    /// Returns its name for people.
    pub fn title(self, scale: Scale) -> String {
        let batches = self.batches(scale).into_iter();
        let titles: Vec<String> = batches.map(|batch| batch.to_string()).collect();
        titles.join(", ")
    }

    fn batches(self, scale: Scale) -> Vec<Batch> {
        let batch = |files: usize, bytes: usize| match scale {
            Scale::Whole => Batch { files, bytes },
            Scale::Quick if files < QUICK => Batch {
                files: 1,
                bytes: bytes / QUICK,
            },
            Scale::Quick => Batch {
                files: files / QUICK,
                bytes,
            },
        };
        match self {
            Self::Large => vec![batch(1, 1 << 30)],
            Self::Small => vec![batch(10_000, 100 << 10)],
            Self::Few => vec![batch(2_000, 100 << 10)],
            Self::Mixed => vec![
                batch(1_000, 100 << 10),
                batch(20, 10 << 20),
                batch(2, 200 << 20),
            ],
        }
    }

    /// Returns all its bytes.
    pub fn bytes(self, scale: Scale) -> u64 {
        let bytes = |batch: &Batch| (batch.files * batch.bytes) as u64;
        self.batches(scale).iter().map(bytes).sum()
    }

    /// Returns the folder of its files.
    pub fn folder(self, benchmark: &Path) -> PathBuf {
        benchmark.join("source").join(self.name())
    }

    /// Makes the files, in folders of a hundred; bytes that no file system compresses or shares.
    ///
    /// # Errors
    /// Fails if they can't be written.
    pub fn prepare(self, benchmark: &Path, scale: Scale) -> anyhow::Result<()> {
        let mut noise = Noise::new();
        let mut block = vec![0; BLOCK_BYTES];
        let mut number = 0;
        for batch in self.batches(scale) {
            for _ in 0..batch.files {
                let folder = self.folder(benchmark).join(format!("{:03}", number / 100));
                fs::create_dir_all(&folder)?;
                let mut file = fs::File::create(folder.join(format!("{number:05}")))?;
                let mut left = batch.bytes;
                while left > 0 {
                    let len = left.min(BLOCK_BYTES);
                    noise.fill(&mut block[..len]);
                    file.write_all(&block[..len])?;
                    left -= len;
                }
                number += 1;
            }
        }
        Ok(())
    }
}
