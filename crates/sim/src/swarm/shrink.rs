//! Reduces a failing scenario: removes everything it can while the scenario still fails. Knows TOML
//! and hardly anything about scenarios: a candidate that is no scenario is skipped.

use toml::{Table, Value};

use crate::Scenario;

/// Keys that a scenario needs, or that have no effect.
const KEPT: [&str; 3] = ["name", "summary", "kind"];

/// Single reduction. Lists are the arrays of tables: depots, requests, faults.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Cut {
    /// Half of a list.
    Half { list: String, second: bool },
    /// Entry of a list, and all references to its name.
    Entry { list: String, place: usize },
    /// Setting of the world, or of a list's entry.
    Setting { at: Place, key: String },
    /// Number, cut in half.
    Number { at: Place, key: String },
}

/// Location: the world itself, or an entry of a list.
type Place = Option<(String, usize)>;

/// Returns the smallest failing scenario found within `plays_max` plays; `text` itself at worst.
/// The search is greedy: it repeats the coarsest cuts first until none succeeds.
pub fn shrink(text: &str, plays_max: u32, mut is_failing: impl FnMut(&str) -> bool) -> String {
    let Ok(mut smallest) = text.parse::<Table>() else {
        return text.to_owned();
    };
    let mut shortest = text.to_owned();
    let mut plays = 0;
    loop {
        let mut is_smaller = false;
        let mut place = 0;
        // The list of cuts is rebuilt after each success, and the search continues at the same
        // place.
        while let Some(cut) = cuts(&smallest).get(place) {
            let candidate = apply(cut, &smallest);
            let text = candidate.to_string();
            let is_new = candidate != smallest && Scenario::parse(&text).is_ok();
            if is_new && plays >= plays_max {
                return shortest;
            }
            plays += u32::from(is_new);
            if is_new && is_failing(&text) {
                (smallest, shortest) = (candidate, text);
                is_smaller = true;
            } else {
                place += 1;
            }
        }
        if !is_smaller {
            return shortest;
        }
    }
}

/// Returns the lists of a scenario with their lengths, the least important first.
fn lists(scenario: &Table) -> Vec<(String, usize)> {
    let mut lists: Vec<(String, usize)> = scenario
        .iter()
        .filter_map(|(key, value)| {
            let list = value.as_array()?;
            list.iter()
                .all(Value::is_table)
                .then(|| (key.clone(), list.len()))
        })
        .collect();
    let order = ["fault", "stage-in", "request", "source", "depot"];
    lists.sort_by_key(|(key, _)| order.iter().position(|known| known == key));
    lists
}

/// Returns all possible cuts, the coarsest first.
fn cuts(scenario: &Table) -> Vec<Cut> {
    let lists = lists(scenario);
    let mut cuts = Vec::new();
    for (list, length) in &lists {
        let list = || list.clone();
        let halves = [false, true].into_iter().filter(|_| *length > 3);
        cuts.extend(halves.map(|second| Cut::Half {
            list: list(),
            second,
        }));
        cuts.extend((0..*length).rev().map(|place| Cut::Entry {
            list: list(),
            place,
        }));
    }
    let entries = lists
        .into_iter()
        .flat_map(|(list, length)| (0..length).map(move |place| Some((list.clone(), place))));
    let places: Vec<Place> = std::iter::once(None).chain(entries).collect();
    for is_number in [false, true] {
        for at in &places {
            let Some(table) = find(scenario, at) else {
                continue;
            };
            for (key, value) in table {
                // Depots, requests and faults go one by one; any other list goes as a whole.
                let is_kept = KEPT.contains(&key.as_str()) || (at.is_none() && is_list(value));
                let (at, key) = (at.clone(), key.clone());
                if is_number && (value.is_integer() || value.is_float()) {
                    cuts.push(Cut::Number { at, key });
                } else if !is_number && !is_kept {
                    cuts.push(Cut::Setting { at, key });
                }
            }
        }
    }
    cuts
}

/// Returns whether the value is a list with entries. An empty list is a setting that may go.
fn is_list(value: &Value) -> bool {
    let list = value.as_array().filter(|list| !list.is_empty());
    list.is_some_and(|list| list.iter().all(Value::is_table))
}

fn find<'a>(scenario: &'a Table, at: &Place) -> Option<&'a Table> {
    match at {
        None => Some(scenario),
        Some((list, place)) => scenario.get(list)?.as_array()?.get(*place)?.as_table(),
    }
}

fn find_mut<'a>(scenario: &'a mut Table, at: &Place) -> Option<&'a mut Table> {
    match at {
        None => Some(scenario),
        Some((list, place)) => {
            let list = scenario.get_mut(list)?.as_array_mut()?;
            list.get_mut(*place)?.as_table_mut()
        }
    }
}

