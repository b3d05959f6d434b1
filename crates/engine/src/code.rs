//! Systematic Cauchy Reed-Solomon over GF(2^8), byte for byte what ISA-L makes of
//! `gf_gen_cauchy1_matrix`. `docs/algorithms/cauchy-reed-solomon.md` explains it.

mod field;
mod simd;

use std::fmt;

use posthaste_types::Code;

use field::{inverse, multiply};
use simd::{Kernel, Row};

/// Bytes of each fragment that are worked on at once, so that with 16+4 fragments a block (320 KiB)
/// stays in a core's L2 while its parity rows are computed.
const BLOCK_BYTES: usize = 16 << 10;

/// Fragments that don't fit the code, or are too few.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodecError {
    /// Fewer than k different fragments.
    TooFew,
    /// A fragment index outside the code, or named twice.
    Index,
    /// Fragments or buffers of different sizes, or not as many as the code has.
    Shape,
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooFew => "too few fragments to rebuild the chunk",
            Self::Index => "a fragment is not of this code",
            Self::Shape => "fragments are not all of one size",
        })
    }
}

impl std::error::Error for CodecError {}

/// Encodes and rebuilds chunks of one code.
#[derive(Debug, Clone)]
pub struct Codec {
    code: Code,
    kernel: Kernel,
    parity: Vec<Row>,
}

impl Codec {
    /// The codec of `code`, on the fastest instructions this processor has.
    #[must_use]
    pub fn new(code: Code) -> Self {
        Self::with_kernel(code, Kernel::detect())
    }

    fn with_kernel(code: Code, kernel: Kernel) -> Self {
        let rows = code.data()..code.total();
        let parity = rows.map(|row| Row::new(&matrix_row(code, row))).collect();
        Self {
            code,
            kernel,
            parity,
        }
    }

    /// The code.
    #[must_use]
    pub const fn code(&self) -> Code {
        self.code
    }

    /// Computes the m parity fragments of k data fragments, all of one size.
    ///
    /// # Errors
    /// [`CodecError::Shape`].
    pub fn encode(&self, data: &[&[u8]], parity: &mut [&mut [u8]]) -> Result<(), CodecError> {
        if data.len() != usize::from(self.code.data()) || parity.len() != self.parity.len() {
            return Err(CodecError::Shape);
        }
        self.apply(&self.parity, data, parity)
    }

    /// Rebuilds the fragments `wanted` into `out` from k or more `present` ones (index and bytes),
    /// all of one size. O(k³) for the matrix, then k multiply-adds for each byte rebuilt.
    ///
    /// # Errors
    /// [`CodecError::TooFew`], [`CodecError::Index`], [`CodecError::Shape`].
    pub fn reconstruct(
        &self,
        present: &[(u8, &[u8])],
        wanted: &[u8],
        out: &mut [&mut [u8]],
    ) -> Result<(), CodecError> {
        let data = usize::from(self.code.data());
        let total = self.code.total();
        let mut seen = [false; 2 * Code::FRAGMENTS_MAX as usize];
        for &(index, _) in present {
            if index >= total || std::mem::replace(&mut seen[usize::from(index)], true) {
                return Err(CodecError::Index);
            }
        }
        if wanted.iter().any(|&index| index >= total) {
            return Err(CodecError::Index);
        }
        let present = present.get(..data).ok_or(CodecError::TooFew)?;
        if wanted.len() != out.len() {
            return Err(CodecError::Shape);
        }
        let rows: Vec<Vec<u8>> = present
            .iter()
            .map(|&(index, _)| matrix_row(self.code, index))
            .collect();
        // Every square submatrix of a Cauchy matrix is regular, so this never fails.
        let decode = invert(rows).ok_or(CodecError::Index)?;
        let rows: Vec<Row> = wanted
            .iter()
            .map(|&index| Row::new(&product(&matrix_row(self.code, index), &decode)))
            .collect();
        let inputs: Vec<&[u8]> = present.iter().map(|&(_, bytes)| bytes).collect();
        self.apply(&rows, &inputs, out)
    }

