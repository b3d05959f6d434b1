//! Registers depots: those that an operator adds, and relays that register themselves.

use std::{sync::Arc, time::Duration};

use posthaste_api as api;
use posthaste_core::contract::{DepotPrices, DepotTerms, EgressPrice, Input, Windows};
use posthaste_endpoint::{Error, ErrorKind, Locus, Result};
use posthaste_journal::DepotRecord;
use posthaste_types::{ByteRate, Bytes, DepotId};
use tokio::sync::mpsc;

use crate::{
    circuits,
    depots::{self, Depot, Viewer, name_of_owners, split_owner},
    driver::Centre,
    monotonic, needed, secrets, tokens,
};

/// Longest name of a depot, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// Time in which a relay has to say how it is: one that only drips bytes must not keep others
/// waiting.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// Longest name of a failure domain, in bytes, and of a depot with its owner that has a price.
const DOMAIN_BYTES_MAX: usize = 64;
const EGRESS_NAME_BYTES_MAX: usize = 2 * NAME_BYTES_MAX + 1;

/// Adds a depot, or changes the facts of the one with that name. The relay is asked for its status
/// first, so a wrong address, key or secret is reported at once.
///
/// # Errors
/// Invalid facts; errors of asking the relay; the journal's. [`ErrorKind::PermissionDenied`] for a
/// depot of somebody else, and for one more than an owner may have. [`ErrorKind::Conflict`] for
/// another relay in the place of one that released datasets need.
pub(crate) async fn enlist(
    centre: &Arc<Centre>,
    watches: &mpsc::Sender<Arc<Depot>>,
    new: api::NewDepot,
    by: Viewer<'_>,
) -> Result<Arc<Depot>> {
    let terms = new.terms();
    let (name, owner) = whole_name(&new.name, by)?;
    check_facts(&terms)?;
    let secret = depots::parse_secret(&new.secret, &new.name)?;
    let known = centre.depots.named(&name);
    if let Some(known) = known.filter(|known| needed::is_other(&known.record, &new.fingerprint)) {
        let held = needed::held(&centre.mind(), known.record.id);
        let copy = || centre.copy_of_mind();
        needed::refuse_other(&known.record, &held, copy, centre.clock.now())?;
    }
    let _place = match (by, &owner) {
        (Viewer::Owner(_), Some(owner)) => Some(centre.quotas.reserve_depot(centre, owner, &name)?),
        (Viewer::Operator, _) | (_, None) => None,
    };
    let record = DepotRecord {
        id: DepotId::new(0),
        owner,
        name,
        url: new.url,
        fingerprint: new.fingerprint,
        capacity: Bytes::new(terms.capacity_bytes.unwrap_or(u64::MAX)),
        rate_max: terms.rate_bytes_per_s_max.map(ByteRate::new),
        level: level(terms.level)?,
        terms: read_terms(&terms)?,
        prices: read_prices(&terms)?,
        load_max_permille: load_max(&terms)?,
    };
    keep(centre, watches, record, secret).await
}

/// Records a depot's new address, if it changed: the relay that answers there has its key.
///
/// # Errors
/// Errors of asking the relay there; the journal's.
pub(crate) async fn follow(
    centre: &Arc<Centre>,
    watches: &mpsc::Sender<Arc<Depot>>,
    depot: &Depot,
    url: String,
) -> Result<Arc<Depot>> {
    let record = DepotRecord {
        url,
        ..depot.record.clone()
    };
    keep(centre, watches, record, depot.secret).await
}

async fn keep(
    centre: &Arc<Centre>,
    watches: &mpsc::Sender<Arc<Depot>>,
    mut record: DepotRecord,
    secret: [u8; secrets::SECRET_BYTES],
) -> Result<Arc<Depot>> {
    if let Some(twin) = centre.depots.twin(&record) {
        let (name, known) = (&record.name, &twin.record.name);
        return Err(Error::new(ErrorKind::Conflict, "add", format!("depot {name}"))
            .cause(format!("it is the relay that is called {known} here: it shows the same key, and has one disk"))
            .hint(format!("two names would count as two depots that can't both be lost; to call it {name}, `posthaste depot remove {known}` first")));
    }
    let opened = depots::open(record.clone(), secret, centre.network(), monotonic())?;
    let status = answered(&record.url, opened.client.status()).await?;
    record.capacity = status.capacity.min(record.capacity);
    let path = depots::secret_path(centre.store.directory(), &record.name);
    secrets::write_private(&path, &format!("{}\n", secrets::to_hex(&secret)))?;
    record.id = centre
        .store
        .journal(|journal| journal.keep_depot(&record))?;
    let depot = Arc::new(depots::open(record, secret, centre.network(), monotonic())?);
    depot.heed(&status);
    centre.depots.insert(Arc::clone(&depot));
    tell_facts(centre, &depot.record).await?;
    centre.tell(lent(&depot)).await?;
    crate::tell_ways(centre, &depot).await?;
    circuits::offer(centre).await?;
    let rate_max = match (depot.record.rate_max, status.rate_limit) {
        (Some(ours), Some(theirs)) => Some(ours.min(theirs)),
        (ours, theirs) => ours.or(theirs),
    };
    let free = status.free.min(depot.record.capacity);
    // A caller that checks after the answer finds it.
    centre
        .put_down(Input::DepotUp {
            depot: depot.record.id,
            free,
            rate_max,
        })
        .await?;
    let _ = watches.send(Arc::clone(&depot)).await;
    Ok(depot)
}

