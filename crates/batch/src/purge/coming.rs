//! First file that a purge removes from the data to be saved, and the rule that removes it.

use std::{
    io,
    os::unix::ffi::OsStrExt,
    path::Path,
    sync::{Mutex, PoisonError},
};

use super::{
    Account, Confidence, Facts, Policy, Sight, World,
    scan::{self, Options, Root, Scan, Tally},
};

/// First file that is removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coming {
    /// Time in seconds since 1970; now if the removal is overdue.
    pub at_s: i64,
    /// Index of the rule in the policy.
    pub rule: usize,
    /// Path of the file.
    pub path: Vec<u8>,
}

/// Returns the first file that is removed from a directory, or of `only` these paths below it if
/// any are given. Removals that are merely possible don't count, as their time is unknown. Looks at
/// every file, and writes nothing.
///
/// # Errors
/// If the directory can't be read. Files that can't be read are left out.
pub fn first(
    policy: &Policy,
    world: &World,
    directory: &Path,
    only: &[impl AsRef<[u8]>],
) -> io::Result<Option<Coming>> {
    let found: Mutex<Option<Coming>> = Mutex::new(None);
    let judge = |path: &[u8], facts: &Facts| {
        let sight = Sight {
            path,
            facts,
            is_remembered: false,
        };
        let death = policy.death(&sight, world);
        let Some(death) = death.filter(|death| death.confidence != Confidence::Possible) else {
            return;
        };
        let mut first = found.lock().unwrap_or_else(PoisonError::into_inner);
        // Threads find files in any order: of files removed at once, the first by name is reported.
        let is_first =
            (first.as_ref()).is_none_or(|first| (death.at_s, path) < (first.at_s, &first.path[..]));
        if is_first {
            *first = Some(Coming {
                at_s: death.at_s,
                rule: death.rule,
                path: path.to_vec(),
            });
        }
    };
    let root = Root::open(directory)?;
    if only.is_empty() {
        look_below(policy, world, &root, &judge)?;
    } else {
        for name in only {
            let path = [root.path(), b"/", name.as_ref()].concat();
            if let Ok(facts) = scan::facts(Path::new(std::ffi::OsStr::from_bytes(&path))) {
                judge(&path, &facts);
            }
        }
    }
    Ok(found.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn look_below(
    policy: &Policy,
    world: &World,
    root: &Root,
    judge: &(dyn Fn(&[u8], &Facts) + Sync),
) -> io::Result<()> {
    let scan = Scan {
        root,
        policy,
        world,
        options: Options {
            at_once: scan::AT_ONCE,
            until_s: i64::MAX,
        },
        cache: None,
        new_cache: None,
        // The scan calls this for each file that is removed at some time.
        is_safe: &|path, facts| {
            judge(path, facts);
            false
        },
        tally: &Tally::default(),
    };
    scan.run(&Account::new(Vec::new(), 0)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::purge::{Language, read};
    use jiff::tz::TimeZone;
    use std::{
        fs,
        time::{Duration, SystemTime},
    };

    const DAY_S: u64 = 86_400;

    #[test]
    fn the_first_file_that_goes_binds_and_its_rule_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let aged = |name: &str, days: u64| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let file = fs::File::create(&path).unwrap();
            let then = SystemTime::UNIX_EPOCH + Duration::from_secs((20_000 - days) * DAY_S);
            let times = fs::FileTimes::new().set_accessed(then).set_modified(then);
            file.set_times(times).unwrap();
        };
        aged("new", 1);
        aged("deep/old", 20);
        aged("kept/older", 25);
        let text =
            "exempt = [\"older\"]\n\n[[rule]]\nname = \"old\"\nclock = \"mtime\"\ndays = 30\n";
        let policy = read(text, Language::Toml, &|_| None).unwrap();
        let now_s = i64::try_from(20_000 * DAY_S).unwrap();
        let world = World::at(now_s, TimeZone::UTC);
        let at = |only: &[&str]| {
            let only: Vec<String> = only.iter().map(|name| (*name).to_owned()).collect();
            first(&policy, &world, folder.path(), &only).unwrap()
        };
        let coming = at(&[]).unwrap();
        let days = |at_s: i64| (at_s - now_s) / i64::try_from(DAY_S).unwrap();
        assert_eq!(days(coming.at_s), 10);
        assert!(coming.path.ends_with(b"/deep/old"), "{coming:?}");
        assert_eq!(policy.rules[coming.rule].name, "old");
        assert_eq!(days(at(&["new"]).unwrap().at_s), 29);
        assert_eq!(at(&["absent"]), None);
        assert!(first(&policy, &world, &folder.path().join("absent"), &[""; 0]).is_err());
    }
}
