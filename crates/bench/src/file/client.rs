//! A plain NFSv3 client on one connection: a call at a time, or a window of calls under way. Every
//! server is measured with it, so that the client's share of the machine is the same.

use std::collections::HashMap;
use std::io::{BufReader, Read, Write};
use std::net::TcpStream;

/// A program of remote calls, and its version.
pub type Program = (u32, u32);

const MOUNT: Program = (100_005, 3);
const NFS: Program = (100_003, 3);

const NULL: u32 = 0;
const GETATTR: u32 = 1;
const LOOKUP: u32 = 3;
const READ: u32 = 6;
const WRITE: u32 = 7;
const CREATE: u32 = 8;
const MKDIR: u32 = 9;
const REMOVE: u32 = 12;
const READDIRPLUS: u32 = 17;
const COMMIT: u32 = 21;

const UNSTABLE: u32 = 0;
const FILE_SYNC: u32 = 2;
const NO_ENTRY: u32 = 2;
/// Bytes of a file's attributes.
const ATTRIBUTES: usize = 84;

/// A call's procedure and arguments.
pub struct Call {
    pub procedure: u32,
    pub arguments: Vec<u8>,
}

pub struct NfsClient {
    stream: TcpStream,
    replies: BufReader<TcpStream>,
    number: u32,
    root: Vec<u8>,
    reply: Vec<u8>,
}

pub fn word(bytes: &mut Vec<u8>, value: u32) {
    bytes.extend(value.to_be_bytes());
}

