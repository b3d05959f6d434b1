//! What users wish of a request, between the words of the API and those of the mind.

use posthaste_api as api;
use posthaste_core::contract::{Priority, Wishes};
use posthaste_endpoint::{Error, ErrorKind, Result};

/// Bytes of the name of a user or project.
const NAME_BYTES_MAX: usize = 200;

fn invalid(what: &str, why: impl ToString) -> Error {
    Error::new(ErrorKind::Invalid, "submit", what).cause(why.to_string())
}

/// The wishes as the mind takes them.
///
/// # Errors
/// [`ErrorKind::Invalid`] for what makes no sense.
pub(crate) fn read(new: &api::Wishes) -> Result<Wishes> {
    let priority = new.priority.as_deref().map(str::parse::<Priority>);
    let priority = priority
        .transpose()
        .map_err(|cause| invalid("the priority", cause))?;
    Ok(Wishes {
        priority: priority.unwrap_or_default(),
        owner: name("the owner", new.owner.as_deref())?,
        project: name("the project", new.project.as_deref())?,
        ..Wishes::default()
    })
}

fn name(what: &str, name: Option<&str>) -> Result<String> {
    let name = name.unwrap_or_default();
    let is_sound = name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control);
    if is_sound {
        Ok(name.to_owned())
    } else {
        Err(invalid(
            what,
            format!("a name has at most {NAME_BYTES_MAX} bytes and no control characters"),
        ))
    }
}

/// The wishes as the API shows them: what was left out is left out.
pub(crate) fn show(wishes: &Wishes) -> api::Wishes {
    let said = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let is_normal = wishes.priority == Priority::default();
    api::Wishes {
        priority: (!is_normal).then(|| wishes.priority.to_string()),
        owner: said(&wishes.owner),
        project: said(&wishes.project),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wished_is_shown_as_it_was_said() {
        let said = api::Wishes {
            priority: Some("high".into()),
            owner: Some("alice".into()),
            project: Some("climate".into()),
        };
        assert_eq!(show(&read(&said).unwrap()), said);
        assert!(show(&read(&api::Wishes::default()).unwrap()).is_empty());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for wrong in [
            api::Wishes {
                priority: Some("most".into()),
                ..api::Wishes::default()
            },
            api::Wishes {
                project: Some("x".repeat(201)),
                ..api::Wishes::default()
            },
            api::Wishes {
                owner: Some("a\nb".into()),
                ..api::Wishes::default()
            },
        ] {
            assert_eq!(read(&wrong).unwrap_err().kind(), ErrorKind::Invalid);
        }
    }
}
