//! A connection to a server: blocking while it is made, then never, with what is still to be sent
//! kept here.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration as WallDuration;

use stele_ground::Duration;
use stele_media::Buffer;
use stele_media::system::EventFd;

/// A server that says nothing for so long while the connection is made is given up.
pub const PATIENCE: WallDuration = WallDuration::from_secs(10);

pub const ENDED: &str = "the server ended the connection";

/// To `HOST:PORT`, whichever of its addresses answers first; it reads and writes for no longer than
/// `patience`.
pub fn connect(place: &str, patience: WallDuration) -> io::Result<TcpStream> {
    let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in place.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(patience))?;
                stream.set_write_timeout(Some(patience))?;
                return Ok(stream);
            }
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

pub enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    /// To `HOST:PORT`.
    pub fn tcp(place: &str) -> io::Result<Stream> {
        connect(place, PATIENCE).map(Stream::Tcp)
    }

    pub fn unix(path: &Path) -> io::Result<Stream> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Stream::Unix(stream))
    }

    fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Stream::Tcp(stream) => stream.set_nonblocking(true),
            Stream::Unix(stream) => stream.set_nonblocking(true),
        }
    }

    fn descriptor(&self) -> RawFd {
        match self {
            Stream::Tcp(stream) => stream.as_raw_fd(),
            Stream::Unix(stream) => stream.as_raw_fd(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read(buffer),
            Stream::Unix(stream) => stream.read(buffer),
        }
    }

    fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.read_vectored(buffers),
            Stream::Unix(stream) => stream.read_vectored(buffers),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write(buffer),
            Stream::Unix(stream) => stream.write(buffer),
        }
    }

    fn write_vectored(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Stream::Tcp(stream) => stream.write_vectored(buffers),
            Stream::Unix(stream) => stream.write_vectored(buffers),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub fn take<const N: usize>(stream: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

pub fn wrong(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

/// What a broken connection is called.
pub fn said(error: &io::Error) -> String {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    match error.kind() {
        BrokenPipe | ConnectionReset | UnexpectedEof => ENDED.to_owned(),
        // What a blocking read says when its time is over.
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => format!("no answer for {} s", PATIENCE.as_secs()),
        _ => error.to_string(),
    }
}

/// What is still to be sent, in order.
enum Piece {
    Bytes(Vec<u8>),
    /// A slot's data, which is sent from where it lies.
    Owned(u32, Buffer, usize),
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        match self {
            Piece::Bytes(bytes) => bytes,
            Piece::Owned(_, buffer, length) => &buffer[..*length],
        }
    }
}

/// Pieces that one call sends.
const PIECES: usize = 64;
/// Shorter data is copied behind what else is to be sent.
const COPIED_MAX: usize = 16 << 10;

/// A connection that does not block.
pub struct Wire {
    stream: Stream,
    out: VecDeque<Piece>,
    /// Of the first piece.
    sent: usize,
    /// Buffers that were sent, with their slots.
    back: Vec<(u32, Buffer)>,
    /// An empty vector, to be used again.
    spare: Vec<u8>,
    poll: EventFd,
}

impl Wire {
    pub fn new(stream: Stream) -> io::Result<Wire> {
        stream.set_nonblocking()?;
        let poll = EventFd::new()?;
        Ok(Wire { stream, out: VecDeque::new(), sent: 0, back: Vec::new(), spare: Vec::new(), poll })
    }

    /// Goes with the next `send`.
    pub fn queue(&mut self, bytes: &[u8]) {
        match self.out.back_mut() {
            Some(Piece::Bytes(last)) => last.extend_from_slice(bytes),
            _ => {
                let mut piece = std::mem::take(&mut self.spare);
                piece.extend_from_slice(bytes);
                self.out.push_back(Piece::Bytes(piece));
            }
        }
    }

    /// A slot's data, which comes back by `back` when it was sent. None: it was short and copied,
    /// and the buffer stays.
    pub fn queue_buffer(&mut self, slot: u32, buffer: Buffer, length: usize) -> Option<Buffer> {
        if length <= COPIED_MAX {
            self.queue(&buffer[..length]);
            return Some(buffer);
        }
        self.out.push_back(Piece::Owned(slot, buffer, length));
        None
    }

    /// Buffers that were sent.
    pub fn back(&mut self) -> impl Iterator<Item = (u32, Buffer)> + '_ {
        self.back.drain(..)
    }

    /// Nothing more is sent: the buffers come back as they are.
    pub fn abandon(&mut self) {
        for piece in self.out.drain(..) {
            if let Piece::Owned(slot, buffer, _) = piece {
                self.back.push((slot, buffer));
            }
        }
        self.sent = 0;
    }

    /// As far as the other side takes it.
    pub fn send(&mut self) -> io::Result<()> {
        while !self.out.is_empty() {
            let mut skipped = self.sent;
            let mut slices = [IoSlice::new(&[]); PIECES];
            let mut count = 0;
            for (slice, piece) in slices.iter_mut().zip(&self.out) {
                *slice = IoSlice::new(piece.bytes().get(skipped..).unwrap_or_default());
                (skipped, count) = (0, count + 1);
            }
            match self.stream.write_vectored(slices.get(..count).unwrap_or_default()) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(length) => self.took(length),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn took(&mut self, length: usize) {
        self.sent += length;
        while let Some(first) = self.out.front()
            && self.sent >= first.bytes().len()
        {
            self.sent -= first.bytes().len();
            match self.out.pop_front() {
                Some(Piece::Owned(slot, buffer, _)) => self.back.push((slot, buffer)),
                Some(Piece::Bytes(mut bytes)) => {
                    bytes.clear();
                    self.spare = bytes;
                }
                None => {}
            }
        }
    }

    /// As `read`, into one place behind the other.
    pub fn read_into(&mut self, into: &mut [IoSliceMut<'_>]) -> io::Result<Option<usize>> {
        loop {
            match self.stream.read_vectored(into) {
                Ok(0) => return Err(wrong(ENDED)),
                Ok(length) => return Ok(Some(length)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// None: nothing has come. An end is an error.
    pub fn read(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match self.stream.read(into) {
                Ok(0) => return Err(wrong(ENDED)),
                Ok(length) => return Ok(Some(length)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Until something came, or more can be sent where there is more; it may return early.
    pub fn wait(&mut self, limit: Option<Duration>) {
        let mut watches = vec![(0, self.stream.descriptor(), false)];
        if !self.out.is_empty() {
            watches.push((1, self.stream.descriptor(), true));
        }
        self.poll.wait_beside(limit, &mut watches, &mut Vec::new());
    }
}

/// What every engine of one connection has.
pub struct EngineLink {
    pub wire: Wire,
    /// Accesses under way.
    pub flying: u32,
    /// Why nothing more comes of the connection.
    pub broken: Option<String>,
}

impl EngineLink {
    pub fn new(stream: Stream) -> io::Result<EngineLink> {
        Ok(EngineLink { wire: Wire::new(stream)?, flying: 0, broken: None })
    }
}

/// A dialect over a connection: how an engine of one connection reads answers.
pub trait Dialect {
    fn link(&mut self) -> &mut EngineLink;

    /// Reads what has come, until nothing more is there, and hands over its answers.
    fn receive(&mut self, answers: &mut Vec<super::engine::SlotResult>) -> io::Result<()>;

    /// Sends again what the server put off and is due by now. How long until the next one is.
    fn send_again(&mut self) -> Option<Duration> {
        None
    }

    /// Answers all that is under way with that.
    fn give_up(&mut self, why: &str, answers: &mut Vec<super::engine::SlotResult>);
}

/// What an engine's `reap` does. A connection that broke stays broken.
pub fn reap(
    dialect: &mut impl Dialect,
    least: u32,
    limit: Option<Duration>,
    answers: &mut Vec<super::engine::SlotResult>,
) {
    if dialect.link().broken.is_none()
        && let Err(error) = exchange(dialect, least, limit, answers)
    {
        dialect.link().broken = Some(said(&error));
    }
    if let Some(why) = dialect.link().broken.clone() {
        dialect.give_up(&why, answers);
    }
}

/// Sends and receives until `least` were answered or the time is over.
fn exchange(
    dialect: &mut impl Dialect,
    least: u32,
    limit: Option<Duration>,
    answers: &mut Vec<super::engine::SlotResult>,
) -> io::Result<()> {
    let begun = std::time::Instant::now();
    let least = least.min(dialect.link().flying) as usize;
    let before = answers.len();
    loop {
        dialect.link().wire.send()?;
        dialect.receive(answers)?;
        if answers.len() - before >= least {
            // What an answer gave leave to send.
            return dialect.link().wire.send();
        }
        let left = match limit {
            Some(limit) => match limit.0.saturating_sub(begun.elapsed().as_nanos() as u64) {
                0 => return Ok(()),
                left => Some(Duration(left)),
            },
            None => None,
        };
        let next = dialect.send_again();
        dialect.link().wire.send()?;
        dialect.link().wire.wait([left, next].into_iter().flatten().min());
    }
}

/// Without the percent signs of a URL.
pub fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: u8| char::from(byte).to_digit(16);
        bytes.push((digit(rest.next()?)? * 16 + digit(rest.next()?)?) as u8);
    }
    String::from_utf8(bytes).ok()
}

/// `HOST[:PORT]` with a port. None: no host.
pub fn with_port(host: &str, port: u16) -> Option<String> {
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    match host.is_empty() || host.starts_with(':') {
        true => None,
        false => Some(if has_port { host.to_owned() } else { format!("{host}:{port}") }),
    }
}
