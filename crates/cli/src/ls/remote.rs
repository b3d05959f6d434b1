//! Directories as a service lists them: pages, followed while they are printed.

use std::{collections::VecDeque, ffi::OsStr, process::ExitCode};

use futures_util::{StreamExt, stream::FuturesUnordered};
use posthaste_api as api;
use posthaste_endpoint::{Entry, FileTime, Kind, Location, encode, join};
use posthaste_engine::scan::Found;
use tokio::sync::mpsc;

use super::{Lines, PAGES_AHEAD, ShowArguments, printed};
use crate::{
    client::{ServiceArguments, ServiceClient},
    failure::{Exit, Failure, Outcome},
};

/// Entries of a page.
const PAGE: usize = 10_000;
/// Directories asked for at once: the service lists ahead what is asked for next.
const AT_ONCE: usize = 8;

/// The end of what asks for a directory to be listed anew.
const REFRESH: &str = "&refresh=true";

/// A directory that is to be shown.
struct Waiting {
    address: String,
    /// As it is printed.
    path: Vec<u8>,
}

/// Prints what the service says, and with `--recursive` everything below.
pub(super) async fn print(arguments: &ShowArguments, url: &str, mut lines: Lines) -> Outcome {
    let service = ServiceClient::open(&ServiceArguments {
        url: url.to_owned(),
        token_file: arguments.token_file.clone(),
    })?;
    let (sender, mut found) = mpsc::channel::<Found>(PAGES_AHEAD);
    let printing = printed(move || {
        loop {
            let next = found.try_recv().ok().or_else(|| {
                // Whoever reads waits for what there is rather than for more.
                lines.flush();
                found.blocking_recv()
            });
            match next {
                Some(found) => lines.page(&found),
                None => return Ok(()),
            }
            if lines.is_closed() {
                return Ok(());
            }
        }
    });
    let walk = Walk {
        service,
        found: sender,
        profile: arguments.profile.as_deref(),
        refreshes: arguments.refresh,
        is_recursive: arguments.recursive,
    };
    let root = address_of(&arguments.address)?;
    let (walked, printed) = tokio::join!(walk.run(root), printing);
    printed?;
    walked
}

/// The address as the service is asked for it: paths of this machine are written whole.
fn address_of(address: &OsStr) -> Result<String, Failure> {
    let location = Location::parse(address)?;
    let written = match &location {
        Location::Local(path) => {
            let path = std::path::absolute(path).map_err(anyhow::Error::from)?;
            path.into_os_string()
        }
        Location::S3 { .. }
        | Location::Sftp { .. }
        | Location::Bucket { .. }
        | Location::Server(_)
        | Location::Host { .. }
        | Location::Plugin { .. } => address.to_owned(),
    };
    written.into_string().map_err(|address| {
        let shown = address.to_string_lossy().into_owned();
        Failure::usage(format!(
            "can't list {shown}: the service is asked in UTF-8 (list it without --service)"
        ))
    })
}

struct Walk<'a> {
    service: ServiceClient,
    found: mpsc::Sender<Found>,
    profile: Option<&'a str>,
    refreshes: bool,
    is_recursive: bool,
}

impl Walk<'_> {
    /// Shows a directory and, where everything is wanted, what lies below it.
    async fn run(self, root: String) -> Outcome {
        let root = Waiting {
            address: root,
            path: Vec::new(),
        };
        let mut waiting = VecDeque::from(self.show(&root).await.map_err(no_directory)?);
        let (mut failures, mut temporary) = (0_u64, 0_u64);
        let mut showing = FuturesUnordered::new();
        loop {
            while showing.len() < AT_ONCE
                && let Some(next) = waiting.pop_front()
            {
                let walk = &self;
                showing.push(async move { walk.show(&next).await });
            }
            match showing.next().await {
                None => break,
                Some(Ok(below)) => {
                    // What lies below the one that was shown comes first, as people read a tree; and fewer wait so.
                    for next in below.into_iter().rev() {
                        waiting.push_front(next);
                    }
                }
                Some(Err(failure)) => {
                    failures += 1;
                    temporary += u64::from(failure.may_pass());
                    eprintln!("posthaste: {failure}");
                }
            }
            if self.found.is_closed() {
                break;
            }
        }
        let exit = match (failures, temporary) {
            (0, _) => return Ok(ExitCode::SUCCESS),
            (_, 0) => Exit::LessSerious,
            _ => Exit::Temporary,
        };
        Ok(ExitCode::from(exit as u8))
    }

    /// Shows one directory, and says what lies in it that is to be shown too.
    async fn show(&self, directory: &Waiting) -> Result<Vec<Waiting>, Failure> {
        let mut below = Vec::new();
        let mut next = Some(self.first_page(&directory.address));
        while let Some(path) = next {
            // It is listed anew from then on; asking for that again would have it listed again.
            let again = path.strip_suffix(REFRESH).unwrap_or(&path);
            let page: api::Directory = self.service.get_patiently(&path, again).await?;
            next = page.next;
            let mut entries = Vec::with_capacity(page.entries.len());
            for entry in page.entries {
                if self.is_recursive && entry.kind == "directory" {
                    below.extend(self.child(directory, &entry));
                }
                entries.push(entry_of(entry));
            }
            let found = Found {
                directory: directory.path.clone(),
                entries,
            };
            if self.found.send(found).await.is_err() {
                return Ok(Vec::new());
            }
        }
        Ok(below)
    }

    fn first_page(&self, address: &str) -> String {
        let address = encode(address.as_bytes(), false);
        let profile = self.profile.map_or_else(String::new, |profile| {
            format!("&profile={}", encode(profile.as_bytes(), false))
        });
        let refresh = if self.refreshes { REFRESH } else { "" };
        format!("/v1/listing?address={address}{profile}&limit={PAGE}{refresh}")
    }

    /// A directory in another one; none, and a word about that, where the service can't be asked for it.
    fn child(&self, parent: &Waiting, entry: &api::DirectoryEntry) -> Option<Waiting> {
        if entry.name_encoded.is_some() {
            let (name, above) = (&entry.name, &parent.address);
            eprintln!(
                "posthaste: can't list {name} in {above}: its name is not UTF-8 (list it without --service)"
            );
            return None;
        }
        Some(Waiting {
            address: address_below(&parent.address, &entry.name),
            path: join(&parent.path, entry.name.as_bytes()),
        })
    }
}

