//! Decides for whom the service moves data, and where: for the user it runs as, or, as root, for
//! each user with that user's rights. So the operating system decides what a user may do.

use std::{
    ffi::OsStr,
    fs,
    path::{Component, Path, PathBuf},
};

use posthaste_endpoint::{Error, ErrorKind, Location, Locus, Result};
use rustix::process::geteuid;

use crate::{credentials::Behalf, driver::Centre, http::Desk, tokens::Caller};

/// Files and directories examined while a caller waits for the answer: half a minute on a busy
/// parallel file system.
pub(super) const LOOKED_AT_MAX: usize = 1_000_000;

/// Returns the directories below which jobs may have data moved, with links resolved.
///
/// # Errors
/// Fails if one does not exist.
pub(crate) fn roots(given: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let root = |path: &PathBuf| {
        let root = fs::canonicalize(path);
        root.map_err(|cause| Error::io("use as scratch", path.display().to_string(), cause))
    };
    given.iter().map(root).collect()
}

/// Returns on whose behalf the service does what a user's jobs request.
///
/// # Errors
/// [`ErrorKind::PermissionDenied`] for root if it acts for each user, and [`ErrorKind::NotFound`]
/// for a user without an account.
pub(super) fn behalf(centre: &Centre, uid: u32) -> Result<Behalf> {
    let actors = &centre.store.actors;
    match actors.are_owners() {
        true => tokio::task::block_in_place(|| actors.user(uid)),
        false => actors.user(uid),
    }
}

/// Checks that jobs may be submitted held. A service for all users can't: it asks Slurm for its own
/// jobs only, and would find no other user's.
///
/// # Errors
/// [`ErrorKind::Unsupported`] if they may not.
pub(super) fn check_held(centre: &Centre) -> Result<()> {
    if !centre.store.actors.are_owners() {
        return Ok(());
    }
    let subject = "a job that is submitted held";
    Err(Error::new(ErrorKind::Unsupported, "take", subject)
        .cause("this service serves the jobs of all users, which the plug-in tells it of")
        .hint("start a service of your own, or use `sbatch` where the plug-in is installed"))
}

/// Returns the owner of the requests of a user's jobs, if they have one.
pub(super) fn of_requests(behalf: &Behalf) -> Option<String> {
    let owner = behalf.owner();
    (!owner.is_empty()).then(|| owner.to_owned())
}

/// Records which credential an address means, and checks that a user's job may read there. If the
/// service acts for each user, that depends on the user's files, credentials and tokens; otherwise
/// on those of its own user.
///
/// # Errors
/// [`ErrorKind::PermissionDenied`] if it may not.
pub(super) fn reads(desk: &Desk, behalf: &Behalf, address: &mut String) -> Result<()> {
    opens(desk, behalf, address, Caller::reads)
}

/// Checks [`reads`] for writing.
///
/// # Errors
/// Errors of [`reads`].
pub(super) fn writes(desk: &Desk, behalf: &Behalf, address: &mut String) -> Result<()> {
    opens(desk, behalf, address, Caller::writes)
}

fn opens(
    desk: &Desk,
    behalf: &Behalf,
    address: &mut String,
    check: fn(&Caller, &str, Option<&str>) -> Result<()>,
) -> Result<()> {
    behalf.claim(address)?;
    if !desk.centre.store.actors.are_owners() {
        return Ok(());
    }
    let owner = behalf.owner();
    let profiles = desk.tokens.profiles_of(owner, desk.centre.clock.now());
    let caller = Caller::job_of(owner, profiles);
    match Location::parse(OsStr::new(&**address))? {
        Location::Local(_) => behalf.run(|| check(&caller, address, None)),
        // The scope of profiles is defined in a file of the service's own user.
        Location::S3 { .. }
        | Location::Sftp { .. }
        | Location::Bucket { .. }
        | Location::Server(_)
        | Location::Host { .. }
        | Location::Plugin { .. } => check(&caller, address, None),
    }
}

/// Checks that the service may act for a user: unless it takes on each user's rights, it would act
/// for another with rights that are not theirs.
///
/// # Errors
/// [`ErrorKind::PermissionDenied`] for another user than its own; otherwise errors of [`behalf`].
pub(super) fn check_user(centre: &Centre, uid: u32) -> Result<()> {
    if centre.store.actors.are_owners() {
        return behalf(centre, uid).map(|_| ());
    }
    check_own(uid)
}

fn check_own(uid: u32) -> Result<()> {
    let own = geteuid().as_raw();
    if own == uid {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::PermissionDenied,
        "act for",
        format!("user {uid}"),
    )
    .cause(format!("the service runs as user {own}"))
    .hint(
        "a service moves data for jobs of its own user only, unless root runs it with --as-owners",
    ))
}

