//! HTB tree of a device, as lines for `tc -batch`.
//!
//! ```text
//! 7e57: htb ── 7e57:fffe the link ─┬─ 7e57:ffff everybody else: what is left, at most the link
//!                                  ├─ 7e57:1    a reservation: its rate, at most the link
//!                                  └─ 7e57:2    another
//! ```
//!
//! The rates of the leaves add up to the link's, so each has its own whatever the others do, and
//! they share the unused rate. HTB checks the class that `SO_PRIORITY` names before any filter
//! (tc-htb(8), "Classification").

use std::{collections::BTreeMap, fmt::Write as _};

use posthaste_types::ByteRate;

use super::flow::{Family, Flow};

/// Handle of our trees: a gateway made any queue that has it.
pub(super) const MAJOR: u16 = 0x7e57;
const LINK: u16 = 0xfffe;
const EVERYBODY: u16 = 0xffff;
/// Highest number of a class; then numbers start from 1 again. An open stream whose reservation is
/// over must not end up in the next one. Filters take two numbers each, of 16 bits.
pub(super) const CLASS_MAX: u16 = 30_000;
/// Thousandths of a link that can be reserved: logins, routing and acknowledgements must pass too.
pub(super) const RESERVABLE_PERMILLE: u64 = 950;

/// Reservation that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Class {
    pub rate: ByteRate,
    pub flows: Vec<Flow>,
}

/// Running reservations of a device, by the number of their class.
pub(super) type Classes = BTreeMap<u16, Class>;

/// Returns `SO_PRIORITY` for a class.
pub(super) fn priority(class: u16) -> u32 {
    u32::from(MAJOR) << 16 | u32::from(class)
}

/// Returns the rate of a link that may be reserved.
pub(super) fn reservable(link: ByteRate) -> ByteRate {
    link.scaled(RESERVABLE_PERMILLE, 1000)
}

fn left(link: ByteRate, classes: &Classes) -> ByteRate {
    let taken: ByteRate = classes.values().map(|class| class.rate).sum();
    let least = link.scaled(1000 - RESERVABLE_PERMILLE, 1000);
    ByteRate::new(link.get().saturating_sub(taken.get())).max(least)
}

/// Writes a `class add` or `class change`.
fn class(
    verb: &str,
    device: &str,
    (parent, minor): (u16, u16),
    rate: ByteRate,
    link: ByteRate,
) -> String {
    // Bytes that may leave at once: two milliseconds, and never less than the largest packet that
    // the kernel makes before it cuts it for the wire. A smaller burst would wake the kernel for
    // each packet.
    let burst = |rate: ByteRate| (rate.get() / 500).clamp(64 << 10, 16 << 20);
    let parent = if parent == 0 {
        format!("{MAJOR:x}:")
    } else {
        format!("{MAJOR:x}:{parent:x}")
    };
    // A borrowing class gets turns of so many bytes, in proportion to its rate.
    let quantum = (rate.get() / 1000).clamp(1514, 60_000);
    format!(
        "class {verb} dev {device} parent {parent} classid {MAJOR:x}:{minor:x} htb rate {}bps ceil {}bps burst {}b \
         cburst {}b quantum {quantum}\n",
        rate.get().max(1),
        link.get(),
        burst(rate),
        burst(link),
    )
}

/// Returns one of two preferences of a class: each has packets of one protocol only.
fn preference(minor: u16, family: Family) -> u32 {
    2 * u32::from(minor)
        + match family {
            Family::V4 => 0,
            Family::V6 => 1,
        }
}

fn add(device: &str, link: ByteRate, minor: u16, made: &Class) -> String {
    let mut lines = class("add", device, (LINK, minor), made.rate, link);
    for (family, rule) in made.flows.iter().flat_map(Flow::rules) {
        let (protocol, preference) = (family.protocol(), preference(minor, family));
        let _ = writeln!(
            lines,
            "filter add dev {device} parent {MAJOR:x}: protocol {protocol} pref {preference} u32{rule} flowid {MAJOR:x}:{minor:x}"
        );
    }
    lines
}

