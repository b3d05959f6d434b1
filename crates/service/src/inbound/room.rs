//! Checks for room for a stage-in at its destination.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use posthaste_endpoint::{Error, ErrorKind, Locus, Result};
use posthaste_types::{Bytes, RequestId};

use crate::driver::Centre;

/// Checks that the destination's file system has room for this much, beside what other accepted
/// stage-ins still need there. `own` is not counted among those.
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
    let failed = |cause| Error::io("stage in to", destination, cause).at(Locus::Destination);
    let device = fs::metadata(parent).map_err(failed)?.dev();
    let about = rustix::fs::statvfs(parent).map_err(|cause| failed(cause.into()))?;
    let free = Bytes::new(about.f_bavail.saturating_mul(about.f_frsize));
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
        let there = Path::new(&record.destination).parent().map(fs::metadata);
        // A stage-in whose destination can't be examined takes no room now.
        if let Some(Ok(there)) = there
            && there.dev() == device
        {
            promised += missing;
        }
    }
    fits(destination, needed, free, promised)
}

fn fits(destination: &str, needed: Bytes, free: Bytes, promised: Bytes) -> Result<()> {
    if needed <= free - promised {
        return Ok(());
    }
    let others = if promised > Bytes::ZERO {
        format!(", of which other stage-ins need {promised}")
    } else {
        String::new()
    };
    Err(Error::new(ErrorKind::Full, "stage in to", destination)
        .cause(format!(
            "it takes {needed}, and {free} are free there{others}"
        ))
        .hint("make room, or name a place on another file system")
        .at(Locus::Destination))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_were_promised_is_not_free() {
        let gibi = |count: u64| Bytes::mebi(count << 10);
        let check =
            |needed, free, promised| fits("/scratch/x", gibi(needed), gibi(free), gibi(promised));
        assert!(check(5, 5, 0).is_ok() && check(2, 5, 3).is_ok());
        let error = check(3, 5, 3).unwrap_err();
        assert_eq!(
            (error.kind(), error.locus()),
            (ErrorKind::Full, Locus::Destination)
        );
        let said = error.to_string();
        assert!(
            said.contains(
                "takes 3.0 GiB, and 5.0 GiB are free there, of which other stage-ins need 3.0 GiB"
            ),
            "{said}"
        );
        // More was promised than is free: others wrote there.
        assert!(check(1, 5, 9).is_err());
    }
}
