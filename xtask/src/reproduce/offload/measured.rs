//! Data printed in the paper, in `xtask/data/offload/`.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use toml::{Table, Value};

const TABLES: &str = include_str!("../../../data/offload/tables.toml");
const FIGURE_5: &str = include_str!("../../../data/offload/fig5_bandwidth_mbps.csv");

/// The intermediate nodes next to the centre.
pub const LEVEL_1: [&str; 4] = ["a", "b", "c", "d"];

/// The bandwidths of Figure 5, in Mbit/s; the same both ways.
pub struct Matrix {
    rates: BTreeMap<(String, String), f64>,
    /// The intermediate nodes, a to t.
    pub nodes: Vec<String>,
}

impl Matrix {
    /// Reads the matrix.
    ///
    /// # Errors
    /// Fails if a line has no number where one should be.
    pub fn read() -> anyhow::Result<Self> {
        let mut lines = FIGURE_5.lines();
        let head: Vec<&str> = lines.next().context("no heading")?.split(',').collect();
        let (mut rates, mut nodes) = (BTreeMap::new(), Vec::new());
        for line in lines {
            let cells: Vec<&str> = line.split(',').collect();
            let [node, _site, numbers @ ..] = cells.as_slice() else {
                bail!("`{line}` is no line of Figure 5");
            };
            if *node != "Center" && *node != "Ns" {
                nodes.push((*node).to_owned());
            }
            for (other, number) in head[2..].iter().zip(numbers) {
                if !number.is_empty() {
                    let rate: f64 = number.parse().with_context(|| format!("in `{line}`"))?;
                    rates.insert(((*node).to_owned(), (*other).to_owned()), rate);
                    rates.insert(((*other).to_owned(), (*node).to_owned()), rate);
                }
            }
        }
        Ok(Self { rates, nodes })
    }

    /// Returns the rate between two nodes, in Mbit/s.
    ///
    /// # Errors
    /// Fails if the paper does not print it.
    pub fn rate(&self, from: &str, to: &str) -> anyhow::Result<f64> {
        let rate = self.rates.get(&(from.to_owned(), to.to_owned()));
        rate.copied()
            .with_context(|| format!("Figure 5 has no bandwidth from {from} to {to}"))
    }
}

/// The paper's tables.
pub struct Tables(Table);

impl Tables {
    /// Reads the tables.
    ///
    /// # Errors
    /// Fails if the file is no TOML.
    pub fn read() -> anyhow::Result<Self> {
        Ok(Self(TABLES.parse()?))
    }

    /// Returns the numbers of a row.
    ///
    /// # Errors
    /// Fails if there is no such row of numbers.
    pub fn row(&self, table: &str, key: &str) -> anyhow::Result<Vec<f64>> {
        let row = self.value(table, key)?.as_array().context(key.to_owned())?;
        row.iter()
            .map(|value| float(value).context(key.to_owned()))
            .collect()
    }

    /// Returns one number.
    ///
    /// # Errors
    /// Fails if there is no such number.
    pub fn number(&self, table: &str, key: &str) -> anyhow::Result<f64> {
        float(self.value(table, key)?).context(key.to_owned())
    }

    fn value(&self, table: &str, key: &str) -> anyhow::Result<&Value> {
        let value = self.0.get(table).and_then(|table| table.get(key));
        value.with_context(|| format!("no {key} in {table}"))
    }
}

#[expect(clippy::cast_precision_loss, reason = "the tables hold small numbers")]
fn float(value: &Value) -> Option<f64> {
    value
        .as_float()
        .or(value.as_integer().map(|number| number as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure_5_has_twenty_nodes_and_is_the_same_both_ways() {
        let matrix = Matrix::read().unwrap();
        assert_eq!(matrix.nodes.len(), 20);
        let there = matrix.rate("Center", "a").unwrap();
        assert!((there - 45.7).abs() < 1e-9);
        assert!((matrix.rate("a", "Center").unwrap() - there).abs() < 1e-9);
        assert!(
            matrix.rate("Center", "t").is_err(),
            "the paper does not print it"
        );
        assert!(matrix.rate("b", "c").is_ok());
    }
}
