//! A plain NFSv4.1 client on the connection of [`NfsClient`], with one session. Each call under way
//! has a slot of its own, so that the window is the same as that of the client of version 3.
//!
//! A call is one COMPOUND: SEQUENCE, PUTFH, and what the call is for. The server makes no calls of
//! its own: the client asks for no back channel and takes no delegation.

use std::time::{Duration, Instant};

use super::client::{Call, NfsClient, Program, Reply, opaque, word};

const NFS41: Program = (100_003, 4);
const COMPOUND: u32 = 1;
const MINOR_VERSION: u32 = 1;

const CLOSE: u32 = 4;
const COMMIT: u32 = 5;
const GETATTR: u32 = 9;
const GETFH: u32 = 10;
const LOOKUP: u32 = 15;
const OPEN: u32 = 18;
const PUTFH: u32 = 22;
const PUTROOTFH: u32 = 24;
const READ: u32 = 25;
const REMOVE: u32 = 28;
const WRITE: u32 = 38;
const EXCHANGE_ID: u32 = 42;
const CREATE_SESSION: u32 = 43;
const SEQUENCE: u32 = 53;
const RECLAIM_COMPLETE: u32 = 58;

/// The server has just begun, and waits for clients that had files open before.
const GRACE: u32 = 10_013;
const GRACE_MAX: Duration = Duration::from_secs(90);

const BOTH_ACCESS: u32 = 3;
const UNSTABLE: u32 = 0;
const FILE_SYNC: u32 = 2;
const OWNER: &[u8] = b"bench";
/// Slots that the client asks for; the server may give fewer.
const SLOTS: u32 = 64;
/// Bytes of a COMPOUND up to the end of SEQUENCE, without a tag.
const HEAD: usize = 48;
/// The attribute `mode`: its bit in the second word of a bitmap.
const MODE: u32 = 1 << (33 - 32);
/// What the attributes of version 3 are in this one, as a bitmap: type, change, size, fsid, fileid;
/// mode, links, owner, group, device, used space, and the times of access, metadata and content.
const ATTRIBUTES: [u32; 2] = [0x0010_011a, 0x0030_a23a];

/// Names an open file in the calls that use it.
pub type Stateid = [u8; 16];

/// The state that an earlier operation of the same COMPOUND made.
const CURRENT: Stateid = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// An open file.
#[derive(Clone)]
pub struct OpenFile {
    pub handle: Vec<u8>,
    stateid: Stateid,
}

/// The operations of a COMPOUND behind SEQUENCE.
pub struct Compound {
    /// With room for all up to the end of SEQUENCE, which is filled in when the call is sent.
    bytes: Vec<u8>,
    count: u32,
    /// The server keeps the answer for a repetition: as clients ask for what changes names.
    keep: bool,
}

impl Compound {
    fn new() -> Compound {
        Compound { bytes: vec![0; HEAD], count: 0, keep: false }
    }

    fn at(handle: &[u8], room: usize) -> Compound {
        let mut bytes = Vec::with_capacity(HEAD + handle.len() + room);
        bytes.resize(HEAD, 0);
        let mut compound = Compound { bytes, count: 0, keep: false }.then(PUTFH);
        opaque(&mut compound.bytes, handle);
        compound
    }

    fn then(mut self, operation: u32) -> Compound {
        word(&mut self.bytes, operation);
        self.count += 1;
        self
    }

    fn lookup(self, name: &str) -> Compound {
        let mut compound = self.then(LOOKUP);
        opaque(&mut compound.bytes, name.as_bytes());
        compound
    }

