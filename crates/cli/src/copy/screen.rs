//! Screen of a running copy: lines for events, below them the progress block people know from
//! rclone.

use std::{
    fmt::Write as _,
    io::{self, IsTerminal, Write},
    sync::{Arc, Mutex, PoisonError, Weak},
    time::Duration,
};

use posthaste_endpoint::{Error, peer::Note};
use posthaste_engine::copy::{Figures, Notice, Progress};
use posthaste_types::{ByteRate, Bytes};

use super::CopyArguments;
use crate::output;

/// Interval between two drawings of the block.
const REDRAWN_EVERY: Duration = Duration::from_millis(500);

/// Interval between two JSON lines.
const JSON_EVERY: Duration = Duration::from_millis(100);

/// Current files shown at once, at most.
const FILES_SHOWN_MAX: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    /// Only lines.
    Plain,
    /// Block, drawn over itself.
    Terminal,
    /// Block, repeatedly printed below itself.
    Log,
    /// JSON objects, one a line.
    Json,
}

/// Standard error, shared by lines and block.
#[derive(Debug)]
pub(super) struct Screen {
    style: Style,
    verbose: bool,
    dry_run: bool,
    progress: Arc<Progress>,
    drawn_lines: Mutex<usize>,
}

/// Current screen: a copy that continues with another protocol gets a new one.
#[derive(Default)]
pub(super) struct CurrentScreen {
    screen: Mutex<Option<Weak<Screen>>>,
}

impl CurrentScreen {
    pub(super) fn set(&self, screen: &Arc<Screen>) {
        let mut current = self.screen.lock().unwrap_or_else(PoisonError::into_inner);
        *current = Some(Arc::downgrade(screen));
    }

    pub(super) fn note(&self, note: Note<'_>) {
        let current = self.screen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(screen) = current.as_ref().and_then(Weak::upgrade) {
            screen.note(note);
        }
    }
}

impl Screen {
    pub(super) fn new(arguments: &CopyArguments, progress: Arc<Progress>) -> Arc<Self> {
        let is_terminal = io::stderr().is_terminal();
        let style = if arguments.json {
            Style::Json
        } else if arguments.quiet || arguments.dry_run {
            Style::Plain
        } else if is_terminal {
            Style::Terminal
        } else if arguments.progress {
            Style::Log
        } else {
            Style::Plain
        };
        Arc::new(Self {
            style,
            verbose: arguments.verbose,
            dry_run: arguments.dry_run,
            progress,
            drawn_lines: Mutex::new(0),
        })
    }

    /// Draws until dropped.
    pub(super) async fn draw(&self) {
        let every = match self.style {
            Style::Json => JSON_EVERY,
            Style::Plain | Style::Terminal | Style::Log => REDRAWN_EVERY,
        };
        let mut tick = tokio::time::interval(every);
        tick.tick().await;
        loop {
            tick.tick().await;
            self.draw_once();
        }
    }

    fn draw_once(&self) {
        match self.style {
            Style::Plain => {}
            Style::Json => self.line(&super::summary::stats(&self.progress.figures()).to_string()),
            Style::Terminal | Style::Log => {
                let block = self.block();
                let mut drawn = self
                    .drawn_lines
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner);
                let mut text = self.erasure(*drawn);
                text.push_str(&block);
                *drawn = block.lines().count();
                // Nobody can be told that standard error is gone.
                let _ = io::stderr().write_all(text.as_bytes());
            }
        }
    }

    /// Draws the final state, below which the shell continues.
    pub(super) fn close(&self) {
        if self.style != Style::Json {
            self.draw_once();
        }
        *self
            .drawn_lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = 0;
    }

    /// Writes one line above the block.
    pub(super) fn line(&self, text: &str) {
        let mut drawn = self
            .drawn_lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let text = if self.style == Style::Json {
            text.to_owned()
        } else {
            output::plain(text)
        };
        let text = format!("{}{text}\n", self.erasure(*drawn));
        *drawn = 0;
        let _ = io::stderr().write_all(text.as_bytes());
    }

    pub(super) fn notice(&self, notice: &Notice<'_>) {
        match notice {
            Notice::Failed(error) if self.style == Style::Json => {
                self.line(&error_of(error).to_string());
            }
            Notice::Failed(error) => self.line(&format!("posthaste: {error}")),
            Notice::Copied(path) if self.verbose => self.line(&format!("copied {}", safe(path))),
            Notice::Unchanged(path) if self.verbose => {
                self.line(&format!("unchanged {}", safe(path)));
            }
            Notice::LeftOut(path) if self.verbose => {
                self.line(&format!("left out {}", safe(path)));
            }
            Notice::Parking(error, place) if self.style == Style::Json => {
                let mut parking = error_of(error);
                parking["parkingAt"] = place.to_owned().into();
                self.line(&parking.to_string());
            }
            Notice::Parking(error, place) => {
                self.line(&format!(
                    "posthaste: {error}; parking the rest at {}",
                    safe(place)
                ));
            }
            Notice::Tuned(decision) if self.verbose => {
                self.line(&format!("using {}: {}", decision.setting, decision.reason));
            }
            Notice::WouldCopy(path) if self.dry_run => {
                self.line(&format!("would copy {}", safe(path)));
            }
            Notice::Made
            | Notice::Stands(_)
            | Notice::Copied(_)
            | Notice::Unchanged(_)
            | Notice::LeftOut(_)
            | Notice::Tuned(_)
            | Notice::WouldCopy(_) => {}
        }
    }

    /// Writes an endpoint's notice.
    pub(super) fn note(&self, note: Note<'_>) {
        match note {
            Note::Warning(text) if self.style == Style::Json => {
                self.line(&serde_json::json!({"warning": text}).to_string());
            }
            Note::Warning(text) => self.line(&format!("posthaste: {}", safe(text))),
            Note::Detail(text) if self.verbose => self.line(&safe(text)),
            Note::Detail(_) => {}
        }
    }

    fn erasure(&self, lines: usize) -> String {
        if self.style == Style::Terminal && lines > 0 {
            format!("\x1b[{lines}F\x1b[J")
        } else {
            String::new()
        }
    }

    fn block(&self) -> String {
        let figures = self.progress.figures();
        let mut text = totals(&figures);
        let current = self.progress.current();
        if !current.is_empty() {
            text.push_str("Transferring:\n");
        }
        for file in current.iter().take(FILES_SHOWN_MAX) {
            let percent = percent(file.done(), file.size);
            let size = Bytes::new(file.size);
            let _ = writeln!(
                text,
                " * {}: {percent} / {size}",
                shortened(&safe(&file.name))
            );
        }
        text
    }
}

