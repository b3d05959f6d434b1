//! `posthaste demo`: the whole way of a dataset on one machine, with a depot that dies.
//!
//! Nothing is simulated: the service and the relays are processes of their own, and the dead relay
//! is killed with SIGKILL. The delivered tree is compared with the original byte by byte.

mod compare;
mod stage;
mod tree;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::Args;
use posthaste_api as api;
use posthaste_endpoint::gateway::Gateways;
use posthaste_engine::pull::PullOptions;
use posthaste_types::Bytes;
use serde::Serialize;

use crate::{
    failure::{Exit, Failure, Outcome},
    keys::IdentityArguments,
    moment, output, pull,
    screen::{self, Line, Screen, Style},
    watch::{self, Follower},
};
use stage::Stage;

/// Interval between two frames.
const FRAME_EVERY: Duration = Duration::from_millis(250);
/// Erasure code: three of four depots hold each chunk, and any one may be lost.
const CODE: &str = "2+1";
/// Longest wait after the deadline before the demo gives up.
const PATIENCE: Duration = Duration::from_secs(240);

/// Shows a whole stage-out on this machine: four relays, one of which is killed half way
///
/// Copies DIR to a scratch folder, submits a stage-out with a deadline, kills a relay with SIGKILL
/// half way, waits until scratch is released, pulls to a home folder with the relay still dead,
/// and compares every byte, mode and time. Exits with 0 only if all of it held.
///
/// Example:
///   posthaste demo ~/results --json
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct DemoArguments {
    /// The tree to move [default: some 300 MB of a real tree of this machine]
    directory: Option<PathBuf>,
    /// Print the summary as one JSON object on standard output
    #[arg(long)]
    json: bool,
    /// The deadline
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = moment::parse_seconds)]
    deadline: u64,
    /// Keep the folders of the demo, and say where they are
    #[arg(long)]
    keep: bool,
    /// Draw the last frame as an SVG picture
    #[arg(long, value_name = "FILE", hide = true)]
    picture: Option<PathBuf>,
}

/// Result of the demo.
#[derive(Debug, Serialize)]
struct Summary {
    bytes: u64,
    files: u64,
    deadline_s: u64,
    safe_after_s: Option<f64>,
    deadline_met: bool,
    depots_lost: u32,
    repaired_chunks: u32,
    rebuilt_chunks: u64,
    source_released: bool,
    verified: bool,
    events: Vec<api::Event>,
}

/// Runs the demo.
///
/// # Errors
/// Fails if something can't even be started.
pub async fn run(arguments: DemoArguments) -> Outcome {
    let mut interrupted = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt())
        .map_err(anyhow::Error::from)?;
    tokio::select! {
        outcome = play(&arguments) => outcome,
        _ = interrupted.recv() => Err(Failure::new(Exit::Other, "the demo was interrupted")),
    }
}

async fn play(arguments: &DemoArguments) -> Outcome {
    let tree = tree::choose(arguments.directory.as_deref())?;
    let mut stage = Stage::set_up(arguments.keep)?;
    say(&format!(
        "copying {} in {} files from {} to scratch",
        Bytes::new(tree.bytes()),
        tree.files(),
        tree.root().display()
    ));
    let scratch = stage.scratch();
    tree.copy_to(&scratch)?;
    say("starting four relays and the service");
    stage.start(Bytes::new(tree.bytes())).await?;
    let mut screen = Screen::new(true);
    let (request, events) = offload(arguments, &mut stage, &scratch, &mut screen).await?;
    let released = request.state == api::RequestState::Released && !scratch.exists();
    say(&format!(
        "pulling to home, {} still dead",
        stage.dead().unwrap_or("no relay")
    ));
    let home = stage.home();
    let report = pull::fetch(
        stage.service(),
        &request.id,
        (&home, &IdentityArguments::default()),
        &Gateways::default(),
        &PullOptions::default(),
        Screen::new(true),
    )
    .await?;
    say("comparing every byte, mode and time");
    let differences = compare::differences(&tree, &home);
    for difference in differences.iter().take(10) {
        say(&format!("DIFFERENT: {difference}"));
    }
    let safe_after_s = request.safe_after_s;
    #[expect(clippy::cast_precision_loss, reason = "a deadline in seconds is small")]
    let deadline_s = arguments.deadline as f64;
    let summary = Summary {
        bytes: request.bytes,
        files: tree.files(),
        deadline_s: arguments.deadline,
        safe_after_s,
        deadline_met: safe_after_s.is_some_and(|after| after <= deadline_s),
        depots_lost: u32::from(stage.dead().is_some()),
        repaired_chunks: request.chunks_repaired,
        rebuilt_chunks: report.rebuilt_chunks,
        source_released: released,
        verified: differences.is_empty(),
        events,
    };
    stage.tear_down().await;
    finish(arguments.json, &summary)
}

