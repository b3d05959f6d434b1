//! Caches listings, decides how long they are fresh, and knows which are being listed. Pure code:
//! time is an input, nothing waits.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use posthaste_endpoint::FileTime;
use posthaste_types::Timestamp;

use super::{
    listed::Listed,
    place::{Place, Written},
};

/// Lifetime of a listing without a look at its server: about the time to walk ten thousand
/// directories.
pub(super) const FRESH_FOR: Duration = Duration::from_secs(60);
/// Time for which further pages come from the same listing: its reader sees one moment.
pub(super) const PAGED_FOR: Duration = Duration::from_secs(600);
/// Time for which an unchanged directory confirms its listing. A file may grow without that
/// showing.
pub(super) const CONFIRMED_FOR: Duration = Duration::from_secs(600);
/// A directory changed less than this before its listing may have changed again within one tick of
/// its file system's clock, or of a wrong clock.
pub(super) const SETTLED_AFTER: Duration = Duration::from_secs(60);

/// Listing with the state of its directory.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub(super) listed: Arc<Listed>,
    /// Moment at which the listing began.
    pub(super) listed_at: Timestamp,
    /// Moment at which it was last known to be true.
    pub(super) as_of: Timestamp,
    /// Modification time of the directory, if its server reports it.
    pub(super) mtime: Option<FileTime>,
}

impl Known {
    /// Returns whether the directory has not changed lately, so that its modification time shows
    /// later changes of names.
    fn is_settled(&self) -> bool {
        let Some(mtime) = self.mtime else {
            return false;
        };
        let newest_s = self.listed.newest_s().unwrap_or(i64::MIN).max(mtime.secs);
        let listed_s = i64::try_from(self.listed_at.as_micros() / 1_000_000).unwrap_or(i64::MAX);
        let settled_s = i64::try_from(SETTLED_AFTER.as_secs()).unwrap_or(i64::MAX);
        newest_s.saturating_add(settled_s) <= listed_s
    }

    /// Returns whether an unchanged modification time confirms it.
    pub(super) fn may_be_confirmed(&self, now: Timestamp) -> bool {
        self.is_settled() && now.since(self.listed_at) < CONFIRMED_FOR
    }

    fn is_fresh(&self, now: Timestamp, is_further: bool) -> bool {
        let is_same_reading = is_further && now.since(self.listed_at) < PAGED_FOR;
        is_same_reading || now.since(self.as_of) < FRESH_FOR
    }
}

#[derive(Debug)]
struct Kept {
    known: Known,
    bytes: usize,
    /// Number under which its listing began.
    number: u64,
    /// Use count at its last use.
    used: u64,
}

/// Listing under way.
#[derive(Debug)]
struct Flight<W> {
    number: u64,
    /// Set if something was written there since it began.
    is_spoiled: bool,
    waiter: W,
}

/// Query of the cache.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Want {
    /// Set if it is not the first page.
    pub(super) is_further: bool,
    /// Number that the listing must be newer than.
    pub(super) newer_than: Option<u64>,
}

/// Answer of the cache.
#[derive(Debug)]
pub(super) enum Look<W> {
    Here(Known),
    /// Being listed. If that listing is of no use, ask again when it has ended.
    Wait {
        waiter: W,
        is_of_use: bool,
    },
    /// To be listed under this number; `Known` is the outdated listing.
    Begin {
        number: u64,
        old: Option<Known>,
    },
}

/// All cached listings. `W` is the handle for waiting for a listing under way.
#[derive(Debug)]
pub(super) struct Cache<W> {
    kept: HashMap<Place, Kept>,
    /// Places by their last use.
    order: BTreeMap<u64, Place>,
    bytes: usize,
    bytes_max: usize,
    flights: HashMap<Place, Flight<W>>,
    /// Trees being listed, and whether something was written there since.
    trees: BTreeMap<u64, (Place, bool)>,
    writing: BTreeMap<u64, Written>,
    number: u64,
}