pub fn opaque(bytes: &mut Vec<u8>, data: &[u8]) {
    word(bytes, data.len() as u32);
    bytes.extend(data);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

impl Call {
    fn new(procedure: u32, handle: &[u8]) -> Call {
        let mut arguments = Vec::with_capacity(handle.len() + 64);
        opaque(&mut arguments, handle);
        Call { procedure, arguments }
    }

    pub fn nothing() -> Call {
        Call { procedure: NULL, arguments: Vec::new() }
    }

    pub fn attributes(handle: &[u8]) -> Call {
        Call::new(GETATTR, handle)
    }

    pub fn lookup(directory: &[u8], name: &str) -> Call {
        Call::named(LOOKUP, directory, name)
    }

    pub fn remove(directory: &[u8], name: &str) -> Call {
        Call::named(REMOVE, directory, name)
    }

    /// A new file, or the one that is there.
    pub fn create(directory: &[u8], name: &str) -> Call {
        let mut call = Call::named(CREATE, directory, name);
        // Unchecked; a mode of 0644; nothing else is set.
        [0, 1, 0o644, 0, 0, 0, 0, 0].iter().for_each(|value| word(&mut call.arguments, *value));
        call
    }

    pub fn read(handle: &[u8], offset: u64, length: u32) -> Call {
        let mut call = Call::new(READ, handle);
        call.arguments.extend(offset.to_be_bytes());
        word(&mut call.arguments, length);
        call
    }

    pub fn write(handle: &[u8], offset: u64, data: &[u8], stable: bool) -> Call {
        let mut call = Call::new(WRITE, handle);
        call.arguments.reserve(data.len() + 32);
        call.arguments.extend(offset.to_be_bytes());
        word(&mut call.arguments, data.len() as u32);
        word(&mut call.arguments, if stable { FILE_SYNC } else { UNSTABLE });
        opaque(&mut call.arguments, data);
        call
    }

    pub fn commit(handle: &[u8]) -> Call {
        let mut call = Call::new(COMMIT, handle);
        call.arguments.extend([0; 12]);
        call
    }

    fn list(directory: &[u8], cookie: u64, verifier: &[u8]) -> Call {
        let mut call = Call::new(READDIRPLUS, directory);
        call.arguments.extend(cookie.to_be_bytes());
        call.arguments.extend(verifier);
        // Bytes of names, and of the whole reply.
        [64 << 10, 256 << 10].iter().for_each(|most| word(&mut call.arguments, *most));
        call
    }

    fn named(procedure: u32, directory: &[u8], name: &str) -> Call {
        let mut call = Call::new(procedure, directory);
        opaque(&mut call.arguments, name.as_bytes());
        call
    }
}

impl NfsClient {
    /// Mounts an export, and connects.
    pub fn mount(port: u16, mount_port: u16, export: &str) -> Result<NfsClient, String> {
        let mut mounting = NfsClient::connect(mount_port)?;
        let mut arguments = Vec::new();
        opaque(&mut arguments, export.as_bytes());
        mounting.send(MOUNT, &Call { procedure: 1, arguments })?;
        let reply =
            mounting.receive()?.opaque_after_status().map_err(|error| format!("mount of `{export}`: {error}"))?;
        let root = reply.to_vec();
        let mut client = NfsClient::connect(port)?;
        client.root = root;
        Ok(client)
    }

    /// A connection without a mounted export.
    pub fn connect(port: u16) -> Result<NfsClient, String> {
        let failed = |error: std::io::Error| format!("no connection to port {port}: {error}");
        let stream = TcpStream::connect(("127.0.0.1", port)).map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let replies = BufReader::with_capacity(1 << 20, stream.try_clone().map_err(failed)?);
        Ok(NfsClient { stream, replies, number: 0, root: Vec::new(), reply: Vec::new() })
    }

    pub fn root(&self) -> &[u8] {
        &self.root
    }

    pub fn send(&mut self, program: Program, call: &Call) -> Result<(), String> {
        self.number += 1;
        let mut message = Vec::with_capacity(call.arguments.len() + 96);
        word(&mut message, 0);
        for value in [self.number, 0, 2, program.0, program.1, call.procedure] {
            word(&mut message, value);
        }
        // AUTH_SYS: stamp, machine `bench`, user and group 0, no further groups.
        word(&mut message, 1);
        word(&mut message, 28);
        word(&mut message, 0);
        opaque(&mut message, b"bench");
        [0, 0, 0, 0, 0].iter().for_each(|value| word(&mut message, *value));
        message.extend(&call.arguments);
        let length = message.len() as u32 - 4;
        message[..4].copy_from_slice(&(length | 1 << 31).to_be_bytes());
        self.stream.write_all(&message).map_err(|error| format!("a call was not sent: {error}"))
    }

    /// The next reply: what follows the status of the remote call.
    pub fn receive(&mut self) -> Result<Reply<'_>, String> {
        self.receive_numbered().map(|(_, reply)| reply)
    }

    /// The next reply, and the number of its call.
    fn receive_numbered(&mut self) -> Result<(u32, Reply<'_>), String> {
        let failed = |error: std::io::Error| format!("no reply: {error}");
        self.reply.clear();
        loop {
            let mut mark = [0; 4];
            self.replies.read_exact(&mut mark).map_err(failed)?;
            let mark = u32::from_be_bytes(mark);
            let begin = self.reply.len();
            self.reply.resize(begin + (mark & 0x7fff_ffff) as usize, 0);
            self.replies.read_exact(&mut self.reply[begin..]).map_err(failed)?;
            if mark >> 31 == 1 {
                break;
            }
        }
        let mut reply = Reply(&self.reply);
        let number = reply.word()?;
        if (reply.word()?, reply.word()?) != (1, 0) {
            return Err("the server refused a call".into());
        }
        let _flavor = reply.word()?;
        reply.opaque()?;
        match reply.word()? {
            0 => Ok((number, reply)),
            status => Err(format!("the server did not accept a call: status {status}")),
        }
    }

    /// One call, for its whole reply.
    pub fn call(&mut self, call: &Call) -> Result<Reply<'_>, String> {
        self.send(NFS, call)?;
        self.receive()
    }

    /// `count` calls with at most `depth` under way. Each must succeed.
    pub fn many(&mut self, count: u64, depth: u64, mut make: impl FnMut(u64) -> Call) -> Result<(), String> {
        let (mut sent, mut answered) = (0, 0);
        while answered < count {
            while sent < count && sent - answered < depth {
                let call = make(sent);
                self.send(NFS, &call)?;
                sent += 1;
            }
            let checks = self.receive()?;
            // The reply to NULL is empty.
            if !checks.0.is_empty() {
                checks.good()?;
            }
            answered += 1;
        }
        Ok(())
    }

    /// Makes files in the root, writes `data` into each and commits it, at most `depth` files at
    /// once. A file's calls follow one another, as those of a program that copies files.
    pub fn records(&mut self, count: u64, depth: u64, name: impl Fn(u64) -> String, data: &[u8]) -> Result<(), String> {
        let root = self.root.clone();
        self.chains(count, depth, data, |index| (Call::create(&root, &name(index)), Next::Write))
    }

    /// Writes `data` into each file and commits it, at most `depth` files at once.
    pub fn write_and_commit(&mut self, files: &[Vec<u8>], depth: u64, data: &[u8]) -> Result<(), String> {
        self.chains(files.len() as u64, depth, data, |index| {
            let file = &files[index as usize];
            (Call::write(file, 0, data, false), Next::Commit(file.clone()))
        })
    }

    /// The calls of each file follow one another, from what `begin` makes of its number.
    fn chains(
        &mut self,
        count: u64,
        depth: u64,
        data: &[u8],
        begin: impl Fn(u64) -> (Call, Next),
    ) -> Result<(), String> {
        // The calls under way, and what is sent after them.
        let mut under_way: HashMap<u32, Next> = HashMap::new();
        let mut begun = 0;
        loop {
            while begun < count && (under_way.len() as u64) < depth {
                let (call, next) = begin(begun);
                self.send(NFS, &call)?;
                under_way.insert(self.number, next);
                begun += 1;
            }
            if under_way.is_empty() {
                return Ok(());
            }
            let (number, mut reply) = self.receive_numbered()?;
            let next = under_way.remove(&number).ok_or("a reply to no call")?;
            reply.good()?;
            let (call, then) = match next {
                Next::Write => {
                    reply.word()?;
                    let follows = reply.word()? == 1;
                    let handle = reply.opaque()?.to_vec();
                    if !follows {
                        return Err("a file was made, and its handle is not answered".into());
                    }
                    (Call::write(&handle, 0, data, false), Next::Commit(handle))
                }
                Next::Commit(handle) => (Call::commit(&handle), Next::Nothing),
                Next::Nothing => continue,
            };
            self.send(NFS, &call)?;
            under_way.insert(self.number, then);
        }
    }

    /// The handle of a name; none where there is none.
    pub fn find(&mut self, name: &str) -> Result<Option<Vec<u8>>, String> {
        let call = Call::lookup(&self.root.clone(), name);
        let reply = self.call(&call)?;
        match reply.status() {
            NO_ENTRY => Ok(None),
            _ => Ok(Some(reply.opaque_after_status()?.to_vec())),
        }
    }

    /// Makes a file, and answers its handle.
    pub fn make(&mut self, name: &str) -> Result<Vec<u8>, String> {
        let call = Call::create(&self.root.clone(), name);
        self.call(&call)?.good()?;
        self.find(name)?.ok_or_else(|| format!("`{name}` was made and is not there"))
    }

    /// Makes a directory in the root, and answers its handle.
    pub fn make_directory(&mut self, name: &str) -> Result<Vec<u8>, String> {
        let mut call = Call::named(MKDIR, &self.root, name);
        // No attributes are set.
        call.arguments.extend([0; 24]);
        self.call(&call)?.good()?;
        self.find(name)?.ok_or_else(|| format!("`{name}` was made and is not there"))
    }

    /// Lists a directory with attributes and handles.
    pub fn list(&mut self, directory: &[u8], mut found: impl FnMut(&str) -> Result<(), String>) -> Result<(), String> {
        let (mut cookie, mut verifier) = (0, vec![0; 8]);
        loop {
            let call = Call::list(directory, cookie, &verifier);
            let mut reply = self.call(&call)?;
            reply.good()?;
            reply.word()?;
            reply.optional(ATTRIBUTES)?;
            verifier = reply.take(8)?.to_vec();
            while reply.word()? == 1 {
                reply.take(8)?;
                let name = reply.opaque()?;
                if name != b"." && name != b".." {
                    found(&String::from_utf8_lossy(name))?;
                }
                cookie = reply.take(8)?.iter().fold(0, |cookie, byte| cookie << 8 | u64::from(*byte));
                reply.optional(ATTRIBUTES)?;
                if reply.word()? == 1 {
                    reply.opaque()?;
                }
            }
            if reply.word()? == 1 {
                return Ok(());
            }
        }
    }

    /// Fills a file, and makes it durable.
    pub fn fill(&mut self, handle: &[u8], length: u64, data: &[u8]) -> Result<(), String> {
        let piece = data.len() as u64;
        self.many(length / piece, 8, |index| Call::write(handle, index * piece, data, false))?;
        self.call(&Call::commit(handle))?.good()
    }
}

