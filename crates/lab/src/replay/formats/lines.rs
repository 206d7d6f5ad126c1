//! Traces that are text, a line for each access.

use std::io::{BufRead, Read};

use super::{Devices, Record, TraceItem};

/// Bytes of a line.
const LINE_MAX: usize = 4096;
/// Seconds that a trace may last, so that nanoseconds count them: 30 years.
const SECONDS_MAX: f64 = 1e9;

#[derive(Debug)]
pub struct LineReader<R> {
    reader: R,
    number: u64,
    text: Vec<u8>,
}

impl<R: BufRead> LineReader<R> {
    pub fn new(reader: R) -> LineReader<R> {
        LineReader { reader, number: 0, text: Vec::new() }
    }

    /// The next line that says something.
    fn next(&mut self) -> Result<Option<&str>, String> {
        loop {
            self.text.clear();
            self.number += 1;
            let mut bounded = self.reader.by_ref().take(LINE_MAX as u64 + 1);
            let read = bounded
                .read_until(b'\n', &mut self.text)
                .map_err(|error| self.bad(&format!("cannot be read: {error}")))?;
            if read == 0 {
                return Ok(None);
            }
            if self.text.len() > LINE_MAX {
                return Err(self.bad(&format!("is longer than {LINE_MAX} bytes")));
            }
            let line = std::str::from_utf8(&self.text).map_err(|_| self.bad("is no text"))?.trim();
            if !line.is_empty() && !line.starts_with('#') {
                break;
            }
        }
        // It was looked at already.
        Ok(std::str::from_utf8(&self.text).ok().map(str::trim))
    }

    fn bad(&self, why: &str) -> String {
        format!("line {}: {why}", self.number)
    }

    /// From one line.
    fn step(&mut self, parse: impl FnOnce(&str) -> Result<TraceItem, String>) -> Result<TraceItem, String> {
        let number = self.number + 1;
        let parsed = match self.next()? {
            None => return Ok(TraceItem::End),
            Some(line) => parse(line),
        };
        let number = number.max(self.number);
        parsed.map_err(|why| format!("line {number}: {why}"))
    }
}

fn access(record: Record) -> Result<TraceItem, String> {
    match record.checked() {
        Some(record) => Ok(TraceItem::Access(record)),
        None if record.length == 0 => Ok(TraceItem::LeftOut("no bytes")),
        None => Err(format!("an access of {} bytes at offset {} is none", record.length, record.offset)),
    }
}

fn number(text: Option<&str>, what: &str) -> Result<u64, String> {
    let text = text.unwrap_or_default().trim();
    text.parse().map_err(|_| format!("'{text}' is no {what}"))
}

/// `r` or `read`, `w` or `write`.
fn writes(text: Option<&str>) -> Result<bool, String> {
    let text = text.unwrap_or_default().trim();
    match text.to_ascii_lowercase().as_str() {
        "r" | "read" | "rs" => Ok(false),
        "w" | "write" | "ws" => Ok(true),
        _ => Err(format!("'{text}' is neither a read nor a write")),
    }
}

/// `unit,block,bytes,operation,seconds`: blocks of 512 bytes.
#[derive(Debug)]
pub struct Spc<R>(pub LineReader<R>);

impl<R: BufRead> Spc<R> {
    pub fn next(&mut self, devices: &mut Devices) -> Result<TraceItem, String> {
        self.0.step(|line| {
            let mut fields = line.split(',');
            let unit = number(fields.next(), "unit")?;
            let block = number(fields.next(), "block")?;
            let length = number(fields.next(), "number of bytes")?;
            let write = writes(fields.next())?;
            let text = fields.next().unwrap_or_default().trim();
            let seconds: f64 = text.parse().map_err(|_| format!("'{text}' is no time"))?;
            if !(0.0..SECONDS_MAX).contains(&seconds) {
                return Err(format!("'{text}' is no time in seconds"));
            }
            let device = devices.number(&format!("ASU {unit}"))?;
            let offset = block.saturating_mul(512);
            access(Record { at: (seconds * 1e9) as u64, device, offset, length, write })
        })
    }
}

/// `ticks,host,disk,type,offset,bytes,response`: ticks of 100 ns since 1601.
#[derive(Debug)]
pub struct Msr<R>(pub LineReader<R>);

impl<R: BufRead> Msr<R> {
    pub fn next(&mut self, devices: &mut Devices) -> Result<TraceItem, String> {
        self.0.step(|line| {
            let mut fields = line.split(',');
            let ticks = number(fields.next(), "number of ticks")?;
            let (host, disk) = (fields.next().unwrap_or_default().trim(), fields.next().unwrap_or_default().trim());
            let write = writes(fields.next())?;
            let offset = number(fields.next(), "offset")?;
            let length = number(fields.next(), "number of bytes")?;
            let at = ticks.checked_mul(100).ok_or_else(|| format!("'{ticks}' are more ticks than there were"))?;
            let device = devices.number(&format!("{host}.{disk}"))?;
            access(Record { at, device, offset, length, write })
        })
    }
}

/// `[microseconds] file action [offset bytes]` below `fio version N iolog`.
#[derive(Debug)]
pub struct Fio<R> {
    lines: LineReader<R>,
    version: u32,
    /// Nanoseconds that a trace without times has waited.
    waited: u64,
}

impl<R: BufRead> Fio<R> {
    pub fn new(lines: LineReader<R>) -> Fio<R> {
        Fio { lines, version: 0, waited: 0 }
    }

    pub fn next(&mut self, devices: &mut Devices) -> Result<TraceItem, String> {
        if self.version == 0 {
            self.version = match self.lines.next()? {
                Some("fio version 2 iolog") => 2,
                Some("fio version 3 iolog") => 3,
                Some(other) => {
                    let begins: String = other.chars().take(40).collect();
                    return Err(format!("line 1: 'fio version 2 iolog' or 3 was to be there, not '{begins}'"));
                }
                None => return Ok(TraceItem::End),
            };
        }
        let (timed, waited) = (self.version == 3, &mut self.waited);
        self.lines.step(|line| {
            let micros = |text: Option<&str>| {
                number(text, "number of microseconds")?.checked_mul(1000).ok_or_else(|| "a time is too long".to_owned())
            };
            let mut fields = line.split_ascii_whitespace();
            let at = if timed { micros(fields.next())? } else { *waited };
            let name = fields.next().unwrap_or_default();
            let write = match fields.next().unwrap_or_default() {
                "read" => false,
                "write" => true,
                "add" | "open" | "close" => return Ok(TraceItem::LeftOut("file opened or closed")),
                "sync" | "datasync" | "sync_file_range" => return Ok(TraceItem::LeftOut("sync")),
                "trim" => return Ok(TraceItem::LeftOut("trim")),
                "wait" if !timed => {
                    *waited = waited.checked_add(micros(fields.next())?).ok_or("a time is too long")?;
                    return Ok(TraceItem::LeftOut("wait"));
                }
                other => return Err(format!("'{}' is no action", other.chars().take(40).collect::<String>())),
            };
            let (offset, length) = (number(fields.next(), "offset")?, number(fields.next(), "number of bytes")?);
            let device = devices.number(name)?;
            access(Record { at, device, offset, length, write })
        })
    }
}
