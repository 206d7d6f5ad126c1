//! NBD by hand, with only the parts that a test needs: one request at a time over a Unix socket or
//! TCP, with simple replies. And a host that knows the expected content of every block.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use stele_ground::Dice;

pub const READ: u16 = 0;
pub const WRITE: u16 = 1;
pub const TRIM: u16 = 4;
pub const ZERO: u16 = 6;

pub trait Wire: Read + Write + Send {}
impl<T: Read + Write + Send> Wire for T {}

pub struct Nbd(Box<dyn Wire>);

/// The head of a request, valid or not.
pub fn head(command: u16, cookie: u64, at: u64, length: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513u32.to_be_bytes().to_vec();
    bytes.extend(0u16.to_be_bytes());
    bytes.extend(command.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(at.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes
}

impl Nbd {
    /// A client that waits half a minute for an answer counts as starved.
    pub fn unix(socket: &Path, export: &str) -> Result<Nbd> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Nbd(Box::new(stream)).greeted(export)
    }

    pub fn tcp(address: &str, export: &str) -> Result<Nbd> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        stream.set_nodelay(true)?;
        Nbd(Box::new(stream)).greeted(export)
    }

    fn greeted(mut self, export: &str) -> Result<Nbd> {
        self.0.read_exact(&mut [0; 18])?;
        // Fixed newstyle, no zeroes; then EXPORT_NAME.
        let mut bytes = 3u32.to_be_bytes().to_vec();
        bytes.extend(b"IHAVEOPT");
        bytes.extend(1u32.to_be_bytes());
        bytes.extend((export.len() as u32).to_be_bytes());
        bytes.extend(export.as_bytes());
        self.0.write_all(&bytes)?;
        self.0.read_exact(&mut [0; 10])?;
        Ok(self)
    }

    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.write_all(bytes)
    }

    /// The data read, or nothing.
    pub fn ask(&mut self, command: u16, at: u64, length: u32, data: &[u8]) -> Result<Vec<u8>> {
        self.send(&[&head(command, 7, at, length), data].concat())?;
        let mut reply = [0; 16];
        self.0.read_exact(&mut reply)?;
        assert_eq!(reply[..4], 0x6744_6698u32.to_be_bytes(), "a simple reply");
        let errno = u32::from_be_bytes(reply[4..8].try_into().unwrap());
        if errno != 0 {
            return Err(Error::from_raw_os_error(errno as i32));
        }
        let mut bytes = vec![0; if command == READ { length as usize } else { 0 }];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes)
    }
}

const BLOCK: usize = 512;
/// Sectors in a block of 4096 bytes, to which hosts align.
const PAGE: usize = 8;

/// One block's content: zeros for 0, otherwise its stamp and its place again and again.
fn content(stamp: u32, place: u64) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    if stamp != 0 {
        let word = (u64::from(stamp) << 32 | place).to_le_bytes();
        block.chunks_mut(8).for_each(|chunk| chunk.copy_from_slice(&word));
    }
    block
}

/// A host that writes, zeroes, trims and reads overlapping ranges of its part of a volume, and
/// reconnects after an interruption. Every answered request counts. After an interrupted one, each
/// block has its old or new content, and keeps the one first seen.
pub struct Host {
    connect: Box<dyn Fn() -> Result<Nbd> + Send>,
    link: Option<Nbd>,
    first: u64,
    /// The stamps that each block may have.
    blocks: Vec<Vec<u32>>,
    stamp: u32,
    dice: Dice,
    pub answered: u64,
    pub cut_off: u64,
}

impl Host {
    /// Works on blocks of 512 bytes from `first` on, which are zeros.
    pub fn new(connect: Box<dyn Fn() -> Result<Nbd> + Send>, first: u64, blocks: usize, seed: u64) -> Host {
        Host {
            connect,
            link: None,
            first,
            blocks: vec![vec![0]; blocks],
            stamp: 0,
            dice: Dice::new(seed),
            answered: 0,
            cut_off: 0,
        }
    }

    /// One request of random kind and range.
    pub fn step(&mut self) {
        let most = self.blocks.len().min(128) as u64;
        let length = 1 + self.dice.below(most) as usize;
        let at = self.dice.below((self.blocks.len() - length + 1) as u64) as usize;
        match self.dice.below(10) {
            0..5 => {
                self.stamp += 1;
                let data: Vec<u8> = (at..at + length).flat_map(|block| content(self.stamp, block as u64)).collect();
                self.change(WRITE, at, length, self.stamp, &data);
            }
            5 => self.change(ZERO, at, length, 0, &[]),
            6 => self.change(TRIM, at, length, 0, &[]),
            _ => self.look(at, length),
        }
    }

    /// Reads all blocks.
    pub fn look_at_all(&mut self) {
        for at in (0..self.blocks.len()).step_by(256) {
            self.look(at, 256.min(self.blocks.len() - at));
        }
    }

    fn change(&mut self, command: u16, at: usize, length: usize, stamp: u32, data: &[u8]) {
        // A trim leaves ranges that are not whole blocks of 4096 bytes.
        let whole = at.next_multiple_of(PAGE)..(at + length) / PAGE * PAGE;
        let answered = self.ask(command, at, length, data).is_ok();
        for (place, stamps) in (at..at + length).zip(&mut self.blocks[at..at + length]) {
            match answered && (command != TRIM || whole.contains(&place)) {
                true => *stamps = vec![stamp],
                false => stamps.push(stamp),
            }
        }
    }

    fn look(&mut self, at: usize, length: usize) {
        let Ok(bytes) = self.ask(READ, at, length, &[]) else { return };
        for (place, bytes) in (at..at + length).zip(bytes.chunks(BLOCK)) {
            let stamps = &mut self.blocks[place];
            let seen = stamps.iter().copied().find(|stamp| content(*stamp, place as u64) == bytes);
            let begins = &bytes[..8];
            let seen = seen.unwrap_or_else(|| panic!("block {place} begins {begins:x?}, and may hold {stamps:x?}"));
            *stamps = vec![seen];
        }
    }

    /// Errors that do not come from the connection come from the volume, and must not happen.
    fn ask(&mut self, command: u16, at: usize, length: usize, data: &[u8]) -> Result<Vec<u8>> {
        let since = std::time::Instant::now();
        while self.link.is_none() {
            assert!(since.elapsed() < Duration::from_secs(60), "no server for a minute");
            self.link = (self.connect)().ok();
            std::thread::yield_now();
        }
        let link = self.link.as_mut().ok_or(ErrorKind::NotConnected)?;
        let done = link.ask(command, self.first + (at * BLOCK) as u64, (length * BLOCK) as u32, data);
        match &done {
            Ok(_) => self.answered += 1,
            Err(error) => {
                // 108: the pool stops.
                let of_link = matches!(
                    error.kind(),
                    ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
                ) || error.raw_os_error() == Some(108);
                assert!(of_link, "command {command} at {at}: {error}");
                self.cut_off += 1;
                self.link = None;
            }
        }
        done
    }
}
