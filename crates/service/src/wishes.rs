//! Converts users' wishes for a request between the API and the mind.

use posthaste_api as api;
use posthaste_core::contract::{Priority, Repair, RequestView, Reserve, Survive, Wishes};
use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_journal::RequestRecord;
use posthaste_types::{ByteRate, DepotId};

use crate::driver::Centre;

/// Longest name of a user or project, in bytes.
const NAME_BYTES_MAX: usize = 200;

fn invalid(what: &str, why: impl ToString) -> Error {
    Error::new(ErrorKind::Invalid, "submit", what).cause(why.to_string())
}

/// Parses a priority.
///
/// # Errors
/// [`ErrorKind::Invalid`] for an invalid one.
pub(crate) fn priority(text: &str) -> Result<Priority> {
    text.parse().map_err(|cause| invalid("the priority", cause))
}

/// Returns the wishes that are not about depots.
pub(crate) fn plain(wishes: &api::Wishes) -> api::Wishes {
    api::Wishes {
        priority: wishes.priority.clone(),
        owner: wishes.owner.clone(),
        project: wishes.project.clone(),
        rate_bytes_per_s_max: wishes.rate_bytes_per_s_max,
        ..api::Wishes::default()
    }
}

/// Parses the wishes for the mind.
///
/// # Errors
/// [`ErrorKind::Invalid`] for invalid wishes.
pub(crate) fn read(new: &api::Wishes, depot: impl Fn(&str) -> Option<DepotId>) -> Result<Wishes> {
    let forbidden = new.without.iter().map(|name| {
        depot(name).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "do without", name)
                .cause("no depot of that name is in the books")
        })
    });
    let forbidden: Vec<DepotId> = forbidden.collect::<Result<_>>()?;
    let priority = new.priority.as_deref().map(self::priority).transpose()?;
    Ok(Wishes {
        priority: priority.unwrap_or_default(),
        owner: name("the owner", new.owner.as_deref())?,
        project: name("the project", new.project.as_deref())?,
        survive: survive(new)?,
        safe_with: new.safe_with,
        repair: repair(new.repair.as_deref())?,
        budget_micro_usd: budget(new.budget_usd)?,
        rate_max: rate(new.rate_bytes_per_s_max)?,
        reserve: reserve(new.reserve.as_deref())?,
        forbidden,
        ..Wishes::default()
    })
}

/// Parses when lost fragments are rebuilt.
fn repair(name: Option<&str>) -> Result<Repair> {
    match name {
        None | Some("eager") => Ok(Repair::Eager),
        Some("lazy") => Ok(Repair::Lazy),
        Some(_) => Err(invalid("the repair", "it is eager or lazy")),
    }
}

/// Parses whether rate is reserved.
fn reserve(name: Option<&str>) -> Result<Reserve> {
    let said = name.map(str::parse::<Reserve>).transpose();
    said.map(Option::unwrap_or_default)
        .map_err(|cause| invalid("whether to reserve", cause))
}

/// Largest budget in dollars: more is a typo.
const BUDGET_USD_MAX: f64 = 1e9;

/// Parses the budget, in millionths of a dollar.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the range is checked before"
)]
fn budget(usd: Option<f64>) -> Result<Option<u64>> {
    match usd {
        Some(usd) if !(0.0..=BUDGET_USD_MAX).contains(&usd) => Err(invalid(
            "the budget",
            "it is an amount of dollars, like 1.50",
        )),
        usd => Ok(usd.map(|usd| (usd * 1e6).round() as u64)),
    }
}

/// Parses the rate limit.
fn rate(bytes_per_s: Option<u64>) -> Result<Option<ByteRate>> {
    match bytes_per_s {
        Some(0) => Err(invalid(
            "the limit",
            "with nothing a second it would never end",
        )),
        rate => Ok(rate.map(ByteRate::new)),
    }
}

/// Billionths in a hundredth.
const PPB_PER_PERCENT: f64 = 1e7;

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the range is checked before"
)]
fn survive(new: &api::Wishes) -> Result<Survive> {
    match (new.survive, new.durability_percent) {
        (None, None) => Ok(Survive::AsCoded),
        (Some(depots), None) => Ok(Survive::Losses { depots }),
        (None, Some(percent)) if (0.0..100.0).contains(&percent) => Ok(Survive::Chance {
            loss_ppb_max: ((100.0 - percent) * PPB_PER_PERCENT).round() as u32,
        }),
        (None, Some(_)) => Err(invalid(
            "the durability",
            "it is a percentage below 100, like 99.99",
        )),
        (Some(_), Some(_)) => Err(invalid(
            "what must be survived",
            "either a number of depots or a durability, not both",
        )),
    }
}

