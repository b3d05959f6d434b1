//! Product of a matrix and fragments, with the available vector instructions.
//!
//! A product with a constant is linear over GF(2). So it is either two 16-entry table look-ups, one
//! for each half of the byte (PSHUFB), or one 8x8 bit matrix (GF2P8AFFINEQB). J. Plank, K. Greenan,
//! E. Miller, "Screaming Fast Galois Field Arithmetic Using Intel SIMD Instructions", FAST 2013,
//! section 3, describes the former.
#![allow(
    unsafe_code,
    reason = "vector instructions; every path is tested against arithmetic by the book"
)]

#[cfg(target_arch = "x86_64")]
mod x86;

use std::fmt;

use super::{
    field::multiply,
    portable::{self, Planes},
};

/// Bytes of each fragment that one group of rows processes before the next group: with 16 inputs a
/// block is 256 KiB, which stays in a core's L2 meanwhile.
const BLOCK_BYTES: usize = 16 << 10;
/// Size of the widest register.
const REGISTER_BYTES: usize = 64;

/// Instructions that compute a code. All give the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// GF2P8AFFINEQB on 512 bits: Ice Lake, Zen 4 and later.
    Gfni512,
    /// GF2P8AFFINEQB on 256 bits: Alder Lake and later without AVX-512.
    Gfni256,
    /// PSHUFB on 512 bits: Skylake-SP, Cascade Lake.
    Shuffle512,
    /// PSHUFB on 256 bits: Haswell, Zen and later.
    Shuffle256,
    /// No particular instructions: shifts and XORs as the compiler translates them.
    Portable,
}

impl Kernel {
    /// Returns the kernels of this processor, the fastest first.
    #[must_use]
    pub fn available() -> Vec<Self> {
        let mut kernels = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2");
            let gfni = is_x86_feature_detected!("gfni");
            let wide = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
            let has = [
                (Self::Gfni512, wide && gfni),
                (Self::Gfni256, avx2 && gfni),
                (Self::Shuffle512, wide),
                (Self::Shuffle256, avx2),
            ];
            kernels.extend(
                has.iter()
                    .filter(|(_, has)| *has)
                    .map(|(kernel, _)| *kernel),
            );
        }
        kernels.push(Self::Portable);
        kernels
    }

    /// Returns the most rows of one pass: their sums must fit into registers.
    const fn rows_max(self) -> usize {
        match self {
            Self::Gfni512 | Self::Gfni256 => 6,
            Self::Shuffle512 => 6,
            Self::Shuffle256 => 4,
            // Its sums are in memory anyway.
            Self::Portable => 1,
        }
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gfni512 => "GFNI with AVX-512",
            Self::Gfni256 => "GFNI with AVX2",
            Self::Shuffle512 => "AVX-512",
            Self::Shuffle256 => "AVX2",
            Self::Portable => "portable",
        })
    }
}

/// Factors of rows that are applied in one pass over the inputs, in the form their kernel needs:
/// input by input, one for each row.
#[derive(Debug, Clone)]
enum Group {
    /// Bit matrices of GF2P8AFFINEQB.
    Matrices(Vec<u64>),
    /// Tables of PSHUFB.
    Tables(Vec<[u8; 32]>),
    /// Bit planes of a single row.
    Planes(Planes),
}

/// Range of every input and output to process.
#[derive(Debug, Clone, Copy)]
struct Span {
    start: usize,
    length: usize,
}

impl Span {
    /// Returns the rest after `done` bytes.
    const fn after(self, done: usize) -> Self {
        let (start, length) = (self.start + done, self.length - done);
        Self { start, length }
    }
}

/// Rows of a matrix over GF(2^8), ready to be applied to fragments.
#[derive(Debug, Clone)]
pub(super) struct Rows {
    kernel: Kernel,
    inputs: usize,
    /// Number of rows of each group but the last.
    width: usize,
    rows: usize,
    groups: Vec<Group>,
}

impl Rows {
    /// Prepares rows that have a factor for each of `inputs` fragments.
    pub(super) fn new(kernel: Kernel, inputs: usize, rows: &[Vec<u8>]) -> Self {
        assert!(
            rows.iter().all(|row| row.len() == inputs),
            "a factor for each input"
        );
        // Groups of about the same size: the loads of a pass cost the same however few its rows.
        let passes = rows.len().div_ceil(kernel.rows_max()).max(1);
        let width = rows.len().div_ceil(passes).max(1);
        let group = |rows: &[Vec<u8>]| {
            let factors =
                (0..inputs).flat_map(|input| rows.iter().map(move |row| usize::from(row[input])));
            match kernel {
                Kernel::Gfni512 | Kernel::Gfni256 => {
                    Group::Matrices(factors.map(|factor| MATRICES[factor]).collect())
                }
                Kernel::Shuffle512 | Kernel::Shuffle256 => {
                    Group::Tables(factors.map(|factor| NIBBLES[factor]).collect())
                }
                Kernel::Portable => Group::Planes(Planes::new(&rows[0])),
            }
        };
        let groups = rows.chunks(width).map(group).collect();
        Self {
            kernel,
            inputs,
            width,
            rows: rows.len(),
            groups,
        }
    }

