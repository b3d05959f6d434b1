//! Logs of long-running commands: lines on standard error, as text or as JSON.

use std::{fmt, io, sync::OnceLock};

use clap::{Args, ValueEnum};
use tracing::{
    Event, Level, Metadata, Subscriber,
    field::{Field, Visit},
    level_filters::LevelFilter,
    subscriber::Interest,
};
use tracing_subscriber::{
    Layer, Registry,
    filter::{Targets, filter_fn},
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    layer::{Context, Filter, SubscriberExt},
    registry::LookupSpan,
    reload,
};

use posthaste_trace::TARGET;

use crate::{failure::Failure, output, traces::Traces};

/// Prefix of our log targets. Libraries may log what they send, so their lines are never shown.
const OURS: &str = "posthaste";
/// Fields that name a line's subject: they come first.
const SUBJECTS: [&str; 9] = [
    "request",
    "reservation",
    "job",
    "alarm",
    "circuit",
    "plan",
    "mover",
    "depot",
    "path",
];
/// Targets whose names say by themselves what they are.
const SPEAKING: [&str; 3] = ["request", "reservation", "job"];

/// Form of lines.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    Text,
    /// An object each
    Json,
}

/// Options for what is logged, and how.
#[derive(Debug, Clone, Default, Args)]
pub struct LogArguments {
    /// Form of lines on standard error: text, or json, an object each with timestamp, level, target, message and what it is about
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "text",
        hide_possible_values = true
    )]
    log_format: Format,
    /// Level of what is logged: error, warn, info, debug or trace, or that of modules, as in info,posthaste_service::hands=debug
    #[arg(long, value_name = "LEVEL", env = "POSTHASTE_LOG", default_value = "info", value_parser = levels)]
    log_level: Levels,
}

/// Filter of the log lines. It lasts as long as the process, which has one log.
static HEARD: OnceLock<reload::Handle<Heard, Registry>> = OnceLock::new();

/// Least level that is logged, by module.
#[derive(Debug, Clone)]
struct Levels(Targets);

impl Default for Levels {
    fn default() -> Self {
        Self(Targets::new().with_default(LevelFilter::INFO))
    }
}

fn levels(text: &str) -> Result<Levels, String> {
    // A word alone would count as a module with every level.
    let is_level = |word: &str| word.contains('=') || word.parse::<LevelFilter>().is_ok();
    let read: Option<Targets> = text.parse().ok();
    let read = read.filter(|_| text.split(',').all(is_level));
    read.map(Levels).ok_or_else(|| {
        format!("`{text}` is no level (error, warn, info, debug, trace, off), nor several as MODULE=LEVEL with commas between")
    })
}

/// Standard error, for lines of JSON.
struct JsonLines;

impl io::Write for JsonLines {
    /// Writes each line whole.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = output::plain_json(&String::from_utf8_lossy(line));
        io::stderr().lock().write_all(text.as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl LogArguments {
    /// Starts logging, and records spans if traces are sent.
    ///
    /// # Errors
    /// Fails if it was called before.
    pub fn begin(&self, traces: Option<&Traces>) -> Result<(), Failure> {
        let (said, heard) = reload::Layer::new(Heard(self.log_level.0.clone()));
        let lines = tracing_subscriber::fmt::layer()
            .with_writer(std::io::stderr)
            .log_internal_errors(false);
        let lines = match self.log_format {
            Format::Text => lines.event_format(Text).boxed(),
            Format::Json => {
                let json = lines.json().flatten_event(true).with_writer(|| JsonLines);
                json.with_current_span(false).with_span_list(false).boxed()
            }
        };
        let all = tracing_subscriber::registry().with(lines.with_filter(said));
        let spans = traces.map(|traces| {
            tracing_opentelemetry::layer()
                .with_tracer(traces.tracer())
                .with_location(false)
                .with_threads(false)
                .with_tracked_inactivity(false)
                .with_level(false)
                .with_target(false)
                .with_filter(filter_fn(|metadata| metadata.target() == TARGET))
        });
        let all = all.with(spans);
        let begun = tracing::subscriber::set_global_default(all);
        begun.map_err(anyhow::Error::from)?;
        // Nobody else came that far.
        let _ = HEARD.set(heard);
        Ok(())
    }

    /// Changes the levels to these from now on; the format stays.
    pub fn go_by(&self) {
        if let Some(heard) = HEARD.get() {
            // It is gone only where nothing is said any more.
            let _ = heard.reload(Heard(self.log_level.0.clone()));
        }
    }

    /// Returns the levels in canonical form.
    pub fn level(&self) -> String {
        self.log_level.0.to_string()
    }

    /// Returns the format of lines, in a word.
    pub fn format(&self) -> String {
        format!("{:?}", self.log_format).to_lowercase()
    }
}

/// Returns whether a module's lines of this level are logged now.
pub fn says(module: &str, level: Level) -> bool {
    let now = HEARD.get();
    let says = now.map(|heard| heard.with_current(|heard| heard.0.would_enable(module, &level)));
    says.and_then(Result::ok).unwrap_or(true)
}

/// Filter of the lines that are logged.
struct Heard(Targets);

impl<S> Filter<S> for Heard {
    fn enabled(&self, metadata: &Metadata<'_>, _context: &Context<'_, S>) -> bool {
        is_said(metadata, &self.0)
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        match is_said(metadata, &self.0) {
            true => Interest::always(),
            false => Interest::never(),
        }
    }
}

fn is_said(metadata: &Metadata<'_>, levels: &Targets) -> bool {
    metadata.is_event()
        && metadata.target().starts_with(OURS)
        && levels.would_enable(metadata.target(), metadata.level())
}

/// Line for people: its subject, its message, and its other fields.
struct Text;

impl<S, N> FormatEvent<S, N> for Text
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut said = Said::default();
        event.record(&mut said);
        let metadata = event.metadata();
        writeln!(writer, "{}", said.line(metadata.level()))
    }
}

