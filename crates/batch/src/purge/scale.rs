//! Policy rules of Spectrum Scale: `DELETE` and `EXCLUDE`, in their order, and macros of `define`.
//!
//! A `DELETE` removes a file if no earlier `EXCLUDE` matches it. Rules that move or list files are
//! skipped with a remark. Days count as in `DAYS`, by midnights in UTC.

mod value;

use std::collections::BTreeMap;

use super::{
    Condition, Level, Policy, Remark, Rule, Trigger,
    ours::permille,
    tokens::{self, Cursor, Kind, Style, Token},
};
use crate::script::Complaint;

/// Most tokens after expanding all macros: nested macros grow fast.
const EXPANDED_MAX: usize = 500_000;
/// Most levels of nested macros.
const MACRO_DEPTH_MAX: usize = 16;

struct Reader<'a> {
    owners: &'a dyn Fn(&str) -> Option<u32>,
    remarks: Vec<Remark>,
    rules: Vec<Rule>,
}

/// Reads a Scale policy.
pub(super) fn read(
    text: &str,
    owners: &dyn Fn(&str) -> Option<u32>,
) -> Result<Policy, Vec<Complaint>> {
    let tokens = tokens::split(text, Style::Scale).and_then(|tokens| expand(&tokens));
    let tokens = tokens.map_err(|complaint| vec![complaint])?;
    let mut reader = Reader {
        owners,
        remarks: Vec::new(),
        rules: Vec::new(),
    };
    let mut cursor = Cursor::new(&tokens);
    let mut complaints = Vec::new();
    while cursor.peek().is_some() {
        if let Err(complaint) = reader.statement(&mut cursor) {
            complaints.push(complaint);
            reader.to_next_rule(&mut cursor);
        }
    }
    if !complaints.is_empty() {
        return Err(complaints);
    }
    Ok(Policy {
        rules: reader.rules,
        remarks: reader.remarks,
    })
}

/// Expands the macros, and removes their definitions.
fn expand(tokens: &[Token]) -> Result<Vec<Token>, Complaint> {
    let mut macros: BTreeMap<String, Vec<Token>> = BTreeMap::new();
    let mut expanded = Vec::new();
    let mut cursor = Cursor::new(tokens);
    while let Some(token) = cursor.next() {
        if token.text == "define" && token.kind == Kind::Word && cursor.take("(") {
            let name = cursor.next().map_or("", |name| &name.text).to_owned();
            cursor.want(",")?;
            let start = cursor.at;
            cursor.skip_to_close("(", ")")?;
            let body = tokens[start..cursor.at - 1].to_vec();
            macros.insert(name, body);
            continue;
        }
        put(token, token.line, &macros, 0, &mut expanded)?;
    }
    Ok(expanded)
}

/// Appends a token, or the expansion of its macro, on the line of its use.
fn put(
    token: &Token,
    line: usize,
    macros: &BTreeMap<String, Vec<Token>>,
    depth: usize,
    expanded: &mut Vec<Token>,
) -> Result<(), Complaint> {
    let body = macros.get(&token.text).filter(|_| token.kind == Kind::Word);
    let Some(body) = body else {
        if expanded.len() == EXPANDED_MAX {
            let most = format!("macros make more than {EXPANDED_MAX} words of it");
            return Err(Complaint::new(line, most));
        }
        expanded.push(Token {
            line,
            ..token.clone()
        });
        return Ok(());
    };
    if depth == MACRO_DEPTH_MAX {
        let most = format!("macros are {MACRO_DEPTH_MAX} deep at most");
        return Err(Complaint::new(line, most));
    }
    body.iter()
        .try_for_each(|token| put(token, line, macros, depth + 1, expanded))
}

