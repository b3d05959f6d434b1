//! What slurmrestd says of nodes, in every shape since 21.08.

use std::io::Read;

use serde::Deserialize;

use super::{
    document::{self, What},
    json::Words,
    number::Number,
};
use crate::queue::Unreadable;

#[derive(Deserialize)]
struct Node {
    #[serde(default)]
    cpus: Number,
    #[serde(default)]
    alloc_cpus: Number,
    /// From 23.02 on with the flags.
    #[serde(default)]
    state: Words,
    #[serde(default)]
    state_flags: Words,
    #[serde(default)]
    partitions: Words,
}

impl Node {
    /// Processors that are used or may be: of a node that takes no jobs those of jobs that still run there, as `sinfo` counts.
    fn usable(&self) -> u32 {
        let is = |name: &str| self.state.has(name) || self.state_flags.has(name);
        let counts = if is("DOWN") || is("DRAIN") || is("DRAINED") || is("DRAINING") {
            self.alloc_cpus
        } else {
            self.cpus
        };
        counts.count().unwrap_or(0)
    }
}

/// Reads the processors that may be used from what slurmrestd answers at `/slurm/v0.0.NN/nodes`: those of nodes that are in a
/// partition.
///
/// # Errors
/// [`Unreadable`] when it is no JSON or has no nodes.
pub fn processors_json(from: impl Read) -> Result<u32, Unreadable> {
    let mut procs = 0u32;
    let what = What {
        name: "Slurm's nodes",
        list: "nodes",
    };
    document::read(what, from, |node: Option<Node>| {
        let node = node.filter(|node| !node.partitions.is_empty());
        procs = procs.saturating_add(node.map_or(0, |node| node.usable()));
    })?;
    Ok(procs)
}