/// Returns the path of a job's data with links in its directory resolved, which must lie on
/// scratch.
///
/// # Errors
/// [`ErrorKind::PermissionDenied`] if it does not, [`ErrorKind::Invalid`] for a path that is not
/// absolute or contains `..`.
pub(super) fn on_scratch(desk: &Desk, path: &Path) -> Result<String> {
    let shown = path.display().to_string();
    let invalid = |why: &str| Error::new(ErrorKind::Invalid, "use", &shown).cause(why.to_owned());
    let goes_down = path
        .components()
        .all(|component| matches!(component, Component::RootDir | Component::Normal(_)));
    if !path.is_absolute() || !goes_down {
        return Err(invalid("it is no absolute path, or goes up with `..`")
            .hint("give an absolute path, like /scratch/me/input"));
    }
    let path = without_links(path);
    let scratch = desk.scratch.get();
    let is_below = scratch.iter().any(|root| path.starts_with(root));
    if !is_below && !scratch.is_empty() {
        let roots = scratch.iter().map(|root| root.display().to_string());
        let roots: Vec<String> = roots.collect();
        return Err(Error::new(ErrorKind::PermissionDenied, "use", &shown)
            .cause(format!("it does not lie below {}", roots.join(" or "))));
    }
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| invalid("its name is no UTF-8"))
}

/// Returns the path with the links in its directory resolved, or unchanged if they lead nowhere.
pub(super) fn without_links(path: &Path) -> PathBuf {
    let parent = path
        .parent()
        .and_then(|parent| fs::canonicalize(parent).ok());
    match (parent, path.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => path.to_owned(),
    }
}

/// Returns the bytes of all files at and below a path; 0 if nothing is there.
///
/// # Errors
/// The operating system's, and [`ErrorKind::Unsupported`] for more than a million files and
/// directories.
pub(super) fn bytes_below(path: &Path) -> Result<u64> {
    bytes_of_at_most(path, LOOKED_AT_MAX)
}

fn bytes_of_at_most(root: &Path, most: usize) -> Result<u64> {
    let (mut bytes, mut looked_at) = (0_u64, 0);
    let mut left = vec![root.to_owned()];
    while let Some(path) = left.pop() {
        let failed =
            |cause| Error::io("look at", path.display().to_string(), cause).at(Locus::Destination);
        let about = match fs::symlink_metadata(&path) {
            Ok(about) => about,
            // The entry disappeared meanwhile, or never existed.
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => continue,
            Err(cause) => return Err(failed(cause)),
        };
        looked_at += 1;
        if about.is_file() {
            bytes = bytes.saturating_add(about.len());
        } else if about.is_dir() {
            for entry in fs::read_dir(&path).map_err(failed)? {
                if looked_at + left.len() >= most {
                    return Err(too_many(root, most));
                }
                left.push(entry.map_err(failed)?.path());
            }
        }
    }
    Ok(bytes)
}

/// Returns the error for a tree with more entries than are examined.
pub(super) fn too_many(path: &Path, most: usize) -> Error {
    let subject = path.display().to_string();
    Error::new(ErrorKind::Unsupported, "look through", subject)
        .cause(format!("there are more than {most} files and directories"))
        .hint("pack them, or name a directory that has fewer")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_count_and_what_links_lead_to_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path().join("tree");
        fs::create_dir_all(tree.join("below")).unwrap();
        fs::write(tree.join("below/file"), "12345").unwrap();
        fs::write(folder.path().join("other"), "1").unwrap();
        std::os::unix::fs::symlink(folder.path().join("other"), tree.join("link")).unwrap();
        assert_eq!(bytes_below(&tree).unwrap(), 5);
        assert_eq!(bytes_below(&folder.path().join("absent")).unwrap(), 0);
        assert_eq!(bytes_of_at_most(&tree, 4).unwrap(), 5);
        let error = bytes_of_at_most(&tree, 3).unwrap_err().to_string();
        assert!(error.contains("more than 3 files"), "{error}");
        std::os::unix::fs::symlink(&tree, folder.path().join("way")).unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        assert_eq!(
            without_links(&folder.path().join("way/new")),
            root.join("tree/new")
        );
        let nowhere = Path::new("/nowhere/at/all");
        assert_eq!(without_links(nowhere), nowhere);
    }

    #[test]
    fn a_service_acts_for_its_own_user_only() {
        let own = geteuid().as_raw();
        assert!(check_own(own).is_ok());
        let kind = check_own(own + 1).unwrap_err().kind();
        assert_eq!(kind, ErrorKind::PermissionDenied);
    }
}
