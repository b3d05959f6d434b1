//! Options with which a job can't be submitted, and Slurm's symbols in its directives.

use posthaste_batch::script::{self, Complaint};

use crate::{config, failure::Failure};

const ARRAY: &str = "the tasks of an array are jobs of their own (submit one job each)";
const CLUSTERS: &str = "the service asks its own cluster alone";
/// Variables equivalent to refused options, with the reasons.
const VARIABLES: [(&str, &str); 3] = [
    ("SBATCH_ARRAY_INX", ARRAY),
    ("SBATCH_CLUSTERS", CLUSTERS),
    ("SLURM_CLUSTERS", CLUSTERS),
];

/// Refuses options of sbatch, in the script or behind it, that keep the service from releasing the
/// job.
pub fn check(shown: &str, script: &str, options: &[String]) -> Result<(), Failure> {
    let apart = |word: &&String| !word.starts_with('-') || matches!(word.as_str(), "-" | "--");
    if let Some(word) = options.iter().find(apart) {
        return Err(Failure::usage(format!(
            "{word} is no option of sbatch in one word (write --time=10, not --time 10; a script submitted so takes no arguments)"
        )));
    }
    let found = words_of(script)
        .chain(options.iter().map(String::as_str))
        .find_map(|word| forbidden(word).map(|why| (word, why)));
    let in_environment = || config::first_set(&VARIABLES);
    found.or_else(in_environment).map_or(Ok(()), |(word, why)| {
        Err(Failure::usage(format!(
            "can't submit {shown} with {word}: {why}"
        )))
    })
}

/// Returns the words of a script's lines for sbatch, which ignores those after the first command.
fn words_of(script: &str) -> impl Iterator<Item = &str> {
    let is_before = |line: &&str| line.trim_start().is_empty() || line.starts_with('#');
    let lines = script.lines().take_while(is_before);
    lines
        .filter_map(|line| line.strip_prefix("#SBATCH"))
        .flat_map(str::split_whitespace)
}

/// Returns the reason for which a job can't be submitted with an option.
fn forbidden(word: &str) -> Option<&'static str> {
    // sbatch accepts abbreviated long options.
    let long = word.strip_prefix("--");
    let name = long.map(|long| long.split('=').next().unwrap_or(long));
    let short = word.strip_prefix('-').and_then(|word| word.chars().next());
    let is = |letter: char, option: &str| {
        name.map_or(short == Some(letter), |name| {
            !name.is_empty() && option.starts_with(name)
        })
    };
    if is('a', "array") {
        Some(ARRAY)
    } else if is('M', "clusters") {
        Some(CLUSTERS)
    } else if is('W', "wait") {
        Some("it would wait before the service is told of the job (put --wait before the script)")
    } else if name.is_some_and(|name| name.len() > 1 && "test-only".starts_with(name)) {
        Some("nothing would be submitted (put --dry-run before the script)")
    } else if matches!(word, "hetjob" | "packjob") {
        Some("its components are jobs of their own (submit one job each)")
    } else {
        None
    }
}

/// Replaces the symbols for the job's number in the directives, as Slurm's plug-in does.
pub fn filled_in(directives: &str, id: &str) -> String {
    let mut text = String::with_capacity(directives.len());
    let mut letters = directives.chars().peekable();
    while let Some(letter) = letters.next() {
        let symbol = letters.peek().filter(|_| letter == '%').copied();
        match symbol {
            Some('j' | 'A') => text.push_str(id),
            Some('%') => text.push('%'),
            Some(_) | None => {
                text.push(letter);
                continue;
            }
        }
        letters.next();
    }
    text
}

/// Finds Slurm's symbols in directives whose values only Slurm knows.
pub fn unknown_symbols(directives: &str) -> Vec<Complaint> {
    let wanted = script::read(directives).unwrap_or_default();
    let ins = wanted.stage_ins.iter();
    let ins = ins.map(|one| (one.line, [&one.source, &one.destination]));
    let outs = wanted.stage_outs.iter();
    let outs = outs.map(|one| (one.line, [&one.source, &one.destination]));
    let named = ins.chain(outs);
    let all = named.flat_map(|(line, names)| names.map(|name| (line, name)));
    let unknown = all.filter_map(|(line, name)| Some((line, name, unknown_symbol(name)?)));
    unknown
        .map(|(line, name, symbol)| Complaint {
            line,
            what: format!("`%{symbol}` in {name} is filled in by Slurm's plug-in alone"),
            meant: Some(format!("%j, or %%{symbol} where it is no symbol")),
        })
        .collect()
}

fn unknown_symbol(name: &str) -> Option<char> {
    let mut letters = name.chars();
    while let Some(letter) = letters.next() {
        let symbol = if letter == '%' { letters.next() } else { None };
        if let Some(symbol @ ('a' | 'd' | 'u' | 'x')) = symbol {
            return Some(symbol);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_with_which_a_job_could_not_be_released_are_refused() {
        let check = |script: &str, options: &[&str]| {
            let options: Vec<String> = options.iter().map(|&option| option.into()).collect();
            super::check("job.sh", script, &options).map_err(|failure| failure.to_string())
        };
        for option in [
            "--array=1",
            "--arr=1",
            "-a0-3",
            "-Mother",
            "--wait",
            "--test-only",
            "-W",
            "10",
            "--",
        ] {
            check("", &[option]).unwrap_err();
        }
        let said = check("#!/bin/sh\n#SBATCH --time=1 -a 0-3\n", &[]).unwrap_err();
        assert!(said.contains("with -a"), "{said}");
        check("#SBATCH hetjob\n", &[]).unwrap_err();
        let others = ["--account=a", "--wait-all-nodes=1", "--wckey=a", "-t10"];
        let script = "#SBATCH --account=a\n\n# that\ncat <<E\n#SBATCH --array=1\nE\n";
        check(script, &others).unwrap();
    }

    #[test]
    fn symbols_stand_for_the_jobs_number_or_are_refused() {
        let text = "#POSTHASTE stage_in source=a:%%d0/50% destination=/s/%j-%A-%%j\n";
        let filled = "#POSTHASTE stage_in source=a:%d0/50% destination=/s/7-7-%j\n";
        assert_eq!(filled_in(text, "7"), filled);
        assert_eq!(filled_in("%", "7"), "%");
        assert!(unknown_symbols(text).is_empty());
        let unknown =
            unknown_symbols("# 5%a\n#POSTHASTE stage_out source=/s/%u destination=home\n");
        assert_eq!((unknown.len(), unknown[0].line), (1, 2));
    }
}