fn apply(cut: &Cut, scenario: &Table) -> Table {
    let mut less = scenario.clone();
    match cut {
        Cut::Half { list, second } => {
            if let Some(Value::Array(list)) = less.get_mut(list) {
                let later = list.split_off(list.len() / 2);
                if !second {
                    *list = later;
                }
            }
        }
        Cut::Entry { list, place } => {
            if let Some(Value::Array(list)) = less.get_mut(list) {
                let gone = list.remove(*place);
                if let Some(name) = gone.get("name").and_then(Value::as_str) {
                    forget(&mut less, name);
                }
            }
        }
        Cut::Setting { at, key } => {
            find_mut(&mut less, at).map(|table| table.remove(key));
        }
        Cut::Number { at, key } => {
            let number = find_mut(&mut less, at).and_then(|table| table.get_mut(key));
            if let Some(number) = number {
                *number = halved(number);
            }
        }
    }
    less
}

/// Removes all references to a depot or source by name: its faults, its place in `via`, a
/// destination.
fn forget(scenario: &mut Table, name: &str) {
    let is_it = |value: &Value| value.as_str() == Some(name);
    for (_, list) in scenario.iter_mut() {
        let Value::Array(list) = list else { continue };
        let names_it = |entry: &Value| {
            let mut keys = ["depot", "source"].into_iter();
            keys.any(|key| entry.get(key).is_some_and(is_it))
        };
        list.retain(|entry| !names_it(entry));
        for entry in list.iter_mut().filter_map(Value::as_table_mut) {
            entry.retain(|key, value| key == "name" || !is_it(value));
            for (_, value) in entry.iter_mut() {
                if let Value::Array(names) = value {
                    names.retain(|name| !is_it(name));
                }
            }
        }
    }
}

/// Returns half of a number, as an integer above one.
fn halved(number: &Value) -> Value {
    if let Some(number) = number.as_integer().filter(|number| *number > 1) {
        Value::Integer(number / 2)
    } else if let Some(number) = number.as_float().filter(|number| *number > 1.0) {
        Value::Float((number / 2.0).floor().max(1.0))
    } else {
        number.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{simulate, swarm::draw};

    /// Returns whether a depot is lost. Stands for a broken checker.
    fn is_lost(text: &str) -> bool {
        let report = simulate(&Scenario::parse(text).unwrap(), 5);
        let mut events = report.timeline.iter();
        events.any(|entry| entry.what.name() == "depot-down")
    }

    fn length(scenario: &Table, list: &str) -> usize {
        lists(scenario)
            .iter()
            .find(|(other, _)| other == list)
            .map_or(0, |(_, length)| *length)
    }

    #[test]
    fn what_a_broken_checker_objects_to_ends_as_one_depot_and_one_fault() {
        let is_large = |text: &String| {
            let table = text.parse().unwrap();
            let least = [("depot", 5), ("request", 4), ("fault", 6)];
            least
                .iter()
                .all(|(list, least)| length(&table, list) >= *least)
                // A depot that fails by itself needs no fault, and a neighbour that leaves prolongs
                // a run.
                && !["mtbf", "neighbour"].iter().any(|word| text.contains(word))
                && is_lost(text)
        };
        let drawn = (0..).map(draw).find(is_large).unwrap();
        let small = shrink(&drawn, 1500, is_lost);
        assert!(is_lost(&small), "it no longer fails");
        let table = small.parse().unwrap();
        assert_eq!(
            (length(&table, "depot"), length(&table, "fault")),
            (1, 1),
            "{small}"
        );
        assert!(length(&table, "request") <= 1, "{small}");
        assert!(small.lines().count() <= 20, "{small}");
    }

    #[test]
    fn plays_are_counted_and_nothing_goes_that_is_needed() {
        let mut plays = 0;
        let drawn = draw(11);
        let same = shrink(&drawn, 7, |_| {
            plays += 1;
            false
        });
        assert_eq!((plays, same), (7, drawn));
    }

    #[test]
    fn a_depot_that_goes_takes_along_what_refers_to_it() {
        let text = "name='a'\nsummary=''\nhorizon_s=9\n[[depot]]\nname='x'\nrate_mib_per_s=1\ncapacity_mib=1\n\
                    [[depot]]\nname='y'\nrate_mib_per_s=1\ncapacity_mib=1\n[[request]]\nsize_mib=1\ndeadline_s=1\n\
                    code='1+0'\nvia=['x','y']\ndestination='x'\n[[fault]]\nat_s=1\nkind='dies'\ndepot='x'\n";
        let cut = Cut::Entry {
            list: String::from("depot"),
            place: 0,
        };
        let less = apply(&cut, &text.parse().unwrap());
        assert!(Scenario::parse(&less.to_string()).is_ok(), "{less}");
        assert_eq!((length(&less, "depot"), length(&less, "fault")), (1, 0));
        assert!(
            !less.to_string().contains("'x'") && !less.to_string().contains("\"x\""),
            "{less}"
        );
    }
}
