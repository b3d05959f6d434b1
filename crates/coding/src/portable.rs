//! Kernel for every processor: a product with a constant as shifts and XORs.
//!
//! A row's sum over all inputs is built from the highest bit of the factors down: doubled, then the
//! inputs whose factor has the next bit are added. So all inputs share eight doublings, and the
//! rest are loops over bytes that compilers vectorize.

use std::{array, ops::Range};

/// Bytes summed at once: the sum stays in the first cache with the inputs that are added.
const BLOCK_BYTES: usize = 8 << 10;
/// Remainder of x^8 modulo the polynomial.
const REDUCED: u8 = 0x1d;

/// A row of factors: for each bit, the inputs whose factor has it.
#[derive(Debug, Clone)]
pub(super) struct Planes([Vec<usize>; 8]);

impl Planes {
    pub(super) fn new(row: &[u8]) -> Self {
        Self(array::from_fn(|bit| {
            let has = |&input: &usize| row[input] >> bit & 1 == 1;
            (0..row.len()).filter(has).collect()
        }))
    }
}

/// Computes `out = row · inputs` for the bytes in `range`.
pub(super) fn apply(planes: &Planes, inputs: &[&[u8]], out: &mut [u8], range: Range<usize>) {
    for start in range.clone().step_by(BLOCK_BYTES) {
        let block = start..range.end.min(start + BLOCK_BYTES);
        let sum = &mut out[block.clone()];
        sum.fill(0);
        for (place, of_bit) in planes.0.iter().rev().enumerate() {
            if place > 0 {
                double(sum);
            }
            let mut pairs = of_bit.chunks_exact(2);
            for pair in &mut pairs {
                let (a, b) = (
                    &inputs[pair[0]][block.clone()],
                    &inputs[pair[1]][block.clone()],
                );
                let bytes = sum.iter_mut().zip(a).zip(b);
                bytes.for_each(|((sum, a), b)| *sum ^= a ^ b);
            }
            for &input in pairs.remainder() {
                let bytes = sum.iter_mut().zip(&inputs[input][block.clone()]);
                bytes.for_each(|(sum, byte)| *sum ^= byte);
            }
        }
    }
}

fn double(bytes: &mut [u8]) {
    for byte in bytes {
        let carried = 0u8.wrapping_sub(*byte >> 7);
        *byte = (*byte << 1) ^ (carried & REDUCED);
    }
}
