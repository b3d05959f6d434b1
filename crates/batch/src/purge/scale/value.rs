//! Conditions of Scale's SQL. Sums of the current time, a time of the file, its size and numbers
//! are compared as linear forms.

use super::{
    super::{
        Age, Clock, Condition, Pattern, Stamp,
        condition::DAY_S,
        owner_condition,
        tokens::{Compare, Cursor, Kind, Token, size_from},
    },
    Reader,
};
use crate::script::Complaint;

/// Largest number accepted: products of two stay far from overflow.
const NUMBER_MAX: u128 = 1 << 62;

/// Value of an expression.
enum Value {
    Sum(Sum),
    Text(String),
    Path,
    Name,
    OwnerName,
    OwnerNumber,
    /// Value that this program can't see, as written.
    Unseen(String),
}

/// Linear form: now × `now` + stamp × its factor + size × `size` + `number`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sum {
    now: i128,
    stamp: Option<(Stamp, i128)>,
    size: i128,
    number: i128,
    /// True if its times count in midnights rather than seconds.
    in_days: bool,
}

impl Sum {
    const ZERO: Self = Self {
        now: 0,
        stamp: None,
        size: 0,
        number: 0,
        in_days: false,
    };

    fn number(number: i128) -> Self {
        Self {
            number,
            ..Self::ZERO
        }
    }

    fn is_number(self) -> bool {
        self == Self::number(self.number)
    }

    fn has_times(self) -> bool {
        self.now != 0 || self.stamp.is_some()
    }

    fn times(self, factor: i128) -> Option<Self> {
        let number = self.number.checked_mul(factor)?;
        (number.unsigned_abs() <= NUMBER_MAX && factor.unsigned_abs() <= NUMBER_MAX).then_some(
            Self {
                now: self.now.checked_mul(factor)?,
                stamp: match self.stamp {
                    None => None,
                    Some((stamp, by)) => Some((stamp, by.checked_mul(factor)?)),
                },
                size: self.size.checked_mul(factor)?,
                number,
                in_days: self.in_days,
            },
        )
    }

    /// Adds two sums; `None` if their units differ or they name two different times of the file.
    fn plus(self, other: Self) -> Option<Self> {
        if self.has_times() && other.has_times() && self.in_days != other.in_days {
            return None;
        }
        let stamp = match (self.stamp, other.stamp) {
            (None, stamp) | (stamp, None) => stamp,
            (Some((one, by)), Some((two, and))) if one == two => {
                Some((one, by.saturating_add(and)))
            }
            (Some(_), Some(_)) => return None,
        };
        Some(Self {
            now: self.now.saturating_add(other.now),
            stamp: stamp.filter(|(_, by)| *by != 0),
            size: self.size.saturating_add(other.size),
            number: self.number.saturating_add(other.number),
            in_days: self.in_days || other.in_days,
        })
    }

    /// Compares the sum with zero; `None` if no condition expresses that.
    fn compared(self, compare: Compare) -> Option<Condition> {
        match (self.now, self.stamp, self.size) {
            (0, None, 0) => {
                let always = |from: i128| match from <= 0 {
                    true => Condition::All(Vec::new()),
                    false => Condition::Any(Vec::new()),
                };
                Some(compare.with(self.number.saturating_neg(), &always))
            }
            (0, None, 1) => Some(compare.with(self.number.saturating_neg(), &size_from)),
            (1, Some((stamp, -1)), 0) => {
                let clock = Clock::from(stamp);
                Some(compare.with(self.number.saturating_neg(), &|from| {
                    let from = i64::try_from(from).unwrap_or(i64::MAX);
                    let age = match self.in_days {
                        true => Age::Midnights(from),
                        false => Age::Seconds(from),
                    };
                    Condition::Age(clock.clone(), age)
                }))
            }
            _ => None,
        }
    }
}

/// Returns the comparison with its sides exchanged.
fn mirrored(compare: Compare) -> Compare {
    match compare {
        Compare::Less => Compare::More,
        Compare::LessOrEqual => Compare::MoreOrEqual,
        Compare::More => Compare::Less,
        Compare::MoreOrEqual => Compare::LessOrEqual,
        Compare::Equal | Compare::NotEqual => compare,
    }
}