impl<W: Clone> Cache<W> {
    /// Creates a cache of so many bytes, which keeps at least the newest listing.
    pub(super) fn new(bytes_max: usize) -> Self {
        Self {
            kept: HashMap::new(),
            order: BTreeMap::new(),
            bytes: 0,
            bytes_max,
            flights: HashMap::new(),
            trees: BTreeMap::new(),
            writing: BTreeMap::new(),
            number: 0,
        }
    }

    /// Returns a number larger than all before.
    pub(super) fn next_number(&mut self) -> u64 {
        self.number += 1;
        self.number
    }

    pub(super) fn look(
        &mut self,
        place: &Place,
        now: Timestamp,
        want: Want,
        waiter: impl FnOnce() -> W,
    ) -> Look<W> {
        if let Some(than) = want.newer_than {
            self.outdate(place, than);
        }
        if let Some(known) = self.fresh(place, now, want.is_further) {
            return Look::Here(known);
        }
        if let Some(flight) = self.flights.get(place) {
            let is_new = want.newer_than.is_none_or(|than| flight.number > than);
            return Look::Wait {
                waiter: flight.waiter.clone(),
                is_of_use: is_new && !flight.is_spoiled,
            };
        }
        let number = self.next_number();
        let flight = Flight {
            number,
            is_spoiled: false,
            waiter: waiter(),
        };
        self.flights.insert(place.clone(), flight);
        let old = self.kept.get(place).map(|kept| kept.known.clone());
        Look::Begin { number, old }
    }

    /// Outdates listings begun before this number was issued. Later callers don't get them either,
    /// so a caller that asks again need not repeat this.
    fn outdate(&mut self, place: &Place, number: u64) {
        if self
            .kept
            .get(place)
            .is_some_and(|kept| kept.number <= number)
        {
            self.drop_kept(place);
        }
        if let Some(flight) = self.flights.get_mut(place) {
            flight.is_spoiled |= flight.number <= number;
        }
    }

    /// Returns a fresh listing, which counts as used.
    fn fresh(&mut self, place: &Place, now: Timestamp, is_further: bool) -> Option<Known> {
        let used = self.next_number();
        let kept = self.kept.get_mut(place)?;
        if !kept.known.is_fresh(now, is_further) {
            return None;
        }
        self.order.remove(&kept.used);
        kept.used = used;
        self.order.insert(used, place.clone());
        Some(kept.known.clone())
    }

    /// Returns the cached listing of any age, without counting as a use.
    pub(super) fn peek(&self, place: &Place) -> Option<&Known> {
        self.kept.get(place).map(|kept| &kept.known)
    }

    /// Returns whether it need not be listed: it is fresh or being listed.
    pub(super) fn is_there(&self, place: &Place, now: Timestamp) -> bool {
        let is_fresh = |known: &Known| known.is_fresh(now, false);
        self.peek(place).is_some_and(is_fresh) || self.flights.contains_key(place)
    }

    /// Ends the listing of this number. Without a result it failed, and the cached listing is
    /// dropped.
    pub(super) fn end(&mut self, place: &Place, number: u64, known: Option<Known>) {
        if self
            .flights
            .get(place)
            .is_none_or(|flight| flight.number != number)
        {
            return;
        }
        let is_spoiled = self
            .flights
            .remove(place)
            .is_some_and(|flight| flight.is_spoiled);
        self.drop_kept(place);
        let is_written = self
            .writing
            .values()
            .any(|written| place.is_touched_by(written));
        if let Some(known) = known
            && !is_spoiled
            && !is_written
        {
            self.keep(place.clone(), known, number);
        }
    }

