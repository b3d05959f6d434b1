//! Overall result of a finished copy.

use posthaste_endpoint::{Error, ErrorKind, Locus, Result};
use posthaste_engine::copy::{self, Ending, Figures, is_clash};
use posthaste_journal::RequestRecord;

use super::left_out::{Reasons, is_of_one};

/// Refused files after which the destination itself is considered at fault.
const DENIALS_MAX: u64 = 16;

/// Failures of a copy.
#[derive(Debug, Default)]
pub(super) struct Losses {
    /// Main reason why the whole fails: lasting errors before temporary ones.
    worst: Option<Error>,
    /// Main reason why single files fail.
    worst_of_one: Option<Error>,
    /// Files that the destination refuses.
    denials: u64,
    pub(super) reasons: Reasons,
}

impl Losses {
    /// Records a failure.
    pub(super) fn note(&mut self, error: &Error, destination: &str, is_of_depots: bool) {
        let worst = match is_of_one(error, is_of_depots) {
            true => {
                let is_denial = error.kind() == ErrorKind::PermissionDenied;
                self.denials += u64::from(is_denial && error.locus() == Locus::Destination);
                self.reasons.note(error.subject(), error.to_string());
                &mut self.worst_of_one
            }
            false => &mut self.worst,
        };
        let is_worse = worst
            .as_ref()
            .is_none_or(|known| known.is_temporary() && !error.is_temporary());
        if is_worse {
            let told = Error::new(error.kind(), "copy to", destination);
            let told = told.cause(error.to_string()).at(error.locus());
            *worst = Some(match is_clash(error) {
                true => copy::clash(told),
                false => told,
            });
        }
    }

    /// Records a link that the destination refuses as it did one before.
    pub(super) fn refused(&mut self, shown: &str) {
        let line = format!("{shown}: its destination keeps no symbolic links");
        self.reasons.note(shown, line);
    }
}

/// Returns the copied bytes, if everything possible was copied.
///
/// # Errors
/// The reason why not.
pub(super) fn judge(
    ending: Ending,
    losses: &mut Losses,
    record: &RequestRecord,
) -> Result<Figures> {
    if let Some(error) = ending.fatal.or_else(|| losses.worst.take()) {
        return Err(error);
    }
    let figures = &ending.figures;
    let has_arrived = figures.files + figures.unchanged + figures.links > 0;
    let has_failed = ending.temporary + ending.left_out + ending.other > 0;
    let may_lack = has_arrived && record.one_file.is_none() && losses.denials < DENIALS_MAX;
    if ending.limit.is_none() && (!has_failed || may_lack) {
        return Ok(ending.figures);
    }
    if let Some(error) = losses.worst_of_one.take() {
        let why = error.cause_text();
        return Err(match losses.reasons.others(&why) {
            Some(others) => error.cause(format!("{why}; {others}")),
            None => error,
        });
    }
    let why = ending.last_error.unwrap_or_default();
    Err(Error::new(ErrorKind::Other, "copy to", &record.destination).cause(why))
}
