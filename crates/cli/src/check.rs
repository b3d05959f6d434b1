//! `posthaste check`: checks the directives of a job script.

mod ask;

use std::{fs::File, io::Read, path::PathBuf, process::ExitCode};

use clap::Args;
use jiff::{Timestamp, tz::TimeZone};
use posthaste_batch::script::{
    self, After, Complaint, Deadline, Release, StageIn, StageOut, Wanted,
};
use posthaste_endpoint::{Error, ErrorKind};
use serde_json::{Value, json};

use crate::{
    client::ServiceArguments,
    failure::{Failure, Outcome},
    moment, output,
};
use ask::{Answer, Answers};

/// Larger than any script that a scheduler accepts (Slurm: 4 MiB).
const SCRIPT_BYTES_MAX: u64 = 4 << 20;

/// Says what a job script asks of posthaste, or what is wrong in it
///
/// Reads #POSTHASTE directives, #BB_LUA and #DW lines that stage something in or out, and the forms of the papers (#Stageout,
/// #InterNode, #CollabAcct, #Deadline), and changes nothing. Exit code 2 when a directive is wrong: each with its line, the word and what was meant.
/// docs/reference/job-scripts.md has all forms.
///
/// Examples:
///   posthaste check job.sh
///   posthaste check - --json < job.sh
///   posthaste check --queued job.sh         also what the service does not take from jobs in a queue
///   posthaste check --ask job.sh            also what the service says: places, depots, and when each input would be here
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct CheckArguments {
    /// The script; `-` for standard input
    script: PathBuf,
    /// Print what it asks for as JSON
    #[arg(long)]
    json: bool,
    /// Refuse also what the service can't do for a job in a queue: relative paths, a code on the way straight to an address
    #[arg(long)]
    queued: bool,
    /// Ask the service too, as for a job in a queue: whether it takes the script, how large each input is and when it would be here.
    /// Exit code 11 when an input that the job needs can't come
    #[arg(long)]
    ask: bool,
    #[command(flatten)]
    service: ServiceArguments,
}

/// Runs the command.
///
/// # Errors
/// Returns a usage failure if a directive is wrong, and the errors of reading the script and of
/// asking the service.
pub async fn run(arguments: CheckArguments) -> Outcome {
    let shown = arguments.script.display().to_string();
    let text = read(&arguments.script, &shown)?;
    let now = Timestamp::now();
    let read = script::read(&text).and_then(|wanted| {
        let mut wrong = too_late(&wanted, now);
        if arguments.queued || arguments.ask {
            wrong.extend(of_a_job(&wanted));
        }
        if wrong.is_empty() {
            Ok(wanted)
        } else {
            Err(wrong)
        }
    });
    let wanted = read.map_err(|complaints| complain(&shown, &complaints))?;
    let answers = match arguments.ask {
        true => ask::ask(&arguments.service, &text, &wanted).await?,
        false => Answers::new(),
    };
    if arguments.json {
        output::json(&to_json(&wanted, &answers, now));
    } else {
        describe(&shown, &wanted, &answers);
    }
    ask::refusal(&wanted, &answers).map_or(Ok(ExitCode::SUCCESS), Err)
}

/// Returns the directives that a service can't carry out for a job in a queue.
pub(crate) fn of_a_job(wanted: &Wanted) -> Vec<Complaint> {
    let complaint = |line: usize, what: String| Complaint {
        line,
        what,
        meant: None,
    };
    let ins = wanted.stage_ins.iter();
    let ins = ins.map(|one| (one.line, &one.destination));
    let outs = wanted.stage_outs.iter().map(|one| (one.line, &one.source));
    let relative = ins.chain(outs).filter(|(_, path)| !path.starts_with('/'));
    let relative = relative.map(|(line, path)| {
        let what =
            format!("{path} is no absolute path, and in the queue there is no current directory");
        complaint(line, what)
    });
    let outs = wanted.stage_outs.iter();
    let nowhere = outs.filter_map(|one| Some(complaint(one.line, goes_nowhere(one)?)));
    relative.chain(nowhere).collect()
}

