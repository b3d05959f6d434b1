//! Notices: an event and its request, for programs and for people.

use posthaste_api as api;
use serde_json::json;

/// Notice of one event to one alarm.
#[derive(Debug, Clone)]
pub(super) struct Notice {
    /// Same id on every delivery, so that a recipient can detect repeats.
    pub(super) id: String,
    pub(super) event: api::Event,
    /// State of the event's request, if it has one.
    pub(super) request: Option<api::Request>,
}

impl Notice {
    /// Returns the JSON for programs: type, time and data, as Standard Webhooks recommends.
    pub(super) fn json(&self) -> String {
        let told = json!({
            "type": self.event.name,
            "timestamp": self.event.at,
            "data": { "event": self.event, "request": self.request },
        });
        told.to_string()
    }

    /// Returns the event and its request in one line.
    pub(super) fn subject(&self) -> String {
        let event = &self.event;
        let about =
            [&event.request, &event.depot].map(|about| about.as_deref().unwrap_or_default());
        let words = ["posthaste:", about[0], about[1], &event.text];
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        one_line(&words.join(" "))
    }

    /// Returns the event for people, with the facts needed to act.
    pub(super) fn body(&self) -> String {
        let event = &self.event;
        let mut lines = vec![self.subject(), format!("at {}", event.at)];
        if !event.reason.is_empty() {
            lines.push(format!("because {}", one_line(&event.reason)));
        }
        if let Some(request) = &self.request {
            lines.push(String::new());
            lines.extend(about(request));
            lines.push(format!("`posthaste explain {}` tells more.", request.id));
        }
        lines.join("\n") + "\n"
    }
}

/// Describes a request and its state.
fn about(request: &api::Request) -> Vec<String> {
    let (bytes, files) = (posthaste_types::Bytes::new(request.bytes), request.files);
    let mut lines = vec![
        format!("{} to {}", one_line(&request.source), one_line(&request.to)),
        format!("{bytes} in {files} files, now {}", request.state),
        format!("deadline {}", request.deadline),
    ];
    if let Some(finish) = &request.finish {
        lines.push(format!("forecast {} (p90 {})", finish.p50, finish.p90));
    }
    if request.chunks > 0 {
        let (safe, chunks) = (request.chunks_safe, request.chunks);
        lines.push(format!("{safe} of {chunks} chunks are safe"));
    }
    for offer in &request.offers {
        lines.push(format!("would help: {}", one_line(&offer.text)));
    }
    lines
}

/// Replaces line breaks: names of files may contain any, and notices consist of lines.
fn one_line(text: &str) -> String {
    text.replace(posthaste_types::is_obeyed, " ")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn notice() -> Notice {
        Notice {
            id: "k-7".into(),
            event: api::Event {
                seq: 7,
                at: "2026-11-20T18:00:00.000Z".into(),
                request: Some("r7".into()),
                depot: None,
                name: "at-risk".into(),
                text: "at risk, p90 finish 2026-11-20T19:00:00.000Z".into(),
                reason: "of\nash".into(),
            },
            request: None,
        }
    }

    #[test]
    fn people_read_lines_and_programs_json() {
        let notice = notice();
        let subject = "posthaste: r7 at risk, p90 finish 2026-11-20T19:00:00.000Z";
        assert_eq!(notice.subject(), subject);
        let body = format!("{subject}\nat 2026-11-20T18:00:00.000Z\nbecause of ash\n");
        assert_eq!(notice.body(), body);
        let json: serde_json::Value = serde_json::from_str(&notice.json()).unwrap();
        assert_eq!(json["type"], "at-risk");
        assert_eq!(json["data"]["event"]["request"], "r7");
    }
}
