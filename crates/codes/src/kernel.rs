//! Linear combinations of strips: the single operation below encoding, small writes and
//! reconstruction.
//!
//! Three kernels compute the same bytes: portable, AVX2 (byte shuffles) and AVX-512 with GFNI (one
//! affine instruction a product). The fastest kernel of the processor is chosen at run time; tests
//! choose by name. Each loads a data byte once for all outputs. Aliasing is impossible: outputs are
//! exclusive borrows.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod gfni;
mod portable;

use std::fmt;
use std::str::FromStr;

/// Largest number of strips that a combination reads.
pub const SOURCES_MAX: usize = 16;
/// Largest number of strips that a combination writes.
pub const OUTPUTS_MAX: usize = 3;

/// A kernel of this processor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kernel(Kind);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Portable,
    Avx2,
    Gfni,
}

/// The reason why a kernel is not available.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NoSuchKernel {
    /// No kernel has this name.
    Unknown(String),
    /// The processor lacks its instructions.
    Unsupported(&'static str),
}

/// The coefficients of a combination: output `j` is the sum over `i` of `row(j)[i]` times source
/// `i`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rows {
    rows: [[u8; SOURCES_MAX]; OUTPUTS_MAX],
    sources: usize,
    outputs: usize,
}

impl Rows {
    /// Rows of zeros.
    pub fn new(outputs: usize, sources: usize) -> Rows {
        assert!(
            outputs <= OUTPUTS_MAX && sources <= SOURCES_MAX,
            "{outputs} outputs of {sources} sources are too many"
        );
        Rows { rows: [[0; SOURCES_MAX]; OUTPUTS_MAX], sources, outputs }
    }

    pub fn row(&self, output: usize) -> &[u8] {
        assert!(output < self.outputs);
        &self.rows[output][..self.sources]
    }

    pub fn row_mut(&mut self, output: usize) -> &mut [u8] {
        assert!(output < self.outputs);
        &mut self.rows[output][..self.sources]
    }

    /// Whether the first output is a plain exclusive or, which needs no products.
    fn begins_with_sum(&self) -> bool {
        self.outputs > 0 && self.row(0).iter().all(|&coefficient| coefficient == 1)
    }
}

impl Kernel {
    /// The fastest kernel of this processor.
    pub fn best() -> Kernel {
        *Kernel::available().last().unwrap_or(&Kernel(Kind::Portable))
    }

    /// Every kernel of this processor, slowest first.
    pub fn available() -> Vec<Kernel> {
        [Kind::Portable, Kind::Avx2, Kind::Gfni].into_iter().filter(|kind| kind.runs_here()).map(Kernel).collect()
    }

    pub fn name(self) -> &'static str {
        match self.0 {
            Kind::Portable => "scalar",
            Kind::Avx2 => "avx2",
            Kind::Gfni => "gfni-avx512",
        }
    }

    /// Writes the combinations over `outputs`.
    ///
    /// # Panics
    /// If the numbers or lengths of the strips are not those of `rows`, or differ among each other.
    pub fn combine(self, rows: &Rows, sources: &[&[u8]], outputs: &mut [&mut [u8]]) {
        self.run::<false>(rows, sources, outputs);
    }

    /// Adds the combinations onto `outputs`. Panics as [`Kernel::combine`] does.
    pub fn accumulate(self, rows: &Rows, sources: &[&[u8]], outputs: &mut [&mut [u8]]) {
        self.run::<true>(rows, sources, outputs);
    }

    fn run<const ADD: bool>(self, rows: &Rows, sources: &[&[u8]], outputs: &mut [&mut [u8]]) {
        assert_eq!(sources.len(), rows.sources, "strips given to read");
        assert_eq!(outputs.len(), rows.outputs, "strips given to write");
        let Some(length) = outputs.first().map(|output| output.len()) else { return };
        // The kernels read and write through raw pointers up to this length.
        assert!(sources.iter().all(|source| source.len() == length), "every strip read is {length} bytes long");
        assert!(outputs.iter().all(|output| output.len() == length), "every strip written is {length} bytes long");
        match self.0 {
            Kind::Portable => portable::run::<ADD>(rows, sources, outputs, length),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2 => avx2::run::<ADD>(rows, sources, outputs, length),
            #[cfg(target_arch = "x86_64")]
            Kind::Gfni => gfni::run::<ADD>(rows, sources, outputs, length),
            #[cfg(not(target_arch = "x86_64"))]
            Kind::Avx2 | Kind::Gfni => unreachable!("no such kernel is made on this processor"),
        }
    }
}

impl Kind {
    #[cfg(target_arch = "x86_64")]
    fn runs_here(self) -> bool {
        match self {
            Kind::Portable => true,
            Kind::Avx2 => avx2::runs_here(),
            Kind::Gfni => gfni::runs_here(),
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn runs_here(self) -> bool {
        self == Kind::Portable
    }
}

impl Default for Kernel {
    fn default() -> Kernel {
        Kernel::best()
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kernel {
    type Err = NoSuchKernel;

    fn from_str(name: &str) -> Result<Kernel, NoSuchKernel> {
        let kernel =
            [Kind::Portable, Kind::Avx2, Kind::Gfni].into_iter().map(Kernel).find(|kernel| kernel.name() == name);
        match kernel {
            Some(kernel) if kernel.0.runs_here() => Ok(kernel),
            Some(kernel) => Err(NoSuchKernel::Unsupported(kernel.name())),
            None => Err(NoSuchKernel::Unknown(name.to_owned())),
        }
    }
}

impl fmt::Display for NoSuchKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoSuchKernel::Unknown(name) => write!(f, "'{name}' is not a kernel; use scalar, avx2 or gfni-avx512"),
            NoSuchKernel::Unsupported(name) => write!(f, "this processor lacks the instructions of {name}; use scalar"),
        }
    }
}

impl std::error::Error for NoSuchKernel {}

#[cfg(test)]
mod tests;
