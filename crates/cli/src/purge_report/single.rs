//! Report on one file: when it is purged, by which rule, and whether it is safe elsewhere.

use std::{io, os::unix::ffi::OsStrExt, path::Path, process::ExitCode};

use jiff::{Timestamp, tz::TimeZone};
use posthaste_batch::purge::{
    Confidence, Death, Facts, Sight, World,
    scan::{self, Root},
};
use posthaste_types::Bytes;
use serde_json::json;

use super::{
    ReportArguments, at_root,
    elsewhere::Elsewhere,
    policy::Rules,
    show::{how_sure, offload, rfc, when},
};
use crate::{failure::Outcome, output};

/// Facts of a file.
struct Single<'a> {
    path: &'a [u8],
    facts: Facts,
    death: Option<Death>,
    is_safe: bool,
    elsewhere: &'a Elsewhere,
    rules: &'a Rules,
    world: &'a World,
}

/// Reports on a file. Nothing of it is remembered, so the fill rate of its file system is unknown.
///
/// # Errors
/// Fails if it can't be examined, or a named service can't be asked.
pub(super) fn report(arguments: &ReportArguments, rules: &Rules, shown: &str) -> Outcome {
    let failed = |cause: io::Error| at_root(shown, cause);
    let path = arguments.path.canonicalize().map_err(failed)?;
    let facts = scan::facts(&path).map_err(failed)?;
    let root = Root::open(path.parent().unwrap_or(Path::new("/"))).map_err(failed)?;
    let now_s = Timestamp::now().as_second();
    let mut world = World::at(now_s, TimeZone::system());
    world.fills = vec![root.fill(now_s).map_err(failed)?];
    world.listed = rules.listed(root.path())?;
    let path = path.as_os_str().as_bytes();
    let elsewhere = Elsewhere::ask(&arguments.service, path)?;
    let sight = Sight {
        path,
        facts: &facts,
        is_remembered: false,
    };
    let single = Single {
        path,
        facts,
        death: rules.policy.death(&sight, &world),
        is_safe: elsewhere.has(path, &facts),
        elsewhere: &elsewhere,
        rules,
        world: &world,
    };
    match arguments.json {
        true => output::json(&single.to_json()),
        false => single.print(),
    }
    Ok(ExitCode::SUCCESS)
}

impl Single<'_> {
    /// Returns the command that saves the file, if it will be purged and is not safe.
    fn saves(&self) -> Option<String> {
        let death = self.death.filter(|_| !self.is_safe)?;
        Some(offload(self.elsewhere, self.world.now_s, self.path, death))
    }

    fn why(&self, death: Death) -> String {
        self.rules.policy.rules[death.rule].explain()
    }

    fn print(&self) {
        let when = |at_s| when(at_s, &self.world.zone);
        let goes = match self.death {
            None => format!("no rule of {} takes it", self.rules.shown),
            Some(death) if death.confidence == Confidence::Possible => {
                let why = self.why(death);
                format!(
                    "may go from {} on, nobody can say when ({why})",
                    when(death.at_s)
                )
            }
            Some(death) => {
                let (sure, why) = (how_sure(death.confidence), self.why(death));
                format!("goes {sure} from {} on ({why})", when(death.at_s))
            }
        };
        output::line(&format!(
            "{}: {}, last read {}, last written {}",
            output::one_line(&String::from_utf8_lossy(self.path)),
            Bytes::new(self.facts.size),
            when(self.facts.accessed_s),
            when(self.facts.modified_s),
        ));
        output::line(&goes);
        if self.is_safe {
            output::line("safe elsewhere");
        } else if let Some(saves) = self.saves() {
            output::line(&format!("  {saves}"));
        }
    }

    fn to_json(&self) -> serde_json::Value {
        let facts = &self.facts;
        json!({
            "path": String::from_utf8_lossy(self.path), "now": rfc(self.world.now_s),
            "policy": {"file": self.rules.shown},
            "bytes": facts.size, "accessed": rfc(facts.accessed_s), "modified": rfc(facts.modified_s),
            "goes": self.death.and_then(|death| rfc(death.at_s)),
            "confidence": self.death.map(|death| death.confidence.name()),
            "rule": self.death.map(|death| &self.rules.policy.rules[death.rule].name),
            "why": self.death.map(|death| self.why(death)),
            "safe": self.is_safe, "service_asked": self.elsewhere.is_known,
            "offload": self.saves(),
        })
    }
}
