//! Batch systems: what job scripts ask of posthaste, and what runs and waits. No other room knows what Slurm and PBS look like.
//!
//! [`script`] reads the directives of a job script: `docs/reference/job-scripts.md` has their forms. [`purge`] knows what a
//! centre removes from scratch, and when: `docs/reference/purge-policy.md`. [`slurm`] and [`pbs`] read what these say of
//! their jobs, as a [`queue`].

pub mod pbs;
pub mod purge;
pub mod queue;
pub mod script;
pub mod slurm;
