//! Directives in a job's comment, for jobs with a script that nobody can edit.

use super::Complaint;

/// Beginning of a comment, or of a word in it, that directives follow.
const MARK: &str = "posthaste:";

/// Returns the directives of a comment as lines of a script: `posthaste:stage_in source=…
/// destination=…; stage_out …`, from that mark to the end. Any text may precede the mark. Returns
/// an empty text for a comment without the mark.
///
/// # Errors
/// For text that could not be lines of a script.
pub fn from_comment(comment: &str) -> Result<String, Complaint> {
    let mut places = comment.match_indices(MARK).map(|(place, _)| place);
    let begins_word = |place: &usize| {
        let before = comment[..*place].chars().next_back();
        before.is_none_or(|before| !before.is_alphanumeric() && before != '_' && before != '-')
    };
    let Some(place) = places.find(begins_word) else {
        return Ok(String::new());
    };
    let ours = &comment[place + MARK.len()..];
    if ours.contains(char::is_control) {
        return Err(Complaint::new(1, "there is a control character in it"));
    }
    let pieces = pieces(ours).into_iter().map(str::trim);
    let lines: Vec<String> = pieces
        .filter(|piece| !piece.is_empty())
        .map(|piece| format!("#POSTHASTE {piece}"))
        .collect();
    if lines.is_empty() {
        let form = "posthaste:stage_in source=… destination=…; stage_out …";
        return Err(Complaint::new(1, "it says nothing").meant(form));
    }
    Ok(lines.join("\n"))
}

/// Returns the pieces between semicolons outside quotes.
fn pieces(text: &str) -> Vec<&str> {
    let (mut pieces, mut from, mut quote) = (Vec::new(), 0, None);
    for (place, c) in text.char_indices() {
        match quote {
            Some(open) if c == open => quote = None,
            None if c == '"' || c == '\'' => quote = Some(c),
            None if c == ';' => {
                pieces.push(&text[from..place]);
                from = place + 1;
            }
            Some(_) | None => {}
        }
    }
    pieces.push(&text[from..]);
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_becomes_lines() {
        for (comment, lines) in [
            ("", ""),
            ("project 7, see posthaste", ""),
            ("not-posthaste:stage_in", ""),
            (
                "posthaste:stage_in source=s3:a destination=/b",
                "#POSTHASTE stage_in source=s3:a destination=/b",
            ),
            (
                "project 7; posthaste: stage_in source='a;b' destination=/b ;; stage_out source=/c destination=home;",
                "#POSTHASTE stage_in source='a;b' destination=/b\n#POSTHASTE stage_out source=/c destination=home",
            ),
        ] {
            assert_eq!(from_comment(comment).as_deref(), Ok(lines), "{comment}");
        }
    }

    #[test]
    fn what_could_not_be_lines_is_refused() {
        for comment in [
            "posthaste:",
            "posthaste: ; ",
            "posthaste:stage_in source=a\nrm -r /",
        ] {
            assert!(from_comment(comment).is_err(), "{comment}");
        }
    }
}