impl Reader<'_> {
    /// Reads a condition.
    pub(super) fn condition(&mut self, cursor: &mut Cursor<'_>) -> Result<Condition, Complaint> {
        cursor.condition(&mut |cursor| self.atom(cursor))
    }

    fn atom(&mut self, cursor: &mut Cursor<'_>) -> Result<Condition, Complaint> {
        let line = cursor.line();
        let left = sum(cursor)?;
        let negated = cursor.take("NOT");
        let condition = if cursor.take("LIKE") {
            let right = sum(cursor)?;
            if cursor.take("ESCAPE") {
                cursor.next();
            }
            self.like(line, &left, &right)?
        } else if cursor.take("IN") {
            cursor.want("(")?;
            let mut any = Vec::new();
            loop {
                let one = sum(cursor)?;
                any.push(self.compare(line, &left, Compare::Equal, &one)?);
                if !cursor.take(",") {
                    break;
                }
            }
            cursor.want(")")?;
            Condition::Any(any)
        } else if cursor.take("BETWEEN") {
            let from = sum(cursor)?;
            cursor.want("AND")?;
            let to = sum(cursor)?;
            let from = self.compare(line, &left, Compare::MoreOrEqual, &from)?;
            Condition::All(vec![
                from,
                self.compare(line, &left, Compare::LessOrEqual, &to)?,
            ])
        } else if cursor.take("IS") {
            cursor.take("NOT");
            cursor.want("NULL")?;
            self.unseen(line, "`IS NULL`")
        } else if let Some(compare) = Compare::take(cursor) {
            let right = sum(cursor)?;
            self.compare(line, &left, compare, &right)?
        } else if let Value::Unseen(what) = left {
            self.unseen(line, &format!("`{what}`"))
        } else {
            let what = format!("{} stands where a comparison is wanted", cursor.shown());
            return Err(Complaint::new(cursor.line(), what));
        };
        Ok(match negated {
            true => Condition::Not(Box::new(condition)),
            false => condition,
        })
    }

    fn unseen(&mut self, line: usize, what: &str) -> Condition {
        self.remark(
            line,
            format!("{what} can't be seen here: whether it holds stays open"),
        );
        Condition::Unknown
    }

    fn like(&mut self, line: usize, left: &Value, right: &Value) -> Result<Condition, Complaint> {
        let Value::Text(text) = right else {
            return Ok(self.unseen(line, "`LIKE` with what is no text"));
        };
        let pattern = Pattern::like(text)
            .map_err(|cause| Complaint::new(line, format!("`{text}` is no pattern: {cause}")));
        Ok(match left {
            Value::Path => Condition::Path(pattern?),
            Value::Name => Condition::Name(pattern?),
            Value::Unseen(what) => self.unseen(line, &format!("`{what}`")),
            Value::OwnerName | Value::OwnerNumber | Value::Sum(_) | Value::Text(_) => {
                self.unseen(line, "`LIKE` with anything but a path or a name")
            }
        })
    }

    fn compare(
        &mut self,
        line: usize,
        left: &Value,
        compare: Compare,
        right: &Value,
    ) -> Result<Condition, Complaint> {
        let wrong = || Complaint::new(line, "the two sides of a comparison do not belong together");
        match (left, right) {
            (Value::Unseen(what), _) | (_, Value::Unseen(what)) => {
                Ok(self.unseen(line, &format!("`{what}`")))
            }
            (Value::Sum(left), Value::Sum(right)) => {
                let difference = right.times(-1).and_then(|right| left.plus(right));
                let difference = difference.ok_or_else(wrong)?;
                let so = difference.compared(compare).or_else(|| {
                    let turned = difference.times(-1)?;
                    turned.compared(mirrored(compare))
                });
                Ok(so.unwrap_or_else(|| self.unseen(line, "a sum of several attributes")))
            }
            (
                Value::Text(_) | Value::Sum(_),
                Value::Path | Value::Name | Value::OwnerName | Value::OwnerNumber,
            ) => self.compare(line, right, mirrored(compare), left),
            (Value::OwnerName, Value::Text(name)) => {
                let owner = owner_condition(name, line, self.owners, &mut self.remarks);
                compare.with_equal(owner).ok_or_else(wrong)
            }
            (Value::OwnerNumber, Value::Sum(number)) if number.is_number() => {
                let owner = u32::try_from(number.number).map_err(|_| wrong())?;
                compare
                    .with_equal(Condition::Owner(owner))
                    .ok_or_else(wrong)
            }
            (Value::Path | Value::Name, Value::Text(text)) => {
                // With `=`, wildcards are ordinary characters, which a pattern of `like` can't
                // express.
                if text.contains(['%', '_', '*', '?', '[', ']', '{', '}', '\\']) {
                    return Ok(
                        self.unseen(line, "a path or name with wildcards, compared with `=`")
                    );
                }
                let pattern = Pattern::like(text).map_err(|_| wrong())?;
                let so = match left {
                    Value::Path => Condition::Path(pattern),
                    Value::Name
                    | Value::OwnerName
                    | Value::OwnerNumber
                    | Value::Sum(_)
                    | Value::Text(_)
                    | Value::Unseen(_) => Condition::Name(pattern),
                };
                compare.with_equal(so).ok_or_else(wrong)
            }
            (
                Value::OwnerName
                | Value::OwnerNumber
                | Value::Path
                | Value::Name
                | Value::Sum(_)
                | Value::Text(_),
                _,
            ) => Err(wrong()),
        }
    }
}

