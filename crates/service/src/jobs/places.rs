//! Checks the places that a script names before its job is submitted: a problem is reported to the
//! submitter, not to a waiting job.

use std::path::{Path, PathBuf};

use posthaste_batch::script::{Lent, Wanted};
use posthaste_endpoint::{Error, Result};

use super::owner;
use crate::{
    depots::Viewer,
    http::Desk,
    inbound::{look::refuse_unknown_host, submit::check_source},
    outbound::submit::{address_of, check_address, is_address},
    submit::destination,
};

/// Checks that sources are readable addresses, that other places lie on scratch, and that depots
/// are registered.
///
/// # Errors
/// [`ErrorKind::PermissionDenied`] for a place that is not on scratch, [`ErrorKind::NotFound`] for
/// a depot that is not registered, [`ErrorKind::Invalid`] for an invalid address; each names the
/// line.
pub(super) fn check(desk: &Desk, uid: u32, wanted: &Wanted) -> Result<()> {
    let behalf = owner::behalf(&desk.centre, uid)?;
    let whose = Viewer::Owner(behalf.owner());
    let on_scratch = |path: &str| behalf.run(|| on_scratch(desk, path));
    for one in &wanted.stage_ins {
        at_line(one.line, check_source(&one.source))?;
        let mut from = one.source.clone();
        at_line(one.line, owner::reads(desk, &behalf, &mut from))?;
        at_line(one.line, refuse_unknown_host(&from, None, &behalf))?;
        at_line(one.line, on_scratch(&one.destination))?;
        at_line(one.line, in_the_books(desk, whose, &one.via))?;
    }
    for one in &wanted.stage_outs {
        at_line(one.line, on_scratch(&one.source))?;
        at_line(one.line, in_the_books(desk, whose, &one.via))?;
        at_line(one.line, in_the_books(desk, whose, &one.pin))?;
        if is_address(&one.destination) {
            let mut to = address_of(&one.destination);
            at_line(one.line, check_address(&to))?;
            at_line(one.line, owner::writes(desk, &behalf, &mut to))?;
            at_line(one.line, refuse_unknown_host(&to, None, &behalf))?;
        } else {
            at_line(one.line, destination(&desk.centre, whose, &one.destination))?;
        }
    }
    Ok(())
}

/// Checks that the depots lent for a job are registered, since its results go over them.
///
/// # Errors
/// [`ErrorKind::NotFound`] for one that is not; errors of [`owner::behalf`].
pub(super) fn check_lent(desk: &Desk, uid: u32, wanted: &Wanted) -> Result<()> {
    if wanted.depots.is_empty() {
        return Ok(());
    }
    let behalf = owner::behalf(&desk.centre, uid)?;
    let whose = Viewer::Owner(behalf.owner());
    for lent in &wanted.depots {
        at_line(
            lent.line,
            in_the_books(desk, whose, std::slice::from_ref(&lent.name)),
        )?;
    }
    Ok(())
}

/// Returns the depots by name if they are given by their listening address.
pub(super) fn by_name(desk: &Desk, whose: Viewer<'_>, lent: &[Lent]) -> Vec<Lent> {
    let named = |one: &Lent| {
        let known = desk.centre.depots.known(whose, "send via", &one.name);
        let name = known.map_or_else(|_| one.name.clone(), |depot| depot.record.name.clone());
        Lent {
            name,
            ..one.clone()
        }
    };
    lent.iter().map(named).collect()
}

fn at_line(line: usize, checked: Result<()>) -> Result<()> {
    checked.map_err(|error| {
        let kind = error.kind();
        Error::new(kind, "do", format!("line {line} of the script")).cause(error)
    })
}

fn in_the_books(desk: &Desk, whose: Viewer<'_>, depots: &[String]) -> Result<()> {
    let known = |name| desk.centre.depots.known(whose, "send via", name);
    depots.iter().try_for_each(|name| known(name).map(drop))
}

/// Checks a path with [`owner::on_scratch`], also one that the job creates: links are followed as
/// far as the path exists.
fn on_scratch(desk: &Desk, path: &str) -> Result<()> {
    let place = as_far_as_it_is(Path::new(path));
    owner::on_scratch(desk, &place).map(|_| ())
}

/// Returns the path with links resolved as far as it exists.
pub(crate) fn as_far_as_it_is(path: &Path) -> PathBuf {
    let mut rest = Vec::new();
    let mut there = path;
    while let (Some(above), Some(name)) = (there.parent(), there.file_name()) {
        rest.push(name);
        there = above;
        if let Ok(mut found) = std::fs::canonicalize(there) {
            found.extend(rest.iter().rev());
            return found;
        }
    }
    path.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_followed_as_far_as_a_path_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let root = std::fs::canonicalize(folder.path()).unwrap();
        std::fs::create_dir(root.join("scratch")).unwrap();
        std::os::unix::fs::symlink(root.join("scratch"), root.join("way")).unwrap();
        for below in ["run", "run/out/*.h5", "a/b/c"] {
            let found = as_far_as_it_is(&root.join("way").join(below));
            assert_eq!(found, root.join("scratch").join(below));
        }
        assert_eq!(as_far_as_it_is(Path::new("a/b")), Path::new("a/b"));
    }
}