fn name(what: &str, name: Option<&str>) -> Result<String> {
    let name = name.unwrap_or_default();
    let is_sound = name.len() <= NAME_BYTES_MAX && !name.chars().any(posthaste_types::is_obeyed);
    if is_sound {
        Ok(name.to_owned())
    } else {
        Err(invalid(
            what,
            format!("a name has at most {NAME_BYTES_MAX} bytes and no control characters"),
        ))
    }
}

/// Returns the wishes for the API; unset ones stay unset.
pub(crate) fn show(wishes: &Wishes, name: impl Fn(DepotId) -> String) -> api::Wishes {
    let said = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let is_normal = wishes.priority == Priority::default();
    api::Wishes {
        priority: (!is_normal).then(|| wishes.priority.to_string()),
        owner: said(&wishes.owner),
        project: said(&wishes.project),
        survive: match wishes.survive {
            Survive::Losses { depots } => Some(depots),
            Survive::AsCoded | Survive::Chance { .. } => None,
        },
        durability_percent: match wishes.survive {
            Survive::Chance { loss_ppb_max } => {
                Some(100.0 - f64::from(loss_ppb_max) / PPB_PER_PERCENT)
            }
            Survive::AsCoded | Survive::Losses { .. } => None,
        },
        safe_with: wishes.safe_with,
        repair: (wishes.repair == Repair::Lazy).then(|| "lazy".to_owned()),
        budget_usd: wishes.budget_micro_usd.map(crate::render::usd),
        rate_bytes_per_s_max: wishes.rate_max.map(ByteRate::get),
        reserve: (wishes.reserve != Reserve::Auto).then(|| wishes.reserve.to_string()),
        // Not a wish of the mind's: the view fills it in.
        pin: Vec::new(),
        lent: Vec::new(),
        without: wishes.forbidden.iter().copied().map(name).collect(),
    }
}

/// Returns the wishes, with the pinned depots.
pub(crate) fn of(
    centre: &Centre,
    view: Option<&RequestView>,
    record: &RequestRecord,
) -> api::Wishes {
    let wished = view.map_or(&record.wishes, |view| &view.wishes);
    let name = |depot| centre.depots.name(depot);
    api::Wishes {
        pin: view.map_or_else(
            || record.pinned.clone(),
            |view| view.pinned.iter().copied().map(name).collect(),
        ),
        lent: crate::submit::lent::shown(record),
        ..show(wished, name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Option<DepotId> {
        (name == "ash").then_some(DepotId::new(1))
    }

    #[test]
    fn what_is_wished_is_shown_as_it_was_said() {
        let said = api::Wishes {
            priority: Some("high".into()),
            owner: Some("alice".into()),
            project: Some("climate".into()),
            survive: Some(2),
            durability_percent: None,
            safe_with: Some(1),
            repair: Some("lazy".into()),
            budget_usd: Some(1.5),
            rate_bytes_per_s_max: Some(5 << 20),
            pin: Vec::new(),
            lent: Vec::new(),
            without: vec!["ash".into()],
            reserve: Some("always".into()),
        };
        let again = |said: &api::Wishes| show(&read(said, named).unwrap(), |_| "ash".into());
        assert_eq!(again(&said), said);
        let nines = api::Wishes {
            durability_percent: Some(99.99),
            ..api::Wishes::default()
        };
        assert_eq!(again(&nines), nines);
        assert!(again(&api::Wishes::default()).is_empty());
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
            api::Wishes {
                durability_percent: Some(100.0),
                ..api::Wishes::default()
            },
            api::Wishes {
                repair: Some("never".into()),
                ..api::Wishes::default()
            },
            api::Wishes {
                budget_usd: Some(-1.0),
                ..api::Wishes::default()
            },
            api::Wishes {
                rate_bytes_per_s_max: Some(0),
                ..api::Wishes::default()
            },
            api::Wishes {
                survive: Some(1),
                durability_percent: Some(99.0),
                ..api::Wishes::default()
            },
        ] {
            assert_eq!(read(&wrong, named).unwrap_err().kind(), ErrorKind::Invalid);
        }
        let unknown = api::Wishes {
            without: vec!["elm".into()],
            ..api::Wishes::default()
        };
        assert_eq!(
            read(&unknown, named).unwrap_err().kind(),
            ErrorKind::NotFound
        );
    }
}
