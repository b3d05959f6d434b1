//! The inner product of coefficients and fragments, on whatever vector instructions there are.
//!
//! A product with a constant is linear over GF(2), so it is either two 16-entry table look-ups, one
//! for each half of the byte (PSHUFB), or one 8x8 bit matrix (GF2P8AFFINEQB). J. Plank, K. Greenan,
//! E. Miller, "Screaming Fast Galois Field Arithmetic Using Intel SIMD Instructions", FAST 2013,
//! section 3, has the former.
#![allow(
    unsafe_code,
    reason = "vector instructions; every path is tested against the scalar one"
)]

use super::field::multiply;

/// One coefficient in the forms the kernels want.
#[derive(Debug, Clone)]
struct Coefficient {
    /// Products with 0..16 and with 0, 16..256 by 16.
    nibbles: [[u8; 16]; 2],
    /// The bit matrix of GF2P8AFFINEQB: byte 7 - i makes bit i of the product.
    matrix: u64,
}

/// One row of a matrix over GF(2^8), ready to be applied to fragments.
#[derive(Debug, Clone)]
pub(super) struct Row {
    coefficients: Vec<Coefficient>,
}

impl Row {
    pub(super) fn new(row: &[u8]) -> Self {
        let coefficient = |&factor: &u8| {
            let mut nibbles = [[0; 16]; 2];
            for nibble in 0..16u8 {
                nibbles[0][usize::from(nibble)] = multiply(factor, nibble);
                nibbles[1][usize::from(nibble)] = multiply(factor, nibble << 4);
            }
            let mut matrix = 0;
            for bit in 0..8 {
                let inputs = (0..8u8).filter(|&input| multiply(factor, 1 << input) >> bit & 1 == 1);
                let line: u64 = inputs.map(|input| 1 << input).sum();
                matrix |= line << (8 * (7 - bit));
            }
            Coefficient { nibbles, matrix }
        };
        Self {
            coefficients: row.iter().map(coefficient).collect(),
        }
    }
}

/// Which instructions are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kernel {
    /// 64 bytes by GF2P8AFFINEQB.
    #[cfg(target_arch = "x86_64")]
    Gfni512,
    /// 32 bytes by PSHUFB.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// Byte by byte.
    Scalar,
}