/// Waits for what a relay answers, but not for one that only drips bytes.
async fn answered<T>(url: &str, asked: impl Future<Output = Result<T>>) -> Result<T> {
    let answer = tokio::time::timeout(ANSWERS_WITHIN, asked).await;
    answer.unwrap_or_else(|_| {
        let within = ANSWERS_WITHIN.as_secs();
        Err(Error::new(ErrorKind::TimedOut, "reach", url.to_owned())
            .cause(format!("the relay did not answer within {within} s"))
            .at(Locus::Network))
    })
}

/// Reports a depot's facts to the mind, but not the terms on which it is lent: its own hours belong
/// to them. Nobody sees an owner's depot without its owner.
///
/// # Errors
/// [`ErrorKind::Cancelled`] if the service is ending.
pub(crate) async fn tell_facts(centre: &Centre, record: &DepotRecord) -> Result<()> {
    let owned = record.owner.clone().map(|owner| Input::DepotOwned {
        depot: record.id,
        owner,
    });
    let owned = owned.into_iter().collect();
    centre.tell_together(added(record), owned).await?;
    centre.tell(levelled(record)).await?;
    centre.tell(priced(record)).await?;
    centre.tell(bounded(record)).await
}

/// Returns the name of a depot in the books, and its owner if it has one. What an owner registers
/// is theirs, and so is its name: `campus` of alice is `campus@alice`.
///
/// # Errors
/// [`ErrorKind::Invalid`] for an invalid name; [`ErrorKind::PermissionDenied`] for a name of another
/// owner, whether or not there is such a depot, and for a caller without an owner.
fn whole_name(name: &str, by: Viewer<'_>) -> Result<(String, Option<String>)> {
    let denied = |cause: String| {
        let subject = format!("depot {name:.130}");
        Error::new(ErrorKind::PermissionDenied, "add", subject).cause(cause)
    };
    let (own, owner) = match (split_owner(name), by) {
        (None, Viewer::Operator) => {
            check_name(name)?;
            return Ok((name.to_owned(), None));
        }
        (None, Viewer::Owner("")) => {
            let denied = denied("the token has no owner to whom it would belong".into());
            return Err(denied.hint("an operator makes tokens with `posthaste token add --owner`"));
        }
        (None, Viewer::Owner(owner)) => (name, owner),
        (Some((own, owner)), Viewer::Operator) => (own, owner),
        (Some((own, owner)), Viewer::Owner(me)) if owner == me => (own, owner),
        (Some((own, owner)), Viewer::Owner(_)) => {
            let denied = denied(format!("it would be a depot of {owner:.64}"));
            return Err(denied.hint(format!("your own is called {own:.64} when you add it")));
        }
    };
    check_name(own)?;
    if !tokens::is_name(owner) {
        let subject = format!("depot {own}");
        let why = format!("its owner is no name: {}", tokens::NAMES);
        return Err(Error::new(ErrorKind::Invalid, "add", subject).cause(why));
    }
    Ok((name_of_owners(own, owner), Some(owner.to_owned())))
}

/// Checks a depot's name and terms.
///
/// # Errors
/// [`ErrorKind::Invalid`] with the reason.
pub(crate) fn check_terms(name: &str, terms: &api::LentTerms) -> Result<()> {
    check_name(name)?;
    check_facts(terms)
}

fn check_facts(terms: &api::LentTerms) -> Result<()> {
    level(terms.level)?;
    read_terms(terms).map(drop)?;
    load_max(terms)?;
    read_prices(terms).map(drop)
}

/// Checks a depot's name.
///
/// # Errors
/// [`ErrorKind::Invalid`] with the reason.
pub(crate) fn check_name(name: &str) -> Result<()> {
    let named_well = name.len() <= NAME_BYTES_MAX
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    if !named_well {
        return Err(Error::new(ErrorKind::Invalid, "add", format!("depot {name}"))
            .cause("a name is up to 64 letters, digits, `-`, `_` and `.`, and starts with a letter or digit"));
    }
    Ok(())
}

