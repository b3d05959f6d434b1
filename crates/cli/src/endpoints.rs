//! `posthaste endpoints`: what each kind of storage can do.

use std::{ffi::OsString, process::ExitCode};

use clap::Args;
use posthaste_endpoint::{Access, BUILT_IN, BuiltIn, Capabilities, Location, posix::DraftRules};
use posthaste_types::Bytes;
use serde_json::{Map, Value, json};

use crate::{failure::Outcome, output};

/// Shows what each kind of storage can do: ranges, server-side copies, checksums, times and so on.
///
/// Without an address: all that is built in, a column each. With an address: what opens it, a
/// plug-in too; nothing is connected to but plug-ins.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  posthaste endpoints                    a table of all, and what its rows mean
  posthaste endpoints s3://bucket        what holds for one address
  posthaste endpoints --json | jq -r '.[] | select(.server_copy).scheme'")]
pub struct EndpointsArguments {
    /// Only what opens this address
    #[arg(value_name = "ADDRESS")]
    address: Option<OsString>,
    /// Print JSON: an array of objects, or the one of the address
    #[arg(long)]
    json: bool,
    /// Profile of ~/.config/posthaste/profiles.toml for the address
    #[arg(long, value_name = "NAME", requires = "address")]
    profile: Option<String>,
}

/// One thing an endpoint can or can't do.
enum Cell {
    Can(bool),
    Count(u64),
    Size(Option<u64>),
    Step(Option<u32>),
    Words(&'static [&'static str]),
    Word(&'static str),
}

impl Cell {
    fn text(&self) -> String {
        match self {
            Self::Can(true) => "yes".to_owned(),
            Self::Can(false) | Self::Size(None) | Self::Step(None) | Self::Words([]) => {
                "-".to_owned()
            }
            Self::Count(count) => count.to_string(),
            Self::Size(Some(bytes)) => Bytes::new(*bytes).to_string(),
            Self::Step(Some(step_ns)) => match step_ns {
                1_000_000_000.. => format!("{} s", step_ns / 1_000_000_000),
                1_000_000.. => format!("{} ms", step_ns / 1_000_000),
                1_000.. => format!("{} us", step_ns / 1_000),
                _ => format!("{step_ns} ns"),
            },
            Self::Words(words) => words.join(" "),
            Self::Word(word) => (*word).to_owned(),
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Can(can) => json!(can),
            Self::Count(count) => json!(count),
            Self::Size(bytes) => json!(bytes),
            Self::Step(step_ns) => json!(step_ns),
            Self::Words(words) => json!(words),
            Self::Word(word) => json!(word),
        }
    }
}

/// A row of the table.
struct Row {
    /// For people.
    name: &'static str,
    /// For programs; ends in its unit.
    key: &'static str,
    legend: &'static str,
    of: fn(&Capabilities) -> Cell,
}

const fn row(
    name: &'static str,
    key: &'static str,
    legend: &'static str,
    of: fn(&Capabilities) -> Cell,
) -> Row {
    Row {
        name,
        key,
        legend,
        of,
    }
}

const ROWS: &[Row] = &[
    row("names", "names", "what names may be made of", |can| {
        Cell::Word(match (can.byte_names, can.ascii_names) {
            (true, _) => "bytes",
            (false, true) => "ASCII",
            (false, false) => "UTF-8",
        })
    }),
    row("lists", "lists", "directories can be listed", |can| {
        Cell::Can(can.lists)
    }),
    row(
        "listing marks",
        "listing_marks",
        "a listing that was interrupted goes on where it was",
        |can| Cell::Can(can.listing_marks),
    ),
    row(
        "ranges",
        "ranges",
        "reading can start anywhere in a file, where the server can; else a file is one stream",
        |can| Cell::Can(can.ranges),
    ),
    row("writes", "writes", "files can be written", |can| {
        Cell::Can(can.writes)
    }),
    row("removes", "removes", "files can be removed", |can| {
        Cell::Can(can.removes)
    }),
    row(
        "any order",
        "segments_in_any_order",
        "segments of one file are written at once and in any order (multipart); else one after the other",
        |can| Cell::Can(can.segments_in_any_order),
    ),
    row(
        "resumes",
        "resumes",
        "a killed copy goes on in the middle of a large file",
        |can| Cell::Can(can.resumes),
    ),
    row(
        "open-ended",
        "open_ended",
        "a large file can be begun before its length is known",
        |can| Cell::Can(can.open_ended),
    ),
    row(
        "times",
        "mtime_step_ns",
        "modification times are kept, in steps of this; -: a file's time is when it was stored",
        |can| Cell::Step(can.mtime_step_ns),
    ),
    row(
        "times listed",
        "mtimes_listed",
        "a listing tells modification times; else each file has to be asked",
        |can| Cell::Can(can.mtimes_listed),
    ),
    row("modes", "modes", "permission bits are kept", |can| {
        Cell::Can(can.modes)
    }),
    row("links", "links", "symbolic links are kept", |can| {
        Cell::Can(can.links)
    }),
    row(
        "directories",
        "directories",
        "directories are there by themselves; else they are what names begin with",
        |can| Cell::Can(can.directories),
    ),
    row(
        "their modes",
        "directory_attributes",
        "directories have modes and times of their own",
        |can| Cell::Can(can.directory_attributes),
    ),
    row(
        "server copy",
        "server_copy",
        "the server copies among its own files, and no byte comes here",
        |can| Cell::Can(can.server_copy),
    ),
    row(
        "conditional",
        "conditional_writes",
        "a write can be made to fail when the file is there already or has changed",
        |can| Cell::Can(can.conditional_writes),
    ),
    row(
        "checksums",
        "checksums",
        "checksums the store computes itself, keeps and tells",
        |can| Cell::Words(can.checksums),
    ),
    row(
        "one piece",
        "segment_bytes_min",
        "files up to this size travel in one piece, larger ones in segments of it or more",
        |can| Cell::Size(Some(can.segment_size_min)),
    ),
    row(
        "largest file",
        "file_bytes_max",
        "largest file, where the protocol has a limit",
        |can| Cell::Size(can.file_bytes_max),
    ),
    row(
        "bundles",
        "bundle_bytes_max",
        "small files travel together in requests of up to this size; -: each takes its own",
        |can| Cell::Size(Some(can.bundle_bytes_max).filter(|&bytes| bytes > 0)),
    ),
    row(
        "ahead",
        "requests_ahead_max",
        "small files under way at once in each lane",
        |can| Cell::Count(can.requests_ahead_max.into()),
    ),
    row(
        "held",
        "segments_held",
        "a segment being written is kept in memory until the store has it",
        |can| Cell::Can(can.segments_held),
    ),
];