fn say(text: &str) {
    crate::output::note!("demo: {text}");
}

/// Submits, follows, kills a relay half way, and waits until scratch is released.
async fn offload(
    arguments: &DemoArguments,
    stage: &mut Stage,
    scratch: &std::path::Path,
    screen: &mut Screen,
) -> Result<(api::Request, Vec<api::Event>), Failure> {
    let deadline = jiff::Timestamp::now()
        + jiff::SignedDuration::from_secs(i64::try_from(arguments.deadline).unwrap_or(i64::MAX));
    let new = api::NewRequest {
        purge_at: None,
        deliver_by: None,
        source: scratch.display().to_string(),
        only: Vec::new(),
        include: Vec::new(),
        exclude: Vec::new(),
        to: vec!["home".into()],
        profile: None,
        deadline: Some(deadline.to_string()),
        via: stage.depots(),
        code: CODE.into(),
        encrypt_for: Vec::new(),
        release: api::Release::WhenSafe,
        best_effort: false,
        keep_s: Some(86400),
        submission_id: None,
        optimizer: None,
        wishes: api::Wishes::default(),
    };
    let submitted: api::Request = stage.service().post("/v1/requests", &new).await?;
    let mut follower = Follower::new(stage.service(), &submitted.id).await?;
    let mut events = Vec::new();
    let give_up =
        deadline + jiff::SignedDuration::try_from(PATIENCE).unwrap_or(jiff::SignedDuration::ZERO);
    loop {
        let request = follower.look(stage.service()).await?;
        let fresh = follower.take_unsaid();
        if !screen.is_live() {
            fresh
                .iter()
                .for_each(|event| say(&watch::event_text(event)));
        }
        events.extend(fresh);
        if stage.dead().is_none() && is_half_way(&request) {
            stage.kill_busiest(&request)?;
        }
        let frame = watch::frame(&request, follower.recent());
        screen.draw(&frame);
        if watch::is_settled(&request) {
            draw_picture(arguments, &frame)?;
            return Ok((request, events));
        }
        if jiff::Timestamp::now() > give_up {
            return Err(Failure::new(
                Exit::TimeLimit,
                format!(
                    "{} is still {} long after its deadline",
                    request.id, request.state
                ),
            ));
        }
        tokio::time::sleep(FRAME_EVERY).await;
    }
}

/// Returns whether half of all fragments are stored.
fn is_half_way(request: &api::Request) -> bool {
    let stored: u64 = request.shares.iter().map(|share| share.stored_bytes).sum();
    request.bytes > 0 && stored * 4 >= request.bytes * 3
}

fn draw_picture(arguments: &DemoArguments, frame: &[Line]) -> Result<(), Failure> {
    let Some(path) = &arguments.picture else {
        return Ok(());
    };
    let mut lines = vec![Line::new("$ cargo xtask demo", Style::Dim), Line::default()];
    lines.extend_from_slice(frame);
    std::fs::write(path, screen::to_svg(&lines)).map_err(|cause| {
        Failure::new(
            Exit::Other,
            format!("can't write {}: {cause}", path.display()),
        )
    })
}

fn finish(json: bool, summary: &Summary) -> Outcome {
    let held = summary.deadline_met
        && summary.verified
        && summary.source_released
        && summary.depots_lost == 1;
    if json {
        output::json(summary);
    } else {
        let yes = |held: bool| if held { "yes" } else { "NO" };
        output::line(&format!(
            "{} in {} files: safe after {} (deadline {} s), {} depot lost, {} chunks made safe again, {} rebuilt by the pull",
            Bytes::new(summary.bytes),
            summary.files,
            summary
                .safe_after_s
                .map_or_else(|| "never".to_owned(), moment::show_seconds),
            summary.deadline_s,
            summary.depots_lost,
            summary.repaired_chunks,
            summary.rebuilt_chunks
        ));
        output::line(&format!(
            "deadline met: {}   scratch released: {}   every byte, mode and time verified: {}",
            yes(summary.deadline_met),
            yes(summary.source_released),
            yes(summary.verified)
        ));
    }
    if held {
        return Ok(ExitCode::SUCCESS);
    }
    Err(Failure::new(
        Exit::Other,
        "the demo did not hold what it promises (see above)",
    ))
}
