//! Systematic Cauchy Reed-Solomon over GF(2^8), byte for byte equal to ISA-L with
//! `gf_gen_cauchy1_matrix`. `docs/algorithms/cauchy-reed-solomon.md` explains it.

mod field;
mod matrix;
mod portable;
mod simd;

use std::fmt;

use bytes::Bytes;
use posthaste_types::Code;

use matrix::{generator_row, rebuilding_rows};
pub use simd::Kernel;
use simd::Rows;

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

/// Encoder and decoder for chunks of one code.
#[derive(Debug, Clone)]
pub struct Codec {
    code: Code,
    kernel: Kernel,
    parity: Rows,
}

impl Codec {
    /// Returns the codec of `code`, with the fastest instructions of this processor.
    #[must_use]
    pub fn new(code: Code) -> Self {
        let fastest = Kernel::available().first().copied();
        Self::prepared(code, fastest.unwrap_or(Kernel::Portable))
    }

    /// Returns the codec of `code` with these instructions, if this processor has them.
    #[must_use]
    pub fn with_kernel(code: Code, kernel: Kernel) -> Option<Self> {
        Kernel::available()
            .contains(&kernel)
            .then(|| Self::prepared(code, kernel))
    }

    fn prepared(code: Code, kernel: Kernel) -> Self {
        let rows: Vec<_> = (code.data()..code.total())
            .map(|row| generator_row(code, row))
            .collect();
        Self {
            code,
            kernel,
            parity: Rows::new(kernel, usize::from(code.data()), &rows),
        }
    }

    /// Returns the code.
    #[must_use]
    pub const fn code(&self) -> Code {
        self.code
    }

    /// Computes the m parity fragments of k data fragments, all of one size.
    ///
    /// # Errors
    /// [`CodecError::Shape`].
    pub fn encode(&self, data: &[&[u8]], parity: &mut [&mut [u8]]) -> Result<(), CodecError> {
        let (k, m) = (self.code.data(), self.code.parity());
        if data.len() != usize::from(k) || parity.len() != usize::from(m) {
            return Err(CodecError::Shape);
        }
        apply(&self.parity, data, parity)
    }

    /// Cuts a chunk into its fragments: k of data, which share its memory (the last one
    /// zero-padded), and m of parity.
    ///
    /// Moves the chunk once if its buffer has no space for the padding. Blocking: reads the chunk
    /// once.
    ///
    /// # Errors
    /// [`CodecError`] never, except for a defect here.
    pub fn cut(&self, mut chunk: Vec<u8>) -> Result<Vec<Bytes>, CodecError> {
        let (data, parity) = (
            usize::from(self.code.data()),
            usize::from(self.code.parity()),
        );
        let size = chunk.len().div_ceil(data);
        chunk.resize(size * data, 0);
        let mut coded = vec![0; size * parity];
        if size > 0 {
            let inputs: Vec<&[u8]> = chunk.chunks_exact(size).collect();
            let mut out: Vec<&mut [u8]> = coded.chunks_exact_mut(size).collect();
            self.encode(&inputs, &mut out)?;
        }
        let (chunk, coded) = (Bytes::from(chunk), Bytes::from(coded));
        let cut = |bytes: &Bytes, at: usize| bytes.slice(at * size..(at + 1) * size);
        let fragments = (0..data).map(|at| cut(&chunk, at));
        Ok(fragments
            .chain((0..parity).map(|at| cut(&coded, at)))
            .collect())
    }

    /// Rebuilds the fragments `wanted` into `out` from k or more `present` ones (index and bytes),
    /// all of one size. The cost is k multiply-adds for each rebuilt byte.
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
        let indices: Vec<u8> = present.iter().map(|&(index, _)| index).collect();
        let rows = rebuilding_rows(self.code, &indices, wanted);
        let inputs: Vec<&[u8]> = present.iter().map(|&(_, bytes)| bytes).collect();
        apply(&Rows::new(self.kernel, data, &rows), &inputs, out)
    }
}

