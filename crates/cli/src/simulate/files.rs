//! Output files of a run: a timeline for programs, a page for people.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::Path,
};

use posthaste_sim::{Page, Recording, Report, Scenario, page, timeline};

use super::{SimulateArguments, command};
use crate::failure::{Exit, Failure};

/// Writes the requested files, replacing existing ones.
///
/// # Errors
/// Fails if a file can't be written.
pub(super) fn write(
    arguments: &SimulateArguments,
    scenario: &Scenario,
    report: &Report,
    recording: &Recording,
) -> Result<(), Failure> {
    if let Some(path) = &arguments.timeline {
        put(path, |file| {
            timeline(report, recording).try_for_each(|line| writeln!(file, "{line}"))
        })?;
    }
    if let Some(path) = &arguments.report {
        let source = arguments.scenario.clone().unwrap_or_default();
        let text = std::fs::read_to_string(&source).unwrap_or_default();
        let said = Page {
            summary: &scenario.summary,
            scenario: &text,
            command: &command(&source, arguments.seed),
        };
        put(path, |file| {
            file.write_all(page(report, recording, &said).as_bytes())
        })?;
    }
    Ok(())
}

fn put(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), Failure> {
    let written = File::create(path).and_then(|file| {
        let mut file = BufWriter::new(file);
        write(&mut file)?;
        file.flush()
    });
    written.map_err(|cause| {
        let message = format!("can't write {}: {cause}", path.display());
        Failure::new(Exit::Other, message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_core::Settings;
    use posthaste_sim::simulate_recorded;

    #[test]
    fn both_files_are_written_whole_and_replace_what_was_there() {
        let dir = tempfile::tempdir().unwrap();
        let scenario = dir.path().join("one.toml");
        let text = "name='one'\nsummary='s'\nhorizon_s=90\n[[depot]]\nname='d'\nrate_mib_per_s=4\n\
                    capacity_mib=90\n[[request]]\nsize_mib=20\ndeadline_s=60\ncode='1+0'\n";
        std::fs::write(&scenario, text).unwrap();
        let at = |name: &str| Some(dir.path().join(name));
        let arguments = SimulateArguments {
            explain: None,
            scenario: Some(scenario),
            seed: 3,
            seeds: None,
            timeline: at("t.jsonl"),
            report: at("r.html"),
            swarm: None,
            into: ".".into(),
            json: false,
        };
        std::fs::write(dir.path().join("r.html"), "x".repeat(1 << 20)).unwrap();
        let scenario = Scenario::parse(text).unwrap();
        let (report, recording) = simulate_recorded(&scenario, 3, Settings::default());
        write(&arguments, &scenario, &report, &recording).unwrap();
        let lines = std::fs::read_to_string(dir.path().join("t.jsonl")).unwrap();
        for line in lines.lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            assert!(
                line["at_s"].is_number() && line["kind"].is_string(),
                "{line}"
            );
        }
        let page = std::fs::read_to_string(dir.path().join("r.html")).unwrap();
        assert!(page.ends_with("</html>\n") && page.contains("one.toml --seed 3"));
        let nowhere = SimulateArguments {
            report: at("no/such/place.html"),
            ..arguments
        };
        let failure = write(&nowhere, &scenario, &report, &recording).unwrap_err();
        assert!(failure.to_string().contains("place.html"), "{failure}");
    }
}
