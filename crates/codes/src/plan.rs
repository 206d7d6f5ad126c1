//! Decides which strips to read, and with which factors, to reconstruct lost strips.
//!
//! With e absent data strips, e of the present parity strips serve as equations. Solving them takes
//! the inverse of an e by e matrix, with e at most 3 for every k. The solution is folded into one
//! row of factors for each wanted strip. Running a plan therefore reads every source once, like
//! encoding.

use std::fmt;

use crate::code::Code;
use crate::coder::coefficient;
use crate::field::{inverse, multiply};
use crate::kernel::{Kernel, OUTPUTS_MAX, Rows};

/// A set of strips of a stripe: 0 to k-1 are data, k to k+m-1 parity.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Strips(u32);

/// A reconstruction that can run on any number of stripes.
#[derive(Clone, Debug)]
pub struct Plan {
    kernel: Kernel,
    sources: Strips,
    wanted: Strips,
    /// `None` if the wanted strips are copies of the single source.
    rows: Option<Rows>,
}

type Square = [[u8; OUTPUTS_MAX]; OUTPUTS_MAX];

impl Strips {
    pub const NONE: Strips = Strips(0);

    /// # Panics
    /// If a number is above 31.
    pub fn of(numbers: impl IntoIterator<Item = usize>) -> Strips {
        numbers.into_iter().fold(Strips::NONE, Strips::with)
    }

    /// The strips 0 to `count` - 1.
    pub fn all(count: usize) -> Strips {
        Strips::of(0..count)
    }

    pub fn with(self, strip: usize) -> Strips {
        assert!(strip < 32, "no code has a strip {strip}");
        Strips(self.0 | 1 << strip)
    }

    pub fn without(self, others: Strips) -> Strips {
        Strips(self.0 & !others.0)
    }

    pub fn contains(self, strip: usize) -> bool {
        strip < 32 && self.0 >> strip & 1 == 1
    }

    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The strips in rising order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..32).filter(move |&strip| self.contains(strip))
    }
}

impl fmt::Debug for Strips {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl Plan {
    pub(crate) fn new(code: Code, kernel: Kernel, present: Strips, wanted: Strips) -> Option<Plan> {
        let every = Strips::all(code.width());
        assert!(present.without(every).is_empty() && wanted.without(every).is_empty(), "strips beyond those of {code}");
        assert_eq!(wanted.without(present), wanted, "a wanted strip is present: {wanted:?} of {present:?}");
        if present.len() < code.data() {
            return None;
        }
        if code.is_mirror() {
            let sources = Strips::of(present.iter().take(1));
            return Some(Plan { kernel, sources, wanted, rows: None });
        }
        let data = Strips::all(code.data());
        let absent: Vec<usize> = data.without(present).iter().collect();
        let equations: Vec<usize> = present.without(data).iter().take(absent.len()).collect();
        let sources = Strips::of(data.iter().filter(|&strip| present.contains(strip)).chain(equations.iter().copied()));
        let solution = invert(code, &absent, &equations);
        let mut rows = Rows::new(wanted.len(), sources.len());
        for (output, strip) in wanted.iter().enumerate() {
            for (entry, source) in rows.row_mut(output).iter_mut().zip(sources.iter()) {
                *entry = factor(code, strip, source, &absent, &equations, &solution);
            }
        }
        Some(Plan { kernel, sources, wanted, rows: Some(rows) })
    }

    /// The strips to read: k of the present ones.
    pub fn sources(&self) -> Strips {
        self.sources
    }

    /// The strips that it computes.
    pub fn wanted(&self) -> Strips {
        self.wanted
    }

    /// Computes the wanted strips into `outputs` from the sources, both in rising order of strip.
    ///
    /// # Panics
    /// Unless the numbers of strips are those of [`Plan::sources`] and [`Plan::wanted`] and all
    /// lengths agree.
    pub fn run(&self, sources: &[&[u8]], outputs: &mut [&mut [u8]]) {
        match (&self.rows, sources) {
            (Some(rows), _) => self.kernel.combine(rows, sources, outputs),
            (None, [source]) => {
                assert_eq!(outputs.len(), self.wanted.len(), "strips given to write");
                outputs.iter_mut().for_each(|output| output.copy_from_slice(source));
            }
            (None, _) => panic!("a mirror is read from one copy, not {}", sources.len()),
        }
    }
}

/// The factor of the source strip `source` in the wanted strip `wanted`.
fn factor(code: Code, wanted: usize, source: usize, absent: &[usize], equations: &[usize], solution: &Square) -> u8 {
    let k = code.data();
    // Absent data strip absent[row] is the sum over equations of solution[row][equation] times (the
    // parity plus the contributions of the present data).
    let within = |row: usize| {
        equations.iter().enumerate().fold(0, |sum, (equation, &parity)| {
            let share = if source < k { coefficient(parity - k, source) } else { u8::from(source == parity) };
            sum ^ multiply(solution[row][equation], share)
        })
    };
    if wanted < k {
        return absent.iter().position(|&strip| strip == wanted).map_or(0, within);
    }
    // An absent parity strip: its own row of the code, with every absent data strip replaced by its
    // solution.
    let own = if source < k { coefficient(wanted - k, source) } else { 0 };
    absent
        .iter()
        .enumerate()
        .fold(own, |sum, (row, &strip)| sum ^ multiply(coefficient(wanted - k, strip), within(row)))
}

/// The inverse of the matrix of the factors of the absent data strips in the parity strips that
/// serve as equations, by Gauss and Jordan.
fn invert(code: Code, absent: &[usize], equations: &[usize]) -> Square {
    let size = absent.len();
    assert_eq!(size, equations.len(), "equations for the absent data strips of {code}");
    let (mut left, mut right): (Square, Square) = Default::default();
    for row in 0..size {
        for column in 0..size {
            left[row][column] = coefficient(equations[row] - code.data(), absent[column]);
        }
        right[row][row] = 1;
    }
    for pivot in 0..size {
        // Vandermonde: some row has a nonzero entry here; otherwise the code would not tolerate
        // this loss.
        let found = (pivot..size).find(|&row| left[row][pivot] != 0).expect("the matrix of the code is invertible");
        left.swap(pivot, found);
        right.swap(pivot, found);
        let scale = inverse(left[pivot][pivot]).expect("the pivot is not zero");
        left[pivot].iter_mut().chain(&mut right[pivot]).for_each(|entry| *entry = multiply(*entry, scale));
        for row in (0..size).filter(|&row| row != pivot) {
            let times = left[row][pivot];
            for column in 0..size {
                left[row][column] ^= multiply(times, left[pivot][column]);
                right[row][column] ^= multiply(times, right[pivot][column]);
            }
        }
    }
    right
}

#[cfg(test)]
mod tests;
