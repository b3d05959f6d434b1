//! Content of a pipe, read on a thread of its own because a read may block for ever.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, Read},
    thread,
};

use bytes::Bytes;
use posthaste_endpoint::{Checksum, Error, Locus, Result, Summer};
use tokio::sync::mpsc;

/// Bytes read before they are handed on: few enough that a slow pipe is not held up for long.
const BLOCK_BYTES: usize = 1 << 20;

/// Maximum of blocks waiting.
const BLOCKS_MAX: usize = 2;

/// A stream being read once.
pub struct Spout {
    blocks: mpsc::Receiver<io::Result<Bytes>>,
    name: String,
    gathered: VecDeque<Bytes>,
    gathered_bytes: u64,
    read: u64,
    summer: Summer,
    is_over: bool,
}

impl Spout {
    /// Reads `file`, which people know as `name`, until its end.
    ///
    /// # Errors
    /// The system's, if it has no thread to give.
    pub fn start(mut file: File, name: String) -> Result<Self> {
        let (sender, blocks) = mpsc::channel(BLOCKS_MAX);
        let reading = thread::Builder::new().name("spout".to_owned());
        reading
            .spawn(move || {
                loop {
                    let block = read_block(&mut file);
                    let is_last = !block.as_ref().is_ok_and(|bytes| !bytes.is_empty());
                    if sender.blocking_send(block).is_err() || is_last {
                        return;
                    }
                }
            })
            .map_err(|cause| Error::io("read", &*name, cause))?;
        Ok(Self {
            blocks,
            name,
            gathered: VecDeque::new(),
            gathered_bytes: 0,
            read: 0,
            summer: Summer::default(),
            is_over: false,
        })
    }

    /// Waits until `bytes` are gathered, or all there is. Dropping it loses nothing.
    pub(super) async fn gather(&mut self, bytes: u64) -> Result<()> {
        while self.gathered_bytes < bytes && !self.is_over {
            let block = self.blocks.recv().await.unwrap_or_else(|| Ok(Bytes::new()));
            let block =
                block.map_err(|cause| Error::io("read", &*self.name, cause).at(Locus::Source))?;
            if block.is_empty() {
                self.is_over = true;
                break;
            }
            self.summer.add(&block);
            self.read += block.len() as u64;
            self.gathered_bytes += block.len() as u64;
            self.gathered.push_back(block);
        }
        Ok(())
    }

    /// Returns up to `most` of the gathered bytes.
    pub(super) fn take(&mut self, most: u64) -> Vec<Bytes> {
        let (mut taken, mut left) = (Vec::new(), most);
        while left > 0
            && let Some(mut block) = self.gathered.pop_front()
        {
            let len = usize::try_from(left).unwrap_or(usize::MAX).min(block.len());
            let first = block.split_to(len);
            left -= first.len() as u64;
            self.gathered_bytes -= first.len() as u64;
            taken.push(first);
            if !block.is_empty() {
                self.gathered.push_front(block);
            }
        }
        taken
    }

    /// Returns the bytes gathered and not used yet.
    pub(super) fn gathered(&self) -> u64 {
        self.gathered_bytes
    }

    /// Returns whether nothing more will come out of it.
    pub(super) fn is_dry(&self) -> bool {
        self.is_over && self.gathered_bytes == 0
    }

    /// Returns the bytes read so far.
    pub(super) fn read_so_far(&self) -> u64 {
        self.read
    }

    /// Returns the checksum of the bytes read.
    pub(super) fn sum(&self) -> Checksum {
        self.summer.sum()
    }
}

/// Returns the next block; empty at the end.
fn read_block(file: &mut File) -> io::Result<Bytes> {
    let mut block = Vec::with_capacity(BLOCK_BYTES);
    file.take(BLOCK_BYTES as u64).read_to_end(&mut block)?;
    Ok(block.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_endpoint::ErrorKind;
    use std::io::Write;

    #[tokio::test]
    async fn what_went_in_comes_out_in_the_pieces_asked_for() {
        let text: Vec<u8> = (0..3_000_000u32).map(|at| (at % 251) as u8).collect();
        let (reader, mut writer) = io::pipe().unwrap();
        let wanted = text.clone();
        let writing = thread::spawn(move || writer.write_all(&text));
        let mut spout =
            Spout::start(File::from(std::os::fd::OwnedFd::from(reader)), "x".into()).unwrap();
        let mut found = Vec::new();
        for bytes in [0, 1, 999_999, 1_500_000, 10_000_000] {
            spout.gather(bytes).await.unwrap();
            found.push(spout.take(bytes).concat());
        }
        writing.join().unwrap().unwrap();
        let lens: Vec<usize> = found.iter().map(Vec::len).collect();
        assert_eq!(lens, [0, 1, 999_999, 1_500_000, 500_000]);
        assert!(spout.is_dry());
        assert_eq!(
            (spout.read_so_far(), spout.sum()),
            (3_000_000, Checksum::of(&wanted))
        );
        assert!(found.concat() == wanted);
    }

    #[tokio::test]
    async fn what_can_not_be_read_is_an_error_of_the_source() {
        let folder = File::open("/").unwrap();
        let mut spout = Spout::start(folder, "standard input".into()).unwrap();
        let error = spout.gather(1).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.locus()),
            (ErrorKind::Conflict, Locus::Source)
        );
    }
}