fn remove(device: &str, minor: u16, made: &Class) -> String {
    let rules: Vec<_> = made.flows.iter().flat_map(Flow::rules).collect();
    let mut lines = String::new();
    for family in Family::ALL {
        if rules.iter().any(|(of, _)| *of == family) {
            let (protocol, preference) = (family.protocol(), preference(minor, family));
            let _ = writeln!(
                lines,
                "filter del dev {device} parent {MAJOR:x}: protocol {protocol} pref {preference}"
            );
        }
    }
    let _ = writeln!(lines, "class del dev {device} classid {MAJOR:x}:{minor:x}");
    lines
}

/// Writes the whole tree, with a filter that is added and removed. A kernel without filters fails
/// now, not at the first flow.
pub(super) fn build(device: &str, link: ByteRate, classes: &Classes) -> String {
    let mut lines =
        format!("qdisc add dev {device} root handle {MAJOR:x}: htb default {EVERYBODY:x}\n");
    lines += &class("add", device, (0, LINK), link, link);
    lines += &class("add", device, (LINK, EVERYBODY), left(link, classes), link);
    let filter = format!("dev {device} parent {MAJOR:x}: protocol ip pref 1");
    let _ = writeln!(
        lines,
        "filter add {filter} u32 match u32 0 0 flowid {MAJOR:x}:{EVERYBODY:x}"
    );
    let _ = writeln!(lines, "filter del {filter}");
    for (minor, class) in classes {
        lines += &add(device, link, *minor, class);
    }
    lines
}

/// Writes the changes from one tree to another. Rates are lowered before others are raised.
pub(super) fn change(device: &str, link: ByteRate, old: &Classes, new: &Classes) -> String {
    let mut lines = String::new();
    let is_same =
        |minor: &u16, class: &Class| new.get(minor).is_some_and(|new| new.flows == class.flows);
    for (minor, class) in old.iter().filter(|(minor, class)| !is_same(minor, class)) {
        lines += &remove(device, *minor, class);
    }
    if left(link, old) != left(link, new) {
        lines += &class("change", device, (LINK, EVERYBODY), left(link, new), link);
    }
    for (minor, made) in new {
        match old.get(minor).filter(|old| old.flows == made.flows) {
            None => lines += &add(device, link, *minor, made),
            Some(old) if old.rate != made.rate => {
                lines += &class("change", device, (LINK, *minor), made.rate, link)
            }
            Some(_) => {}
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(rate: u64) -> Class {
        Class {
            rate: ByteRate::new(rate),
            flows: Vec::new(),
        }
    }

    #[test]
    fn a_tree_adds_up_to_its_link_and_leaves_something_to_everybody() {
        let link = ByteRate::new(100_000_000);
        let some = Classes::from([(1, running(30_000_000)), (2, running(20_000_000))]);
        let lines = build("eth1", link, &some);
        assert!(
            lines.contains("classid 7e57:ffff htb rate 50000000bps ceil 100000000bps"),
            "{lines}"
        );
        assert!(
            lines.contains("classid 7e57:1 htb rate 30000000bps ceil 100000000bps"),
            "{lines}"
        );
        let all = Classes::from([(1, running(100_000_000))]);
        assert_eq!(left(link, &all), ByteRate::new(5_000_000));
    }

    #[test]
    fn a_change_touches_what_changes() {
        let link = ByteRate::new(100_000_000);
        let old = Classes::from([
            (1, running(30_000_000)),
            (2, running(20_000_000)),
            (3, running(1)),
        ]);
        let new = Classes::from([
            (1, running(30_000_000)),
            (2, running(10_000_000)),
            (4, running(7)),
        ]);
        let lines = change("eth1", link, &old, &new);
        let told: Vec<(&str, &str)> = lines
            .lines()
            .map(|line| {
                let words: Vec<&str> = line.split(' ').collect();
                let at = words.iter().position(|word| *word == "classid").unwrap();
                (words[1], words[at + 1])
            })
            .collect();
        let expected = [
            ("del", "7e57:3"),
            ("change", "7e57:ffff"),
            ("change", "7e57:2"),
            ("add", "7e57:4"),
        ];
        assert_eq!(told, expected);
        assert_eq!(change("eth1", link, &new, &new), "");
        assert_eq!(priority(4), 0x7e57_0004);
    }
}
