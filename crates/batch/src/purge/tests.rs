use proptest::prelude::*;

use super::*;

const DAY: i64 = 86_400;
/// 2026-11-24T12:00:00Z, a Tuesday.
const NOW: i64 = 1_795_521_600;

fn world() -> World {
    World::at(NOW, jiff::tz::TimeZone::UTC)
}

fn nobody(_: &str) -> Option<u32> {
    None
}

fn policy(text: &str) -> Policy {
    let read = read(text, Language::of(text), &|name| {
        (name == "ada").then_some(1000)
    });
    read.unwrap_or_else(|complaints| panic!("{}", complaints[0]))
}

fn complaints(text: &str) -> Vec<String> {
    let read = read(text, Language::of(text), &nobody);
    let complaints = read.err().unwrap_or_default();
    complaints.iter().map(ToString::to_string).collect()
}

/// Returns a file whose times are so many days ago.
fn aged(accessed: i64, modified: i64, changed: i64) -> Facts {
    Facts {
        owner: 7,
        size: 100,
        accessed_s: NOW - accessed * DAY,
        modified_s: NOW - modified * DAY,
        changed_s: NOW - changed * DAY,
        ..Facts::default()
    }
}

fn sight<'a>(path: &'a str, facts: &'a Facts) -> Sight<'a> {
    Sight {
        path: path.as_bytes(),
        facts,
        is_remembered: false,
    }
}

/// Returns the days until a file is removed.
fn days(policy: &Policy, path: &str, facts: &Facts) -> Option<f64> {
    let death = policy.death(&sight(path, facts), &world())?;
    #[expect(clippy::cast_precision_loss, reason = "days")]
    Some((death.at_s - NOW) as f64 / DAY as f64)
}

#[test]
fn the_earliest_of_the_rules_that_apply_is_the_deadline() {
    let policy = policy(
        "exempt = [\"*.keep\"]\nexempt_owners = [\"ada\"]\n\
         [[rule]]\nname = \"all\"\nclock = \"atime\"\ndays = 90\n\
         [[rule]]\nname = \"tmp\"\npaths = [\"/scratch/tmp/**\"]\nexcept = [\"/scratch/tmp/mine/**\"]\nclock = [\"mtime\", \"ctime\"]\ndays = 7\n",
    );
    let facts = aged(80, 5, 3);
    assert_eq!(days(&policy, "/scratch/a", &facts), Some(10.0));
    assert_eq!(days(&policy, "/scratch/tmp/a", &facts), Some(4.0));
    assert_eq!(days(&policy, "/scratch/tmp/mine/a", &facts), Some(10.0));
    assert_eq!(days(&policy, "/scratch/tmp/a.keep", &facts), None);
    let hers = Facts {
        owner: 1000,
        ..facts
    };
    assert_eq!(days(&policy, "/scratch/tmp/a", &hers), None);
    let death = policy.death(&sight("/scratch/tmp/a", &facts), &world());
    let rule = &policy.rules[death.unwrap().rule];
    assert_eq!(
        rule.explain(),
        "rule `tmp` (line 7): 7 d after the latest of mtime, ctime"
    );
    assert_eq!(days(&policy, "/scratch/a", &aged(100, 1, 1)), Some(0.0));
}

#[test]
fn days_depend_on_the_size_and_an_unknown_birth_is_the_earliest_time() {
    let policy = policy(
        "[[rule]]\nclock = \"birth\"\ndays = 14\ndays_by_size = [{ from = \"10GB\", days = 4 }]\n",
    );
    let mut facts = aged(2, 3, 1);
    assert_eq!(days(&policy, "/a", &facts), Some(11.0));
    facts.size = 10 << 30;
    assert_eq!(days(&policy, "/a", &facts), Some(1.0));
    facts.born_s = Some(NOW);
    assert_eq!(days(&policy, "/a", &facts), Some(4.0));
    assert!(policy.asks_birth());
}