/// Reads sums and differences.
fn sum(cursor: &mut Cursor<'_>) -> Result<Value, Complaint> {
    let mut left = product(cursor)?;
    loop {
        let line = cursor.line();
        let sign = match (cursor.take("+"), cursor.take("-")) {
            (true, _) => 1,
            (_, true) => -1,
            (false, false) => return Ok(left),
        };
        let right = product(cursor)?;
        left = combine(left, right, line, |left, right| {
            right.times(sign).and_then(|right| left.plus(right))
        })?;
    }
}

fn product(cursor: &mut Cursor<'_>) -> Result<Value, Complaint> {
    let mut left = single(cursor)?;
    loop {
        let line = cursor.line();
        let divides = match (cursor.take("*"), cursor.take("/")) {
            (true, _) => false,
            (_, true) => true,
            (false, false) => return Ok(left),
        };
        let right = single(cursor)?;
        if divides
            && !matches!((&left, &right), (Value::Sum(l), Value::Sum(r)) if l.is_number() && r.is_number())
        {
            left = Value::Unseen("a division".to_owned());
            continue;
        }
        left = combine(left, right, line, |left, right| {
            if divides {
                let number = left.number.checked_div(right.number)?;
                return Some(Sum::number(number));
            }
            match (left.is_number(), right.is_number()) {
                (true, _) => right.times(left.number),
                (_, true) => left.times(right.number),
                (false, false) => None,
            }
        })?;
    }
}

/// Combines two values; if either can't be seen, neither can the result.
fn combine(
    left: Value,
    right: Value,
    line: usize,
    join: impl FnOnce(Sum, Sum) -> Option<Sum>,
) -> Result<Value, Complaint> {
    let wrong = || Complaint::new(line, "this can't be counted together");
    match (left, right) {
        (Value::Sum(left), Value::Sum(right)) => {
            join(left, right).map(Value::Sum).ok_or_else(wrong)
        }
        (Value::Unseen(what), _) | (_, Value::Unseen(what)) => Ok(Value::Unseen(what)),
        (
            Value::Sum(_)
            | Value::Text(_)
            | Value::Path
            | Value::Name
            | Value::OwnerName
            | Value::OwnerNumber,
            _,
        ) => Err(wrong()),
    }
}

