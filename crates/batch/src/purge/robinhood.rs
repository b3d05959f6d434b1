//! Robinhood 3: file classes, rules of policies that remove files, and their triggers.
//!
//! Rules apply in their order, `default` last; the first rule with a class that contains the file
//! decides. Files that a policy ignores stay. Known blocks about other subjects are skipped;
//! unknown text becomes a remark.

mod condition;

use std::collections::BTreeMap;

use super::{
    Condition, Level, Policy, Remark, Rule, Trigger,
    ours::permille,
    tokens::{self, Cursor, Kind, Style, Token},
};
use crate::script::Complaint;

/// Most conditions of all classes and rules, counting a class each time it is named.
const CONDITIONS_MAX: usize = 10_000;
/// Most rules that remove files: each holds the classes of the rules before it.
const RULES_MAX: usize = 100;

/// Blocks that don't affect which files are removed.
const ELSEWHERE: [&str; 22] = [
    "changelog",
    "listmanager",
    "log",
    "entryprocessor",
    "fs_scan",
    "db_config",
    "alert",
    "general",
    "lhsm_config",
    "backup_config",
    "rmdir_policy",
    "alert_rules",
    "alert_trigger",
    "checksum_rules",
    "checksum_trigger",
    "lhsm_archive_rules",
    "lhsm_archive_trigger",
    "lhsm_archive_parameters",
    "fileset",
    "uid_gid_as_numbers",
    "reports",
    "report",
];

/// File class as `read` needs it.
struct Class {
    line: usize,
    condition: Condition,
}

struct Reader<'a> {
    owners: &'a dyn Fn(&str) -> Option<u32>,
    classes: BTreeMap<String, Class>,
    remarks: Vec<Remark>,
    keeps: Vec<Rule>,
    rules: Vec<Written>,
    trigger: Option<Trigger>,
    root: Option<String>,
    /// Conditions so far.
    count: usize,
}

/// Rule as written.
struct Written {
    name: String,
    line: usize,
    /// Classes of the rule; `None` for all files.
    target: Option<Condition>,
    condition: Condition,
}

/// Reads a Robinhood configuration.
pub(super) fn read(
    text: &str,
    owners: &dyn Fn(&str) -> Option<u32>,
) -> Result<Policy, Vec<Complaint>> {
    let alone = |complaint| vec![complaint];
    let tokens = tokens::split(text, Style::Robinhood).map_err(alone)?;
    let mut reader = Reader {
        owners,
        classes: BTreeMap::new(),
        remarks: Vec::new(),
        keeps: Vec::new(),
        rules: Vec::new(),
        trigger: None,
        root: root_of(&tokens),
        count: 0,
    };
    // Classes may follow the rules that name them.
    reader.all(&tokens, Reader::class_block).map_err(alone)?;
    reader.all(&tokens, Reader::rule_block).map_err(alone)?;
    Ok(reader.policy())
}

/// Counts the conditions in a condition.
fn weight(condition: &Condition) -> usize {
    match condition {
        Condition::All(several) | Condition::Any(several) => {
            1 + several.iter().map(weight).sum::<usize>()
        }
        Condition::Not(one) => 1 + weight(one),
        Condition::Path(_)
        | Condition::Name(_)
        | Condition::Kind(_)
        | Condition::SizeFrom(_)
        | Condition::Owner(_)
        | Condition::Age(..)
        | Condition::Unknown => 1,
    }
}

/// Returns the mount point of the file system, from `fs_path` of `General`.
fn root_of(tokens: &[Token]) -> Option<String> {
    let place = tokens.iter().position(|token| token.text == "fs_path")?;
    let value = tokens.get(place + 2)?;
    let path = value.text.trim_end_matches('/');
    (value.kind == Kind::Text && path.starts_with('/')).then(|| path.to_owned())
}

/// Words before `{`.
struct Head<'a> {
    line: usize,
    words: Vec<&'a str>,
}