    /// OPEN of a name in the current directory, for reading and writing, without denying others.
    fn open(self, name: &str, creates: bool) -> Compound {
        let mut compound = self.then(OPEN);
        let bytes = &mut compound.bytes;
        // The sequence and the client's number are those of the session.
        [0, BOTH_ACCESS, 0, 0, 0].iter().for_each(|value| word(bytes, *value));
        opaque(bytes, OWNER);
        match creates {
            // Unchecked, with a mode of 0644.
            true => [1, 0, 2, 0, MODE, 4, 0o644].iter().for_each(|value| word(bytes, *value)),
            false => word(bytes, 0),
        }
        word(bytes, 0);
        opaque(bytes, name.as_bytes());
        compound
    }

    pub fn attributes(handle: &[u8]) -> Compound {
        let mut compound = Compound::at(handle, 64).then(GETATTR);
        [2, ATTRIBUTES[0], ATTRIBUTES[1]].iter().for_each(|value| word(&mut compound.bytes, *value));
        compound
    }

    /// Makes a file, or opens the one that is there, and closes it in the same call.
    pub fn create(directory: &[u8], name: &str) -> Compound {
        Compound::make(directory, name).close(&CURRENT)
    }

    /// Makes a file, or opens the one that is there.
    fn make(directory: &[u8], name: &str) -> Compound {
        let mut compound = Compound::at(directory, 160).open(name, true).then(GETFH);
        compound.keep = true;
        compound
    }

    fn close(self, stateid: &Stateid) -> Compound {
        let mut compound = self.then(CLOSE);
        word(&mut compound.bytes, 0);
        compound.bytes.extend(stateid);
        compound.keep = true;
        compound
    }

    pub fn remove(directory: &[u8], name: &str) -> Compound {
        let mut compound = Compound::at(directory, 64).then(REMOVE);
        opaque(&mut compound.bytes, name.as_bytes());
        compound.keep = true;
        compound
    }

    pub fn read(file: &OpenFile, offset: u64, length: u32) -> Compound {
        let mut compound = Compound::at(&file.handle, 64).then(READ);
        compound.bytes.extend(file.stateid);
        compound.bytes.extend(offset.to_be_bytes());
        word(&mut compound.bytes, length);
        compound
    }

    pub fn write(file: &OpenFile, offset: u64, data: &[u8], stable: bool) -> Compound {
        let mut compound = Compound::at(&file.handle, 64 + data.len()).then(WRITE);
        compound.bytes.extend(file.stateid);
        compound.bytes.extend(offset.to_be_bytes());
        word(&mut compound.bytes, if stable { FILE_SYNC } else { UNSTABLE });
        opaque(&mut compound.bytes, data);
        compound
    }

    pub fn commit(file: &OpenFile) -> Compound {
        let mut compound = Compound::at(&file.handle, 64).then(COMMIT);
        compound.bytes.extend([0; 12]);
        compound
    }
}

pub struct Nfs41Client {
    wire: NfsClient,
    session: [u8; 16],
    /// Of the last call of each slot.
    sequences: Vec<u32>,
    free: Vec<u32>,
    root: Vec<u8>,
}

impl Nfs41Client {
    /// Begins a session, and looks the export up.
    pub fn mount(port: u16, export: &str) -> Result<Nfs41Client, String> {
        let mut wire = NfsClient::connect(port)?;
        let mut exchange = alone(EXCHANGE_ID);
        // The verifier tells the starts of a client apart; no flags, no protection, no name.
        exchange.extend(u64::from(std::process::id()).to_be_bytes());
        opaque(&mut exchange, OWNER);
        [0, 0, 0].iter().for_each(|value| word(&mut exchange, *value));
        let mut reply = done(&mut wire, exchange, EXCHANGE_ID)?;
        let client = reply.take(8)?.to_vec();
        let sequence = reply.word()?;

        let mut create = alone(CREATE_SESSION);
        create.extend(&client);
        [sequence, 0].iter().for_each(|value| word(&mut create, *value));
        for slots in [SLOTS, 1] {
            // Bytes of a call, of an answer and of a kept answer; operations; slots.
            [0, 2 << 20, 2 << 20, 4096, 16, slots, 0].iter().for_each(|value| word(&mut create, *value));
        }
        // A program for callbacks that are never made, without credentials.
        [0x4000_0000, 1, 0].iter().for_each(|value| word(&mut create, *value));
        let mut reply = done(&mut wire, create, CREATE_SESSION)?;
        let session = *reply.take(16)?.first_chunk().ok_or("a session has no name")?;
        // The sequence, the flags, and the channel's words before its slots.
        reply.take(4 * 7)?;
        let slots = reply.word()?.min(SLOTS);

        let sequences = vec![0; slots as usize];
        let mut made = Nfs41Client { wire, session, sequences, free: (0..slots).collect(), root: Vec::new() };
        let mut complete = Compound::new().then(RECLAIM_COMPLETE);
        word(&mut complete.bytes, 0);
        made.call(complete)?;
        let reply = made.call(Compound::new().then(PUTROOTFH).lookup(export).then(GETFH))?;
        made.root = results(reply, &[PUTROOTFH, LOOKUP, GETFH])?.opaque()?.to_vec();
        Ok(made)
    }

