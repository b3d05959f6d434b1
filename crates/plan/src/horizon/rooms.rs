//! Free space of failure domains.

use alloc::collections::BTreeMap;

use super::Node;

/// Bytes that each failure domain may still take of a demand.
#[derive(Debug, Clone)]
pub struct Rooms {
    most: u64,
    inside: BTreeMap<u32, u64>,
}

impl Rooms {
    /// Returns a limit of `most` bytes for each domain; `u64::MAX` stands for no limit.
    #[must_use]
    pub const fn new(most: u64) -> Self {
        Self {
            most,
            inside: BTreeMap::new(),
        }
    }

    /// Returns the bytes that all domains of the node leave it.
    #[must_use]
    pub fn left(&self, node: &Node) -> u64 {
        self.left_of(node, self.most)
    }

    /// Returns the bytes that all domains of the node would leave it if each could take `most`.
    pub(crate) fn left_of(&self, node: &Node, most: u64) -> u64 {
        let domains = node.domains.iter();
        let inside = domains.filter_map(|domain| self.inside.get(domain));
        let fullest = inside.max().copied().unwrap_or(0);
        most.saturating_sub(fullest)
    }

    /// Records that the node takes this many bytes.
    pub fn take(&mut self, node: &Node, bytes: u64) {
        for &domain in &node.domains {
            let inside = self.inside.entry(domain).or_default();
            *inside = inside.saturating_add(bytes);
        }
    }
}
