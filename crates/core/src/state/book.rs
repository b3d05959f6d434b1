use alloc::{boxed::Box, collections::BTreeMap, vec::Vec};
use posthaste_types::{Malformed, Record};

/// Entries by number, with those that may have changed since they were last taken.
///
/// Data derived from an entry (an index, a queue) is updated from these. So a step costs what it
/// touched and not all there is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Book<K, V> {
    /// Boxed: nodes of the map have room for eleven entries, and many places are empty.
    entries: BTreeMap<K, Box<V>>,
    touched: Vec<K>,
}

impl<K: Ord + Copy, V> Default for Book<K, V> {
    fn default() -> Self {
        Self {
            entries: BTreeMap::new(),
            touched: Vec::new(),
        }
    }
}

impl<K: Record + Ord, V: Record> Record for Book<K, V> {
    fn write(&self, out: &mut Vec<u8>) {
        self.entries.write(out);
        self.touched.write(out);
    }

    fn read(input: &mut &[u8]) -> Result<Self, Malformed> {
        Ok(Self {
            entries: BTreeMap::read(input)?,
            touched: Vec::read(input)?,
        })
    }
}

impl<K: Ord + Copy, V> Book<K, V> {
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|entry| &**entry)
    }

    /// Returns the entry, to be changed.
    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.touch(*key);
        self.entries.get_mut(key).map(|entry| &mut **entry)
    }

    /// Returns the entries, to save memory only: their contents must not change.
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.entries.values_mut().map(|entry| &mut **entry)
    }

    /// Lets the entry save memory; its contents must not change.
    pub(crate) fn settle(&mut self, key: &K, settle: impl FnOnce(&mut V)) {
        if let Some(entry) = self.entries.get_mut(key) {
            settle(entry);
        }
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        self.touch(key);
        self.entries.insert(key, Box::new(value));
    }

    pub(crate) fn remove(&mut self, key: &K) {
        self.touch(*key);
        self.entries.remove(key);
    }

    pub(crate) fn contains_key(&self, key: &K) -> bool {
        self.entries.contains_key(key)
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.entries.iter().map(|(key, entry)| (key, &**entry))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.entries.keys()
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.entries.values().map(|entry| &**entry)
    }

    /// Marks data derived from the entry for another look.
    pub(crate) fn touch(&mut self, key: K) {
        if self.touched.last() != Some(&key) {
            self.touched.push(key);
        }
    }

    /// Returns the entries touched since they were last taken, unsorted.
    pub(crate) fn touched(&self) -> &[K] {
        &self.touched
    }

    /// Takes the entries touched since the last call, each once, in order.
    pub(crate) fn take_touched(&mut self) -> Vec<K> {
        let mut touched = core::mem::take(&mut self.touched);
        touched.sort_unstable();
        touched.dedup();
        touched
    }
}
