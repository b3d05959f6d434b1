//! Arrows between rooms point down, and the mind's floor stays closed.

use toml::Table;

use super::{Finding, Tree, source};

/// Ground and first floor: pure, `no_std`, closed dependency list.
const GROUND: u8 = 0;
const MIND: u8 = 1;
const HANDS: u8 = 2;
const ROOF: u8 = 3;
/// Outside the house: used by tests and chores only.
const YARD: u8 = 4;

struct Room {
    name: &'static str,
    floor: u8,
    /// Rooms its shipped code may use.
    uses: &'static [&'static str],
}

/// The house. A new room needs a line here and one in ARCHITECTURE.md.
#[rustfmt::skip]
const HOUSE: &[Room] = &[
    Room { name: "types", floor: GROUND, uses: &[] },
    Room { name: "forecast", floor: MIND, uses: &["types"] },
    Room { name: "plan", floor: MIND, uses: &["types", "forecast"] },
    Room { name: "core", floor: MIND, uses: &["types", "forecast", "plan"] },
    Room { name: "trace", floor: HANDS, uses: &[] },
    Room { name: "solve", floor: HANDS, uses: &["types", "plan"] },
    Room { name: "coding", floor: HANDS, uses: &["types"] },
    Room { name: "endpoint", floor: HANDS, uses: &["types", "plan", "trace"] },
    Room { name: "circuit", floor: HANDS, uses: &["types", "endpoint"] },
    Room { name: "batch", floor: HANDS, uses: &["types", "plan"] },
    Room { name: "engine", floor: HANDS, uses: &["types", "plan", "coding", "endpoint"] },
    Room { name: "journal", floor: HANDS, uses: &["types", "core"] },
    Room { name: "api", floor: HANDS, uses: &["types"] },
    Room { name: "service", floor: ROOF, uses: &["types", "core", "plan", "forecast", "solve", "api", "journal", "engine", "endpoint", "circuit", "batch", "relay", "trace"] },
    Room { name: "relay", floor: ROOF, uses: &["types", "plan", "coding", "forecast", "endpoint", "trace"] },
    Room { name: "mover", floor: ROOF, uses: &["types", "api", "engine", "endpoint", "trace"] },
    Room { name: "gateway", floor: ROOF, uses: &["types", "plan", "endpoint"] },
    Room { name: "sim", floor: ROOF, uses: &["types", "core", "plan", "forecast", "solve"] },
    Room { name: "cli", floor: ROOF, uses: &["types", "core", "plan", "forecast", "api", "journal", "engine", "endpoint", "circuit", "batch", "service", "relay", "mover", "gateway", "sim", "trace"] },
    Room { name: "testbed", floor: YARD, uses: &["types", "endpoint"] },
    Room { name: "fuzz", floor: YARD, uses: &["plan", "endpoint", "batch", "engine", "relay", "gateway", "service"] },
    Room { name: "lab", floor: YARD, uses: &[] },
];

fn room(name: &str) -> Option<&'static Room> {
    HOUSE.iter().find(|room| room.name == name)
}

/// Returns the room whose manifest lies at this path, and whether it is that of its tests alone.
/// All but the laboratory are under `crates`.
fn room_at(path: &str) -> Option<(&str, bool)> {
    let folder = path.strip_suffix("/Cargo.toml")?;
    let folder = folder
        .strip_prefix("crates/")
        .or((folder == "lab").then_some(folder))?;
    let room = folder.strip_suffix("/tests");
    Some((room.unwrap_or(folder), room.is_some()))
}

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, text) in tree.ending("/Cargo.toml") {
        let Some((name, is_tests)) = room_at(path) else {
            continue;
        };
        match (room(name), text.parse::<Table>()) {
            (None, _) => found.push(Finding::new(
                path,
                1,
                format!("room `{name}` is not in the house: give it a floor and its arrows in xtask/src/tidy/arrows.rs, and a line in ARCHITECTURE.md"),
            )),
            (Some(_), Err(error)) => {
                found.push(Finding::new(path, 1, format!("can't be read: {}", error.message())));
            }
            (Some(room), Ok(manifest)) => {
                check_room((room, is_tests), path, text, &manifest, &mut found);
                if room.floor <= MIND {
                    check_floor(tree, room, &mut found);
                }
            }
        }
    }
    found
}