/// What follows a call of a file that is made.
enum Next {
    Write,
    Commit(Vec<u8>),
    Nothing,
}

/// What a reply holds.
pub struct Reply<'a>(&'a [u8]);

impl<'a> Reply<'a> {
    pub fn word(&mut self) -> Result<u32, String> {
        let (first, rest) = self.0.split_first_chunk().ok_or("a reply ends early")?;
        self.0 = rest;
        Ok(u32::from_be_bytes(*first))
    }

    pub fn take(&mut self, length: usize) -> Result<&'a [u8], String> {
        let (data, rest) = self.0.split_at_checked(length).ok_or("a reply ends early")?;
        self.0 = rest;
        Ok(data)
    }

    /// What may follow: a word says whether it does.
    fn optional(&mut self, length: usize) -> Result<(), String> {
        let follows = self.word()? == 1;
        self.take(if follows { length } else { 0 }).map(drop)
    }

    pub fn opaque(&mut self) -> Result<&'a [u8], String> {
        let length = self.word()? as usize;
        let data = self.0.get(..length).ok_or("a reply ends early")?;
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Ok(data)
    }

    fn status(&self) -> u32 {
        Reply(self.0).word().unwrap_or(u32::MAX)
    }

    fn good(&self) -> Result<(), String> {
        match self.status() {
            0 => Ok(()),
            status => Err(format!("a call failed with NFS status {status}")),
        }
    }

    fn opaque_after_status(mut self) -> Result<&'a [u8], String> {
        self.good()?;
        self.word()?;
        self.opaque()
    }
}