    /// `out = rows · inputs`, block by block.
    fn apply(
        &self,
        rows: &[Row],
        inputs: &[&[u8]],
        out: &mut [&mut [u8]],
    ) -> Result<(), CodecError> {
        let size = inputs.first().map_or(0, |input| input.len());
        let one_size = inputs.iter().all(|input| input.len() == size)
            && out.iter().all(|output| output.len() == size);
        if !one_size {
            return Err(CodecError::Shape);
        }
        for start in (0..size).step_by(BLOCK_BYTES) {
            let range = start..size.min(start + BLOCK_BYTES);
            let block: Vec<&[u8]> = inputs.iter().map(|input| &input[range.clone()]).collect();
            for (row, output) in rows.iter().zip(&mut *out) {
                self.kernel.dot(row, &block, &mut output[range.clone()]);
            }
        }
        Ok(())
    }
}

/// Row `row` of the generator matrix: the identity above, then Cauchy rows
/// `a[k+i][j] = 1 / ((k+i) xor j)`.
fn matrix_row(code: Code, row: u8) -> Vec<u8> {
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

/// `row · matrix`.
fn product(row: &[u8], matrix: &[Vec<u8>]) -> Vec<u8> {
    (0..row.len())
        .map(|column| {
            let terms = row
                .iter()
                .zip(matrix)
                .map(|(&a, line)| multiply(a, line[column]));
            terms.fold(0, |sum, term| sum ^ term)
        })
        .collect()
}

/// Gauss-Jordan; `None` for a singular matrix.
fn invert(mut matrix: Vec<Vec<u8>>) -> Option<Vec<Vec<u8>>> {
    let size = matrix.len();
    for (at, row) in matrix.iter_mut().enumerate() {
        row.extend((0..size).map(|column| u8::from(column == at)));
    }
    for column in 0..size {
        let pivot = (column..size).find(|&row| matrix[row][column] != 0)?;
        matrix.swap(column, pivot);
        let scale = inverse(matrix[column][column]);
        matrix[column]
            .iter_mut()
            .for_each(|value| *value = multiply(*value, scale));
        let line = matrix[column].clone();
        for (at, row) in matrix.iter_mut().enumerate() {
            let factor = row[column];
            if at != column && factor != 0 {
                row.iter_mut()
                    .zip(&line)
                    .for_each(|(value, &l)| *value ^= multiply(factor, l));
            }
        }
    }
    Some(matrix.into_iter().map(|row| row[size..].to_vec()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Multiplication by the book: shift and reduce by x^8 + x^4 + x^3 + x^2 + 1.
    fn slow_multiply(a: u8, b: u8) -> u8 {
        let (mut product, mut a) = (0u16, u16::from(a));
        for bit in 0..8 {
            if b >> bit & 1 == 1 {
                product ^= a;
            }
            a <<= 1;
            if a & 0x100 != 0 {
                a ^= 0x11d;
            }
        }
        u8::try_from(product).unwrap()
    }

    fn slow_inverse(a: u8) -> u8 {
        (1..=255).find(|&b| slow_multiply(a, b) == 1).unwrap()
    }

    fn slow_encode(code: Code, data: &[Vec<u8>]) -> Vec<Vec<u8>> {
        (code.data()..code.total())
            .map(|row| {
                (0..data[0].len())
                    .map(|at| {
                        (0..code.data()).fold(0, |sum, column| {
                            let byte = data[usize::from(column)][at];
                            sum ^ slow_multiply(slow_inverse(row ^ column), byte)
                        })
                    })
                    .collect()
            })
            .collect()
    }

    fn bytes(seed: u64, size: usize) -> Vec<u8> {
        let mut out = vec![0; size];
        blake3::Hasher::new()
            .update(&seed.to_le_bytes())
            .finalize_xof()
            .fill(&mut out);
        out
    }

    fn encode(codec: &Codec, data: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut parity = vec![vec![0xee; data[0].len()]; usize::from(codec.code.parity())];
        let inputs: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
        let mut out: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
        codec.encode(&inputs, &mut out).unwrap();
        parity
    }

    #[test]
    fn the_field_is_the_books() {
        for a in 0..=255 {
            for b in 0..=255 {
                assert_eq!(multiply(a, b), slow_multiply(a, b), "{a} * {b}");
            }
        }
        (1..=255).for_each(|a| assert_eq!(inverse(a), slow_inverse(a)));
    }

    #[test]
    fn parity_is_that_of_isa_l() {
        // The Cauchy rows of 4+2, from the definition of `gf_gen_cauchy1_matrix`: 1/(4^j), 1/(5^j).
        let code = Code::new(4, 2).unwrap();
        assert_eq!(matrix_row(code, 4), [0x47, 0xa7, 0x7a, 0xba]);
        assert_eq!(matrix_row(code, 5), [0xa7, 0x47, 0xba, 0x7a]);
        assert_eq!(matrix_row(code, 2), [0, 0, 1, 0]);
    }

    #[test]
    fn every_kernel_computes_what_the_book_says() {
        for (data, parity) in [(1, 1), (2, 1), (4, 1), (8, 4), (32, 32)] {
            let code = Code::new(data, parity).unwrap();
            for size in [0, 1, 31, 32, 33, 127, 1000, BLOCK_BYTES + 77] {
                if size > 1000 && data > 8 {
                    continue;
                }
                let fragments: Vec<Vec<u8>> =
                    (0..data).map(|n| bytes(u64::from(n), size)).collect();
                let expected = slow_encode(code, &fragments);
                for kernel in Kernel::available() {
                    let made = encode(&Codec::with_kernel(code, kernel), &fragments);
                    assert_eq!(made, expected, "{kernel:?} {code} {size}");
                }
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let codec = Codec::new(Code::new(2, 1).unwrap());
        let (a, b, short) = ([1u8; 8], [2u8; 8], [3u8; 7]);
        let mut out = [0u8; 8];
        let mut rebuild = |present: &[(u8, &[u8])], wanted: &[u8]| {
            codec.reconstruct(present, wanted, &mut [&mut out])
        };
        assert_eq!(rebuild(&[(0, &a)], &[1]), Err(CodecError::TooFew));
        assert_eq!(rebuild(&[(0, &a), (0, &b)], &[1]), Err(CodecError::Index));
        assert_eq!(rebuild(&[(0, &a), (3, &b)], &[1]), Err(CodecError::Index));
        assert_eq!(rebuild(&[(0, &a), (2, &b)], &[3]), Err(CodecError::Index));
        assert_eq!(
            rebuild(&[(0, &a), (2, &short)], &[1]),
            Err(CodecError::Shape)
        );
        assert_eq!(
            rebuild(&[(0, &a), (2, &b)], &[0, 1]),
            Err(CodecError::Shape)
        );
        assert_eq!(codec.encode(&[&a], &mut [&mut out]), Err(CodecError::Shape));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]
        #[test]
        fn any_k_fragments_rebuild_all_the_others(
            data in 1u8..=32, parity in 0u8..=32, size in 0usize..700, seed: u64,
            order in Just((0u8..64).collect::<Vec<_>>()).prop_shuffle(),
        ) {
            let code = Code::new(data, parity).unwrap();
            let codec = Codec::new(code);
            let mut all: Vec<Vec<u8>> =
                (0..data).map(|n| bytes(seed ^ u64::from(n), size)).collect();
            all.extend(encode(&codec, &all));
            let order: Vec<u8> = order.into_iter().filter(|&n| n < code.total()).collect();
            let (kept, lost) = order.split_at(usize::from(data));
            let present: Vec<(u8, &[u8])> =
                kept.iter().map(|&n| (n, all[usize::from(n)].as_slice())).collect();
            let mut rebuilt = vec![vec![0xee; size]; lost.len()];
            let mut out: Vec<&mut [u8]> = rebuilt.iter_mut().map(Vec::as_mut_slice).collect();
            codec.reconstruct(&present, lost, &mut out).unwrap();
            for (&n, bytes) in lost.iter().zip(&rebuilt) {
                prop_assert_eq!(bytes, &all[usize::from(n)]);
            }
        }
    }
}