#[test]
fn calendars_round_up_to_the_next_run_and_grace_comes_after_it() {
    let text = "[[rule]]\nclock = \"atime\"\ndays = 30\ncalendar = \"weekly on Sunday 12:00\"\n";
    let weekly = policy(text);
    // The next Sunday is five days away.
    assert_eq!(days(&weekly, "/a", &aged(30, 0, 0)), Some(5.0));
    assert_eq!(days(&weekly, "/a", &aged(25, 0, 0)), Some(5.0));
    assert_eq!(days(&weekly, "/a", &aged(24, 0, 0)), Some(12.0));
    let grace = policy(&format!("{text}grace_days = 7\ntrash_days = 14\n"));
    assert_eq!(days(&grace, "/a", &aged(32, 0, 0)), Some(5.0));
    assert_eq!(days(&grace, "/a", &aged(25, 0, 0)), Some(12.0));
    assert!(
        grace.rules[0]
            .explain()
            .ends_with("7 d of grace, 14 d in the trash")
    );
}

#[test]
fn watermarks_are_predictions_and_without_a_rate_nobody_knows() {
    let policy = policy(
        "[[rule]]\nclock = \"atime\"\ndays = 30\nwatermark = { high = \"80%\", low = \"70%\" }\n",
    );
    let facts = aged(40, 0, 0);
    let fill = |days: i64, used| Fill {
        at_s: NOW - days * DAY,
        used,
        capacity: 1000,
        files: 1,
    };
    let judged = |fills: Vec<Fill>| {
        let world = World { fills, ..world() };
        let death = policy.death(&sight("/a", &facts), &world).unwrap();
        ((death.at_s - NOW) / DAY, death.confidence)
    };
    assert_eq!(judged(vec![]), (0, Confidence::Possible));
    assert_eq!(judged(vec![fill(0, 700)]), (0, Confidence::Possible));
    assert_eq!(
        judged(vec![fill(10, 600), fill(0, 700)]),
        (10, Confidence::Predicted)
    );
    assert_eq!(
        judged(vec![fill(10, 700), fill(0, 700)]),
        (0, Confidence::Possible)
    );
    let minutes_ago = Fill {
        at_s: NOW - 600,
        ..fill(0, 600)
    };
    assert_eq!(
        judged(vec![minutes_ago, fill(0, 700)]),
        (0, Confidence::Possible)
    );
    assert_eq!(judged(vec![fill(0, 800)]), (0, Confidence::Predicted));
    assert!(
        policy.rules[0]
            .explain()
            .contains("run from 80 % full until 70 %")
    );
}

#[test]
fn what_a_list_names_goes_when_it_was_announced() {
    let policy = policy(
        "[[rule]]\nclock = \"atime\"\ndays = 30\ncandidates = \"/lists/*\"\nnotice_days = 7\n",
    );
    let world = World {
        listed: vec![Listed::new(
            0,
            NOW + 3 * DAY,
            [&b"/a/listed"[..]].into_iter(),
        )],
        ..world()
    };
    let facts = aged(20, 0, 0);
    let at = |path: &str| policy.death(&sight(path, &facts), &world).unwrap().at_s - NOW;
    assert_eq!((at("/a/listed"), at("/a/other")), (3 * DAY, 10 * DAY));
}

#[test]
fn what_is_remembered_dies_no_earlier_than_it_may_whatever_changed_since() {
    let policy = policy(
        "exempt_owners = [\"ada\"]\n[[rule]]\nclock = \"mtime\"\ndays = 14\ndays_by_size = [{ from = \"10GB\", days = 4 }]\n",
    );
    let facts = Facts {
        owner: 1000,
        ..aged(1, 1, 1)
    };
    let remembered = Sight {
        is_remembered: true,
        ..sight("/a", &facts)
    };
    assert_eq!(days(&policy, "/a", &facts), None);
    // The file may have grown and changed its owner.
    let earliest = policy.earliest_s(&remembered, &world());
    assert_eq!(earliest, Some(NOW + 3 * DAY));
}