    /// Computes `out = rows · inputs`. The numbers of inputs and outputs must be those the rows
    /// were prepared for, all of one size.
    pub(super) fn apply(&self, inputs: &[&[u8]], out: &mut [&mut [u8]]) {
        let size = inputs.first().map_or(0, |input| input.len());
        assert_eq!(
            (inputs.len(), out.len()),
            (self.inputs, self.rows),
            "as prepared"
        );
        assert!(
            inputs.iter().all(|input| input.len() == size)
                && out.iter().all(|output| output.len() == size),
            "fragments of one size"
        );
        // A single group processes everything at once.
        let block = if self.groups.len() > 1 {
            BLOCK_BYTES
        } else {
            size.max(1)
        };
        for start in (0..size).step_by(block) {
            let length = block.min(size - start);
            for (group, out) in self.groups.iter().zip(out.chunks_mut(self.width)) {
                self.apply_group(group, inputs, out, Span { start, length });
            }
        }
    }

    fn apply_group(&self, group: &Group, inputs: &[&[u8]], out: &mut [&mut [u8]], span: Span) {
        if let Group::Planes(planes) = group {
            portable::apply(
                planes,
                inputs,
                &mut *out[0],
                span.start..span.start + span.length,
            );
            return;
        }
        let rest = span.after(self.run(group, inputs, out, span));
        if rest.length == 0 {
            return;
        }
        // A rest that fills no register is padded with zeros.
        let range = rest.start..rest.start + rest.length;
        let mut padded = vec![[0; REGISTER_BYTES]; inputs.len() + out.len()];
        let (padded_inputs, padded_out) = padded.split_at_mut(inputs.len());
        for (padded, input) in padded_inputs.iter_mut().zip(inputs) {
            padded[..rest.length].copy_from_slice(&input[range.clone()]);
        }
        let padded_inputs: Vec<&[u8]> = padded_inputs.iter().map(|p| &p[..]).collect();
        let mut padded_out: Vec<&mut [u8]> = padded_out.iter_mut().map(|p| &mut p[..]).collect();
        let whole = Span {
            start: 0,
            length: REGISTER_BYTES,
        };
        let done = self.run(group, &padded_inputs, &mut padded_out, whole);
        assert_eq!(done, REGISTER_BYTES, "a register is worked on as a whole");
        for (output, padded) in out.iter_mut().zip(padded_out) {
            output[range.clone()].copy_from_slice(&padded[..rest.length]);
        }
    }

    /// Returns the processed bytes of the span: all but less than a register's.
    #[cfg(target_arch = "x86_64")]
    fn run(&self, group: &Group, inputs: &[&[u8]], out: &mut [&mut [u8]], span: Span) -> usize {
        let outputs: Vec<*mut u8> = out.iter_mut().map(|output| output.as_mut_ptr()).collect();
        let reaches = |length: usize| span.start + span.length <= length;
        assert!(inputs.iter().all(|i| reaches(i.len())) && out.iter().all(|o| reaches(o.len())));
        // SAFETY: kernels come from `available` alone; lengths were checked just now; outputs are
        // borrowed mutably, so they overlap nothing.
        unsafe { x86::apply(self.kernel, group, inputs, &outputs, span) }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn run(&self, _: &Group, _: &[&[u8]], _: &mut [&mut [u8]], _: Span) -> usize {
        unreachable!("the only kernel here is portable")
    }
}

/// Bit matrix of GF2P8AFFINEQB for each factor: byte 7 - i makes bit i of the product.
static MATRICES: [u64; 256] = matrices();
/// Products of each factor with 0..16, then with 0, 16..256 by 16.
static NIBBLES: [[u8; 32]; 256] = nibbles();

#[expect(
    clippy::cast_possible_truncation,
    reason = "below 256; TryFrom is not const"
)]
const fn matrices() -> [u64; 256] {
    let mut all = [0; 256];
    let mut place = 0;
    // For 256 factors, 8 bits of the product and 8 of the byte.
    while place < 256 * 64 {
        let (factor, bit, input) = (place / 64, place / 8 % 8, place % 8);
        if multiply(factor as u8, 1 << input) >> bit & 1 == 1 {
            all[factor] |= 1 << (8 * (7 - bit) + input);
        }
        place += 1;
    }
    all
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "below 256; TryFrom is not const"
)]
const fn nibbles() -> [[u8; 32]; 256] {
    let mut all = [[0; 32]; 256];
    let mut place = 0;
    while place < 256 * 16 {
        let (factor, nibble) = (place / 16, place % 16);
        all[factor][nibble] = multiply(factor as u8, nibble as u8);
        all[factor][16 + nibble] = multiply(factor as u8, (nibble as u8) << 4);
        place += 1;
    }
    all
}