/// Computes `out = rows · inputs`.
fn apply(rows: &Rows, inputs: &[&[u8]], out: &mut [&mut [u8]]) -> Result<(), CodecError> {
    let size = inputs.first().map_or(0, |input| input.len());
    let one_size = inputs.iter().all(|input| input.len() == size)
        && out.iter().all(|output| output.len() == size);
    if !one_size {
        return Err(CodecError::Shape);
    }
    rows.apply(inputs, out);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{
        field::{inverse, multiply},
        *,
    };
    use proptest::prelude::*;

    /// Multiplies by the textbook: shifts and reduces by x^8 + x^4 + x^3 + x^2 + 1.
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

    /// Parity by ISA-L 2.30 of the first 8 · k bytes of the xorshift64 generator, with the matrix
    /// of `gf_gen_cauchy1_matrix`: `xtask/src/bench/code/isal.c` prints them.
    const OF_ISA_L: [(&str, &str); 8] = [
        ("1+1", "ad4df30bae771bdc"),
        ("2+1", "0188267ecbefd3b9"),
        ("4+1", "1b400cc6f85cf251"),
        ("4+2", "1b400cc6f85cf251ff1dd26a65ddaef5"),
        (
            "8+4",
            "ceff358423d6a8af375846d428266e65f6687ec92f2ee7f429d5c340aa576633",
        ),
        (
            "10+10",
            "47622b5d596ec89a17435b71c5b747b119dea43ca2a68f420cf6ac352f490da1e81e9f889ab5d742\
            4eec353a83e00510486ad7853c68322969dcc67214b70efa17c5bb1c63b48873e09306289712851f",
        ),
        (
            "16+4",
            "da8f7c967b5eaea1a4031d03b19a337a6a491fc728da413da6fd759de08ca8d5",
        ),
        (
            "32+32",
            "64a5b13bc5aea3baf2281c827e263701a5e7864e8dd9c82803f862dbb82e078c2429b7f293ea9cd0\
            b932244f10102ca6a07e617cd43482c7793ed92dc2d7663e2345e82af7abeda707258c8652649f16\
            67772eeab1d7580968ac1363c73741f538df9cdd322b410c930d4b56eb769fda8fb0d89ca15a927a\
            0d526c617e5e5ad46e1c04ba6f43a9b0d508faae847ff61bc0ae4a0a6b3bf8ff548e539347b756e2\
            6241badeb29d8d0b9d44e37e3516ca8bd84744b22a36257a9579c86c4c2c988af08dfbc4fae07ca2\
            0d10f13ab7543a8b183c4fdbabdfa74061995fa19da01298a49945babb8d65282a43075d8c5f6987\
            abf65c944f60aa1d98e087c671eeee2e",
        ),
    ];

    #[test]
    fn parity_is_that_of_isa_l() {
        let mut noise = 0x9e37_79b9_7f4a_7c15u64;
        let mut next = || {
            noise ^= noise << 13;
            noise ^= noise >> 7;
            noise ^= noise << 17;
            noise.to_le_bytes().to_vec()
        };
        let stream: Vec<Vec<u8>> = (0..Code::FRAGMENTS_MAX).map(|_| next()).collect();
        for (code, expected) in OF_ISA_L {
            let code: Code = code.parse().unwrap();
            for kernel in Kernel::available() {
                let codec = Codec::with_kernel(code, kernel).unwrap();
                let parity = encode(&codec, &stream[..usize::from(code.data())]).concat();
                let hex: String = parity.iter().map(|byte| format!("{byte:02x}")).collect();
                assert_eq!(hex, expected, "{code} {kernel}");
            }
        }
    }

    #[test]
    fn every_kernel_computes_what_the_book_says() {
        for (data, parity) in [(1, 1), (2, 1), (4, 1), (8, 4), (32, 32)] {
            let code = Code::new(data, parity).unwrap();
            for size in [0, 1, 31, 32, 33, 127, 1000, (16 << 10) + 77] {
                if size > 1000 && data > 8 {
                    continue;
                }
                let fragments: Vec<Vec<u8>> =
                    (0..data).map(|n| bytes(u64::from(n), size)).collect();
                let expected = slow_encode(code, &fragments);
                for kernel in Kernel::available() {
                    let made = encode(&Codec::with_kernel(code, kernel).unwrap(), &fragments);
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
            kernel: prop::sample::Index,
            order in Just((0u8..64).collect::<Vec<_>>()).prop_shuffle(),
        ) {
            let code = Code::new(data, parity).unwrap();
            let codec = Codec::with_kernel(code, *kernel.get(&Kernel::available())).unwrap();
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
