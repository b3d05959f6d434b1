//! Kernels of x86-64.
//!
//! Each keeps the sums of all rows of a [`Group`] in registers during a single pass over the
//! inputs. An input's bytes are loaded once for the whole group, and each row costs one product and
//! one XOR for a register of bytes. The registers (32 of 512 bits, 16 of 256) limit how many rows
//! share a pass, and how many registers of each row are processed at once.

use std::arch::x86_64::{
    __m128i, __m256i, __m512i, _MM_HINT_T0, _mm_loadu_si128, _mm_prefetch, _mm256_and_si256,
    _mm256_broadcastsi128_si256, _mm256_gf2p8affine_epi64_epi8, _mm256_loadu_si256,
    _mm256_set1_epi8, _mm256_set1_epi64x, _mm256_setzero_si256, _mm256_shuffle_epi8,
    _mm256_srli_epi64, _mm256_storeu_si256, _mm256_xor_si256, _mm512_and_si512,
    _mm512_broadcast_i32x4, _mm512_gf2p8affine_epi64_epi8, _mm512_loadu_si512, _mm512_set1_epi8,
    _mm512_set1_epi64, _mm512_setzero_si512, _mm512_shuffle_epi8, _mm512_srli_epi64,
    _mm512_storeu_si512, _mm512_ternarylogic_epi64, _mm512_xor_si512,
};

use super::{Group, Kernel, Span};

/// Truth table of `a xor b xor c` for VPTERNLOG.
const XOR_OF_THREE: i32 = 0x96;

/// Bytes ahead that are fetched into the cache: more inputs are read side by side than a core's
/// prefetcher follows.
const PREFETCH_BYTES: usize = 512;

/// Applies a group with a kernel of this processor; returns the processed bytes of the span, from
/// its start: all but less than a register's.
///
/// # Safety
/// The processor has the kernel's instructions; every input and output reaches to the span's end;
/// outputs overlap neither each other nor an input; `group` was made for as many inputs.
pub(super) unsafe fn apply(
    kernel: Kernel,
    group: &Group,
    inputs: &[&[u8]],
    outputs: &[*mut u8],
    span: Span,
) -> usize {
    // Number of registers of every row processed at once, by the number of rows.
    macro_rules! choose {
        ($kernel:ident of $coefficients:ident, $($rows:literal by $registers:literal),*) => {{
            assert_eq!(outputs.len() * inputs.len(), $coefficients.len(), "one for each of both");
            match outputs.len() {
                // SAFETY: as this function's; there is a coefficient for each row and input.
                $($rows => unsafe {
                    let done = $kernel::<$rows, $registers>($coefficients, inputs, outputs, span);
                    done + $kernel::<$rows, 1>($coefficients, inputs, outputs, span.after(done))
                },)*
                _ => 0,
            }
        }};
    }
    match (kernel, group) {
        (Kernel::Gfni512, Group::Matrices(matrices)) => {
            choose!(affine_512 of matrices, 1 by 4, 2 by 4, 3 by 4, 4 by 4, 5 by 4, 6 by 4)
        }
        (Kernel::Gfni256, Group::Matrices(matrices)) => {
            choose!(affine_256 of matrices, 1 by 4, 2 by 4, 3 by 3, 4 by 2, 5 by 2, 6 by 2)
        }
        (Kernel::Shuffle512, Group::Tables(tables)) => {
            choose!(shuffle_512 of tables, 1 by 4, 2 by 4, 3 by 4, 4 by 4, 5 by 3, 6 by 3)
        }
        (Kernel::Shuffle256, Group::Tables(tables)) => {
            choose!(shuffle_256 of tables, 1 by 3, 2 by 2, 3 by 2, 4 by 2)
        }
        (_, Group::Matrices(_) | Group::Tables(_) | Group::Planes(_)) => 0,
    }
}

macro_rules! affine_kernel {
    ($name:ident, $features:literal, $width:literal, $zero:ident, $load:ident, $store:ident, $broadcast:ident, $affine:ident, $xor:ident) => {
        /// Computes the products by GF2P8AFFINEQB.
        ///
        /// # Safety
        /// See [`apply`]; `matrices` has `R` entries for each input.
        #[target_feature(enable = $features)]
        unsafe fn $name<const R: usize, const V: usize>(
            matrices: &[u64],
            inputs: &[&[u8]],
            outputs: &[*mut u8],
            span: Span,
        ) -> usize {
            let outputs = &outputs[..R];
            let whole = span.length / ($width * V) * ($width * V);
            let mut at = span.start;
            while at < span.start + whole {
                let mut sums = [[$zero(); V]; R];
                for (place, input) in inputs.iter().enumerate() {
                    let mut bytes = [$zero(); V];
                    for n in 0..V {
                        let from = input.as_ptr().wrapping_add(at + $width * n);
                        _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(PREFETCH_BYTES).cast());
                        // SAFETY: at + V registers is within the span, and that within the input.
                        bytes[n] = unsafe { $load(from.cast()) };
                    }
                    for row in 0..R {
                        // SAFETY: there are R entries for each input.
                        let matrix = unsafe { *matrices.get_unchecked(place * R + row) };
                        let matrix = $broadcast(matrix.cast_signed());
                        for n in 0..V {
                            sums[row][n] = $xor(sums[row][n], $affine::<0>(bytes[n], matrix));
                        }
                    }
                }
                for row in 0..R {
                    for n in 0..V {
                        // SAFETY: as for the input.
                        unsafe { $store(outputs[row].add(at + $width * n).cast(), sums[row][n]) };
                    }
                }
                at += $width * V;
            }
            whole
        }
    };
}

