//! Directives of a job script: data to stage in before the job starts, data to stage out when it
//! has ended, and disks to use as depots.
//!
//! Directives are comments to the shell and to every other program. Lines that begin with
//! `#POSTHASTE` are directives. So are `#BB_LUA` and `#DW` lines that stage data, and the forms in
//! the papers (`#Stageout`, `#InterNode`, `#CollabAcct`, `#Deadline`). Every error in a directive
//! is a [`Complaint`]: no directive is ignored.

mod comment;
mod complaint;
mod deadline;
mod ours;
mod papers;
mod words;

use posthaste_plan::Windows;
use posthaste_types::{Bytes, Code};

pub use comment::from_comment;
pub use complaint::Complaint;
pub use deadline::Deadline;

/// Most directives of one script: a user with more moves datasets file by file.
const DIRECTIVES_MAX: usize = 1024;
/// Most complaints about one script: the first ones show the misunderstanding.
const COMPLAINTS_MAX: usize = 20;

/// Directives of a job script.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wanted {
    /// Data to stage in before the job starts.
    pub stage_ins: Vec<StageIn>,
    /// Data to stage out when the job has ended.
    pub stage_outs: Vec<StageOut>,
    /// Disks lent for the job.
    pub depots: Vec<Lent>,
}

/// Data to stage in before the job starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageIn {
    /// Line of the directive, from 1.
    pub line: usize,
    /// Source of the data.
    pub source: String,
    /// Path at which the job wants the data.
    pub destination: String,
    /// Deadline, if not just before the job starts; spans count from the submission.
    pub deadline: Option<Deadline>,
    /// Depots near the centre on which the data may wait until then.
    pub via: Vec<String>,
    /// True if the job starts without the data if it is not available.
    pub is_optional: bool,
}

/// Data to stage out when the job has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageOut {
    /// Line of the directive, from 1.
    pub line: usize,
    /// Path, or a pattern of paths that is evaluated when the job ends.
    pub source: String,
    /// Name of a destination, or a URL.
    pub destination: String,
    /// Deadline at the destination; spans count from the end of the job.
    pub deadline: Option<Deadline>,
    /// Depots that the data may use; if empty, those that the service knows.
    pub via: Vec<String>,
    /// Depots, from `via` or others, that must hold their share of the data.
    pub pin: Vec<String>,
    /// Redundancy on depots, if not the service's default.
    pub code: Option<Code>,
    /// Rule for removing the source from scratch.
    pub release: Release,
    /// Outcome of the job after which the data is staged out.
    pub after: After,
}

/// Rule for removing a source from scratch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Release {
    /// Removed as soon as it is safe elsewhere.
    WhenSafe,
    /// Never removed by the service.
    #[default]
    Never,
}

/// Outcome of a job after which data is staged out, in Slurm's words for dependencies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum After {
    /// Job that ended well.
    Ok,
    /// Job that failed or ran out of time.
    NotOk,
    /// Any outcome.
    #[default]
    Any,
}

/// Disk that somebody lends for the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lent {
    /// Line of the directive, from 1.
    pub line: usize,
    /// Name of the depot, or its address.
    pub name: String,
    /// Space that may be used.
    pub space: Bytes,
    /// Hours of use; always if none are given.
    pub hours: Windows,
    /// Load at or above which the depot is left alone, in thousandths.
    pub load_max_permille: Option<u32>,
}

/// Marks of other programs. They mean the same after `#POSTHASTE`, as Slurm passes on only lines
/// that begin with it.
const OTHERS: [&str; 6] = [
    "BB_LUA",
    "DW",
    "Stageout",
    "InterNode",
    "CollabAcct",
    "Deadline",
];

/// Content of one directive.
enum Said {
    StageIn(StageIn),
    StageOut(StageOut),
    Depot(Lent),
    /// Deadline of all stage-outs without their own.
    Deadline(Deadline),
    /// Line of another program.
    Nothing,
}

