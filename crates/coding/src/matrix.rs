//! Rows of the generator matrix and of its inverses.

use posthaste_types::Code;

use super::field::{inverse, multiply};

/// Returns row `row` of the generator matrix: the identity above, then Cauchy rows `a[k+i][j] = 1 /
/// ((k+i) xor j)`.
pub(super) fn generator_row(code: Code, row: u8) -> Vec<u8> {
    (0..code.data())
        .map(|column| {
            if row < code.data() {
                u8::from(row == column)
            } else {
                inverse(row ^ column)
            }
        })
        .collect()
}

/// Returns, for each fragment `wanted`, its factors over the k fragments `present`, in their order.
/// The cost is O(k · e) for each, with e missing data fragments.
pub(super) fn rebuilding_rows(code: Code, present: &[u8], wanted: &[u8]) -> Vec<Vec<u8>> {
    let lost: Vec<u8> = (0..code.data())
        .filter(|index| !present.contains(index))
        .collect();
    let lost_rows = lost_rows(code, present, &lost);
    let row_of = |&index: &u8| {
        if let Some(place) = lost.iter().position(|&lost| lost == index) {
            return lost_rows[place].clone();
        }
        // Row of the generator: present data stands for itself, lost data for its row.
        let generator = generator_row(code, index);
        let mut row: Vec<u8> = present
            .iter()
            .map(|&from| generator.get(usize::from(from)).copied().unwrap_or(0))
            .collect();
        for (&lost, of_lost) in lost.iter().zip(&lost_rows) {
            let factor = generator[usize::from(lost)];
            let terms = row.iter_mut().zip(of_lost);
            terms.for_each(|(sum, &term)| *sum ^= multiply(factor, term));
        }
        row
    };
    wanted.iter().map(row_of).collect()
}

/// Returns the factors over the present fragments for each lost data fragment.
///
/// The present parity, less the contribution of the present data, is a square Cauchy matrix times
/// the lost data. The inverse of `1 / (x[i] + y[j])` in closed form (J. Blömer et al., ICSI
/// TR-95-048) is `u[i] · v[j] / (x[i] + y[j])` with `u[i] = Π (x[i] + y[n]) / Π (x[i] + x[n])` and
/// `v[j] = Π (x[n] + y[j]) / Π (y[n] + y[j])`, equal indices left out below the line.
fn lost_rows(code: Code, present: &[u8], lost: &[u8]) -> Vec<Vec<u8>> {
    let parity: Vec<u8> = present
        .iter()
        .copied()
        .filter(|&index| index >= code.data())
        .collect();
    assert_eq!(parity.len(), lost.len(), "k fragments are present");
    // Product of the distances to all of `others`, without the distance to itself.
    let distances = |from: u8, others: &[u8]| {
        let others = others.iter().filter(|&&other| other != from);
        others.fold(1, |product, &other| multiply(product, from ^ other))
    };
    let quotient = |from: u8, above: &[u8], below: &[u8]| {
        multiply(distances(from, above), inverse(distances(from, below)))
    };
    let u: Vec<u8> = parity.iter().map(|&x| quotient(x, lost, &parity)).collect();
    let row_of = |&y: &u8| {
        let v = quotient(y, &parity, lost);
        let of_parity: Vec<u8> = parity
            .iter()
            .zip(&u)
            .map(|(&x, &u)| multiply(multiply(u, v), inverse(x ^ y)))
            .collect();
        let of_data = |data: u8| {
            let terms = parity.iter().zip(&of_parity);
            terms.fold(0, |sum, (&x, &factor)| {
                sum ^ multiply(factor, inverse(x ^ data))
            })
        };
        let mut parity_factors = of_parity.iter().copied();
        present
            .iter()
            .map(|&index| match index {
                data if data < code.data() => of_data(data),
                _ => parity_factors.next().unwrap_or(0),
            })
            .collect()
    };
    lost.iter().map(row_of).collect()
}
