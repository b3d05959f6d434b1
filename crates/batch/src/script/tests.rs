use std::time::Duration;

use jiff::{Timestamp, tz::TimeZone};
use proptest::prelude::*;

use super::*;

fn complaint(text: &str) -> String {
    let complaints = read(text).unwrap_err();
    assert_eq!(complaints.len(), 1, "{complaints:?}");
    complaints[0].to_string()
}

#[test]
fn a_script_says_what_is_to_be_there_and_what_is_to_leave() {
    let wanted = read(
        "#!/bin/bash\n\
         #SBATCH --time=02:00:00\n\
         #POSTHASTE stage_in source=sftp://archive/run7 destination=/scratch/run7\n\
         #POSTHASTE stage_in source=\"s3:in put/%j\" destination='/scratch/in put' deadline=2h via=cache,oak optional\n\
         #POSTHASTE depot ash:50GB when=20-06 load<0.5\n\
         srun ./simulate\n\
         #POSTHASTE stage_out source=/scratch/run7/*.h5 destination=home deadline=2026-12-01T18:00 via=ash,birch pin=birch code=8+4 release=when-safe after=ok\n",
    )
    .unwrap();
    assert_eq!(wanted.stage_ins.len(), 2);
    let second = &wanted.stage_ins[1];
    assert_eq!((second.line, second.is_optional), (4, true));
    assert_eq!(second.source, "s3:in put/%j");
    assert_eq!(second.destination, "/scratch/in put");
    assert_eq!(second.via, ["cache", "oak"]);
    assert!(wanted.stage_ins[0].via.is_empty());
    assert_eq!(
        second.deadline,
        Some(Deadline::Within(Duration::from_secs(7200)))
    );
    let out = &wanted.stage_outs[0];
    assert_eq!(
        (out.via.join("+"), out.code),
        ("ash+birch".into(), Some("8+4".parse().unwrap()))
    );
    assert_eq!(out.pin, ["birch"]);
    assert_eq!((out.release, out.after), (Release::WhenSafe, After::Ok));
    let moment = out
        .deadline
        .unwrap()
        .moment(Timestamp::UNIX_EPOCH, &TimeZone::UTC);
    assert_eq!(moment.unwrap().to_string(), "2026-12-01T18:00:00Z");
    let lent = &wanted.depots[0];
    assert_eq!(
        (lent.name.as_str(), lent.space),
        ("ash", Bytes::mebi(50 << 10))
    );
    assert_eq!(
        (lent.hours.to_string(), lent.load_max_permille),
        ("20-06".into(), Some(500))
    );
}

#[test]
fn lines_of_slurm_and_datawarp_mean_the_same() {
    let wanted = read(
        "#BB_LUA pool=scratch capacity=10GB\n\
         #BB_LUA pool=scratch capacity=10GB stage_in source=/a destination=/b\n\
         #DW jobdw type=scratch capacity=1GB access_mode=striped\n\
         #DW stage_in type=directory source=/pfs/a destination=$DW_JOB_STRIPED/f\n\
         #DW stage_out type=file source=$DW_JOB_STRIPED/g destination=/pfs/g\n",
    )
    .unwrap();
    assert_eq!((wanted.stage_ins.len(), wanted.stage_outs.len()), (2, 1));
    assert_eq!(wanted.stage_ins[1].destination, "$DW_JOB_STRIPED/f");
    assert!(complaint("#DW stage_in type=list source=/a destination=/b").contains("`type`"));
}

#[test]
fn room_in_a_pool_is_for_slurm_to_read() {
    let wanted = read(
        "#POSTHASTE pool=scratch capacity=2TiB\n\
         #POSTHASTE stage_in source=/a destination=/b pool=scratch capacity=10GB\n",
    )
    .unwrap();
    assert_eq!((wanted.stage_ins.len(), wanted.stage_outs.len()), (1, 0));
    assert!(complaint("#POSTHASTE capacty=2TiB").contains("capacty"));
}