    fn keep(&mut self, place: Place, known: Known, number: u64) {
        let bytes = known.listed.bytes() + 2 * (place.path().len() + place.root().bytes());
        let used = self.next_number();
        self.bytes += bytes;
        self.order.insert(used, place.clone());
        let kept = Kept {
            known,
            bytes,
            number,
            used,
        };
        self.kept.insert(place, kept);
        self.fit();
    }

    /// Sets the memory; at least the newest listing is kept.
    pub(super) fn resize(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max;
        self.fit();
    }

    fn fit(&mut self) {
        while self.bytes > self.bytes_max && self.kept.len() > 1 {
            let Some((_, oldest)) = self.order.pop_first() else {
                return;
            };
            if let Some(gone) = self.kept.remove(&oldest) {
                self.bytes -= gone.bytes;
            }
        }
    }

    fn drop_kept(&mut self, place: &Place) {
        if let Some(gone) = self.kept.remove(place) {
            self.order.remove(&gone.used);
            self.bytes -= gone.bytes;
        }
    }

    /// Begins listing a whole tree, unless a tree that contains it is being listed.
    pub(super) fn begin_tree(&mut self, place: &Place) -> Option<u64> {
        if self.trees.values().any(|(tree, _)| place.lies_in(tree)) {
            return None;
        }
        let number = self.next_number();
        self.trees.insert(number, (place.clone(), false));
        Some(number)
    }

    /// Ends the listing of this number, which found these directories. Directories listed
    /// separately meanwhile are newer.
    pub(super) fn end_tree(&mut self, number: u64, found: Vec<(Place, Known)>) {
        let Some((tree, is_spoiled)) = self.trees.remove(&number) else {
            return;
        };
        let is_written = self
            .writing
            .values()
            .any(|written| tree.is_touched_by(written));
        if is_spoiled || is_written {
            return;
        }
        for (place, known) in found {
            let is_newer = |other: &Known| other.listed_at >= known.listed_at;
            if self.flights.contains_key(&place) || self.peek(&place).is_some_and(is_newer) {
                continue;
            }
            self.drop_kept(&place);
            self.keep(place, known, number);
        }
    }

    /// Drops listings that a write touches, and outdates those under way for later callers.
    pub(super) fn drop_touched(&mut self, written: &Written) {
        let touched = self
            .kept
            .keys()
            .filter(|place| place.is_touched_by(written));
        for place in touched.cloned().collect::<Vec<_>>() {
            self.drop_kept(&place);
        }
        for (place, flight) in &mut self.flights {
            flight.is_spoiled |= place.is_touched_by(written);
        }
        for (place, is_spoiled) in self.trees.values_mut() {
            *is_spoiled |= place.is_touched_by(written);
        }
    }

    /// Begins a write: until it ends, no listing there is kept.
    pub(super) fn begin_writing(&mut self, written: Written) -> u64 {
        self.drop_touched(&written);
        let number = self.next_number();
        self.writing.insert(number, written);
        number
    }

    /// Ends the write of this number.
    pub(super) fn end_writing(&mut self, number: u64) {
        if let Some(written) = self.writing.remove(&number) {
            self.drop_touched(&written);
        }
    }
}

#[cfg(test)]
mod tests {
    use posthaste_endpoint::{Entry, Kind};

    use super::{super::listed::Draft, *};

    const START: Timestamp = Timestamp::from_secs(1_000_000);

    fn at(seconds: u64) -> Timestamp {
        START + Duration::from_secs(seconds)
    }

    fn place(address: &str) -> Place {
        Place::of(address, Some("p"), Ok).unwrap()
    }

    fn written(address: &str) -> Written {
        Written::at(address, Ok).unwrap()
    }

