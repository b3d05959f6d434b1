//! Report for HTCondor: one ad a file, in the file that HTCondor provided.

use std::{
    fs::{File, OpenOptions},
    io::{Seek, SeekFrom, Write},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use posthaste_endpoint::{Error, ErrorKind, Locus, Result};
use posthaste_engine::copy::Figures;

use super::{
    ads::Writer,
    plugin::{Direction, Wanted},
};
use crate::copy::one::Trouble;

/// Blanks written at once over the file's previous content.
const BLANKS: [u8; 4096] = [b' '; 4096];

/// Result of one file's transfer.
#[derive(Debug)]
pub(super) struct Fared {
    /// Start of the transfer.
    pub(super) begun: Timestamp,
    /// End of the transfer.
    pub(super) ended: Timestamp,
    /// Figures of the transfer, or the reason for its failure.
    pub(super) outcome: std::result::Result<Figures, Trouble>,
}

/// File that HTCondor reads. It is full of blanks from the start and never truncated, so that a
/// report fits even on a full disk.
#[derive(Debug)]
pub(super) struct Report {
    file: File,
    path: PathBuf,
}

impl Report {
    /// Opens the file and overwrites its content with blanks.
    ///
    /// # Errors
    /// Fails if it can't be written.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let failed = |cause| Error::io("write", path.display().to_string(), cause);
        let opened = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path);
        let mut file = opened.map_err(failed)?;
        let mut left = file.metadata().map_err(failed)?.len();
        while left > 0 {
            let length = left.min(BLANKS.len() as u64);
            let blanks = &BLANKS[..usize::try_from(length).unwrap_or(BLANKS.len())];
            file.write_all(blanks).map_err(failed)?;
            left -= length;
        }
        file.seek(SeekFrom::Start(0)).map_err(failed)?;
        Ok(Self {
            file,
            path: path.to_owned(),
        })
    }

    /// Reports one file. The report can be read at once.
    ///
    /// # Errors
    /// Fails if it can't be written.
    pub(super) fn tell(
        &mut self,
        wanted: &Wanted,
        direction: Direction,
        fared: &Fared,
    ) -> Result<()> {
        let mut ad = describe(wanted, direction, fared);
        ad.push(b'\n');
        let path = &self.path;
        let failed = |cause| Error::io("write", path.display().to_string(), cause);
        self.file.write_all(&ad).map_err(failed)
    }

    /// Reports that nothing could be started.
    ///
    /// # Errors
    /// Fails if it can't be written.
    pub(super) fn tell_of_all(&mut self, why: &str) -> Result<()> {
        let mut ad = Writer::new();
        ad.plain("TransferSuccess", false)
            .text("TransferError", why.as_bytes())
            .text("TransferFileName", b"")
            .text("TransferUrl", b"");
        let path = &self.path;
        let failed = |cause| Error::io("write", path.display().to_string(), cause);
        self.file.write_all(&ad.end()).map_err(failed)
    }
}

fn describe(wanted: &Wanted, direction: Direction, fared: &Fared) -> Vec<u8> {
    let local = Path::new(&wanted.local);
    let bytes = std::fs::metadata(local).map_or(0, |about| about.len());
    let is_there = fared.outcome.is_ok() || direction == Direction::Upload;
    let sent = fared.outcome.as_ref().map_or(0, |figures| figures.bytes);
    let took = fared.ended.duration_since(fared.begun);
    let mut ad = Writer::new();
    ad.plain("TransferSuccess", fared.outcome.is_ok())
        .text("TransferProtocol", wanted.scheme().as_bytes())
        .text("TransferType", direction.name().as_bytes())
        .text("TransferFileName", wanted.local.as_bytes())
        .text("TransferUrl", wanted.url.as_bytes())
        .plain("TransferFileBytes", if is_there { bytes } else { 0 })
        .plain("TransferTotalBytes", sent)
        .plain("TransferStartTime", fared.begun.as_second())
        .plain("TransferEndTime", fared.ended.as_second())
        .plain(
            "ConnectionTimeSeconds",
            format_args!("{:.6}", took.as_secs_f64()),
        );
    match &fared.outcome {
        Ok(figures) => {
            let mut more = Writer::new();
            more.plain("ResumedBytes", figures.resumed_bytes)
                .plain("UnchangedFiles", figures.unchanged)
                .plain("Tries", figures.tries);
            ad.nested("DeveloperData", &more.end(), false);
        }
        Err(trouble) => {
            let data = error_data(wanted, direction, trouble);
            ad.text("TransferError", trouble.said.as_bytes()).nested(
                "TransferErrorData",
                &data,
                true,
            );
        }
    }
    ad.end()
}

/// Formats the failure for HTCondor's policies.
fn error_data(wanted: &Wanted, direction: Direction, trouble: &Trouble) -> Vec<u8> {
    let mut data = Writer::new();
    let far = match direction {
        Direction::Download => Locus::Source,
        Direction::Upload => Locus::Destination,
    };
    let server = wanted.server();
    let server = server.as_bytes();
    let mut failed = |kind: &[u8], how: Option<&[u8]>| {
        data.text("ErrorType", kind).text("FailedServer", server);
        if let Some(how) = how {
            data.text("FailureType", how);
        }
    };
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "ErrorKind may grow; new kinds are failed transfers"
    )]
    match trouble.kind {
        ErrorKind::Unauthenticated => failed(b"Authorization", Some(b"Authentication")),
        ErrorKind::PermissionDenied if trouble.locus == far => {
            failed(b"Authorization", Some(b"Authorization"));
        }
        ErrorKind::NotFound => failed(b"Specification", None),
        ErrorKind::Unreachable => failed(b"Contact", None),
        ErrorKind::Invalid | ErrorKind::Unsupported => {
            data.text("ErrorType", b"Parameter")
                .text("PluginVersion", env!("CARGO_PKG_VERSION").as_bytes())
                .plain("PluginLaunched", true);
        }
        ErrorKind::Full => failed(b"Transfer", Some(b"NoSpace")),
        ErrorKind::TimedOut => failed(b"Transfer", Some(b"TimedOut")),
        _ => failed(b"Transfer", Some(b"Other")),
    }
    if trouble.kind == ErrorKind::Unauthenticated || trouble.kind == ErrorKind::PermissionDenied {
        data.plain("ShouldRefresh", trouble.kind == ErrorKind::Unauthenticated);
    }
    data.plain("Retryable", if trouble.is_temporary { 0 } else { -1 })
        .plain("ErrorCode", trouble.exit as u8)
        .text("ErrorString", trouble.said.as_bytes());
    data.end()
}