/// Runs the command.
///
/// # Errors
/// For an address that makes no sense, and what a plug-in fails with.
pub async fn run(arguments: EndpointsArguments) -> Outcome {
    let Some(address) = &arguments.address else {
        if arguments.json {
            output::json(&BUILT_IN.iter().map(described).collect::<Vec<_>>());
        } else {
            output::table(&table());
            output::line("");
            output::table(&legend());
        }
        return Ok(ExitCode::SUCCESS);
    };
    let access = Access::new(arguments.profile.clone(), Vec::new());
    let written = Location::parse(address)?;
    let location = access.resolve(written.clone())?;
    let can = match BuiltIn::of(&location) {
        Some(built_in) => built_in.capabilities,
        None => {
            let opened = access.open(written, DraftRules::default()).await?;
            opened.capabilities()
        }
    };
    if arguments.json {
        output::json(&object(&can));
        return Ok(ExitCode::SUCCESS);
    }
    let rows = ROWS.iter().map(|row| {
        let value = (row.of)(&can).text();
        vec![row.name.to_owned(), value, row.legend.to_owned()]
    });
    let scheme = vec!["scheme".to_owned(), can.scheme.to_owned()];
    output::table(&[scheme].into_iter().chain(rows).collect::<Vec<_>>());
    Ok(ExitCode::SUCCESS)
}

fn object(can: &Capabilities) -> Map<String, Value> {
    let scheme = ("scheme".to_owned(), json!(can.scheme));
    let cells = ROWS.iter();
    let cells = cells.map(|row| (row.key.to_owned(), (row.of)(can).json()));
    [scheme].into_iter().chain(cells).collect()
}

fn described(built_in: &BuiltIn) -> Map<String, Value> {
    let mut object = object(&built_in.capabilities);
    object.insert("addresses".to_owned(), json!(built_in.addresses));
    object
}

/// A column for each endpoint.
fn table() -> Vec<Vec<String>> {
    let schemes = BUILT_IN.iter().map(|built_in| built_in.capabilities.scheme);
    let heading = [""].into_iter().chain(schemes).map(str::to_owned).collect();
    let rows = ROWS.iter().map(|row| {
        let cells = BUILT_IN.iter();
        let cells = cells.map(|built_in| (row.of)(&built_in.capabilities).text());
        [row.name.to_owned()].into_iter().chain(cells).collect()
    });
    [heading].into_iter().chain(rows).collect()
}

fn legend() -> Vec<Vec<String>> {
    let rows = ROWS.iter();
    rows.map(|row| vec![row.name.to_owned(), row.legend.to_owned()])
        .collect()
}

/// The page of the reference.
pub fn page() -> String {
    let mut page = "\
# Endpoints

What each kind of storage can do, as `posthaste endpoints` shows it. This page is made by `cargo xtask
generate`. Plug-ins say themselves what they can: `posthaste endpoints SCHEME://…` shows it.

| scheme | addresses |
|---|---|
"
    .to_owned();
    for built_in in BUILT_IN {
        let addresses = built_in.addresses.split(", ");
        let addresses: Vec<String> = addresses.map(|text| format!("`{text}`")).collect();
        let scheme = built_in.capabilities.scheme;
        page.push_str(&format!("| {scheme} | {} |\n", addresses.join(", ")));
    }
    page.push('\n');
    for (index, row) in table().iter().enumerate() {
        page.push_str(&format!("| {} |\n", row.join(" | ")));
        if index == 0 {
            page.push_str(&format!("{}|\n", "|---".repeat(row.len())));
        }
    }
    page.push_str("\n| row | in JSON | what it means |\n|---|---|---|\n");
    for row in ROWS {
        let Row {
            name, key, legend, ..
        } = row;
        page.push_str(&format!("| {name} | `{key}` | {legend} |\n"));
    }
    page
}