    pub fn root(&self) -> &[u8] {
        &self.root
    }

    /// Sends a call, and answers its slot.
    fn send(&mut self, mut compound: Compound) -> Result<u32, String> {
        let slot = self.free.pop().ok_or("more calls are under way than the session has slots")?;
        let sequence = self.sequences.get_mut(slot as usize).ok_or("the session has no such slot")?;
        *sequence += 1;
        let mut head = Vec::with_capacity(HEAD);
        [0, MINOR_VERSION, compound.count + 1, SEQUENCE].iter().for_each(|value| word(&mut head, *value));
        head.extend(self.session);
        let highest = self.sequences.len() as u32 - 1;
        let place = [self.sequences[slot as usize], slot, highest, u32::from(compound.keep)];
        place.iter().for_each(|value| word(&mut head, *value));
        compound.bytes[..HEAD].copy_from_slice(&head);
        self.wire.send(NFS41, &Call { procedure: COMPOUND, arguments: compound.bytes })?;
        Ok(slot)
    }

    /// The next reply: its status, and what follows the result of SEQUENCE. Gives the slot back.
    fn receive(&mut self) -> Result<(u32, Reply<'_>), String> {
        self.receive_of().map(|(_, status, reply)| (status, reply))
    }

    /// As [`Nfs41Client::receive`], with the slot.
    fn receive_of(&mut self) -> Result<(u32, u32, Reply<'_>), String> {
        let mut reply = self.wire.receive()?;
        let status = reply.word()?;
        let _tag = reply.opaque()?;
        let count = reply.word()?;
        if count == 0 || reply.word()? != SEQUENCE || reply.word()? != 0 {
            return Err(format!("a call got no slot: NFS status {status}"));
        }
        reply.take(16 + 4)?;
        let slot = reply.word()?;
        self.free.push(slot);
        reply.take(3 * 4)?;
        Ok((slot, status, reply))
    }