impl Reader<'_> {
    fn remark(&mut self, line: usize, text: impl Into<String>) {
        let text = text.into();
        let remark = Remark { line, text };
        if !self.remarks.contains(&remark) {
            self.remarks.push(remark);
        }
    }

    fn to_next_rule(&self, cursor: &mut Cursor<'_>) {
        while !cursor.sees("rule") && cursor.next().is_some() {}
    }

    fn statement(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Complaint> {
        if cursor.take(";") {
            return Ok(());
        }
        let line = cursor.line();
        cursor.want("RULE")?;
        let named = cursor.peek().filter(|token| {
            let acts = [
                "delete", "exclude", "migrate", "list", "external", "set", "restore", "group",
                "when", "compress",
            ];
            token.kind == Kind::Text || !acts.contains(&&*token.text.to_ascii_lowercase())
        });
        let name = named.map_or_else(
            || format!("{}", self.rules.len() + 1),
            |name| name.text.clone(),
        );
        if named.is_some() {
            cursor.next();
        }
        let mut all = Vec::new();
        if cursor.take("WHEN") {
            cursor.want("(")?;
            cursor.skip_to_close("(", ")")?;
            self.remark(
                line,
                format!("`WHEN` of the rule `{name}` is not understood: when it runs stays open"),
            );
            all.push(Condition::Unknown);
        }
        if cursor.take("DELETE") {
            self.act(name, line, true, all, cursor)
        } else if cursor.take("EXCLUDE") {
            self.act(name, line, false, all, cursor)
        } else {
            self.remark(
                line,
                format!("the rule `{name}` does not delete, and is left aside"),
            );
            self.to_next_rule(cursor);
            Ok(())
        }
    }

    /// Reads the rest of a `DELETE` or `EXCLUDE`.
    fn act(
        &mut self,
        name: String,
        line: usize,
        deletes: bool,
        mut all: Vec<Condition>,
        cursor: &mut Cursor<'_>,
    ) -> Result<(), Complaint> {
        let mut trigger = Trigger::Continuous;
        while !cursor.sees("RULE") && !cursor.take(";") && cursor.peek().is_some() {
            let at = cursor.line();
            if cursor.take("DIRECTORIES_PLUS") {
            } else if cursor.take("FROM") {
                cursor.want("POOL")?;
                let pool = cursor.next().map_or("", |pool| &pool.text);
                self.remark(
                    at,
                    format!(
                        "which files lie in the pool `{pool}` can't be seen here: that stays open"
                    ),
                );
                all.push(Condition::Unknown);
            } else if cursor.take("THRESHOLD") {
                trigger = threshold(cursor)?;
            } else if cursor.take("WEIGHT") || cursor.take("SHOW") {
                cursor.want("(")?;
                cursor.skip_to_close("(", ")")?;
            } else if cursor.take("FOR") {
                cursor.want("FILESET")?;
                cursor.want("(")?;
                cursor.skip_to_close("(", ")")?;
                self.remark(
                    at,
                    "which files lie in a fileset can't be seen here: that stays open",
                );
                all.push(Condition::Unknown);
            } else if cursor.take("WHERE") {
                all.push(self.condition(cursor)?);
            } else {
                let what = format!("{} is not understood in a rule", cursor.shown());
                return Err(Complaint::new(at, what));
            }
        }
        let when = Condition::All(all);
        self.rules.push(if deletes {
            Rule {
                trigger,
                ..Rule::purge(&name, line, when)
            }
        } else {
            Rule::keep(&name, line, when)
        });
        Ok(())
    }
}

/// Reads `(high, low, premigrate)`, in per cent.
fn threshold(cursor: &mut Cursor<'_>) -> Result<Trigger, Complaint> {
    cursor.want("(")?;
    let mut levels = Vec::new();
    loop {
        let line = cursor.line();
        let percent = cursor.next().map_or("", |percent| &percent.text);
        let level = permille(percent).ok_or_else(|| {
            Complaint::new(line, format!("`{percent}` is no threshold: write 90"))
        })?;
        levels.push(Level::Permille(level));
        if !cursor.take(",") {
            break;
        }
    }
    cursor.want(")")?;
    Ok(Trigger::Watermark {
        high: levels[0],
        low: levels.get(1).copied(),
    })
}