/// Verbatim: Figure 4 of Timely Offloading and Figure 4 of CATCH.
#[test]
fn the_forms_of_the_papers_are_read_as_they_print_them() {
    let wanted = read(
        "#PBS -N myjob\n\
         #PBS -l nodes=128, walltime=12:00\n\
         mpirun -np 128 ~/MyComputation\n\
         #Stageout Output DestinationSite\n\
         #InterNode node1.Site1:49665:50GB\n\
         #InterNode nodeN.SiteN:49665:30GB\n\
         #Deadline 1/14/2007:12:00\n",
    )
    .unwrap();
    let out = &wanted.stage_outs[0];
    assert_eq!(
        (out.source.as_str(), out.destination.as_str()),
        ("Output", "DestinationSite")
    );
    let moment = out
        .deadline
        .unwrap()
        .moment(Timestamp::UNIX_EPOCH, &TimeZone::UTC);
    assert_eq!(moment.unwrap().to_string(), "2007-01-14T12:00:00Z");
    let names: Vec<&str> = wanted
        .depots
        .iter()
        .map(|lent| lent.name.as_str())
        .collect();
    assert_eq!(names, ["node1.Site1:49665", "nodeN.SiteN:49665"]);
    let wanted = read(
        "#CollabAcct collab1.blob.core.windows.net:50GB\n\
         #CollabAcct collabN.blob.core.windows.net:30GB\n",
    )
    .unwrap();
    assert_eq!(wanted.depots[1].space, Bytes::mebi(30 << 10));
    let wanted = read("#InterNode ash:50GB\n").unwrap();
    let lent = &wanted.depots[0];
    assert_eq!(
        (lent.name.as_str(), lent.space),
        ("ash", Bytes::mebi(50 << 10))
    );
}

#[test]
fn a_deadline_of_its_own_comes_before_that_of_all() {
    let wanted = read(
        "#Stageout a b\n#POSTHASTE stage_out source=c destination=d deadline=1h\n#Deadline 2h\n",
    )
    .unwrap();
    let hours: Vec<Deadline> = wanted
        .stage_outs
        .iter()
        .filter_map(|out| out.deadline)
        .collect();
    let within = |hours: u64| Deadline::Within(Duration::from_secs(hours * 3600));
    assert_eq!(hours, [within(2), within(1)]);
}

#[test]
fn the_forms_of_others_mean_the_same_behind_our_own_mark() {
    let others = "#DW stage_in type=file source=a destination=/s/a\n#Stageout /s/%j home\n\
        #InterNode node1.Site1:49665:50GB\n#Deadline 2h\n#DW jobdw capacity=10GB\n";
    let behind = format!(
        "#POSTHASTE {}",
        others.trim_end().replace('\n', "\n#POSTHASTE\t")
    );
    assert_eq!(read(&behind), read(others));
    assert_eq!(read(&behind).unwrap().stage_outs[0].source, "/s/%j");
    assert_eq!(hidden_by_symbols(&behind), None);
    let complaints = read("#POSTHASTE #POSTHASTE #DW jobdw\n").unwrap_err();
    assert!(
        complaints[0]
            .to_string()
            .contains("`#POSTHASTE` is no directive"),
        "{complaints:?}"
    );
}

#[test]
fn what_slurm_would_keep_to_itself_is_complained_about() {
    let own = "#POSTHASTE stage_out source=/s/%j destination=home\n";
    for (others, line) in [
        (
            "#Deadline 2h",
            Some(
                "line 1: `#Deadline` would be lost, as Slurm hands on #POSTHASTE lines alone where one has a `%`, like line 2",
            ),
        ),
        ("#InterNode node1:49665:50GB", Some("line 1: `#InterNode`")),
        (
            "#DW stage_in type=file source=a destination=/s/a",
            Some("line 1: `#DW`"),
        ),
        ("#DW jobdw capacity=10GB", None),
        ("#SBATCH --output=%j", None),
        ("#POSTHASTE depot ash:50GB", None),
    ] {
        let found = hidden_by_symbols(&format!("{others}\n{own}"));
        let found = found.map(|complaint| complaint.to_string());
        match line {
            Some(line) => assert!(
                found.as_ref().is_some_and(|found| found.starts_with(line)),
                "{found:?}"
            ),
            None => assert_eq!(found, None, "{others}"),
        }
        let plain = own.replace('%', "");
        assert_eq!(hidden_by_symbols(&format!("{others}\n{plain}")), None);
    }
}

