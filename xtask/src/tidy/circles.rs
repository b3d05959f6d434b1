//! Files of a crate that need each other in a circle, and arrows between the layers of the mind.
//!
//! Imports do not show all of it: `self.look()` needs no `use`. So a file needs another if it
//! names a path of it, or calls a method of its own type that the other defines.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Finding, Tree,
    source::{Kind, Piece, pieces},
};

/// Largest circle of files in each crate that still has one: by paths, and by method calls. A
/// smaller one found makes the number here smaller.
const LEFT: &[(&str, usize, usize)] = &[
    ("crates/batch", 1, 2),
    ("crates/circuit", 1, 3),
    ("crates/cli", 2, 1),
    ("crates/core", 1, 7),
    ("crates/endpoint", 12, 4),
    ("crates/engine", 14, 6),
    ("crates/gateway", 2, 1),
    ("crates/journal", 2, 1),
    ("crates/plan", 2, 1),
    ("crates/relay", 1, 2),
    ("crates/service", 66, 4),
    ("crates/sim", 3, 2),
    ("crates/testbed", 2, 1),
    ("xtask", 3, 1),
];

/// Layers of the mind, each of which may use those before it and itself.
const LAYERS: [&str; 5] = ["state", "forecast", "decide", "apply", "machine"];
/// Layer that tells people what is there: nothing but `lib.rs` uses it, and it changes nothing.
const TELLS: &str = "explain";
const MIND: &str = "crates/core";

/// Files that each file needs, by module path, with the line of the first path.
type Needs = BTreeMap<String, BTreeMap<String, usize>>;

pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, BTreeMap<String, Module>> = BTreeMap::new();
    for (path, text) in tree.ending(".rs") {
        if let Some((name, module)) = module_of(path) {
            let module = (module, Module::read(path, text));
            crates.entry(name).or_default().extend([module]);
        }
    }
    let mut found = Vec::new();
    for (name, modules) in &crates {
        let (paths, methods) = (by_paths(modules), by_methods(modules));
        let left = LEFT.iter().find(|(left, ..)| left == name);
        let (paths_left, methods_left) = left.map_or((1, 1), |left| (left.1, left.2));
        for (needs, most, how) in [
            (&paths, paths_left, "paths"),
            (&methods, methods_left, "method calls"),
        ] {
            found.extend(judge_circles(name, modules, needs, most, how));
        }
        if *name == MIND {
            found.extend(judge_layers(modules, &paths));
        }
    }
    found
}

/// Returns the crate's folder and the module path of a file that is no test.
fn module_of(path: &str) -> Option<(&str, String)> {
    let (name, inside) = path.split_once("/src/")?;
    let module = inside.strip_suffix(".rs")?.replace('/', "::");
    let is_ours = name.starts_with("crates/") || name == "lab" || name == "xtask";
    let is_root = matches!(module.as_str(), "lib" | "main") || module.starts_with("bin::");
    is_ours.then(|| (name, if is_root { String::new() } else { module }))
}

/// A file of a crate.
#[derive(Default)]
struct Module {
    path: String,
    /// Paths it names, absolute within the crate or relative to what it imports, with their lines.
    named: Vec<(Vec<String>, usize)>,
    /// Names it imports, and what they stand for.
    imported: BTreeMap<String, Vec<String>>,
    /// For each type with an `impl` block: its methods here, and those called on `self`.
    types: BTreeMap<String, (BTreeSet<String>, BTreeSet<String>)>,
}

impl Module {
    fn read(path: &str, text: &str) -> Self {
        let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or(text);
        let all: Vec<Piece<'_>> = pieces(text)
            .into_iter()
            .filter(|piece| piece.kind != Kind::Comment)
            .collect();
        let mut module = Self {
            path: path.to_owned(),
            ..Self::default()
        };
        let mut at = 0;
        while at < all.len() {
            // `use<'a>` captures lifetimes.
            let captures = all.get(at + 1).is_some_and(|piece| piece.is("<"));
            at = if all[at].is("use") && !captures {
                module.read_use(&all, at + 1)
            } else if all[at].is("impl") {
                module.read_impl(&all, at)
            } else {
                module.read_path(&all, at)
            };
        }
        module
    }

