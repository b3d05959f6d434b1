//! Reads what a scan found.

use std::{
    fs::File,
    io::{BufReader, Read},
    path::PathBuf,
};

use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_types::Record;

use super::record::{Found, read_page};

/// Bytes read at once.
const READ_BYTES: usize = 256 << 10;

/// Maximum bytes of a page's length: a number as LEB128.
const LENGTH_BYTES_MAX: usize = 10;

/// Pages of entries, in no particular order. Blocks.
#[derive(Debug)]
pub struct Entries {
    left: std::vec::IntoIter<(PathBuf, u64)>,
    current: Option<(PathBuf, std::io::Take<BufReader<File>>)>,
}

impl Entries {
    pub(super) fn open(written: Vec<(PathBuf, u64)>) -> Result<Self> {
        let mut entries = Self {
            left: written.into_iter(),
            current: None,
        };
        entries.advance()?;
        Ok(entries)
    }

    fn advance(&mut self) -> Result<()> {
        self.current = match self.left.next() {
            None => None,
            Some((path, length)) => {
                let file = File::open(&path)
                    .map_err(|cause| Error::io("open", path.display().to_string(), cause))?;
                let reader = BufReader::with_capacity(READ_BYTES, file);
                Some((path, reader.take(length)))
            }
        };
        Ok(())
    }

    fn read(&mut self) -> Result<Option<Found>> {
        loop {
            let Some((path, reader)) = &mut self.current else {
                return Ok(None);
            };
            if reader.limit() == 0 {
                self.advance()?;
                continue;
            }
            let damaged = || {
                Error::new(ErrorKind::Corrupt, "read", path.display().to_string())
                    .cause("it is not what the scan wrote")
                    .hint("remove the folder to scan anew")
            };
            let mut length = Vec::with_capacity(LENGTH_BYTES_MAX);
            loop {
                let mut byte = [0];
                reader.read_exact(&mut byte).map_err(|_| damaged())?;
                length.push(byte[0]);
                if byte[0] & 0x80 == 0 || length.len() == LENGTH_BYTES_MAX {
                    break;
                }
            }
            let length = u64::from_bytes(&length).map_err(|_| damaged())?;
            if length > reader.limit() {
                return Err(damaged());
            }
            let mut page = Vec::new();
            let page_reader = reader.take(length);
            let mut page_reader = page_reader;
            page_reader.read_to_end(&mut page).map_err(|_| damaged())?;
            return read_page(&page).map(Some).map_err(|_| damaged());
        }
    }
}

impl Iterator for Entries {
    type Item = Result<Found>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}