const ROBINHOOD: &str = r#"
General { fs_path = "/lustre/scratch"; }
%include "includes/tmpfs.inc"
FileClass big { definition { type == file and size > 1GB } report = yes; }
fileclass saved { definition { tree == "projects/saved" or owner == "ada" } }
fileclass grouped { definition { group == "staff" } }
cleanup_rules {
    ignore { last_mod < 1d }
    ignore_fileclass = saved;
    rule big_first { target_fileclass = big; condition { last_access > 7d } }
    rule grouped { target_fileclass = grouped; condition { last_access > 3d } }
    # the others
    rule default { condition { last_access > 30d and not (name == "*.log") } }
}
cleanup_trigger {
    trigger_on = global_usage;
    high_threshold_pct = 80%;
    low_threshold_pct = 75%;
    check_interval = 5min;
}
hook_rules { whatever = 1; }
"#;

#[test]
fn robinhood_s_rules_are_asked_in_order_and_what_is_not_understood_is_said() {
    let policy = policy(ROBINHOOD);
    let full = World {
        fills: vec![Fill {
            at_s: NOW,
            used: 9,
            capacity: 10,
            files: 1,
        }],
        ..world()
    };
    let judged = |path: &str, facts: &Facts| {
        let death = policy.death(&sight(path, facts), &full)?;
        Some((
            (death.at_s - NOW) / DAY,
            &*policy.rules[death.rule].name,
            death.confidence,
        ))
    };
    let big = Facts {
        size: 2 << 30,
        ..aged(5, 5, 5)
    };
    let possible = Confidence::Possible;
    let predicted = Confidence::Predicted;
    assert_eq!(
        judged("/lustre/scratch/a", &big),
        Some((2, "big_first", predicted))
    );
    // Membership in the class that asks for a group is unknown, so the file may be in it.
    let small = aged(20, 20, 20);
    assert_eq!(
        judged("/lustre/scratch/a", &small),
        Some((0, "grouped", possible))
    );
    assert_eq!(
        judged("/lustre/scratch/a", &aged(2, 2, 2)),
        Some((1, "grouped", possible))
    );
    assert_eq!(
        judged("/lustre/scratch/a.log", &small),
        Some((0, "grouped", possible))
    );
    assert_eq!(judged("/lustre/scratch/projects/saved/a", &big), None);
    assert_eq!(
        judged("/lustre/scratch/a", &Facts { owner: 1000, ..big }),
        None
    );
    // Recently changed files are left alone for a day.
    let fresh = Facts {
        size: 2 << 30,
        ..aged(8, 0, 0)
    };
    assert_eq!(
        judged("/lustre/scratch/a", &fresh),
        Some((1, "big_first", predicted))
    );
    let remarks: Vec<usize> = policy.remarks.iter().map(|remark| remark.line).collect();
    assert_eq!(remarks, [3, 6, 21], "{:?}", policy.remarks);
}

const SCALE: &str = "/* scratch */
define(access_age, (DAYS(CURRENT_TIMESTAMP) - DAYS(ACCESS_TIME)))
RULE 'keep' EXCLUDE WHERE PATH_NAME LIKE '/gpfs/fs1/saved/%' OR USER_NAME = 'ada'
RULE 'huge' DELETE WHERE FILE_SIZE > 10*1024*1024*1024 AND access_age > 4
-- the others
RULE 'old' DELETE THRESHOLD(90,80) WEIGHT(CURRENT_TIMESTAMP - ACCESS_TIME)
  WHERE access_age > 30 AND NOT (NAME LIKE '%.keep')