fn read_terms(terms: &api::LentTerms) -> Result<DepotTerms> {
    Ok(DepotTerms {
        windows: hours(terms.hours.as_deref())?,
        domain: domain(terms.domain.as_deref().unwrap_or_default())?,
        is_landmark: terms.landmark,
        send_micro_usd: micro_usd(terms.usd_per_gb)?,
        keep_micro_usd: micro_usd(terms.usd_per_gb_month)?,
    })
}

/// Parses the names of failure domains, separated by commas.
fn domain(text: &str) -> Result<String> {
    let is_long = |name: &str| name.trim().len() > DOMAIN_BYTES_MAX;
    if text.chars().any(char::is_control) || text.split(',').any(is_long) {
        let error = Error::new(ErrorKind::Invalid, "read", "failure domains");
        return Err(error.cause(format!(
            "a name has at most {DOMAIN_BYTES_MAX} bytes, and no control characters"
        )));
    }
    DepotTerms::tidy_domain(text).ok_or_else(|| {
        let most = DepotTerms::DOMAINS_MAX;
        let error = Error::new(ErrorKind::Invalid, "read", "failure domains");
        error.cause(format!("a depot has at most {most}"))
    })
}

/// Most destinations with a separate egress price.
const EGRESS_MAX: usize = 100;

fn read_prices(terms: &api::LentTerms) -> Result<DepotPrices> {
    if terms.usd_per_gb_out_to.len() > EGRESS_MAX {
        let error = Error::new(ErrorKind::Invalid, "read", "prices for what leaves");
        return Err(error.cause(format!("there are more than {EGRESS_MAX}")));
    }
    let to = |(to, usd): (&String, &f64)| {
        if to.len() > EGRESS_NAME_BYTES_MAX || to.chars().any(char::is_control) {
            let error = Error::new(ErrorKind::Invalid, "read", "prices for what leaves");
            return Err(
                error.cause("one names no depot: its name is too long, or has control characters")
            );
        }
        Ok(EgressPrice {
            to: to.clone(),
            micro_usd: micro_usd(Some(*usd))?,
        })
    };
    Ok(DepotPrices {
        put_micro_usd: micro_usd(terms.usd_per_1000_puts)?,
        get_micro_usd: micro_usd(terms.usd_per_1000_gets)?,
        egress_micro_usd: micro_usd(terms.usd_per_gb_out)?,
        egress_to: terms
            .usd_per_gb_out_to
            .iter()
            .map(to)
            .collect::<Result<_>>()?,
    })
}

/// Returns the input for the mind with a depot's costs beyond its terms.
fn priced(record: &DepotRecord) -> Input {
    Input::DepotPriced {
        depot: record.id,
        prices: record.prices.clone(),
    }
}

/// Returns the input for the mind with the load below which a depot is lent.
fn bounded(record: &DepotRecord) -> Input {
    Input::LoadBounded {
        depot: record.id,
        load_max_permille: record.load_max_permille,
    }
}

fn load_max(terms: &api::LentTerms) -> Result<Option<u32>> {
    load_permille(terms.load_max)
        .map_err(|why| Error::new(ErrorKind::Invalid, "read", "the most load").cause(why))
}

/// Largest load per core: more than any machine has.
const LOAD_MAX: f64 = 1000.0;

/// Converts thousandths into a load per core.
pub(crate) fn load(permille: u32) -> f64 {
    f64::from(permille) / 1000.0
}

/// Converts a load per core into thousandths.
///
/// # Errors
/// The range of valid loads.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "what is out of range is refused"
)]
pub(crate) fn load_permille(load: Option<f64>) -> core::result::Result<Option<u32>, String> {
    match load {
        Some(load) if !(0.0..=LOAD_MAX).contains(&load) => {
            Err(format!("a load is 0 to {LOAD_MAX}, of each core"))
        }
        load => Ok(load.map(|load| (load * 1000.0).round() as u32)),
    }
}

/// Returns the input for the mind that adds a registered depot.
fn added(record: &DepotRecord) -> Input {
    Input::DepotAdded {
        depot: record.id,
        name: record.name.clone(),
        capacity: record.capacity,
        rate_max: record.rate_max,
    }
}

/// Returns the input for the mind with the terms on which a depot is lent.
pub(crate) fn lent(depot: &Depot) -> Input {
    Input::DepotLent {
        depot: depot.record.id,
        terms: terms(depot),
    }
}

