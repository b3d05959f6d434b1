//! File of settings: a table for each long-running command, whose keys are the command's options;
//! and those of the service that no command line could hold.
//!
//! Its settings become words of the command line, before the typed ones, so options mean the same
//! in both places. Each is tried alone first, so that a mistake is reported with its line.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use clap::{ArgAction, Command, error::ErrorKind as Wrong};
use posthaste_endpoint::Error;
use posthaste_service::{SITE_TABLES, Site, read_site};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::failure::{Exit, Failure};

/// Commands with a table.
pub const TABLES: [&str; 3] = ["serve", "relay", "mover"];
/// Option that names the file.
const OPTION: &str = "config";
/// Options that only make sense on a command line.
const TYPED_ONLY: [&str; 6] = [
    "new",
    OPTION,
    "help",
    "version",
    "json",
    "until-stdin-closes",
];
/// Largest file of settings, in bytes.
const BYTES_MAX: u64 = 1 << 20;

/// Content of a table, as words of a command line.
pub type Words = Vec<OsString>;

/// Words of a setting, or its mistake.
type Read = Result<Words, String>;

/// Tables with their words.
pub type Tables = Vec<(String, Words)>;

/// Lines with their mistakes.
type Complaints = Vec<(usize, String)>;

/// Returns the command line with the content of the file of settings, if one is named.
///
/// # Errors
/// Lists the mistakes in the file, with their lines.
pub fn expanded(
    command: impl FnOnce() -> Command,
    typed: Vec<OsString>,
) -> Result<Vec<OsString>, Failure> {
    let Some(name) = typed.get(1).and_then(|word| word.to_str()) else {
        return Ok(typed);
    };
    let Some(file) = TABLES.contains(&name).then(|| named(&typed)).flatten() else {
        return Ok(typed);
    };
    let words = table(&command(), &file, name)?;
    let mut all: Vec<OsString> = typed[..2].to_vec();
    all.extend(words);
    all.extend_from_slice(&typed[2..]);
    Ok(all)
}

/// Returns the file that a command line names.
fn named(typed: &[OsString]) -> Option<PathBuf> {
    let words: Vec<&str> = typed
        .iter()
        .map(|word| word.to_str().unwrap_or(""))
        .collect();
    let option = format!("--{OPTION}");
    let place = words.iter().position(|word| *word == option);
    if let Some(place) = place {
        return typed.get(place + 1).map(PathBuf::from);
    }
    let with = format!("{option}=");
    let file = words.iter().find_map(|word| word.strip_prefix(&with));
    file.map(PathBuf::from)
}

/// Returns the table of the command `name`, as words.
///
/// # Errors
/// Lists all mistakes in the file, with their lines.
pub fn table(command: &Command, file: &Path, name: &str) -> Result<Words, Failure> {
    let tables = read(command, file)?;
    let found = tables.into_iter().find(|(table, _)| table == name);
    Ok(found.map(|(_, words)| words).unwrap_or_default())
}

/// Reads all tables of commands in a file.
///
/// # Errors
/// Lists all mistakes in it, with their lines; or returns the operating system's error.
pub fn read(command: &Command, file: &Path) -> Result<Tables, Failure> {
    understand(command, &text_in(file)?).map_err(|wrong| complain(file, wrong))
}

/// Reads the other tables of a file.
///
/// # Errors
/// Describes the mistake, with its line; or returns the operating system's error.
pub fn site(file: &Path) -> Result<Site, Failure> {
    let text = text_in(file)?;
    read_site(&text).map_err(|(at, what)| complain(file, vec![(line_of(&text, at), what)]))
}

fn complain(file: &Path, mut wrong: Complaints) -> Failure {
    wrong.sort();
    let shown = file.display();
    let lines: Vec<String> = wrong
        .iter()
        .map(|(line, what)| format!("{shown}:{line}: {what}"))
        .collect();
    Failure::new(Exit::Fatal, lines.join("\n"))
}

fn text_in(file: &Path) -> Result<String, Failure> {
    let shown = file.display();
    let failed = |cause: std::io::Error| Error::io("read", shown.to_string(), cause);
    if file.metadata().map_err(failed)?.len() > BYTES_MAX {
        return Err(Failure::new(
            Exit::Fatal,
            format!("can't read {shown}: it has more than {BYTES_MAX} bytes"),
        ));
    }
    Ok(std::fs::read_to_string(file).map_err(failed)?)
}