fn totals(figures: &Figures) -> String {
    let done = figures.bytes + figures.resumed_bytes;
    let rate = ByteRate::over(Bytes::new(figures.bytes), figures.elapsed);
    let left = Bytes::new(figures.total_bytes.saturating_sub(done));
    let eta = if left == Bytes::ZERO {
        "0s".to_owned()
    } else if rate == ByteRate::ZERO {
        "-".to_owned()
    } else {
        span(rate.time_for(left))
    };
    let mut text = format!(
        "Transferred:   {} / {}, {}, {rate}, ETA {eta}\n",
        Bytes::new(done),
        Bytes::new(figures.total_bytes),
        percent(done, figures.total_bytes),
    );
    let _ = writeln!(text, "Errors:        {}", figures.errors);
    let _ = writeln!(text, "Checks:        {}", figures.unchanged);
    let _ = writeln!(
        text,
        "Transferred:   {} / {}, {}",
        figures.files,
        figures.total_files,
        percent(figures.files, figures.total_files)
    );
    let _ = writeln!(text, "Elapsed time:  {}", span(figures.elapsed));
    text
}

fn percent(done: u64, total: u64) -> String {
    if total == 0 {
        return "-".to_owned();
    }
    format!("{}%", u128::from(done) * 100 / u128::from(total))
}

fn span(span: Duration) -> String {
    let secs = span.as_secs();
    match (secs / 86400, secs / 3600 % 24, secs / 60 % 60, secs % 60) {
        (0, 0, 0, _) => format!("{:.1}s", span.as_secs_f64()),
        (0, 0, m, s) => format!("{m}m{s}s"),
        (0, h, m, _) => format!("{h}h{m}m"),
        (d, h, ..) => format!("{d}d{h}h"),
    }
}

/// Formats an error for programs.
fn error_of(error: &Error) -> serde_json::Value {
    serde_json::json!({"error": error.to_string(), "code": error.code()})
}

/// Replaces control characters in names, which must not reach a terminal.
fn safe(text: &str) -> String {
    text.chars()
        .map(|c| {
            if posthaste_types::is_obeyed(c) {
                '\u{fffd}'
            } else {
                c
            }
        })
        .collect()
}

/// Returns the end of a long name, its most telling section.
fn shortened(name: &str) -> String {
    const CHARS_MAX: usize = 56;
    let count = name.chars().count();
    if count <= CHARS_MAX {
        return name.to_owned();
    }
    let end: String = name.chars().skip(count - CHARS_MAX + 1).collect();
    format!("…{end}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_block_reads_as_rclones() {
        let figures = Figures {
            bytes: 1 << 29,
            total_bytes: 1 << 30,
            files: 1,
            total_files: 2,
            elapsed: Duration::from_secs(1),
            ..Figures::default()
        };
        let text = totals(&figures);
        assert!(
            text.starts_with("Transferred:   512.0 MiB / 1.0 GiB, 50%, 512.0 MiB/s, ETA 1.0s\n"),
            "{text}"
        );
        assert!(text.contains("\nTransferred:   1 / 2, 50%\n"), "{text}");
    }

    #[test]
    fn names_can_not_control_the_terminal() {
        assert!(!safe("a\x1b[2Jb\n").chars().any(char::is_control));
    }
}
