//! GF(2^8) with the polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11d), in which 2 generates.

/// Polynomial that reduces the bit which doubling carries out of the byte.
const POLYNOMIAL: u16 = 0x11d;

struct Tables {
    /// Powers of 2, twice around so that a sum of two logarithms needs no remainder.
    power: [u8; 512],
    logarithm: [u8; 256],
}

static TABLES: Tables = tables();

#[expect(
    clippy::cast_possible_truncation,
    reason = "reduced to 8 bits; TryFrom is not const"
)]
const fn tables() -> Tables {
    let (mut power, mut logarithm) = ([0; 512], [0; 256]);
    let mut value = 1u16;
    let mut exponent = 0;
    while exponent < 255 {
        power[exponent] = value as u8;
        power[exponent + 255] = value as u8;
        logarithm[value as usize] = exponent as u8;
        value <<= 1;
        if value & 0x100 != 0 {
            value ^= POLYNOMIAL;
        }
        exponent += 1;
    }
    Tables { power, logarithm }
}

/// Returns the product.
pub(super) const fn multiply(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    let sum = TABLES.logarithm[a as usize] as usize + TABLES.logarithm[b as usize] as usize;
    TABLES.power[sum]
}

/// Returns the inverse of `a` for multiplication; 0 for 0.
pub(super) const fn inverse(a: u8) -> u8 {
    if a == 0 {
        return 0;
    }
    TABLES.power[255 - TABLES.logarithm[a as usize] as usize]
}