RULE 'span' DELETE WHERE MODIFICATION_TIME < CURRENT_TIMESTAMP - INTERVAL '60' DAYS AND PATH_NAME LIKE '/gpfs/fs1/tmp/%'
RULE 'pooled' DELETE FROM POOL 'slow' WHERE access_age BETWEEN 90 AND 200
RULE 'away' MIGRATE FROM POOL 'system' TO POOL 'slow' WHERE FILE_SIZE > 1
";

#[test]
fn scale_s_rules_count_midnights_and_an_exclusion_shields_what_comes_after_it() {
    let policy = policy(SCALE);
    let full = World {
        fills: vec![Fill {
            at_s: NOW,
            used: 95,
            capacity: 100,
            files: 1,
        }],
        ..world()
    };
    let judged = |path: &str, facts: &Facts| {
        let death = policy.death(&sight(path, facts), &full)?;
        Some((death.at_s - NOW, &*policy.rules[death.rule].name))
    };
    let big = Facts {
        size: 11 << 30,
        ..aged(2, 2, 2)
    };
    // From the fifth midnight after its last access on.
    assert_eq!(
        judged("/gpfs/fs1/a", &big),
        Some((2 * DAY + DAY / 2, "huge"))
    );
    assert_eq!(judged("/gpfs/fs1/saved/a", &big), None);
    let small = aged(29, 29, 29);
    assert_eq!(judged("/gpfs/fs1/a", &small), Some((DAY + DAY / 2, "old")));
    assert_eq!(
        judged("/gpfs/fs1/tmp/a.keep", &small),
        Some((31 * DAY + 1, "span"))
    );
    let kept = policy
        .death(&sight("/gpfs/fs1/a.keep", &small), &full)
        .unwrap();
    assert_eq!(
        kept.confidence,
        Confidence::Possible,
        "nobody sees the pool"
    );
    let lines: Vec<usize> = policy.remarks.iter().map(|remark| remark.line).collect();
    assert_eq!(lines, [9, 10], "{:?}", policy.remarks);
    assert_eq!(
        policy.rules[2].explain(),
        "rule `old` (line 6): from the 31th midnight (UTC) after atime, run from 90 % full until 80 %"
    );
}

#[test]
fn wrong_lines_are_named_with_what_is_wrong() {
    for (text, line, word) in [
        ("[[rule]]\nclock = \"atime\"\ndayz = 3\n", 3, "dayz"),
        ("[[rule]]\nclock = \"atme\"\ndays = 3\n", 2, "write atime"),
        ("[[rule]]\n\nclock = \"atime\"\ndays = -3\n", 4, "-3 days"),
        ("[[rule]]\nclock = \"atime\"\n", 1, "wants `days`"),
        (
            "[[rule]]\nclock = \"atime\"\ndays = 3\npaths = [\"/a[\"]\n",
            4,
            "/a[",
        ),
        (
            "[[rule]]\nclock = \"atime\"\ndays = 3\ncalendar = \"now\"\n",
            4,
            "daily 03:00",
        ),
        (
            "[[rule]]\nclock = \"atime\"\ndays = 3\nwatermark = { high = \"800%\" }\n",
            4,
            "80%",
        ),
        (
            "cleanup_rules {\n rule default { condition { last_acess > 3d } }\n}",
            2,
            "write last_access",
        ),
        (
            "cleanup_rules {\n rule a { target_fileclass = b;\n condition { size > 3 } }\n}",
            2,
            "`b` is no file class",
        ),
        (
            "cleanup_rules {\n rule default { condition { last_access > soon } }\n}",
            2,
            "soon",
        ),
        (
            "RULE 'a' DELETE WHERE\n ACCESS_TIME > 'x'",
            2,
            "belong together",
        ),
        ("RULE 'a' DELETE WHERE FILE_SIZE >\n", 1, "value is wanted"),
        ("RULE 'a' DELETE\n SOMEHOW 3", 2, "SOMEHOW"),
        ("RULE 'a' EXCLUDE", 1, "purges anything"),
    ] {
        let said = complaints(text).join("\n");
        let wanted = format!("line {line}: ");
        assert!(
            said.starts_with(&wanted) && said.contains(word),
            "{text}\n{said}"
        );
    }
}

