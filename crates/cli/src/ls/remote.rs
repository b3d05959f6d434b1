//! Directories listed by a service, printed as they arrive.

use std::{ffi::OsStr, process::ExitCode};

use posthaste_api as api;
use posthaste_endpoint::{Entry, FileTime, Kind, Location, encode, shown_address};
use posthaste_engine::scan::Found;
use tokio::sync::mpsc;

use super::{Lines, PAGES_AHEAD, ShowArguments, printed};
use crate::{
    client::{ServiceArguments, ServiceClient},
    failure::{Exit, Failure, Outcome},
    output,
};

/// Entries of a page.
const PAGE: usize = 10_000;
/// Prints the service's listing, and with `--recursive` everything below.
pub(super) async fn print(arguments: &ShowArguments, url: &str, mut lines: Lines) -> Outcome {
    let service = ServiceClient::open(&ServiceArguments {
        url: url.to_owned(),
        token_file: arguments.token_file.clone(),
    })?;
    let (sender, mut found) = mpsc::channel::<Found>(PAGES_AHEAD);
    let printing = printed(move || {
        loop {
            let next = found.try_recv().ok().or_else(|| {
                // The reader waits for this output rather than for more.
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
    let listing = Listing {
        service,
        found: sender,
        profile: arguments.profile.as_deref(),
        refreshes: arguments.refresh,
    };
    let address = address_of(&arguments.address)?;
    let listed = async move {
        let listed = match arguments.recursive {
            true => listing.tree(&address).await,
            false => listing.directory(&address).await,
        };
        listed.map_err(no_directory)
    };
    let (listed, printed) = tokio::join!(listed, printing);
    printed?;
    listed
}

/// Returns the address for the service: paths of this machine become absolute.
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
        let shown = shown_address(&address);
        Failure::usage(format!(
            "can't list {shown}: the service is asked in UTF-8 (list it without --service)"
        ))
    })
}

struct Listing<'a> {
    service: ServiceClient,
    found: mpsc::Sender<Found>,
    profile: Option<&'a str>,
    refreshes: bool,
}

impl Listing<'_> {
    /// Shows a directory.
    async fn directory(&self, address: &str) -> Outcome {
        let mut again = format!("{}&limit={PAGE}", self.path("/v1/listing", address));
        let mut path = format!("{again}{}", self.refresh());
        loop {
            // Where it takes long it is listed anew from then on; asking for that again would have
            // it listed again.
            let page: api::Directory = self.service.get_patiently(&path, &again).await?;
            let is_wanted = self.show(&[], page.entries).await;
            match page.next.filter(|_| is_wanted) {
                Some(next) => (path, again) = (next.clone(), next),
                None => return Ok(ExitCode::SUCCESS),
            }
        }
    }

    /// Shows a directory and what lies below it.
    async fn tree(&self, address: &str) -> Outcome {
        let again = self.path("/v1/listing/tree", address);
        let path = format!("{again}{}", self.refresh());
        let mut lines = self.service.tree(&path, &again).await?;
        let (mut failures, mut temporary) = (0_u64, 0_u64);
        while let Some(line) = lines.next().await? {
            if let Some(why) = line.problem {
                let failure = Failure::told(why);
                failures += 1;
                temporary += u64::from(failure.may_pass());
                output::complain(&failure);
            } else if !self.show(line.path.as_bytes(), line.entries).await {
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

    /// Shows entries of a directory; returns whether the output still has a reader.
    async fn show(&self, directory: &[u8], entries: Vec<api::DirectoryEntry>) -> bool {
        let found = Found {
            directory: directory.to_vec(),
            entries: entries.into_iter().map(entry_of).collect(),
        };
        self.found.send(found).await.is_ok()
    }

    /// Returns the path of the service's route for an address.
    fn path(&self, route: &str, address: &str) -> String {
        let address = encode(address.as_bytes(), false);
        let profile = self.profile.map_or_else(String::new, |profile| {
            format!("&profile={}", encode(profile.as_bytes(), false))
        });
        format!("{route}?address={address}{profile}")
    }

    /// Returns the end of a query that asks for a new listing.
    fn refresh(&self) -> &'static str {
        if self.refreshes { "&refresh=true" } else { "" }
    }
}

/// Turns "not found" into a missing directory: a service reports everything missing alike.
fn no_directory(failure: Failure) -> Failure {
    if failure.is_not_found() {
        return Failure::new(Exit::DirectoryNotFound, failure.to_string());
    }
    failure
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

/// Decodes percent-escapes.
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
    fn entries_are_as_they_were() {
        let entry = entry_of(api::DirectoryEntry {
            name: "caf\u{fffd}".into(),
            name_encoded: Some("caf%E9".into()),
            kind: api::EntryKind::File,
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
