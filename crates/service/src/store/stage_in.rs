//! Files of a stage-in under way: its list, and its draft's identity when it was published. For an
//! export: that the files at the destination are its own.

use std::{fs, path::PathBuf};

use posthaste_endpoint::{Error, Result};
use posthaste_types::RequestId;

use super::Store;

/// Claim of an export that makes the directory at its address.
const MAKES: &[u8] = b"makes its directory";

impl Store {
    fn stage_in_path(&self, request: RequestId, end: &str) -> PathBuf {
        let datasets = self.directory.join("datasets");
        datasets.join(format!("{request}.{end}"))
    }

    /// Stores the list of a stage-in's sources durably.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn keep_stage_in_list(&self, request: RequestId, list: &[u8]) -> Result<()> {
        self.keep(&self.stage_in_path(request, "stage-in"), list)
    }

    /// Returns the list of its sources.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn stage_in_list(&self, request: RequestId) -> Result<Vec<u8>> {
        let path = self.stage_in_path(request, "stage-in");
        fs::read(&path).map_err(|cause| Error::io("read", path.display().to_string(), cause))
    }

    /// Records the identity of its draft before that is published.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn keep_landing(&self, request: RequestId, identity: &str) -> Result<()> {
        self.keep(&self.stage_in_path(request, "landing"), identity.as_bytes())
    }

    /// Returns the identity of its draft, if it was about to be published.
    pub(crate) fn landing(&self, request: RequestId) -> Option<String> {
        fs::read_to_string(self.stage_in_path(request, "landing")).ok()
    }

    /// Records durably which of its files came from several sources.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn keep_mixed(&self, request: RequestId, files: &[u8]) -> Result<()> {
        self.keep(&self.stage_in_path(request, "mixed"), files)
    }

    /// Returns which of its files came from several sources.
    pub(crate) fn mixed(&self, request: RequestId) -> Vec<u8> {
        fs::read(self.stage_in_path(request, "mixed")).unwrap_or_default()
    }

    /// Records durably which of its files are left out, and why.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn keep_left_out(&self, request: RequestId, files: &str) -> Result<()> {
        self.keep(&self.stage_in_path(request, "left-out"), files.as_bytes())
    }

    /// Returns which of its files are left out, and why.
    pub(crate) fn left_out(&self, request: RequestId) -> String {
        fs::read_to_string(self.stage_in_path(request, "left-out")).unwrap_or_default()
    }

    /// Records durably that the files at an export's address are its own from now on, and so is the
    /// directory that it makes there, if `makes`.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn keep_claim(&self, request: RequestId, makes: bool) -> Result<()> {
        let claim: &[u8] = if makes { MAKES } else { b"" };
        self.keep(&self.stage_in_path(request, "claim"), claim)
    }

    /// Returns whether the directory at an export's address is its own.
    pub(crate) fn makes_directory(&self, request: RequestId) -> bool {
        fs::read(self.stage_in_path(request, "claim")).is_ok_and(|claim| claim == MAKES)
    }

    /// Removes the files of an export that has ended, or of any request that never began. A
    /// leftover does no harm.
    pub(crate) fn forget_outward(&self, request: RequestId) {
        let _ = fs::remove_file(self.list_path(request));
        let _ = fs::remove_file(self.stage_in_path(request, "stage-in"));
        let _ = fs::remove_file(self.stage_in_path(request, "claim"));
        let _ = fs::remove_file(self.written_path(request));
    }

    /// Returns the path of the record of what an export wrote.
    pub(crate) fn written_path(&self, request: RequestId) -> PathBuf {
        self.stage_in_path(request, "written")
    }

    /// Returns whether the files at the destination are its own.
    pub(crate) fn is_claimed(&self, request: RequestId) -> bool {
        self.stage_in_path(request, "claim").exists()
    }

    /// Returns whether its list is still kept.
    pub(crate) fn has_list(&self, request: RequestId) -> bool {
        self.stage_in_path(request, "stage-in").exists()
    }

    /// Removes the files of a stage-in that has ended. A leftover does no harm.
    pub(crate) fn forget_list(&self, request: RequestId) {
        let _ = fs::remove_file(self.stage_in_path(request, "stage-in"));
        let _ = fs::remove_file(self.stage_in_path(request, "landing"));
        let _ = fs::remove_file(self.stage_in_path(request, "mixed"));
        let _ = fs::remove_file(self.stage_in_path(request, "left-out"));
    }
}
