//! A coder for one code: parity from data, parity after a small write, lost strips from surviving
//! ones.
//!
//! The parity of strips d0 to d(k-1) is, over GF(2^8) with 0x11D, `P = sum d(i)`,
//! `Q = sum 2^i d(i)`, `R = sum 4^i d(i)`: RAID-6's own P and Q, and ISA-L's `gf_gen_rs_matrix`.
//! Any three columns of 1, x, x^2 with distinct x are independent (Vandermonde), and so are any one
//! or two under any choice of rows. Every loss of up to m strips can therefore be repaired; the
//! tests try them all. A mirror is the same with one data strip: every row is 1, and the copies are
//! copied.
//!
//! Everything is a pure function of its arguments. A wrong number of strips or unequal lengths are
//! errors of the caller and panic. No decision depends on the values of the bytes.

use crate::code::Code;
use crate::field::power;
use crate::kernel::{Kernel, Rows, SOURCES_MAX};
use crate::plan::{Plan, Strips};

/// Encodes and reconstructs for one code. Cheap to make and to copy, holds no buffers.
#[derive(Clone, Debug)]
pub struct Coder {
    code: Code,
    kernel: Kernel,
    /// Used by codes that are not mirrors.
    rows: Rows,
}

impl Coder {
    /// A coder with the fastest kernel of this processor.
    pub fn new(code: Code) -> Coder {
        Coder::with_kernel(code, Kernel::best())
    }

    pub fn with_kernel(code: Code, kernel: Kernel) -> Coder {
        let outputs = if code.is_mirror() { 0 } else { code.tolerates() };
        let mut rows = Rows::new(outputs, code.data());
        for parity in 0..outputs {
            for (strip, entry) in rows.row_mut(parity).iter_mut().enumerate() {
                *entry = coefficient(parity, strip);
            }
        }
        Coder { code, kernel, rows }
    }

    pub fn code(&self) -> Code {
        self.code
    }

    pub fn kernel(&self) -> Kernel {
        self.kernel
    }

    /// Overwrites the m parity strips with those of the k data strips.
    ///
    /// # Panics
    /// Unless there are k and m strips, all of one length.
    pub fn encode(&self, data: &[&[u8]], parity: &mut [&mut [u8]]) {
        if self.code.is_mirror() {
            let [data] = data else { panic!("a mirror has one data strip, not {}", data.len()) };
            assert_eq!(parity.len(), self.code.tolerates(), "copies given to write");
            parity.iter_mut().for_each(|copy| copy.copy_from_slice(data));
        } else {
            self.kernel.combine(&self.rows, data, parity);
        }
    }

    /// Updates the m parity strips after data strip `strip` changed from `old` to `new`. Works on
    /// whole strips, or on the same range of bytes of each.
    ///
    /// # Panics
    /// Unless `strip` is below k and there are m parity strips, all of one length.
    pub fn update(&self, strip: usize, old: &[u8], new: &[u8], parity: &mut [&mut [u8]]) {
        assert!(strip < self.code.data(), "strip {strip} is not a data strip of {}", self.code);
        if self.code.is_mirror() {
            assert_eq!(old.len(), new.len(), "lengths before and after the write");
            return self.encode(&[new], parity);
        }
        let mut rows = Rows::new(self.code.tolerates(), 2);
        for parity in 0..self.code.tolerates() {
            rows.row_mut(parity).fill(coefficient(parity, strip));
        }
        self.kernel.accumulate(&rows, &[old, new], parity);
    }

    /// A plan to compute the strips `wanted` from those in `present`; `None` if too few are
    /// present. It takes well under a microsecond. Keep the plan for all stripes with the same lost
    /// strips.
    ///
    /// # Panics
    /// If a wanted strip is present or is not a strip of this code.
    pub fn plan(&self, present: Strips, wanted: Strips) -> Option<Plan> {
        Plan::new(self.code, self.kernel, present, wanted)
    }

    /// Computes the strips of `wanted` into `outputs`, in rising order, from the given strips.
    /// Returns false and writes nothing if fewer than k strips are given.
    ///
    /// # Panics
    /// Unless `strips` has one entry for each strip of the code, all lengths agree, and no wanted
    /// strip is given.
    pub fn reconstruct(&self, strips: &[Option<&[u8]>], wanted: Strips, outputs: &mut [&mut [u8]]) -> bool {
        assert_eq!(strips.len(), self.code.width(), "entries for the strips of {}", self.code);
        let present = Strips::of((0..strips.len()).filter(|&strip| strips[strip].is_some()));
        let Some(plan) = self.plan(present, wanted) else { return false };
        let mut sources: [&[u8]; SOURCES_MAX] = [&[]; SOURCES_MAX];
        let given = plan.sources().iter().filter_map(|strip| strips[strip]);
        sources.iter_mut().zip(given).for_each(|(place, source)| *place = source);
        plan.run(&sources[..plan.sources().len()], outputs);
        true
    }
}

/// The factor of data strip `strip` in parity strip `parity`, both counted from 0:
/// (2^parity)^strip.
pub(crate) fn coefficient(parity: usize, strip: usize) -> u8 {
    power(power(2, parity), strip)
}

#[cfg(test)]
mod tests;