    /// Returns a listing with so many entries, of a directory that changed so many seconds before
    /// it was listed.
    fn known(entries: usize, listed_at: Timestamp, old_s: Option<u64>) -> Known {
        let mut draft = Draft::default();
        for number in 0..entries {
            let entry = Entry::bare(format!("{number:09}").into_bytes(), Kind::File);
            assert!(draft.push(&entry));
        }
        let listed_s = i64::try_from(listed_at.as_micros() / 1_000_000).unwrap();
        Known {
            listed: Arc::new(draft.finish()),
            listed_at,
            as_of: listed_at,
            mtime: old_s.map(|old_s| FileTime {
                secs: listed_s - i64::try_from(old_s).unwrap(),
                nanos: 0,
            }),
        }
    }

    type Plain = Cache<&'static str>;

    fn look(cache: &mut Plain, address: &str, now: Timestamp) -> Look<&'static str> {
        cache.look(&place(address), now, Want::default(), || "waiter")
    }

    fn begin(cache: &mut Plain, address: &str, now: Timestamp) -> u64 {
        let Look::Begin { number, .. } = look(cache, address, now) else {
            panic!("{address} is there, or is being listed");
        };
        number
    }

    fn list(cache: &mut Plain, address: &str, entries: usize, now: Timestamp) {
        let number = begin(cache, address, now);
        cache.end(&place(address), number, Some(known(entries, now, None)));
    }

    fn is_kept(cache: &Plain, address: &str) -> bool {
        cache.peek(&place(address)).is_some()
    }

    #[test]
    fn a_directory_is_listed_once_and_given_out_while_it_is_fresh() {
        let mut cache = Plain::new(1 << 20);
        let number = begin(&mut cache, "s3://b/run", at(0));
        let waits = look(&mut cache, "s3://b/run", at(0));
        assert!(matches!(
            waits,
            Look::Wait {
                is_of_use: true,
                ..
            }
        ));
        cache.end(&place("s3://b/run"), number, Some(known(3, at(0), None)));
        assert!(matches!(
            look(&mut cache, "s3://b/run", at(59)),
            Look::Here(_)
        ));
        let other = Place::of("s3://b/run", Some("other"), Ok).unwrap();
        let theirs = cache.look(&other, at(0), Want::default(), || "waiter");
        assert!(matches!(theirs, Look::Begin { old: None, .. }));
        let old = look(&mut cache, "s3://b/run", at(60));
        assert!(matches!(old, Look::Begin { old: Some(_), .. }));
    }

    #[test]
    fn further_pages_are_those_of_the_same_listing_for_a_while() {
        let mut cache = Plain::new(1 << 20);
        list(&mut cache, "s3://b/run", 3, at(0));
        let further = Want {
            is_further: true,
            ..Want::default()
        };
        let place = place("s3://b/run");
        for (second, is_here) in [(60, true), (599, true), (600, false)] {
            let look = cache.look(&place, at(second), further, || "waiter");
            assert_eq!(matches!(look, Look::Here(_)), is_here, "{second}");
        }
    }

    #[test]
    fn only_what_was_quiet_is_confirmed_by_its_own_time_and_not_for_ever() {
        let fits = |old_s, second| known(0, at(0), old_s).may_be_confirmed(at(second));
        assert!(fits(Some(60), 100));
        assert!(!fits(Some(59), 100), "it may have changed again at once");
        assert!(!fits(None, 100), "its server does not tell");
        assert!(!fits(Some(9000), 600), "a file may have grown");
        let mut lively = known(0, at(0), Some(9000));
        let mut draft = Draft::default();
        let mut entry = Entry::bare(b"log".to_vec(), Kind::File);
        entry.mtime = Some(FileTime {
            secs: 1_000_000 - 5,
            nanos: 0,
        });
        draft.push(&entry);
        lively.listed = Arc::new(draft.finish());
        assert!(!lively.may_be_confirmed(at(100)), "a file grows there");
    }

    #[test]
    fn who_refreshes_gets_what_is_listed_later_and_all_of_them_the_same() {
        let mut cache = Plain::new(1 << 20);
        list(&mut cache, "s3://b/run", 3, at(0));
        let place = place("s3://b/run");
        let first = Want {
            newer_than: Some(cache.next_number()),
            ..Want::default()
        };
        let second = Want {
            newer_than: Some(cache.next_number()),
            ..Want::default()
        };
        let Look::Begin { number, old: None } = cache.look(&place, at(1), first, || "waiter")
        else {
            panic!("it is listed anew, whatever is kept");
        };
        let look = cache.look(&place, at(1), second, || "waiter");
        assert!(matches!(
            look,
            Look::Wait {
                is_of_use: true,
                ..
            }
        ));
        let third = Want {
            newer_than: Some(cache.next_number()),
            ..Want::default()
        };
        let look = cache.look(&place, at(1), third, || "waiter");
        assert!(
            matches!(
                look,
                Look::Wait {
                    is_of_use: false,
                    ..
                }
            ),
            "that began before it asked"
        );
        cache.end(&place, number, Some(known(4, at(1), None)));
        assert!(matches!(
            cache.look(&place, at(1), third, || "w"),
            Look::Begin { .. }
        ));
    }

    #[test]
    fn who_has_to_ask_again_after_a_refresh_is_given_nothing_older() {
        let mut cache = Plain::new(1 << 20);
        let run = place("s3://b/run");
        list(&mut cache, "s3://b/run", 3, at(0));
        let want = Want {
            newer_than: Some(cache.next_number()),
            ..Want::default()
        };
        let Look::Begin { number, .. } = cache.look(&run, at(1), want, || "waiter") else {
            panic!("it is listed anew");
        };
        let again = look(&mut cache, "s3://b/run", at(1));
        assert!(
            matches!(
                again,
                Look::Wait {
                    is_of_use: true,
                    ..
                }
            ),
            "not what was kept"
        );
        cache.end(&run, number, Some(known(4, at(1), None)));
        // The listing began after the request, so no further one is needed.
        assert!(matches!(
            cache.look(&run, at(2), want, || "w"),
            Look::Here(_)
        ));
        // Callers that ask again also don't get listings that began before.
        let slow = begin(&mut cache, "s3://b/slow", at(2));
        let want = Want {
            newer_than: Some(cache.next_number()),
            ..Want::default()
        };
        let waits = cache.look(&place("s3://b/slow"), at(2), want, || "w");
        assert!(matches!(
            waits,
            Look::Wait {
                is_of_use: false,
                ..
            }
        ));
        let again = look(&mut cache, "s3://b/slow", at(2));
        assert!(matches!(
            again,
            Look::Wait {
                is_of_use: false,
                ..
            }
        ));
        cache.end(&place("s3://b/slow"), slow, Some(known(1, at(2), None)));
        assert!(!is_kept(&cache, "s3://b/slow"));
    }

    #[test]
    fn what_was_not_used_for_longest_goes_first_and_the_newest_stays() {
        let one = known(100, at(0), None).listed.bytes() + 200;
        let mut cache = Plain::new(3 * one);
        for name in ["s3://b/1", "s3://b/2", "s3://b/3"] {
            list(&mut cache, name, 100, at(0));
        }
        assert!(matches!(look(&mut cache, "s3://b/1", at(1)), Look::Here(_)));
        list(&mut cache, "s3://b/4", 100, at(1));
        let kept = |cache: &Plain, names: [&str; 4]| names.map(|name| is_kept(cache, name));
        let names = ["s3://b/1", "s3://b/2", "s3://b/3", "s3://b/4"];
        assert_eq!(kept(&cache, names), [true, false, true, true]);
        list(&mut cache, "s3://b/2", 100_000, at(2));
        assert_eq!(kept(&cache, names), [false, true, false, false]);
        list(&mut cache, "s3://b/3", 1, at(2));
        assert_eq!(kept(&cache, names), [false, false, true, false]);
        assert_eq!(cache.order.len(), cache.kept.len());
        let sum: usize = cache.kept.values().map(|kept| kept.bytes).sum();
        assert_eq!(cache.bytes, sum);
    }

    #[test]
    fn what_we_write_is_not_believed_to_be_as_it_was() {
        let mut cache = Plain::new(1 << 20);
        for name in ["s3://b", "s3://b/run", "s3://b/run/deep", "s3://b/other"] {
            list(&mut cache, name, 1, at(0));
        }
        let number = begin(&mut cache, "s3://b/run/new", at(0));
        cache.drop_touched(&written("s3://b/run"));
        for (name, stays) in [
            ("s3://b", false),
            ("s3://b/run", false),
            ("s3://b/run/deep", false),
            ("s3://b/other", true),
        ] {
            assert_eq!(is_kept(&cache, name), stays, "{name}");
        }
        // A caller that asks now does not get an earlier listing.
        let waits = look(&mut cache, "s3://b/run/new", at(0));
        assert!(matches!(
            waits,
            Look::Wait {
                is_of_use: false,
                ..
            }
        ));
        cache.end(
            &place("s3://b/run/new"),
            number,
            Some(known(1, at(0), None)),
        );
        assert!(!is_kept(&cache, "s3://b/run/new"));
    }

    #[test]
    fn nothing_is_kept_while_it_is_being_written() {
        let mut cache = Plain::new(1 << 20);
        list(&mut cache, "s3://b/run", 1, at(0));
        let number = cache.begin_writing(written("s3://b/run"));
        assert!(!is_kept(&cache, "s3://b/run"));
        list(&mut cache, "s3://b/run", 2, at(0));
        assert!(!is_kept(&cache, "s3://b/run"));
        cache.end_writing(number);
        list(&mut cache, "s3://b/run", 3, at(0));
        assert!(is_kept(&cache, "s3://b/run"));
    }

    #[test]
    fn a_tree_brings_all_its_directories_unless_they_are_newer_or_written() {
        let mut cache = Plain::new(1 << 20);
        let found = |at_s| {
            let names = ["s3://b/t", "s3://b/t/1", "s3://b/t/2"];
            names
                .map(|name| (place(name), known(1, at(at_s), None)))
                .to_vec()
        };
        let number = cache.begin_tree(&place("s3://b/t")).unwrap();
        assert_eq!(
            cache.begin_tree(&place("s3://b/t/1")),
            None,
            "it comes with the other"
        );
        assert!(cache.begin_tree(&place("s3://b/tt")).is_some());
        list(&mut cache, "s3://b/t/1", 5, at(3));
        let flies = begin(&mut cache, "s3://b/t/2", at(3));
        cache.end_tree(number, found(2));
        let newer = cache.peek(&place("s3://b/t/1")).unwrap().listed_at;
        assert_eq!(newer, at(3));
        assert!(is_kept(&cache, "s3://b/t") && !is_kept(&cache, "s3://b/t/2"));
        cache.end(&place("s3://b/t/2"), flies, None);
        let number = cache.begin_tree(&place("s3://b/t")).unwrap();
        cache.drop_touched(&written("s3://b/t/2/new"));
        cache.end_tree(number, found(4));
        assert!(
            !is_kept(&cache, "s3://b/t/2"),
            "something was written there"
        );
    }

    #[test]
    fn what_can_not_be_listed_any_more_is_not_kept() {
        let mut cache = Plain::new(1 << 20);
        list(&mut cache, "s3://b/run", 1, at(0));
        let number = begin(&mut cache, "s3://b/run", at(60));
        assert!(cache.is_there(&place("s3://b/run"), at(60)));
        cache.end(&place("s3://b/run"), number, None);
        assert!(!is_kept(&cache, "s3://b/run"));
        assert!(!cache.is_there(&place("s3://b/run"), at(60)));
        // A number that has ended changes nothing.
        cache.end(&place("s3://b/run"), number, Some(known(1, at(0), None)));
        assert!(!is_kept(&cache, "s3://b/run"));
    }
}
