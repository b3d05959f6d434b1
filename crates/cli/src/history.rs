//! `posthaste history`: transferred bytes over time.

use std::process::ExitCode;

use clap::Args;
use jiff::Timestamp;
use posthaste_api as api;
use posthaste_endpoint::encode;
use posthaste_types::{ByteRate, Bytes};

use crate::{
    client::{ServiceArguments, ServiceClient},
    failure::Outcome,
    moment::{parse_seconds, show_seconds},
    output,
};

/// Bars from the step with the fewest bytes to the one with the most.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Shows what was moved on each path, and when
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  posthaste history                 the last six hours, every path
  posthaste history ash --since 7d  a week of what went to the depot ash
  posthaste history --since 30d --step 1d --json

To depots counts what they acknowledged, from sources what came; what movers moved too. Minutes are known of a day, hours of a month, days
of two years. MEAN is over all of the time, PEAK that of the step with the most; each bar is a step, and of no bar nothing was moved.")]
pub struct HistoryArguments {
    /// The depot or the source, by its name as it is shown without this [default: all of them]
    #[arg(value_name = "PATH")]
    path: Option<String>,
    /// Time to look back, like 6h or 30d
    #[arg(long, value_name = "SPAN", default_value = "6h", value_parser = parse_seconds)]
    since: u64,
    /// Length of each step, like 5m [default: a sixtieth of that]
    #[arg(long, value_name = "SPAN", value_parser = parse_seconds)]
    step: Option<u64>,
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
pub async fn run(arguments: HistoryArguments) -> Outcome {
    let service = ServiceClient::open(&arguments.service)?;
    let now = Timestamp::now();
    let since = i64::try_from(arguments.since).unwrap_or(i64::MAX);
    let from = Timestamp::from_second(now.as_second().saturating_sub(since).max(0));
    let from = from.map_err(anyhow::Error::from)?;
    let mut asked = format!("/v1/history?from={from}&to={now}");
    if let Some(step) = arguments.step {
        asked.push_str(&format!("&step={step}"));
    }
    if let Some(path) = &arguments.path {
        asked.push_str(&format!("&path={}", encode(path.as_bytes(), false)));
    }
    let history: api::History = service.get(&asked).await?;
    if arguments.json {
        output::json(&history);
        return Ok(ExitCode::SUCCESS);
    }
    output::table(&table(&history));
    let step = show_seconds(seconds(history.step_s));
    output::line(&format!("{} to {}, {step} each", history.from, history.to));
    Ok(ExitCode::SUCCESS)
}

#[expect(clippy::cast_precision_loss, reason = "a length of time for people")]
fn seconds(count: u64) -> f64 {
    count as f64
}

fn table(history: &api::History) -> Vec<Vec<String>> {
    let heading = ["PATH", "MOVED", "MEAN", "PEAK", "WHEN"].map(str::to_owned);
    let mut rows = vec![heading.to_vec()];
    let paths = history.paths.iter();
    rows.extend(paths.map(|on| row(&on.path, &on.bytes, history.step_s)));
    if history.paths.len() != 1 {
        rows.push(row("total", &history.total, history.step_s));
    }
    rows
}

fn row(name: &str, bytes: &[u64], step_s: u64) -> Vec<String> {
    let rate = |bytes: u64, steps: u64| {
        let span = step_s.saturating_mul(steps).max(1);
        ByteRate::new(bytes / span).to_string()
    };
    let moved: u64 = bytes.iter().sum();
    let most = bytes.iter().copied().max().unwrap_or(0);
    vec![
        name.to_owned(),
        Bytes::new(moved).to_string(),
        rate(moved, bytes.len() as u64),
        rate(most, 1),
        bars(bytes, most),
    ]
}

/// Draws a bar for each step; a space for a step without transfers.
fn bars(bytes: &[u64], most: u64) -> String {
    let bar = |bytes: &u64| match bytes {
        0 => ' ',
        bytes => {
            let highest = BARS.len() as u128 - 1;
            let height = u128::from(*bytes) * highest / u128::from(most.max(1));
            BARS[usize::try_from(height).unwrap_or(0)]
        }
    };
    bytes.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_how_much_how_fast_and_when() {
        let row = row("ash", &[0, 60 << 20, 120 << 20, 0], 60);
        assert_eq!(
            row,
            ["ash", "180.0 MiB", "768.0 KiB/s", "2.0 MiB/s", " ▄█ "]
        );
    }

    #[test]
    fn nothing_at_all_is_no_bar() {
        assert_eq!(bars(&[0, 0], 0), "  ");
        assert_eq!(bars(&[1, u64::MAX], u64::MAX), "▁█");
    }
}