/// Parses the text, or lists the mistakes with their lines.
fn understand(command: &Command, text: &str) -> Result<Tables, Complaints> {
    let root = DeTable::parse(text).map_err(|cause| {
        let at = cause.span().map_or(0, |span| span.start);
        vec![(line_of(text, at), one_line(cause.message()))]
    })?;
    let (mut tables, mut wrong) = (Vec::new(), Vec::new());
    for (name, value) in root.get_ref() {
        let line = line_of(text, name.span().start);
        if SITE_TABLES.contains(&name.get_ref().as_ref()) {
            continue;
        }
        let known = TABLES
            .iter()
            .find(|known| **known == name.get_ref().as_ref());
        let (Some(known), DeValue::Table(settings)) = (known, value.get_ref()) else {
            let tables = TABLES.iter().chain(&SITE_TABLES);
            let tables: Vec<_> = tables.map(|table| format!("[{table}]")).collect();
            let tables = tables.join(", ");
            wrong.push((
                line,
                format!("`{}` is none of the tables {tables}", name.get_ref()),
            ));
            continue;
        };
        let mut words = Vec::new();
        for (key, value) in settings {
            match setting(command, known, key.get_ref(), value) {
                Ok(said) => words.extend(said),
                Err(what) => {
                    let line = line_of(text, key.span().start);
                    wrong.push((line, format!("`{}`: {what}", key.get_ref())));
                }
            }
        }
        tables.push(((*known).to_owned(), words));
    }
    if let Err((at, what)) = read_site(text) {
        wrong.push((line_of(text, at), what));
    }
    match wrong.is_empty() {
        true => Ok(tables),
        false => Err(wrong),
    }
}

/// Returns a setting as words, after the command accepted it alone.
fn setting(command: &Command, table: &str, key: &str, value: &Spanned<DeValue<'_>>) -> Read {
    let option = key.replace('_', "-");
    let argument = options(command, table).find(|argument| argument.get_long() == Some(&option));
    let Some(argument) = argument else {
        let near = nearest(command, table, &option);
        return Err(match near {
            Some(near) => format!("no such setting; `{near}` is one"),
            None => {
                format!("no such setting; `posthaste {table} --help` shows them, with `_` for `-`")
            }
        });
    };
    let word = |text: String| -> [OsString; 1] { [format!("--{option}={text}").into()] };
    let words: Words = match (argument.get_action(), value.get_ref()) {
        (ArgAction::SetTrue, DeValue::Boolean(true)) => vec![format!("--{option}").into()],
        (ArgAction::SetTrue, DeValue::Boolean(false)) => Vec::new(),
        (ArgAction::SetTrue, _) => return Err("it is true or false".to_owned()),
        (ArgAction::Append, DeValue::Array(several)) => {
            let several = several.iter().map(|one| text_of(one.get_ref()).map(word));
            several.collect::<Result<Vec<_>, _>>()?.concat()
        }
        (_, value) => word(text_of(value)?).to_vec(),
    };
    let tried = [OsString::from("posthaste"), table.into()];
    let tried = command
        .clone()
        .try_get_matches_from(tried.iter().chain(&words));
    match tried {
        // Others that it needs stand elsewhere.
        Err(error) if !matches!(error.kind(), Wrong::MissingRequiredArgument) => {
            let said = error.to_string();
            let said = said.lines().next().unwrap_or_default();
            Err(said.trim_start_matches("error: ").to_owned())
        }
        _ => Ok(words),
    }
}

/// Formats a value: strings unchanged, and numbers as they are written.
fn text_of(value: &DeValue<'_>) -> Result<String, String> {
    match value {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) => Ok(number.to_string()),
        DeValue::Float(number) => Ok(number.to_string()),
        DeValue::Boolean(_) | DeValue::Datetime(_) | DeValue::Array(_) | DeValue::Table(_) => {
            Err("it is a text or a number".to_owned())
        }
    }
}

/// Lists the options of a command that a file may set.
pub fn options<'a>(
    command: &'a Command,
    table: &str,
) -> impl Iterator<Item = &'a clap::Arg> + use<'a> {
    let found = command.find_subcommand(table);
    let arguments = found.into_iter().flat_map(Command::get_arguments);
    arguments.filter(|argument| {
        let typed = |long| TYPED_ONLY.contains(&long);
        argument.get_long().is_some_and(|long| !typed(long))
    })
}

