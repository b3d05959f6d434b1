//! Words, quoted texts and marks of foreign policies, and the common form of their conditions.

use posthaste_types::Bytes;

use super::Condition;
use crate::script::Complaint;

/// Most words and marks of one policy.
const TOKENS_MAX: usize = 500_000;
/// Most levels of nested conditions: more would need a deep stack.
const DEPTH_MAX: usize = 100;

/// Kind of token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// Letters, digits, `_`, `.`, `$`, `%`.
    Word,
    /// Quoted text.
    Text,
    /// Anything else; an operator of two characters is one mark.
    Mark,
}

/// Token of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    pub kind: Kind,
    pub text: String,
    pub line: usize,
}

/// Syntax of comments and quotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// `#` to the end of the line.
    Robinhood,
    /// `/* */`, and `--` to the end of the line.
    Scale,
}

/// Splits a policy into tokens.
pub(super) fn split(text: &str, style: Style) -> Result<Vec<Token>, Complaint> {
    let mut tokens = Vec::new();
    let (mut rest, mut line) = (text, 1);
    loop {
        let (before, after) = skip(rest, style, line)?;
        line += before.matches('\n').count();
        rest = after;
        let Some(first) = rest.chars().next() else {
            return Ok(tokens);
        };
        if tokens.len() == TOKENS_MAX {
            let most = format!("a policy has {TOKENS_MAX} words at most");
            return Err(Complaint::new(line, most));
        }
        let (kind, text, length) = if first == '"' || first == '\'' {
            quoted(rest, first, style)
                .ok_or_else(|| Complaint::new(line, "a quote is opened and not closed"))?
        } else if is_letter(first) {
            let length = rest.find(|c| !is_letter(c)).unwrap_or(rest.len());
            (Kind::Word, rest[..length].to_owned(), length)
        } else {
            let pair = rest
                .get(..2)
                .filter(|pair| matches!(*pair, "==" | "!=" | "<>" | "<=" | ">=" | "||"));
            let mark = pair.map_or_else(|| first.to_string(), str::to_owned);
            let length = mark.len();
            (Kind::Mark, mark, length)
        };
        let newlines = rest[..length].matches('\n').count();
        tokens.push(Token { kind, text, line });
        line += newlines;
        rest = &rest[length..];
    }
}

fn is_letter(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '.' | '$' | '%')
}

/// Splits a text into its leading white space and comments, and the rest.
fn skip(text: &str, style: Style, line: usize) -> Result<(&str, &str), Complaint> {
    let mut at = 0;
    loop {
        let rest = &text[at..];
        let space = rest.len() - rest.trim_start().len();
        let rest = &rest[space..];
        at += space;
        let to_end = || rest.find('\n').unwrap_or(rest.len());
        at += match style {
            Style::Robinhood if rest.starts_with('#') => to_end(),
            Style::Scale if rest.starts_with("--") => to_end(),
            Style::Scale if rest.starts_with("/*") => {
                let unclosed = || {
                    let line = line + text[..at].matches('\n').count();
                    Complaint::new(line, "a comment is opened and not closed")
                };
                rest.find("*/").ok_or_else(unclosed)? + 2
            }
            Style::Robinhood | Style::Scale => return Ok(text.split_at(at)),
        };
    }
}

/// Reads a quoted text; returns it without its quotes, and its length with them. SQL doubles a
/// quote inside the text.
fn quoted(rest: &str, quote: char, style: Style) -> Option<(Kind, String, usize)> {
    let mut text = String::new();
    let mut letters = rest.char_indices().skip(1).peekable();
    while let Some((at, letter)) = letters.next() {
        if letter != quote {
            text.push(letter);
        } else if style == Style::Scale && letters.peek().is_some_and(|(_, next)| *next == quote) {
            text.push(quote);
            letters.next();
        } else {
            return Some((Kind::Text, text, at + 1));
        }
    }
    None
}

