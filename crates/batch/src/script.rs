//! The directives of a job script: which data is to be there before the job starts, which is to leave when it has ended,
//! and over whose disks.
//!
//! Directives are comments for the shell and for every other program. A line is one of ours when it begins with
//! `#POSTHASTE`, and when it is a `#BB_LUA` or `#DW` line that stages something in or out, or of the forms that the papers print
//! (`#Stageout`, `#InterNode`, `#CollabAcct`, `#Deadline`). Whatever is wrong in one of ours is a [`Complaint`]: nothing that was
//! asked for is overlooked.

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

/// Directives of one script: whoever has more moves datasets file by file.
const DIRECTIVES_MAX: usize = 1024;
/// Complaints about one script: the first ones tell what is misunderstood.
const COMPLAINTS_MAX: usize = 20;

/// All that a job script asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wanted {
    /// What is to be there before the job starts.
    pub stage_ins: Vec<StageIn>,
    /// What is to leave when it has ended.
    pub stage_outs: Vec<StageOut>,
    /// Disks that are lent for it.
    pub depots: Vec<Lent>,
}

/// What is to be there before the job starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageIn {
    /// The line that says so, from 1.
    pub line: usize,
    /// Where it comes from.
    pub source: String,
    /// The path where it is wanted.
    pub destination: String,
    /// When it has to be there, where not just before the job starts; spans count from the submission.
    pub deadline: Option<Deadline>,
    /// The depots near the centre on which it may wait until then.
    pub via: Vec<String>,
    /// Whether the job starts without it where it can't be had.
    pub is_optional: bool,
}

/// What is to leave when the job has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageOut {
    /// The line that says so, from 1.
    pub line: usize,
    /// The path, or a pattern of paths that is looked at when the job ends.
    pub source: String,
    /// Where it goes: the name of a destination, or a URL.
    pub destination: String,
    /// When it has to be there; spans count from the end of the job.
    pub deadline: Option<Deadline>,
    /// The depots that it may go over; empty for those that the service knows.
    pub via: Vec<String>,
    /// Of them or others, those that must hold their share of it.
    pub pin: Vec<String>,
    /// The redundancy it has on depots, where not the service's own.
    pub code: Option<Code>,
    /// Whether it is removed from scratch.
    pub release: Release,
    /// Whether it leaves after a job that failed.
    pub after: After,
}

/// Whether a source is removed from scratch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Release {
    /// As soon as it is safe elsewhere.
    WhenSafe,
    /// Not by us.
    #[default]
    Never,
}

/// After which jobs something is staged out, in Slurm's words for dependencies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum After {
    /// Jobs that ended well.
    Ok,
    /// Jobs that failed or ran out of time.
    NotOk,
    /// All of them.
    #[default]
    Any,
}

/// Disk that somebody lends for the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lent {
    /// The line that says so, from 1.
    pub line: usize,
    /// The depot's name, or where it is reached.
    pub name: String,
    /// How much of it may be used.
    pub space: Bytes,
    /// When; always where nothing is said.
    pub hours: Windows,
    /// It is left alone while its load is this or more, in thousandths.
    pub load_max_permille: Option<u32>,
}

/// The marks of others. Behind our own they mean the same: Slurm hands on lines that begin with ours alone.
const OTHERS: [&str; 6] = [
    "BB_LUA",
    "DW",
    "Stageout",
    "InterNode",
    "CollabAcct",
    "Deadline",
];

/// What one directive says.
enum Said {
    StageIn(StageIn),
    StageOut(StageOut),
    Depot(Lent),
    /// Of everything that is staged out and names none itself.
    Deadline(Deadline),
    /// Somebody else's business.
    Nothing,
}

/// Reads the directives of a script, wherever in it they stand.
///
/// # Errors
/// All that is wrong with them, in order, twenty at most.
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

/// What Slurm keeps from its burst buffer plug-in. Where a `#POSTHASTE` line has one of Slurm's symbols (`%j`), Slurm fills it in
/// and hands on these lines alone: what others say of the same job would be lost without a word.
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

/// What a line says, where it is one of ours.
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

/// The word after the sign of a comment, and what follows it.
fn mark_of(text: &str) -> Option<(&str, &str)> {
    let text = text.strip_prefix('#')?;
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    Some(text.split_at(end))
}

#[cfg(test)]
mod tests;
