//! `posthaste offload-many`: submits many stage-outs in one call.

use std::{
    io::{self, IsTerminal},
    process::ExitCode,
};

use bytes::{Bytes, BytesMut};
use clap::Args;
use futures_util::{Stream, stream};
use posthaste_api as api;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::{
    client::{ServiceArguments, ServiceClient},
    failure::{Exit, Failure, Outcome},
    input,
    ls::progress::{LOOKED_EVERY, QUIET_FOR, draw, grouped},
    output,
};

/// Bytes read at once.
const BLOCK_BYTES: usize = 64 << 10;

/// Submits many stage-outs at once: each line of FILE is one, in JSON
///
/// A line has what `POST /v1/requests` takes: source, to, via, code and deadline, with paths absolute and moments like
/// 2026-11-20T18:00:00Z. They are taken while they are read, 100,000 at most, and a bad line does not keep the others: it is told, and the exit
/// code is 6. Give each a submission_id: where the connection breaks, send FILE again, and nothing is taken twice.
///
/// Examples:
///   posthaste offload-many runs.jsonl
///   jq -c '.runs[] | {source, to: "home", via: ["a", "b"], code: "1+1", deadline, submission_id: .name}' runs.json |
///     posthaste offload-many - --json
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct ManyArguments {
    /// The lines; - for standard input
    #[arg(value_name = "FILE")]
    file: String,
    /// Print the answer to each line as a line of JSON: line, and id or problem
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    service: ServiceArguments,
}

/// Number of answered lines, by result.
#[derive(Debug, Default)]
struct Tally {
    taken: u64,
    known: u64,
    refused: u64,
}

/// Runs the command.
///
/// # Errors
/// Returns [`Exit::LessSerious`] if a line was refused; otherwise fails if the file can't be read
/// or the service can't be reached.
pub async fn run(arguments: ManyArguments) -> Outcome {
    let service = ServiceClient::open(&arguments.service)?;
    let lines = blocks(input::open(&arguments.file).await?);
    let mut answers = service.post_lines("/v1/requests/bulk", lines).await?;
    let mut tally = Tally::default();
    let is_shown = io::stderr().is_terminal() && !(arguments.json && io::stdout().is_terminal());
    let mut tick = tokio::time::interval_at(tokio::time::Instant::now() + QUIET_FOR, LOOKED_EVERY);
    let mut is_drawn = false;
    let ended = loop {
        let answer = tokio::select! {
            answer = answers.next() => answer,
            _ = tick.tick(), if is_shown => {
                is_drawn = true;
                draw(&tally.told());
                continue;
            }
        };
        match answer {
            Ok(Some(answer)) => {
                if std::mem::take(&mut is_drawn) {
                    draw("");
                }
                tally.take(&answer);
                say(&answer, arguments.json);
            }
            Ok(None) => break Ok(()),
            Err(failure) => break Err(failure),
        }
    };
    if is_drawn {
        draw("");
    }
    if !arguments.json {
        output::line(&tally.told());
    }
    ended?;
    match tally.refused {
        0 => Ok(ExitCode::SUCCESS),
        refused => {
            let all = grouped(tally.taken + refused);
            let refused = grouped(refused);
            Err(Failure::new(
                Exit::LessSerious,
                format!("{refused} of {all} lines were refused"),
            ))
        }
    }
}

/// Reads the input block by block.
fn blocks(
    from: Box<dyn AsyncRead + Send + Unpin>,
) -> impl Stream<Item = io::Result<Bytes>> + Send + 'static {
    stream::try_unfold(from, |mut from| async {
        let mut block = BytesMut::with_capacity(BLOCK_BYTES);
        let read = from.read_buf(&mut block).await?;
        Ok((read > 0).then(|| (block.freeze(), from)))
    })
}

fn say(answer: &api::LineAnswer, json: bool) {
    if json {
        output::json(answer);
    } else if let Some(problem) = &answer.problem {
        output::complain(&format!("line {}: {}", answer.line, problem.detail));
    }
}

impl Tally {
    fn take(&mut self, answer: &api::LineAnswer) {
        self.taken += u64::from(answer.problem.is_none());
        self.known += u64::from(answer.known);
        self.refused += u64::from(answer.problem.is_some());
    }

    fn told(&self) -> String {
        let known = match self.known {
            0 => String::new(),
            known => format!(", {} of them before", grouped(known)),
        };
        let (taken, refused) = (grouped(self.taken), grouped(self.refused));
        let noun = if self.taken == 1 {
            "request"
        } else {
            "requests"
        };
        format!("{taken} {noun} taken{known}, {refused} refused")
    }
}
