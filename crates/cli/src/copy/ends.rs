//! Ends of a copy: opened, and replaced by their profiles' fallbacks when they fail for good.

use std::{ffi::OsString, os::unix::ffi::OsStrExt};

use posthaste_endpoint::{
    Access, Error, ErrorKind, Location, Locus, Result,
    posix::{DraftRules, Posix},
    shown_address,
};
use posthaste_engine::copy::{Ending, Place, Source};

/// Address of the command line.
struct End {
    written: OsString,
    location: Location,
    /// Replacement for the address after it failed.
    fallback: Option<Location>,
    place: Option<Place>,
}

/// Sources and destination of a copy.
pub(super) struct Ends {
    sources: Vec<End>,
    source_access: Access,
    destination: End,
    destination_access: Access,
    rules: DraftRules,
}

impl End {
    fn new(written: &OsString, access: &Access) -> Result<Self> {
        let location = Location::parse(written)?;
        Ok(Self {
            written: written.clone(),
            fallback: access.fallback(&location)?,
            location,
            place: None,
        })
    }

    /// Opens the address or its fallback.
    async fn open(
        &mut self,
        access: &Access,
        rules: DraftRules,
        tell: &impl Fn(&str),
    ) -> Result<()> {
        while self.place.is_none() {
            match open(self.location.clone(), access, rules).await {
                Ok(place) => self.place = Some(place),
                Err(error) if ends_protocol(&error) && self.fall_back() => {
                    tell(&self.told(&error.to_string()));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Switches to the fallback; returns whether there is one.
    fn fall_back(&mut self) -> bool {
        self.place = None;
        match self.fallback.take() {
            Some(location) => {
                self.location = location;
                true
            }
            None => false,
        }
    }

    fn told(&self, why: &str) -> String {
        format!(
            "posthaste: {why}; going on with the fallback of {}",
            shown_address(&self.written)
        )
    }
}

/// Returns whether another protocol may do better: not if a file, a name or a full disk is the
/// cause.
fn ends_protocol(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Unreachable
            | ErrorKind::TimedOut
            | ErrorKind::Busy
            | ErrorKind::Unauthenticated
            | ErrorKind::Unsupported
    )
}

pub(super) async fn open(location: Location, access: &Access, rules: DraftRules) -> Result<Place> {
    if let Location::Local(path) = location {
        return Ok(Place::local(Posix::new(path, rules)));
    }
    // Network transfers are protected on their way; `--verify` reads data back.
    let rules = DraftRules {
        verify: false,
        ..rules
    };
    Ok(Place::remote(access.open(location, rules).await?))
}

impl Ends {
    /// Parses the addresses, each end with its access.
    ///
    /// # Errors
    /// Returns [`ErrorKind::Invalid`].
    pub(super) fn new(
        (sources, source_access): (&[OsString], Access),
        (destination, destination_access): (&OsString, Access),
        rules: DraftRules,
    ) -> Result<Self> {
        let sources = sources.iter();
        let sources = sources.map(|source| End::new(source, &source_access));
        Ok(Self {
            sources: sources.collect::<Result<_>>()?,
            source_access,
            destination: End::new(destination, &destination_access)?,
            destination_access,
            rules,
        })
    }

    /// Opens all ends that are not open yet.
    ///
    /// # Errors
    /// Returns the errors of the end that can't be opened.
    pub(super) async fn open(
        &mut self,
        tell: &impl Fn(&str),
    ) -> Result<(Vec<Source>, Option<Place>)> {
        let mut sources = Vec::with_capacity(self.sources.len());
        for end in &mut self.sources {
            end.open(&self.source_access, self.rules, tell).await?;
            let name = end.location.name();
            sources.extend(end.place.clone().map(|place| Source {
                content: end.written.as_bytes().ends_with(b"/") || name.is_none(),
                name: name.unwrap_or_default(),
                place,
            }));
        }
        let destination = &mut self.destination;
        let access = &self.destination_access;
        destination.open(access, self.rules, tell).await?;
        Ok((sources, destination.place.clone()))
    }

    /// Replaces the end that stopped a copy early; returns whether to retry the rest with the
    /// replacement.
    pub(super) fn fall_back(&mut self, ending: &Ending, tell: &impl Fn(&str)) -> bool {
        let fatal = ending.fatal.as_ref();
        if !fatal.map_or(ending.temporary > 0, ends_protocol) {
            return false;
        }
        let why = ending.last_error.as_deref().unwrap_or("it failed");
        // If the failed end is unknown, the first one with a fallback switches.
        let locus = fatal.map(Error::locus);
        let mut ends: Vec<&mut End> = Vec::new();
        if locus != Some(Locus::Destination) {
            ends.extend(self.sources.iter_mut());
        }
        if locus != Some(Locus::Source) {
            ends.push(&mut self.destination);
        }
        let fallen = ends
            .into_iter()
            .find_map(|end| end.fall_back().then_some(end));
        if let Some(end) = &fallen {
            tell(&end.told(why));
        }
        fallen.is_some()
    }
}