/// Fields of an event.
#[derive(Debug, Default)]
struct Said {
    /// Moment, if the mind reported the event.
    at: Option<String>,
    subjects: Vec<String>,
    message: String,
    rest: Vec<String>,
}

impl Said {
    fn line(&self, level: &Level) -> String {
        let Self {
            at, message, rest, ..
        } = self;
        // Fields that the message names are not repeated.
        let subjects = self.subjects.iter();
        let subjects: Vec<&str> = subjects
            .map(String::as_str)
            .filter(|subject| !subject.contains(' ') || !message.contains(subject))
            .collect();
        let mut line = match at {
            Some(at) => {
                let words = [&[at.as_str()], subjects.as_slice()].concat();
                format!("{}: {message}", words.join(" "))
            }
            None => {
                let words = [&[OURS], subjects.as_slice()].concat();
                format!("{}: {message}", words.join(": "))
            }
        };
        // What only those see who asked for more.
        if *level >= Level::DEBUG {
            for word in rest {
                line.push(' ');
                line.push_str(word);
            }
        }
        line
    }

    fn note(&mut self, name: &str, value: &str) {
        // A file name must not split the line.
        let value: String = value
            .chars()
            .flat_map(|letter| {
                let escaped = posthaste_types::is_obeyed(letter).then(|| letter.escape_default());
                let plain = escaped.is_none().then_some(letter);
                escaped.into_iter().flatten().chain(plain)
            })
            .collect();
        match name {
            "message" => self.message = value,
            "at" => self.at = Some(value),
            _ if SPEAKING.contains(&name) => self.subjects.push(value),
            _ if SUBJECTS.contains(&name) => {
                self.subjects.push(match self.at {
                    Some(_) => value,
                    None => format!("{name} {value}"),
                });
            }
            _ => self.rest.push(format!("{name}={value}")),
        }
    }
}

impl Visit for Said {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.note(field.name(), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.note(field.name(), &format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(fields: &[(&str, &str)]) -> Said {
        let mut said = Said::default();
        for (name, value) in fields {
            said.note(name, value);
        }
        said
    }

    #[test]
    fn a_line_begins_with_what_it_is_about() {
        let said = said(&[
            ("message", "can't"),
            ("request", "r-1"),
            ("mover", "elm"),
            ("code", "5"),
        ]);
        assert_eq!(said.line(&Level::INFO), "posthaste: r-1: mover elm: can't");
        assert_eq!(
            said.line(&Level::DEBUG),
            "posthaste: r-1: mover elm: can't code=5"
        );
    }

    #[test]
    fn what_the_message_names_is_not_said_twice() {
        let said = said(&[("mover", "elm"), ("message", "mover elm left")]);
        assert_eq!(said.line(&Level::INFO), "posthaste: mover elm left");
    }

    #[test]
    fn what_the_mind_said_begins_with_its_moment() {
        let said = said(&[
            ("at", "now"),
            ("request", "r-1"),
            ("depot", "ash"),
            ("message", "safe: all"),
        ]);
        assert_eq!(said.line(&Level::INFO), "now r-1 ash: safe: all");
    }

    #[test]
    fn a_line_stays_one() {
        let said = said(&[("message", "a\nb\u{1b}[0mß")]);
        assert_eq!(said.line(&Level::WARN), "posthaste: a\\nb\\u{1b}[0mß");
    }

    #[test]
    fn levels_are_read_by_module() {
        assert!(levels("warn,posthaste_service::hands=debug").is_ok());
        assert!(levels("loud").is_err());
        assert!(levels("posthaste=loud").is_err());
    }
}