    /// Reads an import and returns the place behind it.
    fn read_use(&mut self, all: &[Piece<'_>], from: usize) -> usize {
        let end = all[from..].iter().position(|piece| piece.is(";"));
        let end = from + end.unwrap_or(all.len() - from);
        self.read_tree(&all[from..end], &[]);
        end
    }

    fn read_tree(&mut self, tree: &[Piece<'_>], before: &[String]) {
        let open = tree.iter().position(|piece| piece.is("{"));
        let head = &tree[..open.unwrap_or(tree.len())];
        let renamed = head.iter().position(|piece| piece.is("as"));
        let words = head[..renamed.unwrap_or(head.len())].iter();
        let words = words.filter(|piece| piece.kind == Kind::Word || piece.is("*"));
        let mut path = before.to_vec();
        path.extend(words.map(|piece| piece.text.to_owned()));
        let Some(open) = open else {
            let Some(first) = tree.first() else { return };
            let own = matches!(
                path.first().map(String::as_str),
                Some("crate" | "self" | "super")
            );
            let name = renamed.and_then(|place| head.get(place + 1));
            let name = name.map(|piece| piece.text.to_owned());
            if let (true, Some(name)) = (own, name.or_else(|| path.last().cloned())) {
                self.imported.insert(name, path.clone());
                self.named.push((path, first.line));
            }
            return;
        };
        let (mut depth, mut begin) = (0_usize, open + 1);
        for (place, piece) in tree.iter().enumerate().skip(open) {
            depth = (depth + usize::from(piece.is("{"))).saturating_sub(usize::from(piece.is("}")));
            if (depth == 1 && piece.is(",")) || depth == 0 {
                self.read_tree(&tree[begin..place], &path);
                begin = place + 1;
            }
        }
    }

    /// Reads a path, if one begins here, and returns the place behind it.
    fn read_path(&mut self, all: &[Piece<'_>], from: usize) -> usize {
        let mut path = Vec::new();
        let mut at = from;
        while let Some(piece) = all.get(at).filter(|piece| piece.kind == Kind::Word) {
            path.push(piece.text.to_owned());
            if !all.get(at + 1).is_some_and(|piece| piece.is("::")) {
                break;
            }
            at += 2;
        }
        if path.len() > 1 {
            self.named.push((path, all[from].line));
        }
        at.max(from) + 1
    }

    /// Reads the head of an `impl` block, and its methods and calls; its paths are read after.
    fn read_impl(&mut self, all: &[Piece<'_>], from: usize) -> usize {
        let open = all[from..].iter().position(|piece| piece.is("{"));
        let open = from + open.unwrap_or(all.len() - from);
        let head = &all[from..open];
        let mut depth = 0_usize;
        let close = all[open..].iter().position(|piece| {
            depth = (depth + usize::from(piece.is("{"))).saturating_sub(usize::from(piece.is("}")));
            depth == 0
        });
        let body = &all[open..open + close.unwrap_or(all.len() - open)];
        let name = subject(head);
        if let Some(name) = name.filter(|_| !head.iter().any(|piece| piece.is("for"))) {
            let (methods, calls) = self.types.entry(name.to_owned()).or_default();
            for three in body.windows(4) {
                let [one, two, three, four] = three else {
                    continue;
                };
                if one.is("fn") {
                    methods.insert(two.text.to_owned());
                }
                let is_call = (one.is("self") && two.is(".") || one.is("Self") && two.is("::"))
                    && four.is("(");
                if is_call {
                    calls.insert(three.text.to_owned());
                }
            }
        }
        from + 1
    }
}

/// Returns the type of an `impl` block without a trait.
fn subject<'a>(head: &[Piece<'a>]) -> Option<&'a str> {
    let mut depth = 0_usize;
    head.iter().skip(1).find_map(|piece| {
        match piece.text {
            "<" => depth += 1,
            ">" => depth = depth.saturating_sub(1),
            _ => {}
        }
        (depth == 0 && piece.kind == Kind::Word).then_some(piece.text)
    })
}

fn by_paths(modules: &BTreeMap<String, Module>) -> Needs {
    let mut needs = Needs::new();
    for (name, module) in modules {
        let mine = needs.entry(name.clone()).or_default();
        for (path, line) in &module.named {
            let whole = match module.imported.get(&path[0]) {
                Some(stands_for) => [stands_for, &path[1..]].concat(),
                None => path.clone(),
            };
            let Some(whole) = absolute(&whole, name) else {
                continue;
            };
            // A module that is only imported is needed where a path through it is named.
            let is_module = modules.contains_key(&whole.join("::"));
            let is_import = module.imported.values().any(|import| import == path);
            if is_module && is_import {
                continue;
            }
            let longest = (0..=whole.len())
                .rev()
                .map(|count| whole[..count].join("::"));
            let target = longest.into_iter().find(|path| modules.contains_key(path));
            if let Some(target) = target.filter(|target| target != name && !target.is_empty()) {
                mine.entry(target).or_insert(*line);
            }
        }
    }
    needs
}

/// Returns the path below the crate's root; none if it leads out of the crate.
fn absolute(path: &[String], module: &str) -> Option<Vec<String>> {
    let mut base: Vec<String> = module.split("::").map(str::to_owned).collect();
    base.retain(|word| !word.is_empty());
    let mut rest = path;
    match rest.first()?.as_str() {
        "crate" => (base, rest) = (Vec::new(), &rest[1..]),
        "self" => rest = &rest[1..],
        "super" => {}
        _ => return None,
    }
    while rest.first().is_some_and(|word| word == "super") {
        base.pop();
        rest = &rest[1..];
    }
    Some([base, rest.to_vec()].concat())
}

fn by_methods(modules: &BTreeMap<String, Module>) -> Needs {
    let mut defined: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    for (name, module) in modules {
        for (of, (methods, _)) in &module.types {
            defined.extend(
                methods
                    .iter()
                    .map(|method| ((of.as_str(), method.as_str()), name.as_str())),
            );
        }
    }
    let mut needs = Needs::new();
    for (name, module) in modules {
        let mine = needs.entry(name.clone()).or_default();
        for (of, (_, calls)) in &module.types {
            let targets = calls.iter().filter_map(|call| defined.get(&(of, call)));
            let others = targets.filter(|target| *target != name);
            mine.extend(others.map(|target| ((*target).to_owned(), 1)));
        }
    }
    needs
}

fn judge_circles(
    name: &str,
    modules: &BTreeMap<String, Module>,
    needs: &Needs,
    most: usize,
    how: &str,
) -> Vec<Finding> {
    let circles = circles(needs);
    let largest = circles.iter().map(BTreeSet::len).max().unwrap_or(1);
    if largest < most {
        let message =
            format!("the largest circle of files by {how} in {name} has {largest}: say so");
        return vec![Finding::new("xtask/src/tidy/circles.rs", 1, message)];
    }
    let large = circles.into_iter().filter(|circle| circle.len() > most);
    let found = large.map(|circle| {
        let first = circle.first().cloned().unwrap_or_default();
        let path = modules.get(&first).map_or(name, |module| &module.path);
        let all: Vec<&str> = circle.iter().map(String::as_str).collect();
        let message = format!(
            "{} files need each other in a circle by {how}: {}",
            all.len(),
            all.join(", ")
        );
        Finding::new(path, 1, message)
    });
    found.collect()
}

fn judge_layers(modules: &BTreeMap<String, Module>, needs: &Needs) -> Vec<Finding> {
    let layer = |module: &str| module.split("::").next().unwrap_or_default().to_owned();
    let place = |layer: &str| LAYERS.iter().position(|other| *other == layer);
    let mut found = Vec::new();
    for (module, targets) in needs {
        for (target, line) in targets {
            let (one, other) = (layer(module), layer(target));
            let is_up = place(&one)
                .zip(place(&other))
                .is_some_and(|(one, other)| one < other);
            let is_told = other == TELLS && one != TELLS && !module.is_empty();
            let changes = one == TELLS && other == "apply";
            if is_up || is_told || changes {
                let message = format!("`{one}` may not use `{other}`: {module} names {target}");
                let path = modules.get(module).map_or(MIND, |module| &module.path);
                found.push(Finding::new(path, *line, message));
            }
        }
    }
    found
}

/// Returns the sets of files that reach each other: strongly connected components of more than one.
fn circles(needs: &Needs) -> Vec<BTreeSet<String>> {
    let reach = |from: &str| {
        let mut seen = BTreeSet::new();
        let mut waiting = vec![from.to_owned()];
        while let Some(next) = waiting.pop() {
            for target in needs.get(&next).into_iter().flat_map(BTreeMap::keys) {
                if seen.insert(target.clone()) {
                    waiting.push(target.clone());
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&String, BTreeSet<String>> =
        needs.keys().map(|name| (name, reach(name))).collect();
    let mut found: Vec<BTreeSet<String>> = Vec::new();
    for (name, seen) in &reached {
        if !seen.contains(*name) || found.iter().any(|circle| circle.contains(*name)) {
            continue;
        }
        let others = seen
            .iter()
            .filter(|other| reached.get(other).is_some_and(|back| back.contains(*name)));
        found.push(others.cloned().collect());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let all = check(&Tree::of(files));
        all.iter().map(Finding::to_string).collect()
    }

    #[test]
    fn a_circle_by_paths_is_found_and_a_facade_is_none() {
        let facade = [
            ("crates/a/src/lib.rs", "mod b;\nmod c;\npub use b::B;"),
            ("crates/a/src/b.rs", "use crate::c::C;\nstruct B(C);"),
            ("crates/a/src/c.rs", "struct C;"),
        ];
        assert_eq!(found(&facade), Vec::<String>::new());
        let mut circle = facade;
        circle[2].1 = "use crate::b;\nstruct C;\nfn f() { b::g() }";
        let all = found(&circle);
        assert!(
            all.len() == 1 && all[0].contains("by paths: b, c"),
            "{all:?}"
        );
    }

    #[test]
    fn a_circle_by_method_calls_is_found() {
        let all = found(&[
            (
                "crates/a/src/b.rs",
                "impl<'a> Mind<'a> { fn b(&self) { self.c(); } }",
            ),
            (
                "crates/a/src/c.rs",
                "impl Mind<'_> { fn c(&self) { if x { Self::b(self) } } }",
            ),
        ]);
        assert!(
            all.len() == 1 && all[0].contains("by method calls"),
            "{all:?}"
        );
    }

    #[test]
    fn an_arrow_up_among_the_layers_of_the_mind_is_found() {
        let all = found(&[
            (
                "crates/core/src/state/a.rs",
                "use crate::decide;\nfn a() { decide::b::b() }",
            ),
            ("crates/core/src/decide/b.rs", "pub fn b() {}"),
        ]);
        assert!(
            all.iter()
                .any(|one| one.contains("`state` may not use `decide`")),
            "{all:?}"
        );
    }
}