/// Returns the terms of a depot: its registered hours, by the centre's current clock, intersected
/// with the relay's own. Depots that keep everything in one bucket or container share a failure
/// domain.
pub(crate) fn terms(depot: &Depot) -> DepotTerms {
    let mut terms = depot.record.terms.clone();
    let windows = by_our_clock(terms.windows);
    terms.windows = windows.meeting(&depot.own_windows());
    // Comes first, since the number of domains is limited.
    if let Some(store) = depot.domain_of_store() {
        terms.domain = format!("{store},{}", terms.domain);
    }
    terms
}

/// Returns the hours by the centre's current clock.
pub(crate) fn by_our_clock(windows: Windows) -> Windows {
    let ahead_s = jiff::Zoned::now().offset().seconds();
    windows.ahead_of_utc(ahead_s / 60)
}

/// Returns the input for the mind with a depot's hops from the centre.
fn levelled(record: &DepotRecord) -> Input {
    Input::DepotLevelled {
        depot: record.id,
        level: record.level,
    }
}

/// Most hops from the centre: more would mean nothing.
const LEVEL_MAX: u8 = 9;

/// Parses a level: 0 means that the distance decides.
fn level(level: Option<u8>) -> Result<u8> {
    let level = level.unwrap_or(1);
    if level <= LEVEL_MAX {
        return Ok(level);
    }
    Err(
        Error::new(ErrorKind::Invalid, "read", format!("level {level}")).cause(format!(
            "a level is from 1 to {LEVEL_MAX}, or 0 where distances decide"
        )),
    )
}

fn hours(text: Option<&str>) -> Result<Windows> {
    let read = text.map(str::parse::<Windows>).transpose();
    let read =
        read.map_err(|cause| Error::new(ErrorKind::Invalid, "read", "the hours").cause(cause))?;
    Ok(read.unwrap_or_default())
}

/// Highest price of a gigabyte, in dollars.
const USD_MAX: f64 = 1e6;

/// Converts dollars to millionths of a dollar.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "what is out of range is refused"
)]
fn micro_usd(usd: Option<f64>) -> Result<u64> {
    let usd = usd.unwrap_or(0.0);
    if (0.0..=USD_MAX).contains(&usd) {
        return Ok((usd * 1e6).round() as u64);
    }
    Err(
        Error::new(ErrorKind::Invalid, "read", format!("price {usd}"))
            .cause("a price is from 0 to a million dollars for a gigabyte, or a thousand requests"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_relay_that_only_drips_is_not_waited_for() {
        let url = "https://drip.example";
        let error = answered(url, std::future::pending::<Result<()>>()).await;
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(error.to_string().contains("within 10 s"), "{error}");
        answered(url, std::future::ready(Ok(()))).await.unwrap();
    }

    #[test]
    fn names_in_terms_are_bounded_as_others_are() {
        let terms = |domain: &str, to: &str| api::LentTerms {
            domain: Some(domain.to_owned()),
            usd_per_gb_out_to: [(to.to_owned(), 0.1)].into(),
            ..api::LentTerms::default()
        };
        let is_right = |domain: &str, to: &str| check_facts(&terms(domain, to)).is_ok();
        let (long, longest) = ("d".repeat(65), "t".repeat(130));
        assert!(is_right(&format!("{}, campus", &long[1..]), &longest[1..]));
        for (domain, to) in [
            (&*long, "home"),
            ("campus", &*longest),
            ("a\u{1b}[31m", "home"),
            ("a", "h\n"),
        ] {
            assert!(!is_right(domain, to), "{domain:?} {to:?}");
        }
    }

    #[test]
    fn a_name_belongs_to_whoever_gives_it_and_to_nobody_else() {
        let alice = Viewer::Owner("alice");
        let of = |name: &str, by| whole_name(name, by).map_err(|error| error.kind());
        let hers = Ok(("campus@alice".to_owned(), Some("alice".to_owned())));
        assert_eq!(of("campus", alice), hers);
        assert_eq!(of("campus@alice", alice), hers);
        assert_eq!(of("campus@alice", Viewer::Operator), hers);
        assert_eq!(of("campus", Viewer::Operator), Ok(("campus".into(), None)));
        assert_eq!(of("campus@bob", alice), Err(ErrorKind::PermissionDenied));
        let nobody = Viewer::Owner("");
        assert_eq!(of("campus", nobody), Err(ErrorKind::PermissionDenied));
        assert_eq!(of("campus@", nobody), Err(ErrorKind::Invalid));
        for wrong in ["", "@alice", "a/b@alice", "campus@a b", "campus@"] {
            let found = of(wrong, Viewer::Operator);
            assert_eq!(found, Err(ErrorKind::Invalid), "{wrong}");
        }
    }
}