#[test]
fn mere_comments_are_left_alone() {
    for text in [
        "",
        "# Deadline is near",
        "#SBATCH -n 4",
        "#",
        "echo #POSTHASTE",
        " #POSTHASTE x",
        "##POSTHASTE",
    ] {
        assert_eq!(read(text), Ok(Wanted::default()), "{text}");
    }
}

/// Wrong directives, and the complaint about each.
const WRONG: &[(&str, &str)] = &[
    (
        "\n#POSTHASTE stagein source=a",
        "line 2: `stagein` is no directive (write stage_in)",
    ),
    (
        "#POSTHASTE stage_in sorce=a destination=b",
        "line 1: `sorce` is no key of stage_in (write source)",
    ),
    (
        "#POSTHASTE stage_in source=a",
        "line 1: stage_in without `destination` (write destination=…)",
    ),
    (
        "#POSTHASTE stage_in source=a source=b destination=c",
        "line 1: `source` is said twice",
    ),
    (
        "#POSTHASTE stage_in source= destination=c",
        "line 1: `source` has no value (write source=…)",
    ),
    (
        "#POSTHASTE stage_out source=a destination=b deadline=soon",
        "line 1: `deadline=soon` can't be read (write deadline=2h, 1d12h, 2026-12-01T18:00 or 2026-12-01)",
    ),
    (
        "#POSTHASTE stage_out source=a destination=b code=8",
        "line 1: `code=8` can't be read (write code=8+4)",
    ),
    (
        "#POSTHASTE stage_out source=a destination=b pin=",
        "line 1: `pin` has no value (write pin=…)",
    ),
    (
        "#POSTHASTE stage_out source=a destination=b via=,",
        "line 1: `via=,` can't be read (write via=ash,birch)",
    ),
    (
        "#POSTHASTE stage_out source=a destination=b release=now",
        "line 1: `release=now` can't be read (write release=when-safe or never)",
    ),
    (
        "#POSTHASTE stage_in source=\"a destination=b",
        "line 1: a quote is opened and not closed",
    ),
    (
        "#POSTHASTE",
        "line 1: it says nothing (write stage_in, stage_out, depot)",
    ),
    (
        "#posthaste stage_in source=a destination=b",
        "line 1: `#posthaste` is a mere comment (write #POSTHASTE)",
    ),
    (
        "#POSTHASTE depot ash",
        "line 1: `ash` is no depot with its space (write depot NAME:50GB [when=20-06] [load<0.5])",
    ),
    (
        "#POSTHASTE depot ash:5G lod<0.5",
        "line 1: `lod<0.5` is no term of a depot (write load<0.5)",
    ),
    (
        "#POSTHASTE depot ash:5G load<x",
        "line 1: `load<x` can't be read (write depot NAME:50GB [when=20-06] [load<0.5])",
    ),
    (
        "#POSTHASTE depot ash:5G\n#POSTHASTE depot ash:6G",
        "line 2: `ash` is lent twice",
    ),
    (
        "#Deadline is near",
        "line 1: `#Deadline` is not written so; a mere comment has a space after `#` (write #Deadline 1/14/2007:12:00)",
    ),
    (
        "#InterNode node1.Site1:49665",
        "line 1: `#InterNode` is not written so; a mere comment has a space after `#` (write #InterNode node1.Site1:49665:50GB)",
    ),
    (
        "#Deadline 2h",
        "line 1: a deadline, and nothing is staged out",
    ),
    (
        "#Stageout a b\n#Deadline 2h\n#Deadline 3h",
        "line 3: there are two deadlines",
    ),
    (
        "#Stageout a b\n#Deadline 13/14/2007:12:00",
        "line 2: `#Deadline` is not written so; a mere comment has a space after `#` (write #Deadline 1/14/2007:12:00)",
    ),
];

