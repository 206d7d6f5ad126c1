//! Compares parity and reconstruction byte for byte with ISA-L. Says so and passes if ISA-L is
//! missing.

use stele_codes::{Code, Coder, Kernel, Strips};
use stele_ground::dice::Dice;
use stele_isal::Isal;

fn oracle() -> Option<Isal> {
    Isal::load().inspect_err(|reason| println!("not compared: {reason}")).ok()
}

fn every_code() -> impl Iterator<Item = Code> {
    (2..=16).flat_map(|k| (1..=3).filter_map(move |m| Code::parity(k, m)))
}

fn strips(count: usize, length: usize, dice: &mut Dice) -> Vec<Vec<u8>> {
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

#[test]
fn parity_equals_that_of_isal() {
    let Some(isal) = oracle() else { return };
    let mut dice = Dice::new(7);
    for code in every_code() {
        let (k, m) = (code.data(), code.tolerates());
        let tables = isal.tables(k, &isal.rs_matrix(k, m)[k * k..]);
        for length in [1, 63, 64, 511, 4096, 5000] {
            let data = strips(k, length, &mut dice);
            let mut theirs = strips(m, length, &mut dice);
            isal.encode(&tables, &borrowed(&data), &mut borrowed_mut(&mut theirs));
            for kernel in Kernel::available() {
                let mut ours = strips(m, length, &mut dice);
                Coder::with_kernel(code, kernel).encode(&borrowed(&data), &mut borrowed_mut(&mut ours));
                assert!(ours == theirs, "{code} by {kernel}, {length} bytes");
            }
        }
    }
}

/// For every loss, ISA-L inverts the k by k matrix of the surviving strips; ours folds an m by m
/// inverse. Both must give the same strips.
#[test]
fn reconstruction_equals_that_of_isal() {
    let Some(isal) = oracle() else { return };
    let mut dice = Dice::new(8);
    for code in every_code() {
        let (k, m) = (code.data(), code.tolerates());
        let matrix = isal.rs_matrix(k, m);
        let coder = Coder::new(code);
        let data = strips(k, 64, &mut dice);
        let mut parity = strips(m, 64, &mut dice);
        coder.encode(&borrowed(&data), &mut borrowed_mut(&mut parity));
        let whole: Vec<Vec<u8>> = data.into_iter().chain(parity).collect();
        for lost in (1u32..1 << k).filter(|bits| bits.count_ones() as usize <= m) {
            let lost = Strips::of((0..k).filter(|strip| lost >> strip & 1 == 1));
            let plan = coder.plan(Strips::all(k + m).without(lost), lost).expect("no more lost than tolerated");
            let survivors: Vec<u8> =
                plan.sources().iter().flat_map(|strip| matrix[strip * k..][..k].iter().copied()).collect();
            let inverse = isal.invert(&survivors, k).expect("the code survives this loss");
            let rows: Vec<u8> = lost.iter().flat_map(|strip| inverse[strip * k..][..k].iter().copied()).collect();
            let sources: Vec<&[u8]> = plan.sources().iter().map(|strip| whole[strip].as_slice()).collect();
            let mut theirs = strips(lost.len(), 64, &mut dice);
            isal.encode(&isal.tables(k, &rows), &sources, &mut borrowed_mut(&mut theirs));
            let mut ours = strips(lost.len(), 64, &mut dice);
            plan.run(&sources, &mut borrowed_mut(&mut ours));
            assert!(ours == theirs, "{code} with {lost:?} lost");
        }
    }
}