proptest! {
    #[test]
    fn readers_never_panic_and_complain_in_lines(
        words in proptest::collection::vec(
            prop_oneof![
                Just("RULE"), Just("DELETE"), Just("EXCLUDE"), Just("WHERE"), Just("("), Just(")"), Just("AND"),
                Just("NOT"), Just("ACCESS_TIME"), Just("-"), Just("*"), Just("DAYS"), Just("CURRENT_TIMESTAMP"), Just(">"),
                Just("9"), Just("170141183460469231731687303715884105727"), Just("FILE_SIZE"), Just("PATH_NAME"),
                Just("LIKE"), Just("'/a/%'"), Just("define"), Just(","), Just("a"), Just("cleanup_rules"), Just("{"),
                Just("}"), Just("condition"), Just("last_access"), Just("30d"), Just("size"), Just("99999999999999999999G"),
                Just("fileclass"), Just("definition"), Just("rule"), Just("default"), Just("="), Just(";"), Just("\n"),
                Just("[[rule]]\n"), Just("clock"), Just("\"atime\""), Just("days"), Just("\"é*[\""), Just("tree"),
                Just("INTERVAL"), Just("/*"), Just("--"), Just("#"), Just("cleanup_trigger"), Just("trigger_on"),
            ],
            0..60,
        ),
        spaced in any::<bool>(),
    ) {
        let text = words.join(if spaced { " " } else { "" });
        for language in [Language::Toml, Language::Robinhood, Language::Scale] {
            match read(&text, language, &nobody) {
                Ok(policy) => {
                    let facts = aged(3, 2, 1);
                    let death = policy.death(&sight("/a/b", &facts), &world());
                    prop_assert!(death.is_none_or(|death| death.at_s >= NOW));
                    policy.rules.iter().for_each(|rule| assert!(!rule.explain().contains('\n')));
                }
                Err(complaints) => {
                    prop_assert!(!complaints.is_empty());
                    for complaint in complaints {
                        prop_assert!(!complaint.to_string().contains('\n'), "{complaint}");
                    }
                }
            }
        }
    }

    /// Whatever times move forward and sizes and owners change, no file is removed before its
    /// remembered facts allow.
    #[test]
    fn the_remembered_bound_holds_whatever_moves_forward(
        (accessed, modified, changed) in (0..60_i64, 0..60_i64, 0..60_i64),
        (later_a, later_m, later_c) in (0..60_i64, 0..60_i64, 0..60_i64),
        (size, grown) in (0..20_u64, 0..20_u64),
        (owner, given) in (999..1002_u32, 999..1002_u32),
        which in 0..3_usize,
    ) {
        let ours = "exempt_owners = [\"ada\"]\n[[rule]]\nclock = [\"atime\", \"mtime\"]\ndays = 30\ndays_by_size = [{ from = \"10GB\", days = 4 }]\n\
            [[rule]]\nclock = \"ctime\"\ndays = 40\ncalendar = \"weekly on Sunday 03:00\"\n";
        let policy = policy([ours, ROBINHOOD, SCALE][which]);
        let facts = Facts { size: size << 30, owner, ..aged(accessed, modified, changed) };
        let later = Facts {
            size: grown << 30,
            owner: given,
            ..aged(accessed.min(later_a), modified.min(later_m), changed.min(later_c))
        };
        let remembered = Sight { is_remembered: true, ..sight("/lustre/scratch/x", &facts) };
        let bound = policy.earliest_s(&remembered, &world()).unwrap_or(i64::MAX);
        let truth = policy.earliest_s(&sight("/lustre/scratch/x", &later), &world()).unwrap_or(i64::MAX);
        prop_assert!(bound <= truth, "{bound} {truth}");
    }
}