#[test]
fn what_is_wrong_is_said_with_its_line_its_word_and_what_was_meant() {
    for (text, said) in WRONG {
        assert_eq!(complaint(text), *said);
    }
}

#[test]
fn days_and_moments_are_by_the_clock_that_they_name() {
    let berlin = TimeZone::fixed(jiff::tz::offset(1));
    let moment = |text: &str| {
        let deadline = Deadline::read(text).unwrap();
        deadline
            .moment("2026-11-24T10:00:00Z".parse().unwrap(), &berlin)
            .unwrap()
            .to_string()
    };
    assert_eq!(moment("90m"), "2026-11-24T11:30:00Z");
    assert_eq!(moment("1d"), "2026-11-25T10:00:00Z");
    assert_eq!(moment("2026-12-01T18:00"), "2026-12-01T17:00:00Z");
    assert_eq!(moment("2026-12-01T18:00:00Z"), "2026-12-01T18:00:00Z");
    assert_eq!(moment("2026-12-01"), "2026-12-01T23:00:00Z", "its end");
    for text in [
        "",
        "0s",
        "-2h",
        "2",
        "9999d",
        "2026-13-01",
        "18:00 tomorrow",
        "1/14/2007",
    ] {
        assert_eq!(Deadline::read(text), None, "{text}");
    }
}

#[test]
fn complaints_and_directives_are_bounded() {
    let wrong = "#POSTHASTE nothing\n".repeat(100);
    assert_eq!(read(&wrong).unwrap_err().len(), COMPLAINTS_MAX);
    let many = "#POSTHASTE stage_in source=a destination=b\n".repeat(DIRECTIVES_MAX + 1);
    assert!(complaint(&many).contains("at most"));
    let long = format!(
        "#POSTHASTE stage_in source={} destination=b",
        "a".repeat(10_000)
    );
    assert!(complaint(&long).contains("at most"));
}

/// Generates pieces of directives, right and wrong.
fn pieces() -> impl Strategy<Value = String> {
    let words = [
        "#POSTHASTE ",
        "#DW ",
        "#BB_LUA ",
        "#Deadline ",
        "#InterNode ",
        "stage_in ",
        "stage_out ",
        "depot ",
        "source=a ",
        "destination=b ",
        "deadline=2h ",
        "deadline=",
        "\"",
        "'",
        "\n",
        "ash:5G ",
        "when=20-06 ",
        "load<0.5 ",
        "1/14/2007:12:00",
        "via=a,b ",
        "pin=a ",
        "code=4+2 ",
        "optional ",
        "é",
        "\t",
        "=",
    ];
    let word = prop::sample::select(words.to_vec()).prop_map(str::to_owned);
    let any = prop_oneof![8 => word, 1 => ".{0,8}"];
    prop::collection::vec(any, 0..40).prop_map(|words| words.concat())
}

proptest! {
    #[test]
    fn whatever_is_written_is_read_or_complained_about_in_its_line(text in pieces()) {
        let lines = text.lines().count();
        match read(&text) {
            Ok(wanted) => {
                let all = wanted.stage_ins.len() + wanted.stage_outs.len() + wanted.depots.len();
                prop_assert!(all <= lines);
            }
            Err(complaints) => {
                prop_assert!(!complaints.is_empty());
                for complaint in complaints {
                    prop_assert!((1..=lines).contains(&complaint.line));
                    prop_assert_eq!(complaint.to_string().lines().count(), 1);
                }
            }
        }
    }
}
