//! Jobs from the files of other tools: fio's job files, Iometer's configurations, FFSB's profiles.
//! A setting that the laboratory lacks is an error that names its line, or with `lenient` a
//! warning: a workload that differs from the author's is worse than none.

use stele_ground::Bytes;
use stele_lab::error::LabError;
use stele_lab::job::Job;

mod ffsb;
mod fio;
mod iometer;

pub use ffsb::ffsb;
pub use fio::fio;
pub use iometer::iometer;

/// A job of the file, with its name.
#[derive(Clone, PartialEq, Debug)]
pub struct Imported {
    pub name: String,
    pub job: Job,
    /// Settings left out on request, and further notes.
    pub warnings: Vec<String>,
}

/// The tool that wrote the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    Fio,
    Iometer,
    Ffsb,
}

impl Origin {
    /// Detects the tool by features that only its files have.
    pub fn of(text: &str) -> Origin {
        let has = |begin: &str| text.lines().any(|line| line.trim_start().to_ascii_lowercase().starts_with(begin));
        if has("'access specifications") || has("'test setup") {
            Origin::Iometer
        } else if has("[filesystem") || has("[threadgroup") {
            Origin::Ffsb
        } else {
            Origin::Fio
        }
    }
}

/// All jobs of a file.
pub fn jobs(text: &str, origin: Origin, lenient: bool) -> Result<Vec<Imported>, LabError> {
    match origin {
        Origin::Fio => fio(text, lenient),
        Origin::Iometer => iometer(text, lenient),
        Origin::Ffsb => ffsb(text, lenient),
    }
}

/// Errors, or warnings if the import is lenient.
struct Complaints {
    lenient: bool,
    warnings: Vec<String>,
}

impl Complaints {
    fn new(lenient: bool) -> Complaints {
        Complaints { lenient, warnings: Vec::new() }
    }

    /// Reports a line whose meaning would be lost.
    fn lost(&mut self, number: usize, what: &str) -> Result<(), LabError> {
        match self.lenient {
            true => self.warnings.push(format!("line {number}: {what}; left out")),
            false => return Err(LabError::Usage(format!("line {number}: {what}; with --lenient it is left out"))),
        }
        Ok(())
    }
}

fn whole(value: &str) -> Result<u32, String> {
    value.parse().ok().filter(|count| *count > 0).ok_or_else(|| "a whole number above 0 is needed".into())
}

/// Suffixes are powers of 1024.
fn size(value: &str) -> Option<Bytes> {
    Bytes::parse(value).filter(|bytes| bytes.0 > 0)
}
