//! `posthaste endpoints`: the capabilities of each kind of storage.

use std::{ffi::OsString, process::ExitCode};

use clap::Args;
use posthaste_endpoint::{
    Access, BUILT_IN, BuiltIn, Location,
    capabilities::rows::{ROWS, Row, told},
    posix::DraftRules,
};
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

/// Runs the command.
///
/// # Errors
/// Fails for an invalid address, and with a plug-in's error.
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
    let access = Access::new(arguments.profile.clone(), Vec::new()).typed();
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
        output::json(&told(&can));
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

fn described(built_in: &BuiltIn) -> Map<String, Value> {
    let mut object = told(&built_in.capabilities);
    object.insert("addresses".to_owned(), json!(built_in.addresses));
    object
}

/// Returns the table, a column for each endpoint.
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

/// Returns the page of the reference.
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
