//! Selects the jobs of a listing.

use axum::{Json, response::IntoResponse};
use posthaste_journal::{FtsJobs, FtsState};
use posthaste_types::Timestamp;
use serde_json::{Value, json};

use super::{Answer, Call, JOBS_MAX};
use crate::fts::{
    office::{self, Denial, Standing, account},
    show,
};

/// Files that one listing examines, in any state.
const FILES_MAX: usize = 100_000;

impl Call<'_> {
    /// Returns the jobs that a query selects.
    fn chosen(&self) -> Result<Vec<Standing>, Denial> {
        let asked = |key: &str| self.asked.get(key).filter(|value| !value.is_empty());
        let limit = asked("limit").and_then(|limit| limit.parse::<u32>().ok());
        if limit.is_some_and(|limit| limit > JOBS_MAX) {
            let why = format!("The limit must be positive and less or equal than {JOBS_MAX}");
            return Err(Denial::bad(why));
        }
        let states = asked("state_in");
        let since = match asked("time_window") {
            Some(window) => Some(self.since(window)?),
            None => None,
        };
        let which = FtsJobs {
            // Without a time or a number only unfinished jobs are shown.
            ended_since: since.filter(|_| states.is_some() && limit.is_none()),
            all: states.is_some() && limit.is_some(),
            most: JOBS_MAX,
        };
        let centre = &self.desk.centre;
        let jobs = centre.store.journal(|journal| journal.fts_jobs(which))?;
        let (mut chosen, mut looked_at) = (Vec::new(), 0);
        let most = limit.unwrap_or(JOBS_MAX) as usize;
        for job in jobs {
            let is_whose = |key: &str, value: &str| asked(key).is_none_or(|asked| asked == value);
            if !is_whose("user_dn", &show::name_of(&job.owner))
                || !is_whose("vo_name", account(&job.project))
                || !is_whose("dlg_id", &show::delegation_of(&job.owner))
            {
                continue;
            }
            let standing = office::look(centre, job)?;
            looked_at += standing.files.len();
            let is_in = states.is_none_or(|states| {
                states
                    .split(',')
                    .any(|state| state == standing.state.word())
            });
            let shown = show::job(&standing);
            let is_server = |key: &str| {
                asked(key).is_none_or(|server| shown[key] == Value::String(server.clone()))
            };
            if is_in && is_server("source_se") && is_server("dest_se") {
                chosen.push(standing);
            }
            if chosen.len() == most || looked_at > FILES_MAX {
                break;
            }
        }
        Ok(chosen)
    }

    /// Parses a time before now, in hours, or hours and minutes separated by a colon.
    fn since(&self, window: &str) -> Result<Timestamp, Denial> {
        let (hours, minutes) = window.split_once(':').unwrap_or((window, "0"));
        let parsed = hours.parse::<u64>().ok().zip(minutes.parse::<u64>().ok());
        let (hours, minutes) =
            parsed.ok_or_else(|| Denial::bad("Invalid time window: write H or H:M"))?;
        let back = hours
            .saturating_mul(60)
            .saturating_add(minutes)
            .saturating_mul(60_000_000);
        let now = self.desk.centre.clock.now().as_micros();
        Ok(Timestamp::from_micros(now.saturating_sub(back)))
    }

    pub(super) fn list(&self) -> Answer {
        let fields = self.asked.get("fields").map(String::as_str);
        let jobs = self.chosen()?;
        let shown: Vec<_> = jobs
            .iter()
            .map(|standing| show::pick(show::job(standing), fields))
            .collect();
        Ok(Json(shown).into_response())
    }

    /// Lists unfinished files of unfinished jobs.
    pub(super) fn open_files(&self) -> Answer {
        let mut shown = Vec::new();
        for standing in self.chosen()? {
            let open = standing.files.iter();
            let open = open.filter(|seen| office::is_open(seen.file.state));
            shown.extend(open.map(|seen| show::file(&standing, seen)));
        }
        Ok(Json(shown).into_response())
    }

    /// Lists this host, and how many files have a request.
    pub(super) fn hosts(&self) -> Answer {
        let store = &self.desk.centre.store;
        let given = store.journal(|journal| journal.fts_files_given())?;
        let given = given.iter();
        let active = given.filter(|file| file.state == FtsState::Given).count();
        let shown = json!({ "posthaste": { "active": active, "staging": 0 } });
        Ok(Json(shown).into_response())
    }
}
