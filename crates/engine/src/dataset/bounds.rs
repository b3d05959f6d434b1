//! Limits on what one scan may hold of its findings.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use super::room::Lent;

/// Most entries of one dataset: at about 200 bytes each the list stays in memory.
pub const ENTRIES_MAX: u64 = 20_000_000;
/// Maximum of bytes of their names, paths as they are: 200 bytes for each of so many.
pub const NAME_BYTES_MAX: u64 = 4 << 30;

/// Bytes of an entry beside its name.
const ENTRY_BYTES: u64 = 200;

/// Memory that a scan holds, and whether anybody still wants it. Its listing may never end.
#[derive(Debug)]
pub struct Bounds {
    entries: AtomicU64,
    bytes: AtomicU64,
    entries_max: u64,
    bytes_max: u64,
    unwanted: Arc<AtomicBool>,
    lent: Option<Arc<Lent>>,
}

/// Reason why a scan ends early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// The scan holds the maximum number of entries.
    Entries,
    /// The scan holds the maximum number of bytes of names.
    Names,
    /// The scan holds as much memory as one scan may on this machine.
    Memory,
    /// Other scans hold the memory that it needs now.
    Others,
    /// Nobody waits for the scan any more.
    Unwanted,
}

impl Default for Bounds {
    fn default() -> Self {
        Self::new(ENTRIES_MAX, NAME_BYTES_MAX)
    }
}

impl Bounds {
    fn new(entries_max: u64, bytes_max: u64) -> Self {
        Self {
            entries: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            entries_max,
            bytes_max,
            unwanted: Arc::default(),
            lent: None,
        }
    }

    /// Returns bounds for a scan that ends when [`Wanted`] is dropped.
    #[must_use]
    pub fn while_wanted(wanted: &Wanted) -> Self {
        Self {
            unwanted: Arc::clone(&wanted.0),
            ..Self::default()
        }
    }

    /// Returns these bounds for a scan that shares memory with others.
    #[must_use]
    pub fn sharing(self, lent: &Arc<Lent>) -> Self {
        Self {
            lent: Some(Arc::clone(lent)),
            ..self
        }
    }

    /// Counts one more entry, of which so many bytes of names are kept.
    ///
    /// # Errors
    /// The bound that ends the scan.
    pub fn hold(&self, bytes: usize) -> Result<(), Bound> {
        if self.unwanted.load(Relaxed) {
            return Err(Bound::Unwanted);
        }
        if self.entries.fetch_add(1, Relaxed) >= self.entries_max {
            return Err(Bound::Entries);
        }
        let bytes = bytes as u64;
        if self.bytes.fetch_add(bytes, Relaxed).saturating_add(bytes) > self.bytes_max {
            return Err(Bound::Names);
        }
        match &self.lent {
            Some(lent) => lent.take(ENTRY_BYTES.saturating_add(bytes)),
            None => Ok(()),
        }
    }
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Entries => write!(f, "it has more than {ENTRIES_MAX} entries"),
            Self::Names => {
                let gibi = NAME_BYTES_MAX >> 30;
                write!(f, "the names in it have more than {gibi} GiB")
            }
            Self::Memory => f.write_str("its list takes more memory than one may here"),
            Self::Others => f.write_str("the memory for lists is held by other scans"),
            Self::Unwanted => f.write_str("nobody waits for it any more"),
        }
    }
}

/// Token held by the caller that waits for a scan on a thread of its own.
#[derive(Debug, Default)]
pub struct Wanted(Arc<AtomicBool>);

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_holds_so_much_and_ends_when_nobody_waits() {
        let bounds = Bounds::new(2, 1000);
        bounds.hold(10).unwrap();
        bounds.hold(10).unwrap();
        assert_eq!(bounds.hold(10), Err(Bound::Entries));
        let bounds = Bounds::new(1000, 20);
        bounds.hold(20).unwrap();
        assert_eq!(bounds.hold(1), Err(Bound::Names));
        let wanted = Wanted::default();
        let bounds = Bounds::while_wanted(&wanted);
        bounds.hold(10).unwrap();
        drop(wanted);
        assert_eq!(bounds.hold(10), Err(Bound::Unwanted));
    }
}
