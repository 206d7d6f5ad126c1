//! The formats of traces. Each reader takes untrusted bytes, and keeps one record of them at most.

use std::collections::HashMap;
use std::io::BufRead;

use serde::{Deserialize, Serialize};

use super::{DEVICES_MAX, Record};
use crate::error::LabError;

mod blktrace;
mod lines;

pub use blktrace::Blktrace;
use lines::{Fio, LineReader, Msr, Spc};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// blktrace's binary records, of its files for each processor or of `blkparse -d`.
    Blktrace,
    /// fio's logs of accesses, versions 2 and 3.
    Fio,
    /// Lines of unit, block, bytes, operation and seconds, as the Storage Performance Council has
    /// them.
    Spc,
    /// Lines of ticks, host, disk, type, offset, bytes and response, as Microsoft Research's block
    /// traces have them.
    Msr,
}

/// Bytes from which a format is told.
pub const BEGINNING: usize = 4096;

impl Format {
    pub fn name(self) -> &'static str {
        match self {
            Format::Blktrace => "blktrace",
            Format::Fio => "fio",
            Format::Spc => "spc",
            Format::Msr => "msr",
        }
    }

    /// From a file's first bytes.
    pub fn of(beginning: &[u8]) -> Option<Format> {
        if blktrace::is_magic(beginning) {
            return Some(Format::Blktrace);
        }
        if beginning.starts_with(b"fio version ") {
            return Some(Format::Fio);
        }
        let text = String::from_utf8_lossy(beginning);
        let line = text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'))?;
        match line.split(',').count() {
            6 | 7 => Some(Format::Msr),
            5 => Some(Format::Spc),
            // Further fields of SPC's lines are anybody's.
            _ => line.split(',').nth(4).is_some_and(|at| at.trim().parse::<f64>().is_ok()).then_some(Format::Spc),
        }
    }
}

/// What a reader comes upon.
#[derive(Clone, PartialEq, Debug)]
pub enum TraceItem {
    Access(Record),
    /// Something that is no read and no write, by its name.
    LeftOut(&'static str),
    End,
}

/// Names of a trace's devices, in the order in which they came.
#[derive(Clone, Default, Debug)]
pub struct Devices {
    names: Vec<String>,
    known: HashMap<String, u16>,
}

impl Devices {
    fn number(&mut self, name: &str) -> Result<u16, String> {
        if let Some(number) = self.known.get(name) {
            return Ok(*number);
        }
        let number = self.names.len();
        if number >= DEVICES_MAX {
            return Err(format!("has more than {DEVICES_MAX} devices"));
        }
        self.names.push(name.to_owned());
        self.known.insert(name.to_owned(), number as u16);
        Ok(number as u16)
    }

    pub fn names(&self) -> &[String] {
        &self.names
    }
}

#[derive(Debug)]
enum Of<R> {
    Blktrace(Blktrace<R>),
    Fio(Fio<R>),
    Spc(Spc<R>),
    Msr(Msr<R>),
}

/// One file of a trace.
#[derive(Debug)]
pub struct Reader<R> {
    name: String,
    of: Of<R>,
}

impl<R: BufRead> Reader<R> {
    /// `issued` takes blktrace's records of what went to the drive, instead of those of what was
    /// asked for.
    pub fn new(name: String, format: Format, issued: bool, bytes: R) -> Reader<R> {
        let of = match format {
            Format::Blktrace => Of::Blktrace(Blktrace::new(bytes, issued)),
            Format::Fio => Of::Fio(Fio::new(LineReader::new(bytes))),
            Format::Spc => Of::Spc(Spc(LineReader::new(bytes))),
            Format::Msr => Of::Msr(Msr(LineReader::new(bytes))),
        };
        Reader { name, of }
    }

    pub fn next(&mut self, devices: &mut Devices) -> Result<TraceItem, LabError> {
        let step = match &mut self.of {
            Of::Blktrace(reader) => reader.next(devices),
            Of::Fio(reader) => reader.next(devices),
            Of::Spc(reader) => reader.next(devices),
            Of::Msr(reader) => reader.next(devices),
        };
        step.map_err(|why| LabError::Failed(format!("{}: {why}", self.name)))
    }
}

#[cfg(test)]
pub mod tests;
