//! Output in a user's own format: `{id:<8} {state} {eta}`.

use std::marker::PhantomData;

use posthaste_api as api;
use posthaste_types::Bytes;

use crate::{answer, failure::Failure, moment};

/// Type that can be shown in a user's format.
pub trait Fields {
    /// Names of the fields, in the order of `--help`.
    const NAMES: &'static [&'static str];

    /// Returns the value of a field, `None` if it is unknown.
    fn value(&self, name: &str) -> Option<String>;
}

/// Fields of a request.
const NAMES: [&str; 22] = [
    "id",
    "state",
    "flag",
    "source",
    "to",
    "owner",
    "project",
    "priority",
    "submitted",
    "deadline",
    "eta",
    "eta_p90",
    "slack",
    "bytes",
    "size",
    "files",
    "chunks",
    "chunks_safe",
    "percent",
    "code",
    "dataset",
    "reason",
];

/// Format of a request or another type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Format<T = api::Request>(Vec<Piece>, PhantomData<fn(&T)>);

/// Reads the value of `--format`, if it depends on other options of its subject.
///
/// # Errors
/// Describes the user's mistake.
pub fn read<T: Fields>(text: &str) -> Result<Format<T>, Failure> {
    text.parse()
        .map_err(|error| Failure::usage(format!("can't read --format '{text}': {error}")))
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Field {
        name: &'static str,
        /// True if it is aligned right.
        is_right: bool,
        /// Least width in characters.
        width: usize,
    },
}

/// Largest width of a field.
const WIDTH_MAX: usize = 1000;

impl<T: Fields> std::str::FromStr for Format<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut letters = text.chars().peekable();
        while let Some(letter) = letters.next() {
            match letter {
                '\\' => plain.push(match letters.next() {
                    Some('t') => '\t',
                    Some('n') => '\n',
                    Some('\\') => '\\',
                    _ => return Err("after a `\\` comes t, n or another one".to_owned()),
                }),
                '{' | '}' if letters.next_if_eq(&letter).is_some() => plain.push(letter),
                '{' => {
                    let mut is_closed = false;
                    let inside = letters.by_ref().take_while(|next| {
                        is_closed = *next == '}';
                        !is_closed
                    });
                    let inside: String = inside.collect();
                    if !is_closed {
                        return Err("a `{` that opens nothing is written `{{`".to_owned());
                    }
                    pieces.push(Piece::Text(std::mem::take(&mut plain)));
                    pieces.push(field(&inside, T::NAMES)?);
                }
                '}' => return Err("a `}` that closes nothing is written `}}`".to_owned()),
                letter => plain.push(letter),
            }
        }
        pieces.push(Piece::Text(plain));
        Ok(Self(pieces, PhantomData))
    }
}

fn field(inside: &str, names: &[&'static str]) -> Result<Piece, String> {
    let (name, form) = inside.split_once(':').unwrap_or((inside, ""));
    let known = names.iter().find(|known| **known == name);
    let name = known.ok_or_else(|| {
        let known = names.join(", ");
        format!("nothing is called `{name}`; there are {known}")
    })?;
    let digits = form.trim_start_matches(['<', '>']);
    let width = if form.is_empty() {
        Some(0)
    } else {
        digits.parse().ok()
    };
    let width = width.filter(|width| *width <= WIDTH_MAX && form.len() <= digits.len() + 1);
    Ok(Piece::Field {
        name,
        is_right: form.starts_with('>'),
        width: width.ok_or_else(|| {
            format!("`{form}` is no width: write {{{name}:<10}} or {{{name}:>10}}")
        })?,
    })
}

impl<T: Fields> Format<T> {
    /// Formats a value. Unknown fields become a dash.
    pub fn show(&self, shown: &T) -> String {
        let pieces = self.0.iter().map(|piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Field {
                name,
                is_right,
                width,
            } => {
                let value = shown.value(name).unwrap_or_else(|| "-".to_owned());
                // Line breaks would split the line.
                let value = value.replace(posthaste_types::is_obeyed, "\u{fffd}");
                match is_right {
                    true => format!("{value:>width$}"),
                    false => format!("{value:<width$}"),
                }
            }
        });
        pieces.collect()
    }
}

impl Fields for api::Request {
    const NAMES: &'static [&'static str] = &NAMES;

    fn value(&self, name: &str) -> Option<String> {
        value(self, name)
    }
}

fn value(request: &api::Request, name: &str) -> Option<String> {
    let finish = request.finish.as_ref();
    match name {
        "id" => Some(request.id.clone()),
        "state" => Some(request.state.to_string()),
        "flag" => answer::flag(request).map(|flag| flag.to_ascii_lowercase().replace(' ', "-")),
        "source" => Some(request.source.clone()),
        "to" => Some(request.to.clone()),
        "owner" => request.wishes.owner.clone(),
        "project" => request.wishes.project.clone(),
        "priority" => request.wishes.priority.clone(),
        "submitted" => Some(request.submitted.clone()),
        "deadline" => Some(request.deadline.clone()),
        "eta" => finish.map(|finish| finish.p50.clone()),
        "eta_p90" => finish.map(|finish| finish.p90.clone()),
        "slack" => request.slack_s.map(moment::show_seconds),
        "bytes" => Some(request.bytes.to_string()),
        "size" => Some(Bytes::new(request.bytes).to_string()),
        "files" => Some(request.files.to_string()),
        "chunks" => Some(request.chunks.to_string()),
        "chunks_safe" => Some(request.chunks_safe.to_string()),
        "percent" => {
            let safe = u64::from(request.chunks_safe) * 100;
            let percent = safe.checked_div(u64::from(request.chunks));
            percent.map(|percent| percent.to_string())
        }
        "code" => Some(request.code.clone()),
        "dataset" => Some(request.dataset.clone()),
        "reason" => request.reason.clone(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<super::Format, String> {
        text.parse()
    }

    #[test]
    fn fields_texts_and_widths_are_read() {
        let format = read("{{{id:>5}}} {state:<8}\\t|").unwrap();
        let field = |name, is_right, width| Piece::Field {
            name,
            is_right,
            width,
        };
        let text = |text: &str| Piece::Text(text.to_owned());
        let wanted = [
            text("{"),
            field("id", true, 5),
            text("} "),
            field("state", false, 8),
            text("\t|"),
        ];
        assert_eq!(format.0, wanted);
    }

    #[test]
    fn what_is_wrong_says_what_there_is() {
        for (text, said) in [
            ("{nothing}", "`nothing`; there are id, state"),
            ("{id:wide}", "no width"),
            ("{id:<<3}", "no width"),
            ("{id:100000}", "no width"),
            ("}", "`}}`"),
            ("\\x", "after a"),
            ("{id", "`{{`"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