    /// One call, for what follows the result of SEQUENCE.
    fn call(&mut self, compound: Compound) -> Result<Reply<'_>, String> {
        self.send(compound)?;
        let (status, reply) = self.receive()?;
        good(status).map(|()| reply)
    }

    /// `count` calls with at most `depth` under way, which has at most a call for each slot. Each
    /// must succeed.
    pub fn many(&mut self, count: u64, depth: u64, mut make: impl FnMut(u64) -> Compound) -> Result<(), String> {
        let (mut sent, mut answered) = (0, 0);
        while answered < count {
            while sent < count && sent - answered < depth {
                self.send(make(sent))?;
                sent += 1;
            }
            good(self.receive()?.0)?;
            answered += 1;
        }
        Ok(())
    }

    /// Makes files in the root directory and closes each in a call of its own, with at most `depth`
    /// files at once.
    pub fn create_and_close(&mut self, count: u64, depth: u64, name: impl Fn(u64) -> String) -> Result<(), String> {
        let (mut begun, mut ended) = (0, 0);
        // The slots of the calls that make files.
        let mut making = vec![false; self.sequences.len()];
        while ended < count {
            while begun < count && begun - ended < depth {
                let slot = self.send(Compound::make(&self.root, &name(begun)))?;
                making[slot as usize] = true;
                begun += 1;
            }
            let (slot, status, reply) = self.receive_of()?;
            good(status)?;
            if std::mem::take(&mut making[slot as usize]) {
                let file = opened(reply)?;
                self.send(Compound::at(&file.handle, 64).close(&file.stateid))?;
            } else {
                ended += 1;
            }
        }
        Ok(())
    }

    /// Opens a file of the root directory, once the server lets clients open files.
    pub fn open(&mut self, name: &str) -> Result<OpenFile, String> {
        let begun = Instant::now();
        loop {
            let compound = Compound::at(&self.root, 160).open(name, false).then(GETFH);
            self.send(compound)?;
            let (status, reply) = self.receive()?;
            if status == GRACE && begun.elapsed() < GRACE_MAX {
                std::thread::sleep(Duration::from_millis(200));
                continue;
            }
            good(status)?;
            return opened(reply);
        }
    }

    /// The handle of a file of the root directory.
    pub fn find(&mut self, name: &str) -> Result<Vec<u8>, String> {
        let compound = Compound::at(&self.root, 64).lookup(name).then(GETFH);
        Ok(results(self.call(compound)?, &[PUTFH, LOOKUP, GETFH])?.opaque()?.to_vec())
    }

    /// Bytes that a read answers.
    pub fn read_length(&mut self, file: &OpenFile, length: u32) -> Result<usize, String> {
        let mut reply = results(self.call(Compound::read(file, 0, length))?, &[PUTFH, READ])?;
        let _end = reply.word()?;
        reply.opaque().map(<[u8]>::len)
    }
}

/// A COMPOUND of one operation, without a session.
fn alone(operation: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(256);
    [0, MINOR_VERSION, 1, operation].iter().for_each(|value| word(&mut bytes, *value));
    bytes
}

/// Sends a COMPOUND of one operation, for the results of it.
fn done(wire: &mut NfsClient, arguments: Vec<u8>, operation: u32) -> Result<Reply<'_>, String> {
    wire.send(NFS41, &Call { procedure: COMPOUND, arguments })?;
    let mut reply = wire.receive()?;
    good(reply.word()?)?;
    let (_tag, _count) = (reply.opaque()?, reply.word()?);
    results(reply, &[operation])
}

/// What follows the results of these operations, of which all but the last have none.
fn results<'a>(mut reply: Reply<'a>, operations: &[u32]) -> Result<Reply<'a>, String> {
    for operation in operations {
        match (reply.word()?, reply.word()?) {
            (found, 0) if found == *operation => {}
            (found, status) => {
                return Err(format!("operation {operation} is answered by operation {found}, NFS status {status}"));
            }
        }
    }
    Ok(reply)
}

/// What PUTFH, OPEN and GETFH answer.
fn opened(reply: Reply<'_>) -> Result<OpenFile, String> {
    let mut reply = results(reply, &[PUTFH, OPEN])?;
    let stateid = *reply.take(16)?.first_chunk().ok_or("an open file has no name")?;
    // What changed in the directory, and flags; then the attributes that were set.
    reply.take(4 + 16 + 4)?;
    let words = reply.word()? as usize;
    reply.take(4 * words)?;
    if reply.word()? != 0 {
        return Err("the server gave a delegation, which this client cannot use".into());
    }
    let handle = results(reply, &[GETFH])?.opaque()?.to_vec();
    Ok(OpenFile { handle, stateid })
}

fn good(status: u32) -> Result<(), String> {
    if status == 0 { Ok(()) } else { Err(format!("a call of version 4.1 failed with NFS status {status}")) }
}