/// Reads the directives of a script, wherever they are in it.
///
/// # Errors
/// All complaints about them, in order, twenty at most.
pub fn read(text: &str) -> Result<Wanted, Vec<Complaint>> {
    let (mut wanted, mut complaints) = (Wanted::default(), Vec::new());
    let mut deadline = None;
    let mut count = 0;
    for (line, text) in (1..).zip(text.lines()) {
        let Some(said) = read_line(line, text) else {
            continue;
        };
        count += 1;
        if count > DIRECTIVES_MAX {
            let most = format!("a script has {DIRECTIVES_MAX} directives at most");
            complaints.push(Complaint::new(line, most));
            break;
        }
        match said {
            Ok(Said::StageIn(stage_in)) => wanted.stage_ins.push(stage_in),
            Ok(Said::StageOut(stage_out)) => wanted.stage_outs.push(stage_out),
            Ok(Said::Depot(depot))
                if wanted.depots.iter().any(|known| known.name == depot.name) =>
            {
                let name = depot.name;
                complaints.push(Complaint::new(line, format!("`{name}` is lent twice")));
            }
            Ok(Said::Depot(depot)) => wanted.depots.push(depot),
            Ok(Said::Deadline(_)) if deadline.is_some() => {
                complaints.push(Complaint::new(line, "there are two deadlines"));
            }
            Ok(Said::Deadline(said)) => deadline = Some((line, said)),
            Ok(Said::Nothing) => {}
            Err(complaint) => complaints.push(complaint),
        }
        if complaints.len() >= COMPLAINTS_MAX {
            break;
        }
    }
    if let Some((line, deadline)) = deadline {
        if wanted.stage_outs.is_empty() && complaints.is_empty() {
            complaints.push(Complaint::new(
                line,
                "a deadline, and nothing is staged out",
            ));
        }
        for stage_out in &mut wanted.stage_outs {
            stage_out.deadline.get_or_insert(deadline);
        }
    }
    if complaints.is_empty() {
        Ok(wanted)
    } else {
        Err(complaints)
    }
}

/// Reports a directive that Slurm hides from its burst buffer plug-in. If a `#POSTHASTE` line has
/// one of Slurm's symbols (`%j`), Slurm fills it in and passes on only such lines. Lines of other
/// marks would be lost without a message.
#[must_use]
pub fn hidden_by_symbols(text: &str) -> Option<Complaint> {
    let lines = || (1..).zip(text.lines());
    let marked = |text: &str| mark_of(text).is_some_and(|(mark, _)| mark == "POSTHASTE");
    let (with_symbol, _) = lines().find(|(_, text)| marked(text) && text.contains('%'))?;
    let is_hidden = |(line, text): &(usize, &str)| {
        let said = read_line(*line, text);
        !marked(text) && said.is_some_and(|said| !matches!(said, Ok(Said::Nothing)))
    };
    let (line, text) = lines().find(is_hidden)?;
    let (mark, _) = mark_of(text)?;
    let what = format!(
        "`#{mark}` would be lost, as Slurm hands on #POSTHASTE lines alone where one has a `%`, like line {with_symbol}"
    );
    Some(Complaint::new(line, what).meant("it as a #POSTHASTE line, or no `%`"))
}

/// Reads a line; `None` if it is no directive.
fn read_line(line: usize, text: &str) -> Option<Result<Said, Complaint>> {
    let (mark, rest) = mark_of(text)?;
    let others = (mark == "POSTHASTE")
        .then(|| mark_of(rest.trim_start()))
        .flatten()
        .filter(|(mark, _)| OTHERS.contains(mark));
    let (mark, rest) = others.unwrap_or((mark, rest));
    Some(match mark {
        "POSTHASTE" => ours::read(line, rest),
        "BB_LUA" | "DW" => ours::read_alias(line, rest),
        "Stageout" | "InterNode" | "CollabAcct" | "Deadline" => papers::read(line, mark, rest),
        mark if mark.eq_ignore_ascii_case("POSTHASTE") => {
            let what = format!("`#{mark}` is a mere comment");
            Err(Complaint::new(line, what).meant("#POSTHASTE"))
        }
        _ => return None,
    })
}

/// Splits a line into the word after the comment sign and the rest.
fn mark_of(text: &str) -> Option<(&str, &str)> {
    let text = text.strip_prefix('#')?;
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    Some(text.split_at(end))
}

#[cfg(test)]
mod tests;
