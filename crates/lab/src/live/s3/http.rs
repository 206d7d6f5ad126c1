//! HTTP/1.1 as far as S3 needs it: one request after another on a connection that is kept, bodies
//! with a length or in chunks.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use super::secure::{Channel, Trust};
use crate::live::stream::{connect, wrong};

/// Bytes of the lines before a body, and of a body that is only looked at.
const HEAD_MAX: usize = 64 << 10;
const TEXT_MAX: u64 = 4 << 20;

pub struct HttpResponse {
    pub status: u16,
    /// Bytes of the body that were put into the buffer.
    pub length: u64,
    /// The body of what is no success.
    pub text: String,
}

pub struct Connection {
    place: String,
    patience: Duration,
    trust: Option<Arc<Trust>>,
    stream: Option<BufReader<Channel>>,
}

impl Connection {
    /// With TLS where `trust` is given.
    pub fn new(place: &str, patience: Duration, trust: Option<Arc<Trust>>) -> Connection {
        Connection { place: place.to_owned(), patience, trust, stream: None }
    }

    fn connect(&self) -> io::Result<BufReader<Channel>> {
        let channel = Channel::new(connect(&self.place, self.patience)?, self.trust.as_deref())?;
        Ok(BufReader::with_capacity(64 << 10, channel))
    }

    /// Sends a request, and reads its answer's body into the buffer as far as there is room; more
    /// is an error.
    pub fn ask(&mut self, head: &str, body: &[u8], into: &mut [u8]) -> io::Result<HttpResponse> {
        let kept = self.stream.is_some();
        match self.attempt(head, body, into) {
            // A server may have ended a connection that nothing was asked on for a while.
            Err(error) if kept && is_ended(&error) => self.attempt(head, body, into),
            answer => answer,
        }
    }

    fn attempt(&mut self, head: &str, body: &[u8], into: &mut [u8]) -> io::Result<HttpResponse> {
        // Only what was read to its end is kept.
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.connect()?,
        };
        match body.len() {
            // In one piece with the head.
            0..=16384 => stream.get_mut().write_all(&[head.as_bytes(), body].concat())?,
            _ => {
                stream.get_mut().write_all(head.as_bytes())?;
                stream.get_mut().write_all(body)?;
            }
        }
        stream.get_mut().flush()?;
        let (answer, keeps) = read(&mut stream, into)?;
        self.stream = keeps.then_some(stream);
        Ok(answer)
    }
}

fn is_ended(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof)
}

fn line(stream: &mut impl BufRead, left: &mut usize) -> io::Result<String> {
    let mut bytes = Vec::new();
    let length = stream.take(*left as u64).read_until(b'\n', &mut bytes)?;
    *left -= length;
    match bytes.strip_suffix(b"\n") {
        Some(text) => Ok(String::from_utf8_lossy(text).trim_end().to_owned()),
        None if *left == 0 => Err(wrong("the server's answer has too long a head")),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Answers that say only that another one follows (100 to 199), before one that is final.
const INTERIM_MAX: u32 = 16;

/// An answer, and whether another one may come on this connection.
pub fn read(stream: &mut impl BufRead, into: &mut [u8]) -> io::Result<(HttpResponse, bool)> {
    for _ in 0..INTERIM_MAX {
        if let Some(answer) = read_one(stream, into)? {
            return Ok(answer);
        }
    }
    Err(wrong("the server says without end that its answer follows"))
}

/// None: another answer follows.
fn read_one(stream: &mut impl BufRead, into: &mut [u8]) -> io::Result<Option<(HttpResponse, bool)>> {
    let mut left = HEAD_MAX;
    let first = line(stream, &mut left)?;
    let status = first.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)).and_then(|text| text.parse().ok());
    let status: u16 = status.ok_or_else(|| wrong("this is no HTTP server"))?;
    let (mut length, mut chunked, mut keeps) = (None, false, first.starts_with("HTTP/1.1"));
    loop {
        let text = line(stream, &mut left)?;
        let Some((name, value)) = text.split_once(':') else {
            if text.is_empty() {
                break;
            }
            return Err(wrong("the server's answer has a line that is no header"));
        };
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => {
                length = Some(value.parse().map_err(|_| wrong("the server's answer has no good length"))?)
            }
            "transfer-encoding" => chunked = value.eq_ignore_ascii_case("chunked"),
            "connection" => keeps &= !value.eq_ignore_ascii_case("close"),
            _ => {}
        }
    }
    if (100..200).contains(&status) {
        return Ok(None);
    }
    let good = (200..300).contains(&status);
    let mut body = Body { into: if good { into } else { &mut [] }, length: 0, text: Vec::new(), good };
    if status == 204 || status == 304 {
        length = Some(0);
    }
    match (chunked, length) {
        (true, _) => loop {
            let size = line(stream, &mut left)?;
            let size = size.split(';').next().and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
            let size = size.ok_or_else(|| wrong("the server's answer has a bad chunk"))?;
            body.take(stream, size)?;
            if !line(stream, &mut left)?.is_empty() {
                return Err(wrong("the server's answer has a bad chunk"));
            }
            left = HEAD_MAX;
            if size == 0 {
                break;
            }
        },
        (false, Some(length)) => body.take(stream, length)?,
        (false, None) => return Err(wrong("the server's answer does not say how long it is")),
    }
    let text = String::from_utf8_lossy(&body.text).into_owned();
    Ok(Some((HttpResponse { status, length: body.length, text }, keeps)))
}

struct Body<'a> {
    into: &'a mut [u8],
    length: u64,
    text: Vec<u8>,
    good: bool,
}

impl Body<'_> {
    fn take(&mut self, stream: &mut impl BufRead, count: u64) -> io::Result<()> {
        if self.good && !self.into.is_empty() {
            let place = self.into.get_mut(self.length as usize..).unwrap_or_default();
            let place = usize::try_from(count).ok().and_then(|count| place.get_mut(..count));
            let place = place.ok_or_else(|| wrong("the server sends more than the object has"))?;
            stream.read_exact(place)?;
        } else if count > TEXT_MAX - self.text.len() as u64 {
            return Err(wrong("the server's answer is too long"));
        } else {
            let from = self.text.len();
            self.text.resize(from + count as usize, 0);
            stream.read_exact(&mut self.text[from..])?;
        }
        self.length += count;
        Ok(())
    }
}
