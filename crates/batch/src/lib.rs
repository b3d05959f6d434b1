//! Batch systems: data directives of job scripts, and the jobs that run and wait. No other crate
//! knows the formats of Slurm and PBS.
//!
//! [`script`] reads the directives of a job script; `docs/reference/job-scripts.md` has their
//! forms. [`purge`] predicts which files a centre removes from scratch, and when; see
//! `docs/reference/purge-policy.md`. [`slurm`] and [`pbs`] read their batch system's jobs into a
//! [`queue`].

pub mod pbs;
pub mod purge;
pub mod queue;
pub mod script;
pub mod slurm;
