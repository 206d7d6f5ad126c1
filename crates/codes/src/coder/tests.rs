use stele_ground::dice::Dice;

use super::*;
use crate::field::multiply;

fn every_code() -> Vec<Code> {
    let mirrors = (2..=5).filter_map(Code::mirror);
    let parities = (2..=16).flat_map(|k| (1..=3).filter_map(move |m| Code::parity(k, m)));
    mirrors.chain(parities).collect()
}

fn random_strips(count: usize, length: usize, dice: &mut Dice) -> Vec<Vec<u8>> {
    let mut strips = vec![vec![0; length]; count];
    strips.iter_mut().for_each(|strip| dice.fill(strip));
    strips
}

fn borrowed(strips: &[Vec<u8>]) -> Vec<&[u8]> {
    strips.iter().map(Vec::as_slice).collect()
}

fn borrowed_mut(strips: &mut [Vec<u8>]) -> Vec<&mut [u8]> {
    strips.iter_mut().map(Vec::as_mut_slice).collect()
}

/// All strips of a stripe with random data.
fn stripe(coder: &Coder, length: usize, dice: &mut Dice) -> Vec<Vec<u8>> {
    let data = random_strips(coder.code().data(), length, dice);
    let mut parity = random_strips(coder.code().tolerates(), length, dice);
    coder.encode(&borrowed(&data), &mut borrowed_mut(&mut parity));
    data.into_iter().chain(parity).collect()
}

/// Drops the strips `lost` and reconstructs all of them, with a plan and in one call.
fn check(coder: &Coder, whole: &[Vec<u8>], lost: Strips) {
    let code = coder.code();
    let length = whole[0].len();
    let given: Vec<Option<&[u8]>> =
        whole.iter().enumerate().map(|(strip, bytes)| (!lost.contains(strip)).then_some(bytes.as_slice())).collect();
    let mut outputs = vec![vec![0xEE; length]; lost.len()];
    let recovered = coder.reconstruct(&given, lost, &mut borrowed_mut(&mut outputs));
    assert!(recovered, "{code} with {lost:?} lost");
    for (output, strip) in outputs.iter().zip(lost.iter()) {
        assert!(*output == whole[strip], "{code} by {} with {lost:?} lost: strip {strip} differs", coder.kernel());
    }
    for strip in lost.iter() {
        let mut one = vec![0xEE; length];
        let plan = coder.plan(Strips::all(code.width()).without(lost), Strips::of([strip])).unwrap();
        let sources: Vec<&[u8]> = plan.sources().iter().map(|source| whole[source].as_slice()).collect();
        assert_eq!(sources.len(), code.data());
        plan.run(&sources, &mut [&mut one]);
        assert!(one == whole[strip], "{code} with {lost:?} lost: strip {strip} alone differs");
    }
}

#[test]
fn every_loss_a_code_tolerates_is_undone_by_every_kernel() {
    let mut dice = Dice::new(2);
    for kernel in Kernel::available() {
        for code in every_code() {
            let coder = Coder::with_kernel(code, kernel);
            let whole = stripe(&coder, 96, &mut dice);
            let patterns = (1u32..1 << code.width()).filter(|bits| bits.count_ones() as usize <= code.tolerates());
            for bits in patterns {
                check(&coder, &whole, Strips::of((0..32).filter(|strip| bits >> strip & 1 == 1)));
            }
        }
    }
}

#[test]
fn one_loss_too_many_is_said_and_nothing_is_written() {
    let mut dice = Dice::new(3);
    for code in every_code() {
        let coder = Coder::new(code);
        let whole = stripe(&coder, 8, &mut dice);
        let lost = Strips::all(code.tolerates() + 1);
        let given: Vec<Option<&[u8]>> =
            whole.iter().enumerate().map(|(strip, bytes)| (!lost.contains(strip)).then_some(&bytes[..])).collect();
        let mut output = [0xEE; 8];
        assert!(!coder.reconstruct(&given, Strips::of([0]), &mut [&mut output]), "{code}");
        assert_eq!(output, [0xEE; 8]);
    }
}

