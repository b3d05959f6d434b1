//! Forms in the papers: `offload-ics08` Figure 4 and `catch-2011` Figure 4.

use super::{After, Complaint, Deadline, Lent, Release, Said, StageOut, ours::lent_space, words};

/// Reads a form of the papers, by its mark.
pub(super) fn read(line: usize, mark: &str, text: &str) -> Result<Said, Complaint> {
    let words = words::split(line, text)?;
    let form = match mark {
        "Stageout" => "#Stageout Output DestinationSite",
        "InterNode" => "#InterNode node1.Site1:49665:50GB",
        "CollabAcct" => "#CollabAcct collab1.blob.core.windows.net:50GB",
        _ => "#Deadline 1/14/2007:12:00",
    };
    let said = match (mark, &words[..]) {
        ("Stageout", [source, destination]) => Some(Said::StageOut(StageOut {
            line,
            source: source.clone(),
            destination: destination.clone(),
            deadline: None,
            via: Vec::new(),
            pin: Vec::new(),
            code: None,
            release: Release::default(),
            after: After::default(),
        })),
        ("InterNode", [lent]) => lent_space(lent)
            .filter(|(name, _)| has_port(name) || !name.contains(':') && has_unit(lent))
            .map(|lent| depot(line, lent)),
        ("CollabAcct", [lent]) => lent_space(lent).map(|lent| depot(line, lent)),
        ("Deadline", [by]) => Deadline::read_as_paper(by)
            .or_else(|| Deadline::read(by))
            .map(Said::Deadline),
        _ => None,
    };
    said.ok_or_else(|| {
        let what = format!("`#{mark}` is not written so; a mere comment has a space after `#`");
        Complaint::new(line, what).meant(form)
    })
}

fn has_port(name: &str) -> bool {
    let port = name.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
    matches!(port, Some(Ok(1..)))
}

/// Returns whether a space is written with its unit: a number alone after a name is a port.
fn has_unit(lent: &str) -> bool {
    lent.ends_with(|c: char| c.is_ascii_alphabetic())
}

fn depot(line: usize, (name, space): (&str, posthaste_types::Bytes)) -> Said {
    Said::Depot(Lent {
        line,
        name: name.to_owned(),
        space,
        hours: posthaste_plan::Windows::default(),
        load_max_permille: None,
    })
}