/// Position in a list of tokens.
pub(super) struct Cursor<'a> {
    tokens: &'a [Token],
    pub at: usize,
    depth: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(tokens: &'a [Token]) -> Self {
        Self {
            tokens,
            at: 0,
            depth: 0,
        }
    }

    pub fn peek(&self) -> Option<&'a Token> {
        self.tokens.get(self.at)
    }

    pub fn next(&mut self) -> Option<&'a Token> {
        let token = self.peek();
        self.at += usize::from(token.is_some());
        token
    }

    /// Returns the line of the next token, or of the last one at the end.
    pub fn line(&self) -> usize {
        let token = self.peek().or(self.tokens.last());
        token.map_or(1, |token| token.line)
    }

    /// Returns whether this word or mark is next, ignoring case.
    pub fn sees(&self, text: &str) -> bool {
        self.peek()
            .is_some_and(|token| token.kind != Kind::Text && token.text.eq_ignore_ascii_case(text))
    }

    /// Consumes this word or mark if it is next, and returns whether it was.
    pub fn take(&mut self, text: &str) -> bool {
        let sees = self.sees(text);
        self.at += usize::from(sees);
        sees
    }

    /// Consumes this word or mark; fails if another is next.
    pub fn want(&mut self, text: &str) -> Result<(), Complaint> {
        if self.take(text) {
            return Ok(());
        }
        Err(Complaint::new(
            self.line(),
            format!("{} stands where `{text}` is wanted", self.shown()),
        ))
    }

    /// Returns the next token for a message.
    pub fn shown(&self) -> String {
        self.peek().map_or_else(
            || "the end".to_owned(),
            |token| format!("`{}`", token.text.escape_debug()),
        )
    }

    /// Skips to the closing bracket; the opening one is already consumed.
    pub fn skip_to_close(&mut self, open: &str, close: &str) -> Result<(), Complaint> {
        let line = self.line();
        let mut depth = 1_usize;
        while depth > 0 {
            if self.take(open) {
                depth += 1;
            } else if self.take(close) {
                depth -= 1;
            } else if self.next().is_none() {
                let what = format!("there is no `{close}` for what opens here");
                return Err(Complaint::new(line, what));
            }
        }
        Ok(())
    }

    /// Reads one level deeper, up to [`DEPTH_MAX`].
    pub fn deeper<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, Complaint>,
    ) -> Result<T, Complaint> {
        if self.depth == DEPTH_MAX {
            let most = format!("conditions are {DEPTH_MAX} deep at most");
            return Err(Complaint::new(self.line(), most));
        }
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        read
    }

    /// Reads conditions with `or`, `and`, `not` and parentheses; `atom` reads a single condition.
    pub fn condition(
        &mut self,
        atom: &mut dyn FnMut(&mut Self) -> Result<Condition, Complaint>,
    ) -> Result<Condition, Complaint> {
        let mut any = vec![self.conjunction(atom)?];
        while self.take("or") || self.take("union") {
            any.push(self.conjunction(atom)?);
        }
        Ok(single(any, Condition::Any))
    }

    fn conjunction(
        &mut self,
        atom: &mut dyn FnMut(&mut Self) -> Result<Condition, Complaint>,
    ) -> Result<Condition, Complaint> {
        let mut all = vec![self.negation(atom)?];
        while self.take("and") || self.take("inter") {
            all.push(self.negation(atom)?);
        }
        Ok(single(all, Condition::All))
    }

    fn negation(
        &mut self,
        atom: &mut dyn FnMut(&mut Self) -> Result<Condition, Complaint>,
    ) -> Result<Condition, Complaint> {
        if self.take("not") {
            let inner = self.deeper(|cursor| cursor.negation(atom))?;
            return Ok(Condition::Not(Box::new(inner)));
        }
        if !self.sees("(") {
            return atom(self);
        }
        // Parentheses may also enclose a sum; a comparison then follows them.
        let start = self.at;
        if let Ok(condition) = atom(self) {
            return Ok(condition);
        }
        self.at = start + 1;
        let inner = self.deeper(|cursor| cursor.condition(atom))?;
        self.want(")")?;
        Ok(inner)
    }
}

fn single(mut several: Vec<Condition>, join: fn(Vec<Condition>) -> Condition) -> Condition {
    match (several.len(), several.pop()) {
        (1, Some(one)) => one,
        (_, last) => {
            several.extend(last);
            join(several)
        }
    }
}

/// Operator of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compare {
    Less,
    LessOrEqual,
    Equal,
    NotEqual,
    More,
    MoreOrEqual,
}

impl Compare {
    /// Consumes the next operator, if there is one.
    pub fn take(cursor: &mut Cursor<'_>) -> Option<Self> {
        let known = [
            ("<=", Self::LessOrEqual),
            (">=", Self::MoreOrEqual),
            ("==", Self::Equal),
            ("!=", Self::NotEqual),
            ("<>", Self::NotEqual),
            ("=", Self::Equal),
            ("<", Self::Less),
            (">", Self::More),
        ];
        let found = known.into_iter().find(|(mark, _)| cursor.take(mark));
        found.map(|(_, compare)| compare)
    }

    /// Compares a whole number with `n`; `from(n)` is the condition that it is `n` or more.
    pub fn with(self, n: i128, from: &dyn Fn(i128) -> Condition) -> Condition {
        let not = |condition| Condition::Not(Box::new(condition));
        let above = n.saturating_add(1);
        match self {
            Self::Less => not(from(n)),
            Self::LessOrEqual => not(from(above)),
            Self::Equal => Condition::All(vec![from(n), not(from(above))]),
            Self::NotEqual => Condition::Any(vec![not(from(n)), from(above)]),
            Self::More => from(above),
            Self::MoreOrEqual => from(n),
        }
    }

    /// Compares a condition with true; only equality and inequality make sense.
    pub fn with_equal(self, so: Condition) -> Option<Condition> {
        match self {
            Self::Equal => Some(so),
            Self::NotEqual => Some(Condition::Not(Box::new(so))),
            Self::Less | Self::LessOrEqual | Self::More | Self::MoreOrEqual => None,
        }
    }
}

/// Returns the condition of this many bytes or more.
pub(super) fn size_from(bytes: i128) -> Condition {
    match u64::try_from(bytes) {
        Ok(bytes) => Condition::SizeFrom(bytes),
        // Every size is above a negative number; none reaches 2^64.
        Err(_) if bytes < 0 => Condition::All(Vec::new()),
        Err(_) => Condition::Any(Vec::new()),
    }
}

/// Reads a size such as `10GB`, in binary units as in Robinhood.
pub(super) fn bytes(text: &str) -> Option<u64> {
    text.parse::<Bytes>().ok().map(Bytes::get)
}

/// Reads a count such as `100M`, in decimal units.
pub(super) fn count(text: &str) -> Option<u64> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let times = match unit {
        "" => 1,
        "k" | "K" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(times)
}
