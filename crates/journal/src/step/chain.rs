//! Steps of a journal in their order, each checked for damage.

use super::REPLAYED_AT_ONCE;
use crate::{
    database::{Database, Row, Trouble, params},
    digest::{self, Chain, InputRow},
    snapshot,
};

/// Start of a replay.
#[derive(Debug)]
pub(super) struct Since {
    /// Number of the input before it.
    pub(super) input: i64,
    /// Step before it.
    pub(super) chain: Chain,
}

impl Since {
    pub(super) const BEGINNING: Self = Self {
        input: 0,
        chain: Chain {
            step: 0,
            digest: None,
        },
    };
}

/// Checks every step and the newest snapshot.
pub(crate) fn check_all(database: &dyn Database) -> Result<(), Trouble> {
    newest_snapshot(database)?;
    each_step(database, Since::BEGINNING, |_| ())
}

/// Returns the newest snapshot, and where the steps after it begin.
pub(super) fn newest_snapshot(
    database: &dyn Database,
) -> Result<Option<(Since, Vec<u8>)>, Trouble> {
    let row = database.query_row(
        "SELECT snapshot.input_seq, snapshot.record, snapshot.digest, input.step, input.digest
         FROM snapshot LEFT JOIN input ON input.seq = snapshot.input_seq
         ORDER BY snapshot.input_seq DESC LIMIT 1",
        &[],
    )?;
    let Some(row) = row else {
        return Ok(None);
    };
    let (kept, told): (Vec<u8>, Option<Vec<u8>>) = (row.get(1)?, row.get(2)?);
    let (step, after): (Option<i64>, Option<Vec<u8>>) = (row.get(3)?, row.get(4)?);
    let step = step.unwrap_or_default();
    let wanted = after
        .as_ref()
        .map(|after| digest::of_snapshot(after, &kept));
    if wanted != told {
        return Err(digest::damaged(&format!("the snapshot after step {step}")));
    }
    let since = Since {
        input: row.get(0)?,
        chain: Chain {
            step,
            digest: after,
        },
    };
    Ok(Some((since, snapshot::unpack(kept)?)))
}

/// Calls `look` with the inputs of each step, after its check.
pub(super) fn each_step(
    database: &dyn Database,
    since: Since,
    mut look: impl FnMut(&[InputRow]),
) -> Result<(), Trouble> {
    let Since {
        input: mut last,
        mut chain,
    } = since;
    let mut step: Vec<InputRow> = Vec::new();
    let mut close = |step: &mut Vec<InputRow>| -> Result<i64, Trouble> {
        if !step.is_empty() {
            chain.check(step)?;
            look(step);
            step.clear();
        }
        Ok(chain.step)
    };
    loop {
        let rows = inputs_since(database, last)?;
        if rows.is_empty() {
            break;
        }
        for row in rows {
            last = row.seq;
            if step.first().is_some_and(|first| first.step != row.step) {
                close(&mut step)?;
            }
            step.push(row);
        }
    }
    let number = close(&mut step)?;
    match digest::newest_input(database)? {
        Some(newest) if newest != last => {
            Err(digest::damaged(&format!("what follows step {number}")))
        }
        Some(_) | None => Ok(()),
    }
}

/// Returns the next inputs.
fn inputs_since(database: &dyn Database, since: i64) -> Result<Vec<InputRow>, Trouble> {
    let rows = database.query(
        "SELECT seq, at_micros, step, record, digest FROM input WHERE seq > ?1 ORDER BY seq LIMIT ?2",
        &params![since, REPLAYED_AT_ONCE],
    )?;
    let read = |row: &Row| {
        Ok(InputRow {
            seq: row.get(0)?,
            at: row.get(1)?,
            step: row.get(2)?,
            bytes: row.get(3)?,
            digest: row.get(4)?,
        })
    };
    rows.iter().map(read).collect()
}