impl Reader<'_> {
    /// Passes each block to `on_block`, which returns whether it read the block, and skips unread
    /// blocks.
    fn all(
        &mut self,
        tokens: &[Token],
        on_block: impl Fn(&mut Self, &Head<'_>, &mut Cursor<'_>) -> Result<bool, Complaint>,
    ) -> Result<(), Complaint> {
        let mut cursor = Cursor::new(tokens);
        while let Some(first) = cursor.next() {
            if first.text == "%include" && first.kind == Kind::Word {
                let file = cursor.next().map_or("", |file| &file.text);
                self.remark_once(
                    first.line,
                    format!("`{file}` is not read: give a file with all of it"),
                );
                continue;
            }
            let mut head = Head {
                line: first.line,
                words: vec![&first.text],
            };
            while !cursor.sees("{") {
                match cursor.next() {
                    Some(word) if word.text != ";" && word.text != "}" => {
                        head.words.push(&word.text)
                    }
                    Some(_) | None => {
                        let what = format!("`{}` begins no block", head.words.join(" "));
                        return Err(Complaint::new(head.line, what));
                    }
                }
            }
            cursor.want("{")?;
            if !on_block(self, &head, &mut cursor)? {
                cursor.skip_to_close("{", "}")?;
            }
        }
        Ok(())
    }

    fn remark_once(&mut self, line: usize, text: String) {
        let remark = Remark { line, text };
        if !self.remarks.contains(&remark) {
            self.remarks.push(remark);
        }
    }

    fn class_block(&mut self, head: &Head<'_>, cursor: &mut Cursor<'_>) -> Result<bool, Complaint> {
        let [kind, name] = *head.words else {
            return Ok(false);
        };
        if !kind.eq_ignore_ascii_case("fileclass") {
            return Ok(false);
        }
        let mut condition = None;
        while !cursor.take("}") {
            if cursor.take("definition") {
                cursor.want("{")?;
                condition = Some(self.condition(cursor)?);
                cursor.want("}")?;
            } else {
                self.attribute(cursor, &["report", "matching"])?;
            }
        }
        let Some(condition) = condition else {
            let what = format!("the file class `{name}` has no `definition`");
            return Err(Complaint::new(head.line, what));
        };
        let line = head.line;
        if let Some(known) = self
            .classes
            .insert(name.to_owned(), Class { line, condition })
        {
            let what = format!("the file class `{name}` stands on line {} too", known.line);
            return Err(Complaint::new(line, what));
        }
        Ok(true)
    }

    /// Skips `key = value;` or `key { … }`, with a remark unless the key is known not to affect
    /// removals.
    fn attribute(&mut self, cursor: &mut Cursor<'_>, known: &[&str]) -> Result<(), Complaint> {
        let line = cursor.line();
        let Some(key) = cursor.next() else {
            return Err(Complaint::new(line, "a block is opened and not closed"));
        };
        if !known.contains(&&*key.text) {
            self.remark_once(
                line,
                format!("`{}` is not understood, and left aside", key.text),
            );
        }
        loop {
            if cursor.take(";") {
                return Ok(());
            }
            if cursor.take("{") {
                return cursor.skip_to_close("{", "}");
            }
            if cursor.sees("}") || cursor.next().is_none() {
                let what = format!("there is no `;` after `{}`", key.text);
                return Err(Complaint::new(line, what));
            }
        }
    }

    fn rule_block(&mut self, head: &Head<'_>, cursor: &mut Cursor<'_>) -> Result<bool, Complaint> {
        let first = head.words[0].to_ascii_lowercase();
        let removing = ["cleanup", "purge", "deferpurge", "unlink"];
        let (policy, section) = first.rsplit_once('_').unwrap_or((&first, ""));
        let removes = removing.contains(&policy);
        match section {
            "rules" if removes => self.rules(cursor)?,
            "trigger" if removes => self.trigger(head.line, cursor)?,
            "parameters" if removes => return Ok(false),
            _ => {
                let elsewhere = ELSEWHERE.contains(&&*first);
                if !elsewhere && first != "fileclass" && first != "define_policy" {
                    let words = head.words.join(" ");
                    let text = format!(
                        "the block `{words}` is not read: rules that remove files stand in cleanup_rules"
                    );
                    self.remark_once(head.line, text);
                }
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn rules(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Complaint> {
        while !cursor.take("}") {
            let line = cursor.line();
            if cursor.take("ignore") {
                cursor.want("{")?;
                let condition = self.condition(cursor)?;
                cursor.want("}")?;
                self.keeps.push(Rule::keep("ignore", line, condition));
            } else if cursor.take("ignore_fileclass") {
                let condition = self.class_value(cursor)?;
                self.keeps
                    .push(Rule::keep("ignore_fileclass", line, condition));
            } else if cursor.take("rule") || cursor.take("policy") {
                self.rule(line, cursor)?;
            } else {
                self.attribute(cursor, &[])?;
            }
        }
        Ok(())
    }

    fn rule(&mut self, line: usize, cursor: &mut Cursor<'_>) -> Result<(), Complaint> {
        let Some(name) = cursor.next() else {
            return Err(Complaint::new(line, "a rule has a name"));
        };
        cursor.want("{")?;
        let (mut classes, mut condition) = (Vec::new(), None);
        while !cursor.take("}") {
            if cursor.take("target_fileclass") {
                classes.push(self.class_value(cursor)?);
            } else if cursor.take("condition") {
                condition = Some(if cursor.take("=") {
                    cursor.want("true")?;
                    cursor.want(";")?;
                    Condition::All(Vec::new())
                } else {
                    cursor.want("{")?;
                    let condition = self.condition(cursor)?;
                    cursor.want("}")?;
                    condition
                });
            } else {
                self.attribute(
                    cursor,
                    &["action", "action_params", "sort_order", "lru_sort_attr"],
                )?;
            }
        }
        let Some(condition) = condition else {
            let what = format!("the rule `{}` has no `condition`", name.text);
            return Err(Complaint::new(line, what));
        };
        if self.rules.len() == RULES_MAX {
            let most = format!("there are {RULES_MAX} rules at most");
            return Err(Complaint::new(line, most));
        }
        let is_default = name.text.eq_ignore_ascii_case("default");
        if classes.is_empty() && !is_default {
            let what = format!("the rule `{}` has no `target_fileclass`", name.text);
            return Err(Complaint::new(line, what));
        }
        self.rules.push(Written {
            name: name.text.clone(),
            line,
            target: (!is_default).then_some(Condition::Any(classes)),
            condition,
        });
        Ok(())
    }

    /// Reads `= name;`, a class.
    fn class_value(&mut self, cursor: &mut Cursor<'_>) -> Result<Condition, Complaint> {
        cursor.want("=")?;
        let line = cursor.line();
        let name = cursor.next().map_or("", |name| &name.text);
        let condition = self.class(line, name)?;
        cursor.want(";")?;
        Ok(condition)
    }

    fn class(&mut self, line: usize, name: &str) -> Result<Condition, Complaint> {
        if let Some(class) = self.classes.get(name) {
            self.count += weight(&class.condition);
            if self.count > CONDITIONS_MAX {
                let most = format!("classes and rules have {CONDITIONS_MAX} conditions at most");
                return Err(Complaint::new(line, most));
            }
            return Ok(class.condition.clone());
        }
        let known: Vec<&str> = self.classes.keys().map(String::as_str).collect();
        Err(Complaint::unknown(line, name, "file class", &known))
    }

    fn trigger(&mut self, line: usize, cursor: &mut Cursor<'_>) -> Result<(), Complaint> {
        let (mut on, mut high, mut low) = (None, None, None);
        while !cursor.take("}") {
            let at = cursor.line();
            if cursor.take("trigger_on") {
                cursor.want("=")?;
                on = cursor.next();
                if cursor.take("(") {
                    cursor.skip_to_close("(", ")")?;
                }
                cursor.want(";")?;
            } else if let Some((side, unit)) = threshold(cursor) {
                cursor.want("=")?;
                let value = cursor.next().map_or("", |value| &value.text);
                let level = match unit {
                    "pct" => permille(value.trim_end_matches('%')).map(Level::Permille),
                    "vol" => tokens::bytes(value).map(Level::Used),
                    _ => tokens::count(value).map(Level::Files),
                };
                let level =
                    level.ok_or_else(|| Complaint::new(at, format!("`{value}` is no level")))?;
                *(if side == "high" { &mut high } else { &mut low }) = Some(level);
                cursor.want(";")?;
            } else {
                let known = [
                    "check_interval",
                    "post_trigger_wait",
                    "notify_hg",
                    "notify",
                    "alert_high",
                    "alert_low",
                    "max_action_count",
                    "max_action_volume",
                    "alert_hw",
                    "alert_lw",
                ];
                self.attribute(cursor, &known)?;
            }
        }
        let on = on.ok_or_else(|| Complaint::new(line, "a trigger wants `trigger_on`"))?;
        let trigger = match (&*on.text, high) {
            ("scheduled" | "periodic", _) => Trigger::Continuous,
            ("global_usage", Some(high)) => Trigger::Watermark { high, low },
            ("global_usage", None) => {
                return Err(Complaint::new(line, "the trigger has no high threshold"));
            }
            (other, _) => {
                let text = format!(
                    "the trigger on {other} is not understood: its rules are taken to run all the time"
                );
                self.remark_once(on.line, text);
                Trigger::Continuous
            }
        };
        // A trigger that runs all the time acts earliest of several.
        let keep = match (&self.trigger, &trigger) {
            (Some(Trigger::Continuous), _) => false,
            (Some(_), Trigger::Watermark { .. }) => {
                self.remark_once(
                    line,
                    "a second trigger is left aside: the first one counts".to_owned(),
                );
                false
            }
            (Some(_) | None, _) => true,
        };
        if keep {
            self.trigger = Some(trigger);
        }
        Ok(())
    }

    fn policy(self) -> Policy {
        let (mut rules, mut remarks) = (self.keeps, self.remarks);
        let (defaults, named): (Vec<Written>, Vec<Written>) = self
            .rules
            .into_iter()
            .partition(|rule| rule.target.is_none());
        if self.trigger.is_none() {
            remarks.push(Remark {
                line: named
                    .iter()
                    .chain(&defaults)
                    .map(|rule| rule.line)
                    .min()
                    .unwrap_or(1),
                text: "no trigger says when the rules run: they are taken to run all the time"
                    .to_owned(),
            });
        }
        let mut earlier: Vec<Condition> = Vec::new();
        for written in named.into_iter().chain(defaults) {
            let mut all: Vec<Condition> = written.target.clone().into_iter().collect();
            if !earlier.is_empty() {
                all.push(Condition::Not(Box::new(Condition::Any(earlier.clone()))));
            }
            all.push(written.condition);
            earlier.extend(written.target);
            let mut rule = Rule::purge(&written.name, written.line, Condition::All(all));
            rule.trigger = self.trigger.clone().unwrap_or(Trigger::Continuous);
            rules.push(rule);
        }
        Policy { rules, remarks }
    }
}

/// Reads `high_threshold_pct` and similar keys.
fn threshold<'a>(cursor: &mut Cursor<'a>) -> Option<(&'a str, &'a str)> {
    let (side, unit) = cursor.peek()?.text.split_once("_threshold_")?;
    let known = matches!(side, "high" | "low") && matches!(unit, "pct" | "vol" | "cnt");
    if known {
        cursor.next();
    }
    known.then_some((side, unit))
}
