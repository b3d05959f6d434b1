//! `posthaste queue`: the jobs in the batch system's queue, and their forecast starts.

use std::process::ExitCode;

use clap::Args;
use posthaste_api as api;

use crate::{
    client::{ServiceArguments, ServiceClient},
    failure::Outcome,
    moment::show_seconds,
    output,
};

/// Shows when the jobs of the queue are forecast to start, and how good such forecasts were
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  posthaste queue          the jobs that wait, first in priority first
  posthaste queue --json   the same for programs

One in ten jobs of which the same was said starts before p10, nine in ten before p90. BY: `outcomes` is what became of
such forecasts before, `simulated` the queue as it stands, while too few are known. BOUND: 95 in 100 jobs of its class start
before, by what others waited. SCHEDULER is what the batch system itself thinks. WITHIN: how many JOBS started between p10
and p90; ERROR: how far p50 was off on average. The service looks at a queue when it was started with --queue. Whose token does not let them operate it see
their own jobs alone.")]
pub struct QueueArguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    service: ServiceArguments,
}

/// Runs the command.
///
/// # Errors
/// Returns the service's refusal, or fails if it can't be reached.
pub async fn run(arguments: QueueArguments) -> Outcome {
    let service = ServiceClient::open(&arguments.service)?;
    let queue: api::Queue = service.get("/v1/queue").await?;
    if arguments.json {
        output::json(&queue);
        return Ok(ExitCode::SUCCESS);
    }
    output::table(&jobs(&queue));
    if !queue.scores.is_empty() {
        output::line("");
        output::table(&scores(&queue));
    }
    for remark in remarks(&queue) {
        output::line(&remark);
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns remarks beside the tables.
fn remarks(queue: &api::Queue) -> Vec<String> {
    let mut remarks = Vec::new();
    let before = match &queue.looked {
        Some(looked) => format!("what is shown is of {looked}"),
        None => "nothing is known yet".to_owned(),
    };
    match &queue.trouble {
        Some(trouble) => remarks.push(format!("the last look failed, {before}: {trouble}")),
        None if queue.looked.is_none() => {
            remarks.push("the queue was not looked at yet".to_owned())
        }
        None => {}
    }
    if queue.jobs_of_others > 0 {
        let others = queue.jobs_of_others;
        let who = "a token of the scope operate shows all";
        remarks.push(format!("{others} of others not shown: {who}"));
    }
    if queue.left_out > 0 {
        let left_out = queue.left_out;
        remarks.push(format!(
            "{left_out} left out: they made no sense or were too many"
        ));
    }
    if let Some(trouble) = &queue.history_trouble {
        remarks.push(format!("the accounting taught nothing: {trouble}"));
    }
    remarks
}

fn jobs(queue: &api::Queue) -> Vec<Vec<String>> {
    let heading = [
        "JOB",
        "USER",
        "PROCS",
        "p10",
        "p50",
        "p90",
        "BY",
        "BOUND",
        "SCHEDULER",
    ];
    let perhaps = |at: &Option<String>| at.clone().unwrap_or_else(|| "-".into());
    let rows = queue.jobs.iter().map(|one| {
        vec![
            one.job.clone(),
            one.user.clone(),
            one.procs.to_string(),
            one.start_p10.clone(),
            one.start_p50.clone(),
            one.start_p90.clone(),
            one.forecaster.clone(),
            perhaps(&one.start_bound),
            perhaps(&one.start_scheduler),
        ]
    });
    std::iter::once(heading.map(str::to_owned).to_vec())
        .chain(rows)
        .collect()
}

fn scores(queue: &api::Queue) -> Vec<Vec<String>> {
    let heading = ["FORECASTER", "JOBS", "WITHIN", "ERROR"];
    let rows = queue.scores.iter().map(|one| {
        vec![
            one.forecaster.clone(),
            one.scored.to_string(),
            one.within.to_string(),
            one.mean_error_s.map_or_else(|| "-".into(), seconds),
        ]
    });
    std::iter::once(heading.map(str::to_owned).to_vec())
        .chain(rows)
        .collect()
}

fn seconds(seconds: u64) -> String {
    show_seconds(f64::from(u32::try_from(seconds).unwrap_or(u32::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_failed_says_of_when_what_is_shown_is() {
        let mut queue = api::Queue {
            scheduler: "slurm".into(),
            looked: None,
            trouble: None,
            procs: 4,
            jobs: Vec::new(),
            jobs_of_others: 0,
            left_out: 0,
            scores: Vec::new(),
            history_jobs: 0,
            history_trouble: None,
        };
        assert_eq!(remarks(&queue), ["the queue was not looked at yet"]);
        queue.looked = Some("2026-11-24T10:00:00Z".into());
        assert!(remarks(&queue).is_empty());
        queue.trouble = Some("no controller".into());
        let said = "the last look failed, what is shown is of 2026-11-24T10:00:00Z: no controller";
        assert_eq!(remarks(&queue), [said]);
        (queue.trouble, queue.jobs_of_others, queue.left_out) = (None, 2, 1);
        let said = [
            "2 of others not shown: a token of the scope operate shows all",
            "1 left out: they made no sense or were too many",
        ];
        assert_eq!(remarks(&queue), said);
    }
}
