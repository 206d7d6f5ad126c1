//! ONC RPC (RFC 5531) over a stream, and the XDR that NFS needs: calls as bytes, replies read
//! without believing them.

use std::io::{self, Read, Write};
use std::sync::LazyLock;

use crate::live::stream::{take, wrong};

/// Replies while a file is looked for are no longer than this.
const REPLY_MAX: u32 = 64 << 10;
const LAST: u32 = 1 << 31;
/// Bytes of the attributes of a file.
const ATTRIBUTES: usize = 84;

/// Whom this process is to the server: the owner of its own entry in /proc.
static CALLER: LazyLock<(u32, u32)> = LazyLock::new(|| {
    use std::os::unix::fs::MetadataExt;
    std::fs::metadata("/proc/self").map_or((65_534, 65_534), |own| (own.uid(), own.gid()))
});

/// A call's bytes, built in order.
#[derive(Default)]
pub struct Call(pub Vec<u8>);

impl Call {
    /// With the place of the record mark at its begin.
    pub fn new(xid: u32, (program, version): (u32, u32), procedure: u32) -> Call {
        let (user, group) = *CALLER;
        let call = Call(vec![0; 4]).u32(xid).u32(0).u32(2).u32(program).u32(version).u32(procedure);
        let credentials = Call::default().u32(0).opaque(b"stele-lab").u32(user).u32(group).u32(0);
        call.u32(1).opaque(&credentials.0).u32(0).u32(0)
    }

    pub fn u32(mut self, value: u32) -> Call {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub fn u64(mut self, value: u64) -> Call {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub fn opaque(self, bytes: &[u8]) -> Call {
        let mut call = self.u32(bytes.len() as u32);
        call.0.extend_from_slice(bytes);
        call.0.extend(std::iter::repeat_n(0, bytes.len().wrapping_neg() & 3));
        call
    }

    /// Whole, as one record.
    pub fn record(mut self) -> Vec<u8> {
        let length = (self.0.len() - 4) as u32;
        self.0[..4].copy_from_slice(&(length | LAST).to_be_bytes());
        self.0
    }
}

/// What came, read in order. Each answers an error where it ends too early.
pub struct Reply<'a>(pub &'a [u8]);

impl<'a> Reply<'a> {
    pub fn bytes(&mut self, count: usize) -> io::Result<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count).ok_or_else(|| wrong("the server's reply ends too early"))?;
        self.0 = rest;
        Ok(head)
    }

    pub fn u32(&mut self) -> io::Result<u32> {
        Ok(u32::from_be_bytes(self.bytes(4)?.try_into().unwrap_or_default()))
    }

    pub fn u64(&mut self) -> io::Result<u64> {
        Ok(u64::from_be_bytes(self.bytes(8)?.try_into().unwrap_or_default()))
    }

    pub fn opaque(&mut self) -> io::Result<&'a [u8]> {
        let length = self.u32()? as usize;
        let bytes = self.bytes(length)?;
        self.bytes((length.wrapping_neg() & 3).min(self.0.len()))?;
        Ok(bytes)
    }

    /// Attributes that may be left out: the size, where they are there.
    pub fn attributes(&mut self) -> io::Result<Option<u64>> {
        match self.u32()? {
            0 => Ok(None),
            _ => {
                let bytes = self.bytes(ATTRIBUTES)?;
                Ok(bytes.get(20..28).and_then(|bytes| bytes.try_into().ok()).map(u64::from_be_bytes))
            }
        }
    }

    /// What a file was before and is after an operation.
    pub fn change(&mut self) -> io::Result<()> {
        if self.u32()? != 0 {
            self.bytes(24)?;
        }
        self.attributes().map(drop)
    }

    /// Past the header; the call that it answers.
    pub fn begin(&mut self) -> io::Result<u32> {
        let xid = self.u32()?;
        let (kind, denied) = (self.u32()?, self.u32()?);
        if kind != 1 {
            return Err(wrong("the server sent something that is no reply"));
        }
        if denied != 0 {
            return Err(wrong("the server does not accept who asks"));
        }
        self.u32()?;
        self.opaque()?;
        match self.u32()? {
            0 => Ok(xid),
            1 => Err(wrong("the server does not offer this service")),
            2 => Err(wrong("the server does not offer this version (3) of it")),
            other => Err(wrong(format!("the server could not read the call ({other})"))),
        }
    }
}

/// Sends a call and waits for its reply's body.
pub fn ask(stream: &mut (impl Read + Write), program: (u32, u32), procedure: u32, body: Call) -> io::Result<Vec<u8>> {
    const XID: u32 = 0x7374_656c;
    let mut call = Call::new(XID, program, procedure);
    call.0.extend(body.0);
    stream.write_all(&call.record())?;
    let mut record = Vec::new();
    loop {
        let mark = u32::from_be_bytes(take(stream)?);
        let length = mark & !LAST;
        if length > REPLY_MAX || record.len() > REPLY_MAX as usize {
            return Err(wrong("the server's reply is too long"));
        }
        let from = record.len();
        record.resize(from + length as usize, 0);
        stream.read_exact(&mut record[from..])?;
        if mark & LAST != 0 {
            break;
        }
    }
    let mut reply = Reply(&record);
    match reply.begin()? {
        XID => Ok(reply.0.to_vec()),
        _ => Err(wrong("the server answered another call")),
    }
}

/// Cuts what came into records.
#[derive(Default)]
pub struct Records {
    bytes: Vec<u8>,
    /// Of the record that is coming, without its marks; and how much of `bytes` is read.
    record: Vec<u8>,
    at: usize,
}

impl Records {
    pub fn feed(&mut self, bytes: &[u8]) {
        self.bytes.drain(..std::mem::take(&mut self.at));
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole one; none may be longer than `most`.
    pub fn next(&mut self, most: usize) -> io::Result<Option<Vec<u8>>> {
        loop {
            let here = self.bytes.get(self.at..).unwrap_or_default();
            let Some((mark, rest)) = here.split_first_chunk::<4>() else { return Ok(None) };
            let mark = u32::from_be_bytes(*mark);
            let length = (mark & !LAST) as usize;
            if self.record.len() + length > most {
                return Err(wrong("the server's reply is too long"));
            }
            let Some(part) = rest.get(..length) else { return Ok(None) };
            self.record.extend_from_slice(part);
            self.at += 4 + length;
            if mark & LAST != 0 {
                return Ok(Some(std::mem::take(&mut self.record)));
            }
        }
    }
}