impl Kernel {
    /// The fastest first.
    pub(super) fn available() -> Vec<Self> {
        let mut kernels = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512bw")
                && is_x86_feature_detected!("gfni")
            {
                kernels.push(Self::Gfni512);
            }
            if is_x86_feature_detected!("avx2") {
                kernels.push(Self::Avx2);
            }
        }
        kernels.push(Self::Scalar);
        kernels
    }

    pub(super) fn detect() -> Self {
        Self::available().first().copied().unwrap_or(Self::Scalar)
    }

    /// `out = Σ row[j] · inputs[j]`. All slices have the length of `out`, the row has one
    /// coefficient for each input.
    pub(super) fn dot(self, row: &Row, inputs: &[&[u8]], out: &mut [u8]) {
        assert_eq!(
            row.coefficients.len(),
            inputs.len(),
            "one coefficient for each input"
        );
        assert!(
            inputs.iter().all(|input| input.len() == out.len()),
            "fragments of one size"
        );
        let done = match self {
            // SAFETY: `available` found the instructions; the lengths were checked above.
            #[cfg(target_arch = "x86_64")]
            Self::Gfni512 => unsafe { x86::dot_gfni512(row, inputs, out) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { x86::dot_avx2(row, inputs, out) },
            Self::Scalar => 0,
        };
        for at in done..out.len() {
            out[at] = row
                .coefficients
                .iter()
                .zip(inputs)
                .fold(0, |sum, (coefficient, input)| {
                    let [low, high] = &coefficient.nibbles;
                    let byte = usize::from(input[at]);
                    sum ^ low[byte & 15] ^ high[byte >> 4]
                });
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m128i, __m512i, _mm_loadu_si128, _mm256_and_si256, _mm256_broadcastsi128_si256,
        _mm256_loadu_si256, _mm256_set1_epi8, _mm256_setzero_si256, _mm256_shuffle_epi8,
        _mm256_srli_epi64, _mm256_storeu_si256, _mm256_xor_si256, _mm512_gf2p8affine_epi64_epi8,
        _mm512_loadu_si512, _mm512_set1_epi64, _mm512_setzero_si512, _mm512_storeu_si512,
        _mm512_xor_si512,
    };

    use super::Row;

    /// Bytes of `out` that were computed: all but less than 128.
    ///
    /// # Safety
    /// Needs AVX-512F, AVX-512BW and GFNI, and inputs as long as `out`.
    #[target_feature(enable = "avx512f,avx512bw,gfni")]
    pub(super) unsafe fn dot_gfni512(row: &Row, inputs: &[&[u8]], out: &mut [u8]) -> usize {
        const STEP: usize = 128;
        let whole = out.len() / STEP * STEP;
        for at in (0..whole).step_by(STEP) {
            let mut sums = [_mm512_setzero_si512(); 2];
            for (coefficient, input) in row.coefficients.iter().zip(inputs) {
                let matrix = _mm512_set1_epi64(coefficient.matrix.cast_signed());
                for (half, sum) in sums.iter_mut().enumerate() {
                    // SAFETY: at + 128 <= whole <= the input's length.
                    let bytes =
                        unsafe { _mm512_loadu_si512(input.as_ptr().add(at + 64 * half).cast()) };
                    let product: __m512i = _mm512_gf2p8affine_epi64_epi8::<0>(bytes, matrix);
                    *sum = _mm512_xor_si512(*sum, product);
                }
            }
            for (half, sum) in sums.iter().enumerate() {
                // SAFETY: at + 128 <= whole <= the output's length.
                unsafe { _mm512_storeu_si512(out.as_mut_ptr().add(at + 64 * half).cast(), *sum) };
            }
        }
        whole
    }

    /// Bytes of `out` that were computed: all but less than 64.
    ///
    /// # Safety
    /// Needs AVX2, and inputs as long as `out`.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn dot_avx2(row: &Row, inputs: &[&[u8]], out: &mut [u8]) -> usize {
        const STEP: usize = 64;
        let whole = out.len() / STEP * STEP;
        let low_half = _mm256_set1_epi8(15);
        for at in (0..whole).step_by(STEP) {
            let mut sums = [_mm256_setzero_si256(); 2];
            for (coefficient, input) in row.coefficients.iter().zip(inputs) {
                let [low, high] = &coefficient.nibbles;
                // SAFETY: both tables have 16 bytes.
                let (low, high): (__m128i, __m128i) = unsafe {
                    (
                        _mm_loadu_si128(low.as_ptr().cast()),
                        _mm_loadu_si128(high.as_ptr().cast()),
                    )
                };
                let low = _mm256_broadcastsi128_si256(low);
                let high = _mm256_broadcastsi128_si256(high);
                for (half, sum) in sums.iter_mut().enumerate() {
                    // SAFETY: at + 64 <= whole <= the input's length.
                    let bytes =
                        unsafe { _mm256_loadu_si256(input.as_ptr().add(at + 32 * half).cast()) };
                    let of_low = _mm256_shuffle_epi8(low, _mm256_and_si256(bytes, low_half));
                    let above = _mm256_and_si256(_mm256_srli_epi64::<4>(bytes), low_half);
                    let of_high = _mm256_shuffle_epi8(high, above);
                    *sum = _mm256_xor_si256(*sum, _mm256_xor_si256(of_low, of_high));
                }
            }
            for (half, sum) in sums.iter().enumerate() {
                // SAFETY: at + 64 <= whole <= the output's length.
                unsafe { _mm256_storeu_si256(out.as_mut_ptr().add(at + 32 * half).cast(), *sum) };
            }
        }
        whole
    }
}