/// Of a service everything that is not there is alike; here a directory was asked for.
fn no_directory(failure: Failure) -> Failure {
    if failure.is_not_found() {
        return Failure::new(Exit::DirectoryNotFound, failure.to_string());
    }
    failure
}

/// The address of what has this name in a directory.
fn address_below(address: &str, name: &str) -> String {
    let is_escaped = matches!(
        Location::parse(OsStr::new(address)),
        Ok(Location::Server(_))
    );
    let name = if is_escaped {
        encode(name.as_bytes(), false)
    } else {
        name.to_owned()
    };
    let (path, query) = match address.split_once('?') {
        Some((path, query)) if is_escaped => (path, format!("?{query}")),
        _ => (address, String::new()),
    };
    let slash = if path.ends_with(['/', ':']) { "" } else { "/" };
    format!("{path}{slash}{name}{query}")
}

fn entry_of(entry: api::DirectoryEntry) -> Entry {
    let name = match &entry.name_encoded {
        Some(encoded) => decoded(encoded),
        None => entry.name.into_bytes(),
    };
    Entry {
        name,
        kind: match entry.kind.as_str() {
            "directory" => Kind::Directory,
            "file" => Kind::File,
            "link" => Kind::Link,
            _ => Kind::Special,
        },
        size: entry.size.unwrap_or(0),
        mtime: entry.modified.as_deref().and_then(time_of),
        stored: entry.stored.as_deref().and_then(time_of),
        mode: entry
            .mode
            .and_then(|mode| u32::from_str_radix(&mode, 8).ok()),
        version: None,
    }
}

fn time_of(text: &str) -> Option<FileTime> {
    let nanos = text.parse::<jiff::Timestamp>().ok()?.as_nanosecond();
    Some(FileTime {
        secs: i64::try_from(nanos.div_euclid(1_000_000_000)).ok()?,
        nanos: u32::try_from(nanos.rem_euclid(1_000_000_000)).ok()?,
    })
}

/// Undoes percent-escapes.
fn decoded(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind
            .get(..2)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match escaped.filter(|_| *first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_go_on_as_their_scheme_writes_them() {
        for (address, name, below) in [
            ("s3://b", "run 7", "s3://b/run 7"),
            ("archive:", "x", "archive:x"),
            ("archive:a", "x", "archive:a/x"),
            ("/", "tmp", "/tmp"),
            ("sftp://h/~", "x?y", "sftp://h/~/x?y"),
            ("https://h/a?sig=1", "x y", "https://h/a/x%20y?sig=1"),
            ("webdav://h", "100%", "webdav://h/100%25"),
        ] {
            assert_eq!(address_below(address, name), below);
        }
    }

    #[test]
    fn entries_are_as_they_were() {
        let entry = entry_of(api::DirectoryEntry {
            name: "caf\u{fffd}".into(),
            name_encoded: Some("caf%E9".into()),
            kind: "file".into(),
            size: Some(7),
            modified: Some("1969-12-31T23:59:58.5Z".into()),
            stored: None,
            mode: Some("0640".into()),
        });
        assert_eq!(entry.name, b"caf\xe9");
        assert_eq!(
            (entry.kind, entry.size, entry.mode),
            (Kind::File, 7, Some(0o640))
        );
        let then = FileTime {
            secs: -2,
            nanos: 500_000_000,
        };
        assert_eq!(entry.mtime, Some(then));
        assert_eq!(decoded("a%2"), b"a%2");
    }
}
