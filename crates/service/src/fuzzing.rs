//! Entry point for the fuzz targets alone: parses jobs of FTS's clients. It accepts any bytes, and
//! panics if an invariant fails.

/// Parses a job.
pub fn fts_job(data: &[u8]) {
    crate::fts::try_job(data);
}
