//! Composition of CRCs: those of segments give that of the whole. A file has thousands of segments,
//! and the general library takes a tenth of a millisecond for each.
//!
//! Moving a remainder `n` bytes on multiplies it with `x^8n` modulo the polynomial. That takes a
//! multiplication for each bit of `n` once all `x^2^k` are known (Adler, zlib's
//! `crc32_combine_op`).

/// Powers for lengths of up to 2^64 bytes: the first three bits count those of a byte.
const POWERS: usize = 64 + 3;

/// Field of remainders, bit-reversed like both our CRCs.
pub(super) struct Field {
    /// Polynomial without its highest power.
    polynomial: u64,
    /// Bit that stands for `x^0`.
    one: u64,
    /// `x^2^k` for each `k`.
    powers: [u64; POWERS],
}

impl Field {
    /// Creates the field of a polynomial with so many bits.
    pub(super) const fn new(polynomial: u64, bits: u32) -> Self {
        let one = 1 << (bits - 1);
        let mut field = Self {
            polynomial,
            one,
            powers: [0; POWERS],
        };
        let mut power = one >> 1;
        let mut index = 0;
        while index < POWERS {
            field.powers[index] = power;
            power = field.times(power, power);
            index += 1;
        }
        field
    }

    const fn times(&self, left: u64, right: u64) -> u64 {
        let (mut rest, mut shifted, mut product) = (left, right, 0);
        while rest != 0 {
            if rest & self.one != 0 {
                product ^= shifted;
            }
            rest = (rest & !self.one) << 1;
            shifted = (shifted >> 1) ^ (self.polynomial & 0_u64.wrapping_sub(shifted & 1));
        }
        product
    }

    /// Returns the CRC of bytes with CRC `first`, followed by `next_len` bytes with CRC `next`.
    pub(super) fn then(&self, first: u64, next: u64, next_len: u64) -> u64 {
        let mut moved = first;
        let mut rest = next_len;
        let mut powers = self.powers[3..].iter();
        while rest != 0
            && moved != 0
            && let Some(&power) = powers.next()
        {
            if rest & 1 == 1 {
                moved = self.times(moved, power);
            }
            rest >>= 1;
        }
        moved ^ next
    }
}