/// Suggests the setting that may be meant: one that differs in few letters.
fn nearest(command: &Command, table: &str, option: &str) -> Option<String> {
    let known = options(command, table).filter_map(clap::Arg::get_long);
    let near = known.map(|known| (strsim::jaro(known, option), known));
    let best = near.max_by(|left, right| left.0.total_cmp(&right.0))?;
    (best.0 > 0.8).then(|| best.1.replace('-', "_"))
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the line of a byte, from 1.
fn line_of(text: &str, at: usize) -> usize {
    let before = text.as_bytes().get(..at).unwrap_or(text.as_bytes());
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use clap::CommandFactory;

    use super::*;

    fn tables(text: &str) -> Result<Tables, Complaints> {
        understand(&crate::Cli::command(), text)
    }

    #[test]
    fn settings_become_options() {
        let text = "[serve]\nlisten = \"127.0.0.1:7\"\nscratch = [\"/a\", \"/b c\"]\nbehind_tls = true\n\
            just_in_time = false\nsource_rate = 5\n[relay]\ncapacity = \"2T\"\n";
        let tables: BTreeMap<String, Words> = tables(text).unwrap().into_iter().collect();
        let mut serve = tables["serve"].clone();
        serve.sort();
        assert_eq!(tables["relay"], ["--capacity=2T"]);
        assert_eq!(
            serve,
            [
                "--behind-tls",
                "--listen=127.0.0.1:7",
                "--scratch=/a",
                "--scratch=/b c",
                "--source-rate=5"
            ]
        );
        assert_eq!(self::tables(""), Ok(Vec::new()));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, line, what) in [
            ("[serve]\nlisten = \"nowhere\"", 2, "invalid"),
            ("[serve]\n\nscrach = \"/s\"", 3, "`scratch` is one"),
            ("[serve]\njson = true", 2, "no such setting"),
            ("[serve]\nbehind_tls = \"yes\"", 2, "true or false"),
            ("[serve]\nlisten = [1]", 2, "a text or a number"),
            ("[serve]\nlisten = ", 2, ""),
            ("[server]\n", 1, "[serve], [relay]"),
            ("listen = \"x\"", 1, "[serve], [relay]"),
            ("[relay]\ncapacity = \"much\"", 2, "invalid"),
            (
                "[relay]\n[oidc]\nissuer = \"https://id\"\nclient = 1",
                4,
                "unknown field `client`",
            ),
        ] {
            let wrong = tables(text).unwrap_err();
            assert_eq!(wrong.len(), 1, "{text}: {wrong:?}");
            assert_eq!(wrong[0].0, line, "{text}: {wrong:?}");
            assert!(wrong[0].1.contains(what), "{text}: {wrong:?}");
        }
    }

    #[test]
    fn what_is_typed_wins_and_stands_behind() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("posthaste.toml");
        std::fs::write(
            &file,
            "[serve]\nlisten = \"127.0.0.1:7\"\nscratch = \"/a\"\n",
        )
        .unwrap();
        let file = file.to_str().unwrap();
        let line = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let typed = [
            "posthaste",
            "serve",
            "--config",
            file,
            "--listen",
            "127.0.0.1:8",
        ];
        let all = expanded(crate::Cli::command, line(&typed)).unwrap();
        let matches = crate::Cli::command().try_get_matches_from(all).unwrap();
        let serve = matches.subcommand_matches("serve").unwrap();
        let listen: &std::net::SocketAddr = serve.get_one("listen").unwrap();
        assert_eq!(listen.port(), 8);
        let same = ["posthaste", "serve", "--listen", "127.0.0.1:8"];
        assert_eq!(
            expanded(crate::Cli::command, line(&same)).unwrap(),
            line(&same)
        );
    }

    #[test]
    fn every_setting_is_documented() {
        let page = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/reference/configuration.md"
        );
        let page = std::fs::read_to_string(page).unwrap();
        let command = crate::Cli::command();
        for table in TABLES {
            let (_, rest) = page.split_once(&format!("## [{table}]")).unwrap();
            let section = rest.split("\n## ").next().unwrap();
            for option in options(&command, table) {
                let key = option.get_long().unwrap().replace('-', "_");
                assert!(section.contains(&format!("| `{key}` |")), "{table}: {key}");
            }
        }
    }
}
