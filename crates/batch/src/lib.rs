//! Batch systems: what job scripts ask of posthaste. No other room knows what Slurm and PBS look like.
//!
//! [`script`] reads the directives of a job script: `docs/reference/job-scripts.md` has their forms. [`purge`] knows what a
//! centre removes from scratch, and when: `docs/reference/purge-policy.md`.

pub mod purge;
pub mod script;