fn single(cursor: &mut Cursor<'_>) -> Result<Value, Complaint> {
    let line = cursor.line();
    let wrong =
        |shown: String| Complaint::new(line, format!("{shown} stands where a value is wanted"));
    if cursor.take("-") {
        let inner = cursor.deeper(single)?;
        return combine(Value::Sum(Sum::ZERO), inner, line, |zero, sum| {
            sum.times(-1).and_then(|sum| zero.plus(sum))
        });
    }
    if cursor.take("(") {
        let inner = cursor.deeper(sum)?;
        cursor.want(")")?;
        return Ok(inner);
    }
    let shown = cursor.shown();
    let Some(token) = cursor.peek() else {
        return Err(wrong(shown));
    };
    match token.kind {
        Kind::Text => {
            cursor.next();
            Ok(Value::Text(token.text.clone()))
        }
        Kind::Mark => Err(wrong(shown)),
        Kind::Word if token.text.starts_with(|c: char| c.is_ascii_digit()) => {
            cursor.next();
            let number = token.text.parse::<i128>().ok();
            let number = number.filter(|number| number.unsigned_abs() <= NUMBER_MAX);
            let number = number.ok_or_else(|| wrong(shown))?;
            Ok(Value::Sum(Sum::number(number)))
        }
        Kind::Word => word(token, cursor),
    }
}

/// Reads an attribute, a function or a span of time.
fn word(token: &Token, cursor: &mut Cursor<'_>) -> Result<Value, Complaint> {
    let name = token.text.to_ascii_uppercase();
    if ["AND", "OR", "NOT", "LIKE", "RULE", "WHERE"].contains(&&*name) {
        let what = format!("{} stands where a value is wanted", cursor.shown());
        return Err(Complaint::new(token.line, what));
    }
    cursor.next();
    if name == "INTERVAL" {
        return interval(token.line, cursor);
    }
    if cursor.take("(") {
        return function(&name, token, cursor);
    }
    let stamp = |stamp| {
        Value::Sum(Sum {
            stamp: Some((stamp, 1)),
            ..Sum::ZERO
        })
    };
    Ok(match &*name {
        "CURRENT_TIMESTAMP" => Value::Sum(Sum {
            now: 1,
            ..Sum::ZERO
        }),
        "ACCESS_TIME" => stamp(Stamp::Accessed),
        "MODIFICATION_TIME" => stamp(Stamp::Modified),
        "CHANGE_TIME" => stamp(Stamp::Changed),
        "CREATION_TIME" => stamp(Stamp::Born),
        "FILE_SIZE" => Value::Sum(Sum {
            size: 1,
            ..Sum::ZERO
        }),
        "PATH_NAME" => Value::Path,
        "NAME" => Value::Name,
        "USER_NAME" => Value::OwnerName,
        "USER_ID" => Value::OwnerNumber,
        _ => Value::Unseen(token.text.clone()),
    })
}

/// Reads a function after its opening parenthesis.
fn function(name: &str, token: &Token, cursor: &mut Cursor<'_>) -> Result<Value, Complaint> {
    if name != "DAYS" {
        cursor.skip_to_close("(", ")")?;
        return Ok(Value::Unseen(token.text.clone()));
    }
    let inner = cursor.deeper(sum)?;
    cursor.want(")")?;
    match inner {
        // `DAYS` accepts a moment without anything added to it.
        Value::Sum(moment) if moment.has_times() && moment.number == 0 && moment.size == 0 => {
            Ok(Value::Sum(Sum {
                in_days: true,
                ..moment
            }))
        }
        Value::Unseen(what) => Ok(Value::Unseen(what)),
        Value::Sum(_)
        | Value::Text(_)
        | Value::Path
        | Value::Name
        | Value::OwnerName
        | Value::OwnerNumber => Err(Complaint::new(
            token.line,
            "DAYS wants a time: write DAYS(ACCESS_TIME)",
        )),
    }
}

/// Reads `INTERVAL '30' DAYS`.
fn interval(line: usize, cursor: &mut Cursor<'_>) -> Result<Value, Complaint> {
    let wrong = || Complaint::new(line, "an interval is written INTERVAL '30' DAYS");
    let number = cursor.next().ok_or_else(wrong)?;
    let number: i128 = number.text.trim().parse().map_err(|_| wrong())?;
    let unit = cursor.next().ok_or_else(wrong)?.text.to_ascii_uppercase();
    let unit_s = match unit.trim_end_matches('S') {
        "DAY" => i128::from(DAY_S),
        "HOUR" => 3600,
        "MINUTE" => 60,
        "SECOND" => 1,
        _ => return Err(wrong()),
    };
    let seconds = Sum::number(number).times(unit_s).ok_or_else(wrong)?;
    Ok(Value::Sum(seconds))
}