fn check_room(
    (room, is_tests): (&Room, bool),
    path: &str,
    text: &str,
    manifest: &Table,
    found: &mut Vec<Finding>,
) {
    for (dependency, dev) in dependencies(manifest) {
        let dev = dev || is_tests;
        let line = line_of(text, &dependency);
        let Some(other) = dependency.strip_prefix("posthaste-") else {
            if room.floor <= MIND && !dev {
                found.push(Finding::new(
                    path,
                    line,
                    format!("`{}` is the mind and may use only the mind: `{dependency}` does not belong there", room.name),
                ));
            }
            continue;
        };
        let Some(below) = self::room(other) else {
            found.push(Finding::new(
                path,
                line,
                format!("no room is called `{other}`"),
            ));
            continue;
        };
        if dev {
            if below.floor > room.floor && below.floor != YARD {
                found.push(Finding::new(
                    path,
                    line,
                    format!(
                        "even tests of `{}` may not use `{other}`: it is on a floor above",
                        room.name
                    ),
                ));
            }
        } else if !room.uses.contains(&other) {
            found.push(Finding::new(
                path,
                line,
                format!(
                    "`{}` may not use `{other}`; its rooms are: {}",
                    room.name,
                    room.uses.join(", ")
                ),
            ));
        }
    }
}

/// Returns the names of all dependencies, of every target, and whether only tests have them.
fn dependencies(manifest: &Table) -> Vec<(String, bool)> {
    let targets = manifest
        .get("target")
        .and_then(|targets| targets.as_table())
        .into_iter()
        .flat_map(|targets| targets.values().filter_map(|target| target.as_table()));
    let mut names = Vec::new();
    for table in std::iter::once(manifest).chain(targets) {
        for (section, dev) in [
            ("dependencies", false),
            ("build-dependencies", false),
            ("dev-dependencies", true),
        ] {
            for (key, value) in table
                .get(section)
                .and_then(|section| section.as_table())
                .into_iter()
                .flatten()
            {
                let renamed = value.get("package").and_then(|package| package.as_str());
                names.push((renamed.unwrap_or(key).to_owned(), dev));
            }
        }
    }
    names
}

fn line_of(text: &str, dependency: &str) -> usize {
    text.lines()
        .position(|line| line.contains(dependency) && !line.starts_with("name"))
        .map_or(1, |place| place + 1)
}

