//! Room on a file system of this machine for what is brought there.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use posthaste_endpoint::{Error, ErrorKind, Location, Locus, Result};
use posthaste_journal::RequestRecord;
use posthaste_types::{Bytes, RequestId};

use crate::{driver::Centre, outbound::goes_out};

/// Checks that a stage-in's destination has room for this much, beside what other accepted requests
/// still need there. `own` is not counted among those.
///
/// # Errors
/// At [`Locus::Destination`]: [`ErrorKind::Full`] if it has not, and the operating system's.
pub(super) fn check(
    centre: &Centre,
    own: RequestId,
    destination: &str,
    needed: Bytes,
) -> Result<()> {
    let path = Path::new(destination);
    let parent = path.parent().unwrap_or(path);
    let room = Room::at(parent)
        .map_err(|cause| Error::io("stage in to", destination, cause).at(Locus::Destination))?;
    let promised = promised(centre, own, room.device)?;
    room.fits(("stage in to", destination), needed, promised)
}

/// Room of a file system.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// Number of its device.
    pub(crate) device: u64,
    /// Free bytes; none if it does not report its size, as some in user space.
    free: Option<Bytes>,
}

impl Room {
    /// Returns the room of the file system of a path. Blocking.
    ///
    /// # Errors
    /// The operating system's.
    pub(crate) fn at(path: &Path) -> io::Result<Self> {
        let device = fs::metadata(path)?.dev();
        let about = rustix::fs::statvfs(path)?;
        let free = Bytes::new(about.f_bavail.saturating_mul(about.f_frsize));
        Ok(Self {
            device,
            free: (about.f_blocks > 0).then_some(free),
        })
    }

    /// Checks that this much fits beside what was promised to others.
    ///
    /// # Errors
    /// At [`Locus::Destination`]: [`ErrorKind::Full`] if it does not.
    pub(crate) fn fits(
        self,
        (doing, destination): (&'static str, &str),
        needed: Bytes,
        promised: Bytes,
    ) -> Result<()> {
        let Some(free) = self.free.filter(|free| needed > *free - promised) else {
            return Ok(());
        };
        let others = if promised > Bytes::ZERO {
            format!(", of which other requests need {promised}")
        } else {
            String::new()
        };
        Err(Error::new(ErrorKind::Full, doing, destination)
            .cause(format!(
                "it takes {needed}, and {free} are free there{others}"
            ))
            .hint("make room, or name a place on another file system")
            .at(Locus::Destination))
    }
}

/// Returns the bytes that accepted requests other than `own` still bring to a device from elsewhere.
/// Blocking.
///
/// # Errors
/// The journal's.
pub(crate) fn promised(centre: &Centre, own: RequestId, device: u64) -> Result<Bytes> {
    let live: Vec<(RequestId, Bytes)> = {
        let mind = centre.mind();
        let views = mind.stage_ins().filter(|view| view.state.is_live());
        let others = views.filter(|view| view.request != own);
        others
            .map(|view| (view.request, view.spec.bytes - view.bytes_here))
            .collect()
    };
    let mut promised = Bytes::ZERO;
    for (request, missing) in live {
        let record = centre.store.request(request)?;
        let there = place_of(&record).and_then(|place| device_of(&place));
        // What lies on the same device may come to share its blocks.
        let from = std::str::from_utf8(&record.source).map(Path::new);
        let is_there = from.is_ok_and(|from| from.is_absolute() && device_of(from) == Some(device));
        // A request whose destination can't be examined takes no room now.
        if there == Some(device) && !is_there {
            promised += missing;
        }
    }
    Ok(promised)
}

/// Returns the path of this machine that a request writes to.
fn place_of(record: &RequestRecord) -> Option<PathBuf> {
    if !goes_out(record) {
        return Some(PathBuf::from(&record.destination));
    }
    match Location::parse(record.destination.as_ref()) {
        Ok(Location::Local(path)) => Some(path),
        _ => None,
    }
}

/// Returns the device of a path, or of the nearest directory above it.
fn device_of(path: &Path) -> Option<u64> {
    let mut above = path.ancestors();
    above.find_map(|path| Some(fs::metadata(path).ok()?.dev()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_were_promised_is_not_free() {
        let gibi = |count: u64| Bytes::mebi(count << 10);
        let check = |needed, free, promised| {
            let room = Room {
                device: 0,
                free: Some(gibi(free)),
            };
            room.fits(("stage in to", "/scratch/x"), gibi(needed), gibi(promised))
        };
        assert!(check(5, 5, 0).is_ok() && check(2, 5, 3).is_ok());
        let error = check(3, 5, 3).unwrap_err();
        assert_eq!(
            (error.kind(), error.locus()),
            (ErrorKind::Full, Locus::Destination)
        );
        let said = error.to_string();
        assert!(
            said.contains(
                "takes 3.0 GiB, and 5.0 GiB are free there, of which other requests need 3.0 GiB"
            ),
            "{said}"
        );
        // More was promised than is free: others wrote there.
        assert!(check(1, 5, 9).is_err());
        let room = Room {
            device: 0,
            free: None,
        };
        assert!(room.fits(("stage in to", "/x"), gibi(9), gibi(0)).is_ok());
    }
}
