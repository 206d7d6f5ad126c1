//! A small HTTP/1.1 client: one connection kept open, one request at a time, reused buffers.

use std::io::{IoSlice, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use stele_lab::live::s3::sign::{self, Keys, Request, Signer};

use super::server::Server;

const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
/// Size of the buffer for the bodies of answers, which are not kept.
const BUFFER: usize = 256 << 10;

pub struct S3Client {
    stream: TcpStream,
    signer: Signer,
    host: String,
    head: Vec<u8>,
    buffer: Vec<u8>,
}

/// The work of each client in a round.
#[derive(Clone, Copy)]
pub struct Work<'b> {
    pub put: bool,
    pub size: usize,
    /// Number of objects in the working set for GETs.
    pub objects: usize,
    /// Makes keys distinct.
    pub round: u32,
    pub body: &'b [u8],
    /// The body's SHA-256: hashed once, since the bench does not measure the client.
    pub hash: &'b str,
}

impl S3Client {
    pub fn new(server: &Server) -> Result<S3Client, String> {
        let stream =
            TcpStream::connect(&server.address).map_err(|error| format!("cannot reach the server: {error}"))?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        Ok(S3Client {
            stream,
            signer: Signer::new(Keys {
                access: server.access_key.clone(),
                secret: server.secret_key.clone(),
                token: None,
                region: "us-east-1".to_owned(),
            }),
            host: server.address.clone(),
            head: Vec::with_capacity(1024),
            buffer: vec![0; BUFFER],
        })
    }

    /// Sends one request, hashed here; any status but 200 is an error.
    pub fn request(&mut self, method: &str, path: &str, body: &[u8]) -> Result<(), String> {
        let hash = if body.is_empty() { EMPTY.to_owned() } else { sign::hash(body) };
        self.ask(method, path, body, &hash).map(drop)
    }

    /// Works until the deadline; returns the number of completed operations.
    pub fn work(&mut self, work: &Work<'_>, index: usize, deadline: Instant) -> Result<u64, String> {
        let mut done = 0;
        while Instant::now() < deadline {
            if work.put {
                let path = format!("/bench/put-{}-{}/{index}-{done}", work.size, work.round);
                self.ask("PUT", &path, work.body, work.hash)?;
            } else {
                // Clients start at different objects and go through all.
                let object = (done as usize * 7 + index) % work.objects;
                let length = self.ask("GET", &format!("/bench/get-{}-{object}", work.size), &[], EMPTY)?;
                if length != work.size {
                    return Err(format!("GET answered {length} bytes of {}", work.size));
                }
            }
            done += 1;
        }
        Ok(done)
    }

    // Sends a request and drains the answer; returns the length of its body.
    fn ask(&mut self, method: &str, path: &str, body: &[u8], hash: &str) -> Result<usize, String> {
        self.head.clear();
        let line = format!("{method} {path} HTTP/1.1\r\ncontent-length: {}\r\n", body.len());
        self.head.extend_from_slice(line.as_bytes());
        let request = Request { method, host: &self.host, path, query: "", hash };
        self.head.extend_from_slice(self.signer.headers(&request).as_bytes());
        self.head.extend_from_slice(b"\r\n");
        send(&mut self.stream, &self.head, body).map_err(|error| format!("{method} {path}: {error}"))?;
        self.answer().map_err(|error| format!("{method} {path}: {error}"))
    }

    fn answer(&mut self) -> Result<usize, String> {
        let mut filled = 0;
        let end = loop {
            let read = self.stream.read(&mut self.buffer[filled..]).map_err(|error| error.to_string())?;
            if read == 0 {
                return Err("the server closed the connection".to_owned());
            }
            filled += read;
            if let Some(end) = self.buffer[..filled].windows(4).position(|window| window == b"\r\n\r\n") {
                break end + 4;
            }
            if filled == self.buffer.len() {
                return Err("the head of an answer has no end".to_owned());
            }
        };
        let head = String::from_utf8_lossy(&self.buffer[..end]).into_owned();
        let length = head
            .lines()
            .find_map(|line| {
                line.to_ascii_lowercase().strip_prefix("content-length:").map(|text| text.trim().to_owned())
            })
            .and_then(|text| text.parse::<usize>().ok())
            .unwrap_or(0);
        let mut left = (end + length).saturating_sub(filled);
        let first = String::from_utf8_lossy(&self.buffer[end..filled.min(end + 500)]).into_owned();
        while left > 0 {
            let room = left.min(self.buffer.len());
            let read = self.stream.read(&mut self.buffer[..room]).map_err(|error| error.to_string())?;
            if read == 0 {
                return Err("the server cut its answer short".to_owned());
            }
            left -= read;
        }
        if !head.starts_with("HTTP/1.1 200") {
            return Err(format!("{} {first}", head.lines().next().unwrap_or_default()));
        }
        Ok(length)
    }
}

/// Sends head and body in one call, as far as the socket takes them.
fn send(stream: &mut TcpStream, head: &[u8], body: &[u8]) -> std::io::Result<()> {
    let sent = stream.write_vectored(&[IoSlice::new(head), IoSlice::new(body)])?;
    match sent.checked_sub(head.len()) {
        Some(of_body) => stream.write_all(&body[of_body..]),
        None => {
            stream.write_all(&head[sent..])?;
            stream.write_all(body)
        }
    }
}
