//! Lines of JSON, as they come and go, and the proof that the speaker holds the secret.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign, verify};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::job::Job;
use crate::live::read_back::ReadBack;
use crate::record::RunRecord;

pub const VERSION: u32 = 5;
/// Bytes of a secret at least: it can be guessed at without limit.
pub const SECRET_MIN: usize = 16;
/// Of a line before its speaker has proved anything, and after.
pub const STRANGER_MAX: usize = 4 << 10;
pub const LINE_MAX: usize = 64 << 20;

/// What a host is told.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Ask {
    Prove {
        proof: String,
    },
    /// Makes the job's target ready.
    Open {
        job: Box<Job>,
        destroy: bool,
    },
    /// Runs a cell of the job.
    Run {
        cell: usize,
        /// Accesses outstanding on this host, where a search says so; none: what the cell says.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        outstanding: Option<u32>,
    },
    /// Reads all of the target back, whose reads are checked.
    ReadBack,
    /// Ends what is running, and answers with what was measured.
    Stop,
    /// The end; files that were made stay where they are, or go.
    Close {
        keep: bool,
    },
}

/// What a host says.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Say {
    Challenge {
        version: u32,
        nonce: String,
    },
    Welcome,
    Filling {
        done: u64,
        all: u64,
    },
    Ready {
        reached: String,
        target_bytes: u64,
        environment: Vec<(String, String)>,
    },
    Ran {
        run: Box<RunRecord>,
    },
    /// None: the target keeps nothing, or something may still be under way, or it was stopped.
    WasReadBack {
        found: Option<ReadBack>,
    },
    /// What runs goes on.
    Busy,
    Closed,
    Failed {
        why: String,
        /// What the asker can do about it.
        #[serde(default)]
        cause: Cause,
        /// Its reads brought so many sectors of 512 bytes otherwise than they were written.
        #[serde(default, skip_serializing_if = "crate::record::is_zero")]
        wrong_sectors: u64,
    },
}

impl Say {
    pub fn failed(error: &LabError) -> Say {
        Say::Failed { why: error.to_string(), cause: Cause::of(error), wrong_sectors: 0 }
    }
}

/// The kind of an error, as [`LabError`] has it.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    Usage,
    Refused,
    Missing,
    Full,
    Unreachable,
    #[default]
    Failed,
    Damaged,
    Stopped,
}

impl Cause {
    pub fn of(error: &LabError) -> Cause {
        match error {
            LabError::Usage(_) => Cause::Usage,
            LabError::Refused(_) => Cause::Refused,
            LabError::Missing(_) => Cause::Missing,
            LabError::Full(_) => Cause::Full,
            LabError::Unreachable(_) => Cause::Unreachable,
            LabError::Failed(_) => Cause::Failed,
            LabError::Damaged(_) => Cause::Damaged,
            LabError::Stopped(_) => Cause::Stopped,
        }
    }

    pub fn error(self, text: String) -> LabError {
        match self {
            Cause::Usage => LabError::Usage(text),
            Cause::Refused => LabError::Refused(text),
            Cause::Missing => LabError::Missing(text),
            Cause::Full => LabError::Full(text),
            Cause::Unreachable => LabError::Unreachable(text),
            Cause::Failed => LabError::Failed(text),
            Cause::Damaged => LabError::Damaged(text),
            Cause::Stopped => LabError::Stopped(text),
        }
    }
}

/// The text that proves that its sender holds the secret.
pub fn proof(secret: &[u8], nonce: &str) -> String {
    let tag = sign(&Key::new(HMAC_SHA256, secret), nonce.as_bytes());
    tag.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn is_proof(secret: &[u8], nonce: &str, text: &str) -> bool {
    let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
    let Some(digits) = digits.filter(|digits| digits.len() == 64) else { return false };
    let tag: Vec<u8> = digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect();
    verify(&Key::new(HMAC_SHA256, secret), nonce.as_bytes(), &tag).is_ok()
}

/// What was not there when its time was over, or why no more comes.
#[derive(Debug)]
pub enum Silence {
    Late,
    Ended(String),
}

/// Cuts what comes into lines; the rest waits here.
pub struct LineBuffer {
    bytes: Vec<u8>,
    /// Up to here there is no line break.
    looked: usize,
    pub line_max: usize,
}

impl LineBuffer {
    pub fn new(line_max: usize) -> LineBuffer {
        LineBuffer { bytes: Vec::new(), looked: 0, line_max }
    }

    pub fn feed(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next line's value, if it has come whole.
    pub fn take<T: DeserializeOwned>(&mut self) -> Result<Option<T>, String> {
        let end = self.bytes.iter().skip(self.looked).position(|byte| *byte == b'\n').map(|at| at + self.looked);
        let Some(end) = end.filter(|end| *end <= self.line_max) else {
            self.looked = self.bytes.len();
            return match self.bytes.len() > self.line_max {
                true => Err(format!("a line is longer than {} bytes", self.line_max)),
                false => Ok(None),
            };
        };
        let line: Vec<u8> = self.bytes.drain(..=end).collect();
        self.looked = 0;
        serde_json::from_slice(&line).map(Some).map_err(|error| format!("a line is none of this protocol: {error}"))
    }
}

/// One end of a connection.
pub struct Link {
    stream: TcpStream,
    pub lines: LineBuffer,
}

/// How often it is seen whether something else is to be done.
pub const LOOK: Duration = Duration::from_millis(50);

impl Link {
    pub fn new(stream: TcpStream, line_max: usize) -> io::Result<Link> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LOOK))?;
        stream.set_write_timeout(Some(Duration::from_secs(10)))?;
        Ok(Link { stream, lines: LineBuffer::new(line_max) })
    }

    pub fn say<T: Serialize>(&mut self, value: &T) -> Result<(), String> {
        let mut line = serde_json::to_vec(value).map_err(|error| error.to_string())?;
        line.push(b'\n');
        self.stream.write_all(&line).map_err(|error| crate::live::stream::said(&error))
    }

    /// The next line, waited for no longer than until then.
    pub fn hear<T: DeserializeOwned>(&mut self, until: Instant) -> Result<T, Silence> {
        let mut stage = vec![0; 64 << 10];
        loop {
            if let Some(value) = self.lines.take().map_err(Silence::Ended)? {
                return Ok(value);
            }
            match self.stream.read(&mut stage) {
                Ok(0) => return Err(Silence::Ended("the other side ended the connection".into())),
                Ok(count) => self.lines.feed(stage.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Silence::Ended(crate::live::stream::said(&error))),
            }
            if Instant::now() >= until {
                return Err(Silence::Late);
            }
        }
    }
}