/// Returns the reason for which a job's output can't be stored at its destination.
fn goes_nowhere(one: &StageOut) -> Option<String> {
    let to = &one.destination;
    if !to.starts_with('/') && !to.contains(':') {
        let is_name = !to.contains('/');
        let what = format!("{to} is neither the name of a destination nor an address");
        return (!is_name).then_some(what);
    }
    if !one.via.is_empty() {
        let has_comma = to.contains(',');
        let what = format!("there is a comma in {to}, which `via=` can't be kept with");
        return has_comma.then_some(what);
    }
    let unkept = [("pin=", !one.pin.is_empty()), ("code=", one.code.is_some())];
    let unkept = unkept.into_iter().find(|(_, is_said)| *is_said);
    unkept.map(|(key, _)| {
        format!(
            "`{key}` can't be kept on the way to {to}: what goes to an address goes there straight unless `via=` names depots"
        )
    })
}

fn read(path: &PathBuf, shown: &str) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let read = if path.as_os_str() == "-" {
        std::io::stdin()
            .take(SCRIPT_BYTES_MAX + 1)
            .read_to_end(&mut bytes)
    } else {
        File::open(path).and_then(|file| file.take(SCRIPT_BYTES_MAX + 1).read_to_end(&mut bytes))
    };
    read.map_err(|cause| {
        let error = Error::io("read", shown.to_owned(), cause);
        if error.kind() == ErrorKind::NotFound {
            return error.hint("name a file that is there, or - for standard input");
        }
        error
    })?;
    if bytes.len() as u64 > SCRIPT_BYTES_MAX {
        let error = Error::new(ErrorKind::Invalid, "read", shown.to_owned());
        return Err(error.cause("it is larger than any job script").into());
    }
    // Lines that are not ours may have any encoding.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Lists deadlines that have passed already.
fn too_late(wanted: &Wanted, now: Timestamp) -> Vec<Complaint> {
    let ins = wanted.stage_ins.iter().map(|one| (one.line, one.deadline));
    let outs = wanted.stage_outs.iter().map(|one| (one.line, one.deadline));
    let mut late = Vec::new();
    for (line, deadline) in ins.chain(outs) {
        let moment = deadline.and_then(|deadline| moment_of(deadline, now));
        if moment.is_some_and(|moment| moment <= now) {
            let what = "the deadline has passed".to_owned();
            late.push(Complaint {
                line,
                what,
                meant: None,
            });
        }
    }
    late
}

/// Returns the moment of a deadline, if it does not depend on the job.
fn moment_of(deadline: Deadline, now: Timestamp) -> Option<Timestamp> {
    match deadline {
        Deadline::Within(_) => None,
        Deadline::At(_) | Deadline::Local(_) => deadline.moment(now, &TimeZone::system()),
    }
}

/// Reports all complaints but the last, which becomes the command's failure.
fn complain(shown: &str, complaints: &[Complaint]) -> Failure {
    let mut lines: Vec<String> = complaints
        .iter()
        .map(|one| format!("{shown}: {one}"))
        .collect();
    let last = lines.pop().unwrap_or_default();
    for line in lines {
        output::complain(&line);
    }
    Failure::usage(last)
}

fn describe(shown: &str, wanted: &Wanted, answers: &Answers) {
    if *wanted == Wanted::default() {
        return output::line(&format!("{shown} asks for nothing"));
    }
    let mut rows = Vec::new();
    let mut row = |line: usize, what: &str, of: String, how: Vec<String>| {
        rows.push(vec![
            format!("line {line}"),
            what.to_owned(),
            of,
            how.join(", "),
        ]);
    };
    for one in &wanted.stage_ins {
        let of = format!("{} → {}", one.source, one.destination);
        let asked = answers.get(&one.line).map(Answer::told);
        let how = how_in(one).into_iter().chain(asked);
        row(one.line, "stage in", of, how.collect());
    }
    for one in &wanted.stage_outs {
        let of = format!("{} → {}", one.source, one.destination);
        row(one.line, "stage out", of, how_out(one));
    }
    for lent in &wanted.depots {
        let mut how = vec![lent.space.to_string(), lent.hours.to_string()];
        how.extend(
            lent.load_max_permille
                .map(|load| format!("below a load of {}", f64::from(load) / 1000.0)),
        );
        row(lent.line, "depot", lent.name.clone(), how);
    }
    output::table(&rows);
}

