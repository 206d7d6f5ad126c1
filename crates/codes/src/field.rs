//! The field GF(2^8) with the polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11D), in which 2 generates
//! every nonzero element. Addition is exclusive or. The tables are computed by the compiler.

/// The product. The tables are computed from it, and the tests compare the kernels with it.
pub const fn multiply(left: u8, right: u8) -> u8 {
    let mut product = 0u8;
    let mut power = left;
    let mut bit = 0;
    while bit < 8 {
        if right >> bit & 1 == 1 {
            product ^= power;
        }
        power = double(power);
        bit += 1;
    }
    product
}

/// The product with 2.
pub const fn double(value: u8) -> u8 {
    (value << 1) ^ if value & 0x80 == 0 { 0 } else { 0x1D }
}

/// `base` to the power `exponent`; anything to the power 0 is 1.
pub const fn power(base: u8, exponent: usize) -> u8 {
    let mut result = 1;
    let mut step = 0;
    while step < exponent {
        result = multiply(result, base);
        step += 1;
    }
    result
}

/// The element whose product with `value` is 1; `None` for zero.
pub const fn inverse(value: u8) -> Option<u8> {
    // The nonzero elements form a group of order 255, so the inverse is the 254th power.
    if value == 0 { None } else { Some(power(value, 254)) }
}

/// For each coefficient, its products with the sixteen low nibbles and with the sixteen high
/// nibbles: the two byte shuffles of the AVX2 kernel.
pub static NIBBLES: [[[u8; 16]; 2]; 256] = {
    let mut tables = [[[0; 16]; 2]; 256];
    let mut coefficient = 0;
    while coefficient < 256 {
        let mut nibble = 0;
        while nibble < 16 {
            tables[coefficient][0][nibble] = multiply(coefficient as u8, nibble as u8);
            tables[coefficient][1][nibble] = multiply(coefficient as u8, (nibble as u8) << 4);
            nibble += 1;
        }
        coefficient += 1;
    }
    tables
};

/// For each coefficient, multiplication by it as an 8 by 8 bit matrix in the layout of
/// GF2P8AFFINEQB: byte 7 - i of the word holds the input bits whose parity is output bit i.
/// (GF2P8MULB is fixed to another polynomial, 0x11B, and is of no use here.)
pub static AFFINE: [u64; 256] = {
    let mut matrices = [0; 256];
    let mut coefficient = 0;
    while coefficient < 256 {
        let mut column = 0;
        while column < 8 {
            let product = multiply(coefficient as u8, 1 << column);
            let mut row = 0;
            while row < 8 {
                matrices[coefficient] |= ((product >> row & 1) as u64) << ((7 - row) * 8 + column);
                row += 1;
            }
            column += 1;
        }
        coefficient += 1;
    }
    matrices
};

#[cfg(test)]
mod tests;
