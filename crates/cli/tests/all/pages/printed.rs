//! Commands that pages and help print.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Page of the documentation.
pub struct Page {
    path: PathBuf,
    text: String,
}

/// Returns the README, and the pages for people who use posthaste or run it.
pub fn pages() -> impl Iterator<Item = Page> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folders = ["guide", "operating", "reference"].map(|name| root.join("docs").join(name));
    let pages = folders
        .into_iter()
        .flat_map(|folder| fs::read_dir(folder).unwrap());
    let pages: Vec<PathBuf> = pages.map(|entry| entry.unwrap().path()).collect();
    assert!(pages.len() > 30, "the documentation lies elsewhere");
    pages
        .into_iter()
        .chain([root.join("README.md")])
        .map(|path| {
            let text = fs::read_to_string(&path).unwrap();
            Page { path, text }
        })
}

impl Page {
    /// Returns the commands in the page's blocks, each in one line.
    pub fn commands(&self) -> Vec<String> {
        let (mut commands, mut block) = (Vec::new(), None);
        for line in self.text.lines() {
            match (line.trim_start().strip_prefix("```"), &mut block) {
                (Some(kind), None) => block = Some((kind.to_owned(), Vec::new())),
                (Some(_), Some((kind, lines))) => {
                    commands.extend(typed(kind, lines));
                    block = None;
                }
                (None, Some((_, lines))) => lines.push(line),
                (None, None) => {}
            }
        }
        assert!(block.is_none(), "{} has an open block", self.path.display());
        commands
    }

    /// Returns the commands in the page's sentences: spans of code that begin with `posthaste`.
    pub fn spans(&self) -> Vec<String> {
        let prose = self.text.split("```").step_by(2);
        let spans = prose.flat_map(|text| text.split('`').skip(1).step_by(2));
        let spans = spans.filter(|span| span.starts_with("posthaste "));
        spans.map(one_line).collect()
    }
}

/// Returns the commands of a block: all of a script, the text after a prompt, and commands that
/// posthaste itself suggests.
fn typed(kind: &str, lines: &[&str]) -> Vec<String> {
    let margin = lines
        .first()
        .map_or(0, |line| line.len() - line.trim_start().len());
    let lines = lines.iter().map(|line| line.get(margin..).unwrap_or(""));
    match kind {
        "sh" => joined(lines),
        "console" => joined(lines.filter_map(|line| line.strip_prefix("$ "))),
        "" => joined(lines.filter(|line| line.starts_with("posthaste "))),
        _ => Vec::new(),
    }
}

/// Joins commands that continue in further lines.
pub fn joined<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    let (mut commands, mut open) = (Vec::new(), String::new());
    for line in lines {
        open.push_str(line.split(" # ").next().unwrap_or("").trim_end());
        let goes_on = open.ends_with(['\\', '|'])
            || open.matches('\'').count() % 2 == 1
            || (open.contains("<<END") && line != "END");
        if goes_on {
            open.push('\n');
            continue;
        }
        let command = one_line(&open);
        if !command.is_empty() {
            commands.push(command);
        }
        open.clear();
    }
    assert_eq!(open, "", "a command has no end");
    commands
}

/// Returns a command without line breaks, comments and the background sign.
pub fn one_line(command: &str) -> String {
    let command = command.split(" # ").next().unwrap_or("");
    let command = command.replace("\\\n", " ");
    let words: Vec<&str> = command.split_whitespace().collect();
    let line = words.join(" ");
    let line = line.strip_suffix(" &").unwrap_or(&line);
    if line.starts_with('#') {
        String::new()
    } else {
        line.to_owned()
    }
}

/// Output of `posthaste … --help` for each command, by its words: `depot add`.
pub struct Help {
    texts: BTreeMap<String, String>,
}

impl Help {
    pub fn read() -> Self {
        let mut texts = BTreeMap::new();
        // Slurm alone runs it: the help does not list it.
        let mut open = vec![String::new(), "slurm hook".to_owned()];
        while let Some(command) = open.pop() {
            // Its own help lists those alone that most people need.
            let words = match command.is_empty() {
                true => "help all".to_owned(),
                false => format!("{command} --help"),
            };
            let output = Command::new(env!("CARGO_BIN_EXE_posthaste"))
                .args(words.split_whitespace())
                .env("COLUMNS", "1000")
                .output()
                .unwrap();
            assert!(output.status.success(), "posthaste {command} --help");
            let text = String::from_utf8(output.stdout).unwrap();
            open.extend(
                commands_in(&text).map(|name| format!("{command} {name}").trim().to_owned()),
            );
            texts.insert(command, text);
        }
        assert!(
            texts.len() > 40,
            "the help names its commands in another way"
        );
        Self { texts }
    }

    /// Returns the examples of all commands, without their explanations.
    pub fn examples(&self) -> impl Iterator<Item = String> {
        self.texts.values().flat_map(|text| {
            let examples = text.lines().skip_while(|line| *line != "Examples:");
            let examples = examples.skip(1).take_while(|line| !line.is_empty());
            // What is said stands behind two spaces, or in a line of its own far to the right.
            let examples = examples.filter(|line| !line.starts_with("        "));
            let examples = examples.map(|line| line.trim_start().split("  ").next().unwrap_or(""));
            joined(examples)
        })
    }

    /// Returns the mistake in a command that a sentence names: an option that it does not have.
    pub fn mistake_of(&self, span: &str) -> Option<String> {
        let mut words = span.split(' ').skip(1).peekable();
        let mut command = String::new();
        while let Some(word) = words.peek() {
            let longer = format!("{command} {word}").trim().to_owned();
            if !self.texts.contains_key(&longer) {
                break;
            }
            command = longer;
            words.next();
        }
        let usage = format!("Usage: posthaste {command} <COMMAND>").replace("  ", " ");
        if self.texts[&command].lines().any(|line| line == usage) {
            let next = words.peek()?;
            let is_name = next
                .chars()
                .all(|letter| letter.is_ascii_lowercase() || letter == '-');
            return is_name.then(|| format!("`{span}`: there is no such command"));
        }
        let text = &self.texts[&command];
        // What follows belongs to another program.
        let options = words.take_while(|word| *word != "--" && *word != "|");
        let options = options.filter(|word| word.starts_with("--"));
        let mut options = options.map(|word| word.split(['=', ',', ')']).next().unwrap_or(word));
        let unknown = options.find(|option| !has_option(text, option))?;
        Some(format!("`{span}`: `posthaste {command}` has no {unknown}"))
    }
}

/// Returns the commands that a help lists.
fn commands_in(text: &str) -> impl Iterator<Item = &str> {
    let listed = text.lines().skip_while(|line| *line != "Commands:").skip(1);
    let listed = listed.take_while(|line| line.starts_with("  "));
    let names = listed.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help")
}

fn has_option(help: &str, option: &str) -> bool {
    let mut words = help
        .lines()
        .filter(|line| line.trim_start().starts_with('-'));
    words.any(|line| line.split([' ', ',', '[', '=']).any(|word| word == option))
}
