use stele_ground::dice::Dice;

use super::*;
use crate::field::multiply;

/// The combination byte by byte, from the definition of the product.
fn dull(rows: &Rows, sources: &[Vec<u8>], outputs: &mut [Vec<u8>]) {
    for (output, bytes) in outputs.iter_mut().enumerate() {
        for (at, byte) in bytes.iter_mut().enumerate() {
            let products = rows.row(output).iter().zip(sources).map(|(&times, source)| multiply(times, source[at]));
            *byte = products.fold(*byte, |sum, product| sum ^ product);
        }
    }
}

fn check(kernel: Kernel, rows: &Rows, length: usize, skew: usize, add: bool, dice: &mut Dice) {
    let mut arena = vec![0; rows.sources * (length + 64)];
    dice.fill(&mut arena);
    // Each strip starts `skew` bytes later than the previous one relative to its alignment, so that
    // no two are aligned alike.
    let sources: Vec<&[u8]> =
        (0..rows.sources).map(|i| &arena[i * (length + 64) + i * skew % 64..][..length]).collect();
    let mut expected = vec![vec![0; length]; rows.outputs];
    let mut actual = vec![vec![0xEE; length + 66]; rows.outputs];
    if add {
        expected.iter_mut().for_each(|output| dice.fill(output));
    }
    for (output, expected) in actual.iter_mut().zip(&expected) {
        if add {
            output[1 + skew..][..length].copy_from_slice(expected);
        }
    }
    dull(rows, &sources.iter().map(|source| source.to_vec()).collect::<Vec<_>>(), &mut expected);
    let mut outputs: Vec<&mut [u8]> = actual.iter_mut().map(|output| &mut output[1 + skew..][..length]).collect();
    if add {
        kernel.accumulate(rows, &sources, &mut outputs);
    } else {
        kernel.combine(rows, &sources, &mut outputs);
    }
    for (output, expected) in actual.iter().zip(&expected) {
        assert!(output[1 + skew..][..length] == expected[..], "{kernel}, {rows:?}, {length} bytes, skew {skew}, {add}");
        let around = output[..1 + skew].iter().chain(&output[1 + skew + length..]);
        assert!(around.into_iter().all(|&byte| byte == 0xEE), "{kernel} wrote outside its {length} bytes");
    }
}

#[test]
fn every_kernel_computes_the_definition_over_odd_lengths_and_alignments() {
    let mut dice = Dice::new(1);
    for kernel in Kernel::available() {
        for outputs in 1..=OUTPUTS_MAX {
            for sources in [1, 2, 3, 8, 15, 16] {
                for begins_with_sum in [true, false] {
                    let mut rows = Rows::new(outputs, sources);
                    for output in 0..outputs {
                        dice.fill(rows.row_mut(output));
                    }
                    if begins_with_sum {
                        rows.row_mut(0).fill(1);
                    }
                    for length in [0, 1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 255, 256, 257, 319, 511, 515, 1024, 4097]
                    {
                        for skew in [0, 1, 7, 63] {
                            check(kernel, &rows, length, skew, dice.one_in(2), &mut dice);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn every_kernel_multiplies_every_pair() {
    let all: Vec<u8> = (0..=255).collect();
    for kernel in Kernel::available() {
        for coefficient in 0..=255 {
            let mut rows = Rows::new(1, 1);
            rows.row_mut(0)[0] = coefficient;
            let mut products = vec![0; 256];
            kernel.combine(&rows, &[&all], &mut [&mut products]);
            assert!((0..256).all(|at| products[at] == multiply(coefficient, at as u8)), "{kernel} times {coefficient}");
        }
    }
}

#[test]
fn kernels_are_picked_by_name() {
    for kernel in Kernel::available() {
        assert_eq!(kernel.name().parse(), Ok(kernel));
    }
    assert_eq!("scalar".parse(), Ok(Kernel::available()[0]));
    assert_eq!("abacus".parse::<Kernel>(), Err(NoSuchKernel::Unknown("abacus".into())));
}

#[test]
#[should_panic(expected = "every strip read is 8 bytes long")]
fn unequal_lengths_are_refused() {
    Kernel::best().combine(&Rows::new(1, 1), &[&[0; 7]], &mut [&mut [0; 8]]);
}