/// Additional strips must not change the result: tests every set of more than k strips that is not
/// complete.
#[test]
fn any_k_strips_or_more_serve() {
    let mut dice = Dice::new(4);
    let coder = Coder::new(Code::parity(5, 3).unwrap());
    let whole = stripe(&coder, 40, &mut dice);
    for lost in [1u32, 0b11, 0b1000_0000, 0b0100_0001, 0b1010_0100] {
        check(&coder, &whole, Strips::of((0..8).filter(|strip| lost >> strip & 1 == 1)));
    }
}

#[test]
fn parity_is_that_of_the_definition() {
    let mut dice = Dice::new(5);
    for kernel in Kernel::available() {
        for code in every_code() {
            let coder = Coder::with_kernel(code, kernel);
            let whole = stripe(&coder, 200, &mut dice);
            let (data, parity) = whole.split_at(code.data());
            for (row, strip) in parity.iter().enumerate() {
                for (at, &byte) in strip.iter().enumerate() {
                    // Horner's rule from the last strip: the definition in another order than the
                    // kernels'.
                    let base = [1, 2, 4, 8][if code.is_mirror() { 0 } else { row }];
                    let expected = data.iter().rev().fold(0, |sum, strip| multiply(sum, base) ^ strip[at]);
                    assert_eq!(byte, expected, "{code} by {kernel}, parity {row}, byte {at}");
                }
            }
        }
    }
}

#[test]
fn an_update_equals_encoding_anew() {
    let mut dice = Dice::new(6);
    for kernel in Kernel::available() {
        for code in every_code() {
            let coder = Coder::with_kernel(code, kernel);
            for strip in 0..code.data() {
                let length = 1 + dice.below(600) as usize;
                let mut whole = stripe(&coder, length, &mut dice);
                let old = whole[strip].clone();
                dice.fill(&mut whole[strip]);
                let (data, parity) = whole.split_at_mut(code.data());
                coder.update(strip, &old, &data[strip], &mut borrowed_mut(parity));
                let mut expected = random_strips(code.tolerates(), length, &mut dice);
                coder.encode(&borrowed(data), &mut borrowed_mut(&mut expected));
                assert!(parity == expected, "{code} by {kernel}, strip {strip}, {length} bytes");
            }
        }
    }
}

/// The vectors of FORMAT/codes.md.
#[test]
fn published_vectors_hold() {
    let vectors = [
        (2, ["27d2414cabe6b580", "4d5d46aefc94129f", "995e4877527041a1"]),
        (4, ["1ce00010cc88c000", "dbb915df677df1d9", "0c94734ed4a9a763"]),
        (8, ["e8a000206890d000", "4333bff5aaffebc8", "44ddebf7501fe5d0"]),
    ];
    for (k, expected) in vectors {
        let byte = |i: usize, t: usize| (i * 37 + t * 91 + i * t * 13 + 1) as u8;
        let data: Vec<Vec<u8>> = (0..k).map(|i| (0..8).map(|t| byte(i, t)).collect()).collect();
        for kernel in Kernel::available() {
            let coder = Coder::with_kernel(Code::parity(k as u8, 3).unwrap(), kernel);
            let mut parity = vec![vec![0; 8]; 3];
            coder.encode(&borrowed(&data), &mut borrowed_mut(&mut parity));
            let hex = |strip: &Vec<u8>| strip.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            assert_eq!(parity.iter().map(hex).collect::<Vec<_>>(), expected, "{k}+3 by {kernel}");
        }
    }
}

#[test]
#[should_panic(expected = "strip 8 is not a data strip of 8+2")]
fn parity_is_not_updated_as_data() {
    Coder::new(Code::parity(8, 2).unwrap()).update(8, &[0], &[0], &mut [&mut [0], &mut [0]]);
}
