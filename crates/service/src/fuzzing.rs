//! A way into what reads jobs of FTS's clients, for the fuzz targets alone. It takes any bytes, and panics when something does
//! not hold that must.

/// A job.
pub fn fts_job(data: &[u8]) {
    crate::fts::try_job(data);
}