/// Checks for `#![no_std]` at the root, and `std` only under `cfg(test)`.
fn check_floor(tree: &Tree, room: &Room, found: &mut Vec<Finding>) {
    let folder = format!("crates/{}/src/", room.name);
    let root = format!("{folder}lib.rs");
    if !tree
        .get(&root)
        .is_some_and(|text| text.lines().any(|line| line.trim() == "#![no_std]"))
    {
        found.push(Finding::new(
            &root,
            1,
            format!(
                "`{}` is the mind: its root starts with `#![no_std]`",
                room.name
            ),
        ));
    }
    for (path, text) in tree
        .ending(".rs")
        .filter(|(path, _)| path.starts_with(&folder))
    {
        let pieces: Vec<_> = source::pieces(text)
            .into_iter()
            .filter(|piece| piece.kind != source::Kind::Comment)
            .collect();
        for (place, window) in pieces.windows(3).enumerate() {
            let links_std = window[0].is("extern") && window[1].is("crate") && window[2].is("std");
            let guard = &pieces[..place][place.saturating_sub(7)..];
            let for_tests = ["#", "[", "cfg", "(", "test", ")", "]"]
                .iter()
                .zip(guard)
                .filter(|(mark, piece)| piece.is(mark))
                .count()
                == 7;
            if links_std && !for_tests {
                found.push(Finding::new(
                    path,
                    window[0].line,
                    "the mind links `std` only for tests: put `#[cfg(test)]` above",
                ));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIB: (&str, &str) = (
        "crates/plan/src/lib.rs",
        "#![no_std]\n#[cfg(test)]\nextern crate std;\n",
    );

    fn messages(files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::of(files))
            .iter()
            .map(Finding::to_string)
            .collect()
    }

    #[test]
    fn tests_may_be_a_package_of_their_own() {
        let manifest = "[dependencies]\nposthaste-relay.workspace = true\nposthaste-testbed.workspace = true\n";
        assert!(messages(&[("crates/relay/tests/Cargo.toml", manifest)]).is_empty());
        let above = "[dependencies]\nposthaste-service.workspace = true\n";
        assert_eq!(
            messages(&[("crates/endpoint/tests/Cargo.toml", above)]).len(),
            1
        );
    }

    #[test]
    fn a_room_that_uses_rooms_below_is_fine() {
        let manifest = "[dependencies]\nposthaste-types.workspace = true\n[dev-dependencies]\nproptest.workspace = true\nposthaste-testbed.workspace = true\n";
        assert_eq!(
            messages(&[("crates/plan/Cargo.toml", manifest), LIB]),
            [""; 0]
        );
    }

    #[test]
    fn an_arrow_upwards_is_found_with_its_line() {
        let manifest =
            "[dependencies]\nposthaste-types.workspace = true\nposthaste-engine.workspace = true\n";
        let found = messages(&[("crates/plan/Cargo.toml", manifest), LIB]);
        assert_eq!(found.len(), 1);
        assert!(
            found[0].starts_with("crates/plan/Cargo.toml:3: `plan` may not use `engine`"),
            "{found:?}"
        );
    }

    #[test]
    fn a_renamed_arrow_for_one_target_is_found_too() {
        let manifest = "[target.'cfg(unix)'.dependencies]\nx = { package = \"posthaste-cli\", path = \"../cli\" }\n";
        assert_eq!(messages(&[("crates/relay/Cargo.toml", manifest)]).len(), 1);
    }

    #[test]
    fn tests_may_not_reach_a_floor_above() {
        let manifest = "[dev-dependencies]\nposthaste-service.workspace = true\n";
        assert_eq!(
            messages(&[("crates/endpoint/Cargo.toml", manifest)]).len(),
            1
        );
    }

    #[test]
    fn the_testbed_never_ships() {
        let manifest = "[dependencies]\nposthaste-testbed.workspace = true\n";
        assert_eq!(messages(&[("crates/cli/Cargo.toml", manifest)]).len(), 1);
    }

    #[test]
    fn the_mind_has_no_strangers() {
        let manifest = "[dependencies]\nserde = \"1\"\n";
        let found = messages(&[("crates/plan/Cargo.toml", manifest), LIB]);
        assert!(found[0].contains("`serde` does not belong"), "{found:?}");
    }

    #[test]
    fn the_mind_is_no_std() {
        let found = messages(&[
            ("crates/plan/Cargo.toml", ""),
            ("crates/plan/src/lib.rs", "// #![no_std]\n"),
            ("crates/plan/src/greedy.rs", "extern crate std;"),
        ]);
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn the_laboratory_is_a_room_that_never_ships() {
        let manifest = "[dependencies]\nposthaste-lab = { path = \"../../lab\" }\n";
        assert_eq!(messages(&[("crates/cli/Cargo.toml", manifest)]).len(), 1);
        let manifest = "[dependencies]\nposthaste-types.workspace = true\n[dev-dependencies]\nposthaste-testbed.workspace = true\n";
        let found = messages(&[("lab/Cargo.toml", manifest)]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with("lab/Cargo.toml:2: `lab` may not use `types`"),
            "{found:?}"
        );
    }

    #[test]
    fn an_unknown_room_is_found() {
        assert_eq!(messages(&[("crates/attic/Cargo.toml", "")]).len(), 1);
    }
}
