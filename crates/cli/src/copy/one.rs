//! Copy of one file for a program: no screen, and no output but its result.

use std::{
    ffi::OsString,
    sync::{Arc, Mutex, PoisonError},
};

use posthaste_endpoint::{
    Access, Error, ErrorKind, Locus, Result, posix::DraftRules, shown_address,
};
use posthaste_engine::copy::{self, Figures, Filter, Links, Notice, Options, Progress, Throttle};
use posthaste_plan::tuner::Method;

use super::{ends::Ends, history};
use crate::failure::{Exit, exit_for};

/// Reason for a copy's failure.
#[derive(Debug, Clone)]
pub(crate) struct Trouble {
    /// Kind of the error, for programs' decisions.
    pub(crate) kind: ErrorKind,
    /// True if retrying can help.
    pub(crate) is_temporary: bool,
    /// Place of the failure.
    pub(crate) locus: Locus,
    /// Exit code of `posthaste cp`.
    pub(crate) exit: Exit,
    /// Message for people, in one line.
    pub(crate) said: String,
}

impl From<&Error> for Trouble {
    fn from(error: &Error) -> Self {
        Self {
            kind: error.kind(),
            is_temporary: error.is_temporary(),
            locus: error.locus(),
            exit: exit_for(error),
            said: error.to_string(),
        }
    }
}

/// Copies one file or tree to its destination, under that very name: an existing directory is its
/// copy, and not a place to put it into. A copy that an earlier run left unfinished is resumed.
///
/// # Errors
/// Returns the first failure.
pub(crate) async fn copy_one(
    source: &OsString,
    destination: &OsString,
    access: &Access,
) -> Result<Figures, Trouble> {
    let told = |error: Error| Trouble::from(&error);
    let rules = DraftRules {
        verify: true,
        fsync: false,
        ..DraftRules::default()
    };
    let mut ends = Ends::new(
        (std::slice::from_ref(source), access.clone()),
        (destination, access.clone()),
        rules,
    )
    .map_err(told)?;
    let tell = |text: &str| crate::output::note!("{text}");
    loop {
        let first: Arc<Mutex<Option<Trouble>>> = Arc::default();
        let (sources, place) = ends.open(&tell).await.map_err(told)?;
        let Some(place) = place else {
            let shown = shown_address(destination);
            return Err(told(Error::new(ErrorKind::Other, "open", shown)));
        };
        let options = options(rules, Arc::clone(&first)).map_err(told)?;
        let ending = copy::copy(
            sources,
            place,
            false,
            options,
            Arc::new(Progress::default()),
        )
        .await;
        if ends.fall_back(&ending, &tell) {
            continue;
        }
        history::keep(&ending.tuned);
        if let Some(fatal) = &ending.fatal {
            return Err(fatal.into());
        }
        let first = first.lock().unwrap_or_else(PoisonError::into_inner).take();
        return match first {
            Some(trouble) => Err(trouble),
            None if ending.left_out > 0 => Err(told(
                Error::new(ErrorKind::Unsupported, "copy", shown_address(source))
                    .cause("it is neither a file nor a directory"),
            )),
            None => Ok(ending.figures),
        };
    }
}

fn options(rules: DraftRules, first: Arc<Mutex<Option<Trouble>>>) -> Result<Options> {
    Ok(Options {
        filter: Filter::new(&[], &[])?,
        method: Method::default(),
        history: history::load(),
        throttle: Throttle::default(),
        links: Links::Follow,
        rules,
        again: false,
        update: false,
        modes: false,
        verify: false,
        dry_run: false,
        continues: true,
        has_begun: false,
        written: None,
        transfer_max: None,
        duration_max: None,
        help: None,
        on_notice: Arc::new(move |notice| {
            if let Notice::Failed(error) = notice {
                let mut first = first.lock().unwrap_or_else(PoisonError::into_inner);
                first.get_or_insert_with(|| Trouble::from(*error));
            }
        }),
    })
}