fn how_in(one: &StageIn) -> Vec<String> {
    let by = one.deadline.map_or_else(
        || "before the job starts".to_owned(),
        |deadline| when(deadline, "the submission"),
    );
    let optional = one
        .is_optional
        .then(|| "the job starts without it too".to_owned());
    let waits = (!one.via.is_empty()).then(|| format!("may wait on {}", one.via.join(" and ")));
    [by].into_iter().chain(waits).chain(optional).collect()
}

fn how_out(one: &StageOut) -> Vec<String> {
    let mut how: Vec<String> = one
        .deadline
        .map(|deadline| when(deadline, "the end of the job"))
        .into_iter()
        .collect();
    how.extend((!one.via.is_empty()).then(|| format!("over {}", one.via.join(" and "))));
    how.extend((!one.pin.is_empty()).then(|| format!("pinned to {}", one.pin.join(" and "))));
    how.extend(one.code.map(|code| format!("as {code}")));
    how.extend(
        (one.release == Release::WhenSafe).then(|| "removed from scratch when safe".to_owned()),
    );
    how.push(match one.after {
        After::Ok => "if the job ends well".to_owned(),
        After::NotOk => "if the job fails".to_owned(),
        After::Any => "whatever becomes of the job".to_owned(),
    });
    how
}

fn when(deadline: Deadline, from: &str) -> String {
    match deadline {
        Deadline::Within(span) => format!(
            "within {} of {from}",
            moment::show_seconds(span.as_secs_f64())
        ),
        Deadline::At(_) | Deadline::Local(_) => deadline.to_string(),
    }
}

fn to_json(wanted: &Wanted, answers: &Answers, now: Timestamp) -> Value {
    let deadline = |deadline: Option<Deadline>| match deadline {
        None => Value::Null,
        Some(Deadline::Within(span)) => json!({"within_s": span.as_secs()}),
        Some(fixed) => json!({"at": moment_of(fixed, now).map(|moment| moment.to_string())}),
    };
    let stage_in = |one: &StageIn| {
        json!({
            "line": one.line, "source": one.source, "destination": one.destination,
            "deadline": deadline(one.deadline), "via": one.via, "optional": one.is_optional,
            "asked": answers.get(&one.line).map(Answer::to_json),
        })
    };
    let stage_out = |one: &StageOut| {
        json!({
            "line": one.line, "source": one.source, "destination": one.destination,
            "deadline": deadline(one.deadline), "via": one.via, "pin": one.pin, "code": one.code.map(|code| code.to_string()),
            "release": match one.release { Release::WhenSafe => "when-safe", Release::Never => "never" },
            "after": match one.after { After::Ok => "ok", After::NotOk => "notok", After::Any => "any" },
        })
    };
    let depot = |lent: &script::Lent| {
        json!({
            "line": lent.line, "name": lent.name, "space_bytes": lent.space.get(),
            "hours": lent.hours.to_string(), "load_max": lent.load_max_permille.map(|load| f64::from(load) / 1000.0),
        })
    };
    json!({
        "stage_ins": wanted.stage_ins.iter().map(stage_in).collect::<Vec<_>>(),
        "stage_outs": wanted.stage_outs.iter().map(stage_out).collect::<Vec<_>>(),
        "depots": wanted.depots.iter().map(depot).collect::<Vec<_>>(),
    })
}