affine_kernel!(
    affine_512,
    "avx512f,avx512bw,gfni",
    64,
    _mm512_setzero_si512,
    _mm512_loadu_si512,
    _mm512_storeu_si512,
    _mm512_set1_epi64,
    _mm512_gf2p8affine_epi64_epi8,
    _mm512_xor_si512
);
affine_kernel!(
    affine_256,
    "avx2,gfni",
    32,
    _mm256_setzero_si256,
    _mm256_loadu_si256,
    _mm256_storeu_si256,
    _mm256_set1_epi64x,
    _mm256_gf2p8affine_epi64_epi8,
    _mm256_xor_si256
);

macro_rules! shuffle_kernel {
    ($name:ident, $features:literal, $width:literal, $zero:ident, $load:ident, $store:ident, $fill:ident, $and:ident, $shift:ident, $spread:ident, $shuffle:ident, $xor:ident) => {
        /// Computes the products by PSHUFB.
        ///
        /// # Safety
        /// See [`apply`]; `tables` has `R` entries for each input.
        #[target_feature(enable = $features)]
        unsafe fn $name<const R: usize, const V: usize>(
            tables: &[[u8; 32]],
            inputs: &[&[u8]],
            outputs: &[*mut u8],
            span: Span,
        ) -> usize {
            let outputs = &outputs[..R];
            let whole = span.length / ($width * V) * ($width * V);
            let low_half = $fill(15);
            let mut at = span.start;
            while at < span.start + whole {
                let mut sums = [[$zero(); V]; R];
                for (place, input) in inputs.iter().enumerate() {
                    let (mut low, mut high) = ([$zero(); V], [$zero(); V]);
                    for n in 0..V {
                        let from = input.as_ptr().wrapping_add(at + $width * n);
                        _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(PREFETCH_BYTES).cast());
                        // SAFETY: at + V registers is within the span, and that within the input.
                        let bytes = unsafe { $load(from.cast()) };
                        low[n] = $and(bytes, low_half);
                        high[n] = $and($shift::<4>(bytes), low_half);
                    }
                    for row in 0..R {
                        // SAFETY: there are R entries of 32 bytes for each input.
                        let (of_low, of_high): (__m128i, __m128i) = unsafe {
                            let table = tables.get_unchecked(place * R + row).as_ptr();
                            (
                                _mm_loadu_si128(table.cast()),
                                _mm_loadu_si128(table.add(16).cast()),
                            )
                        };
                        let (of_low, of_high) = ($spread(of_low), $spread(of_high));
                        for n in 0..V {
                            sums[row][n] = $xor(
                                sums[row][n],
                                $shuffle(of_low, low[n]),
                                $shuffle(of_high, high[n]),
                            );
                        }
                    }
                }
                for row in 0..R {
                    for n in 0..V {
                        // SAFETY: as for the input.
                        unsafe { $store(outputs[row].add(at + $width * n).cast(), sums[row][n]) };
                    }
                }
                at += $width * V;
            }
            whole
        }
    };
}

#[target_feature(enable = "avx512f")]
fn xor_512(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
    _mm512_ternarylogic_epi64::<XOR_OF_THREE>(a, b, c)
}

#[target_feature(enable = "avx2")]
fn xor_256(a: __m256i, b: __m256i, c: __m256i) -> __m256i {
    _mm256_xor_si256(a, _mm256_xor_si256(b, c))
}

shuffle_kernel!(
    shuffle_512,
    "avx512f,avx512bw",
    64,
    _mm512_setzero_si512,
    _mm512_loadu_si512,
    _mm512_storeu_si512,
    _mm512_set1_epi8,
    _mm512_and_si512,
    _mm512_srli_epi64,
    _mm512_broadcast_i32x4,
    _mm512_shuffle_epi8,
    xor_512
);
shuffle_kernel!(
    shuffle_256,
    "avx2",
    32,
    _mm256_setzero_si256,
    _mm256_loadu_si256,
    _mm256_storeu_si256,
    _mm256_set1_epi8,
    _mm256_and_si256,
    _mm256_srli_epi64,
    _mm256_broadcastsi128_si256,
    _mm256_shuffle_epi8,
    xor_256
);
