//! Nodes from slurmrestd, in every form since 21.08.

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
    /// State; from 23.02 on with the flags.
    #[serde(default)]
    state: Words,
    #[serde(default)]
    state_flags: Words,
    #[serde(default)]
    partitions: Words,
}

impl Node {
    /// Returns the processors that are or may be used. A node that accepts no jobs counts the
    /// processors of jobs still running there, as in `sinfo`.
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

/// Reads the usable processors from slurmrestd's answer at `/slurm/v0.0.NN/nodes`, counting nodes
/// that are in a partition.
///
/// # Errors
/// [`Unreadable`] if it is not JSON or has no list of nodes.
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
