//! Disks lent for one job: its results go over these, and use no more of any than is lent.

use posthaste_api as api;
use posthaste_batch::script;
use posthaste_engine::dataset::chunk_size_for;
use posthaste_types::{Bytes, Code};

/// Space left on the disks that are lent for a job, in the order of its script.
#[derive(Debug)]
pub(super) struct Lent {
    rooms: Vec<(String, Bytes)>,
    /// Lending hours and load limits, of depots that have any.
    terms: Vec<api::LentFor>,
}

impl Lent {
    /// Returns all depots that a script lends.
    pub(super) fn new(depots: &[script::Lent]) -> Self {
        let rooms = depots.iter().map(|lent| (lent.name.clone(), lent.space));
        let bound = depots
            .iter()
            .filter(|lent| !lent.hours.is_always() || lent.load_max_permille.is_some());
        let terms = bound.map(|lent| api::LentFor {
            depot: lent.name.clone(),
            hours: (!lent.hours.is_always()).then(|| lent.hours.to_string()),
            load_below: lent.load_max_permille.map(|load| f64::from(load) / 1000.0),
        });
        Self {
            rooms: rooms.collect(),
            terms: terms.collect(),
        }
    }

    /// Returns when these depots are lent, and below which load of their machines.
    pub(super) fn terms(&self, via: &[String]) -> Vec<api::LentFor> {
        let terms = self.terms.iter();
        terms
            .filter(|lent| via.contains(&lent.depot))
            .cloned()
            .collect()
    }

    /// Returns whether no disks are lent: then data may go over any depot of the service.
    pub(super) fn is_empty(&self) -> bool {
        self.rooms.is_empty()
    }

    /// Returns the names of all depots.
    pub(super) fn names(&self) -> Vec<String> {
        self.rooms.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Subtracts what a dataset over these depots may need.
    pub(super) fn take(&mut self, via: &[String], code: Code, bytes: Bytes) {
        let share = share(code, bytes);
        for (name, left) in &mut self.rooms {
            if via.contains(name) {
                *left = Bytes::new(left.get().saturating_sub(share.get()));
            }
        }
    }

    /// Returns the depots with room for a dataset of this size, and its code: the wished one, or
    /// the usual one for their number. A depot not lent for the job counts as having room.
    pub(super) fn choose(
        &self,
        mut via: Vec<String>,
        wished: Option<Code>,
        bytes: Bytes,
    ) -> (Vec<String>, Code) {
        loop {
            let code = wished.unwrap_or_else(|| usual_code(via.len()));
            let (share, count) = (share(code, bytes), via.len());
            via.retain(|name| self.left(name).is_none_or(|left| left >= share));
            // With fewer depots each holds more.
            if via.len() == count {
                return (via, code);
            }
        }
    }

    fn left(&self, depot: &str) -> Option<Bytes> {
        let mut rooms = self.rooms.iter();
        rooms.find(|(name, _)| name == depot).map(|(_, left)| *left)
    }
}

/// Returns the default code, as `posthaste offload` does: one depot may be lost if there are at
/// least two.
pub(super) fn usual_code(depots: usize) -> Code {
    let data = depots.saturating_sub(1).min(Code::FRAGMENTS_MAX.into());
    let data = u8::try_from(data).unwrap_or(Code::FRAGMENTS_MAX);
    Code::new(data, 1).unwrap_or(Code::NONE)
}

/// Returns the most that one depot may hold of a dataset: a fragment of each chunk.
fn share(code: Code, bytes: Bytes) -> Bytes {
    let chunk = chunk_size_for(bytes, false);
    let (chunks, rest) = (bytes.get() / chunk.get(), bytes.get() % chunk.get());
    let last = code.fragment_size(Bytes::new(rest)).get();
    let all = code.fragment_size(chunk).times(chunks);
    Bytes::new(all.get().saturating_add(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lent(depots: &str) -> Lent {
        let script: String = depots
            .split(' ')
            .map(|depot| format!("#POSTHASTE depot {depot}\n"))
            .collect();
        Lent::new(&script::read(&script).unwrap().depots)
    }

    fn choose(lent: &Lent, code: Option<&str>, mebi: u64) -> String {
        let code = code.map(|code| code.parse().unwrap());
        let (via, code) = lent.choose(lent.names(), code, Bytes::mebi(mebi));
        format!("{} as {code}", via.join(","))
    }

    #[test]
    fn depots_without_room_are_left_out_and_the_others_hold_more() {
        let all = lent("a:10M b:10M c:10M d:3M");
        assert_eq!(choose(&all, None, 8), "a,b,c,d as 3+1");
        assert_eq!(choose(&all, None, 9), "a,b,c as 2+1", "d has no room");
        assert_eq!(choose(&all, None, 20), "a,b,c as 2+1");
        assert_eq!(choose(&all, None, 21), " as 1+0");
        assert_eq!(choose(&all, Some("2+1"), 8), "a,b,c as 2+1");
    }

    #[test]
    fn several_datasets_share_what_is_lent() {
        let mut all = lent("a:10M b:10M");
        all.take(&["a".into()], Code::NONE, Bytes::mebi(6));
        assert_eq!(choose(&all, None, 5), "b as 1+0");
        all.take(&["a".into(), "b".into()], Code::NONE, Bytes::mebi(5));
        assert_eq!(choose(&all, None, 4), "b as 1+0");
        let others = vec!["b".to_owned(), "other".to_owned()];
        let (via, _) = all.choose(others, None, Bytes::mebi(100));
        assert_eq!(via, ["other"], "nobody said how much may lie there");
    }

    #[test]
    fn the_usual_code_is_one_that_there_is() {
        let codes = [0, 1, 2, 5, 33, 64].map(|depots| usual_code(depots).to_string());
        assert_eq!(codes, ["1+0", "1+0", "1+1", "4+1", "32+1", "32+1"]);
    }
}
