//! A client of version 4.1 for tests, above the one of version 3.

use std::sync::Arc;

use bytes::Bytes;

use super::number::*;
use super::sessions::SessionId;
use super::stateid::Stateid;
use super::status;
use crate::nfs::server::Server;
use crate::nfs::testing::{Arguments, Client, Program, args};
use crate::nfs::xdr::Reader;
use crate::{Files, MemoryFiles};

pub const READ_ACCESS: u32 = 1;
pub const WRITE_ACCESS: u32 = 2;
pub const BOTH_ACCESS: u32 = 3;

/// Operations of one COMPOUND.
#[derive(Clone, Default)]
pub struct OperationCall {
    pub count: u32,
    pub bytes: Arguments,
}

pub fn call() -> OperationCall {
    OperationCall::default()
}

impl OperationCall {
    pub fn op(mut self, number: u32, arguments: Arguments) -> OperationCall {
        self.count += 1;
        self.bytes = self.bytes.u32(number).fixed(&arguments.0);
        self
    }

    /// An operation without arguments.
    pub fn then(self, number: u32) -> OperationCall {
        self.op(number, args())
    }

    pub fn at(self, handle: &[u8]) -> OperationCall {
        self.op(PUTFH, args().opaque(handle))
    }

    pub fn lookup(self, name: &str) -> OperationCall {
        self.op(LOOKUP, args().opaque(name.as_bytes()))
    }

    pub fn get(self, attributes: &[u32]) -> OperationCall {
        self.op(GETATTR, args().bitmap(attributes))
    }

    /// The arguments of the procedure.
    pub fn compound(&self, minor: u32) -> Vec<u8> {
        args().opaque(b"tag!").u32(minor).u32(self.count).fixed(&self.bytes.0).0
    }
}

impl Arguments {
    pub fn bitmap(self, attributes: &[u32]) -> Arguments {
        let mut words = [0_u32; 3];
        attributes.iter().for_each(|number| words[*number as usize / 32] |= 1 << (number % 32));
        self.u32(3).u32(words[0]).u32(words[1]).u32(words[2])
    }

    /// `fattr4` with the bytes of its list.
    pub fn set(self, attributes: &[u32], list: Arguments) -> Arguments {
        self.bitmap(attributes).opaque(&list.0)
    }

    pub fn stateid(self, stateid: Stateid) -> Arguments {
        self.u32(stateid.sequence).fixed(&stateid.other)
    }

    /// OPEN up to its way of creation.
    pub fn open(self, access: u32, deny: u32, owner: &str) -> Arguments {
        self.u32(0).u32(access).u32(deny).u64(7).opaque(owner.as_bytes())
    }
}

/// The results of a COMPOUND, read one after another.
#[derive(Debug)]
pub struct Answer {
    pub status: u32,
    pub count: u32,
    pub reader: Reader,
}

impl Answer {
    pub fn of(mut reader: Reader) -> Answer {
        let status = reader.u32().unwrap();
        assert_eq!(reader.opaque(99).unwrap(), "tag!");
        Answer { status, count: reader.u32().unwrap(), reader }
    }

    /// The status of the next result, which must be of this operation.
    pub fn next(&mut self, number: u32) -> u32 {
        assert_eq!(self.reader.u32().unwrap(), number, "the operation of the next result");
        self.reader.u32().unwrap()
    }

    /// As [`Answer::next`], for an operation that succeeds.
    pub fn done(&mut self, number: u32) -> &mut Reader {
        assert_eq!(self.next(number), status::OK, "operation {number}");
        &mut self.reader
    }

    /// The next operations succeeded, and have no results.
    pub fn skip(&mut self, numbers: &[u32]) {
        numbers.iter().for_each(|number| assert_eq!(self.next(*number), status::OK, "operation {number}"));
    }

    pub fn ends(&self) {
        assert_eq!(self.reader.remaining(), 0, "results that the operations do not have");
    }

    pub fn stateid(&mut self, number: u32) -> Stateid {
        Stateid::read(self.done(number)).unwrap()
    }

    /// The status of the last operation, over the results of those before: they have none, or are
    /// skipped.
    pub fn last(self) -> u32 {
        self.status
    }

    /// `fattr4` of these attributes, as the bytes of the list.
    pub fn attributes(&mut self, expected: &[u32]) -> Reader {
        let reader = self.done(GETATTR);
        let words = reader.u32().unwrap();
        let mut found = Vec::new();
        for word in 0..words {
            let bits = reader.u32().unwrap();
            found.extend((0..32).filter(|bit| bits & 1 << bit != 0).map(|bit| word * 32 + bit));
        }
        assert_eq!(found, expected);
        Reader::new(reader.opaque(1 << 20).unwrap())
    }
}

/// The status, and of DENIED the range, the client and the owner in the way.
pub type LockFailure = (u32, Option<(u64, u64, u64, Bytes)>);

/// A client with a session.
pub struct ClientSession {
    pub wire: Client,
    pub id: SessionId,
    pub client: u64,
    pub sequences: [u32; 64],
}

pub fn exchange(owner: &str, verifier: u64, flags: u32) -> OperationCall {
    call().op(EXCHANGE_ID, args().u64(verifier).opaque(owner.as_bytes()).u32(flags).u32(0).u32(0))
}

/// Requests, answers, kept answers, operations and slots.
pub const CHANNEL: [u32; 5] = [1 << 20, 1 << 20, 4096, 16, 8];

pub fn create_session(client: u64, sequence: u32, fore: [u32; 5]) -> OperationCall {
    let channel = |to: Arguments, channel: [u32; 5]| channel.into_iter().fold(to.u32(0), Arguments::u32).u32(0);
    let call_arguments = channel(channel(args().u64(client).u32(sequence).u32(0), fore), CHANNEL);
    call().op(CREATE_SESSION, call_arguments.u32(0x4000_0000).u32(1).u32(0))
}

pub fn sequence(session: &SessionId, sequence: u32, slot: u32, keep: bool) -> OperationCall {
    call().op(SEQUENCE, args().fixed(session).u32(sequence).u32(slot).u32(slot).u32(u32::from(keep)))
}

impl Client {
    pub async fn compound(&mut self, call: &OperationCall) -> Answer {
        Answer::of(self.call(Program::Nfs4, super::COMPOUND, &call.compound(1)).await)
    }

    /// The client's number, the next sequence, and the flags.
    pub async fn exchange(&mut self, owner: &str, verifier: u64, flags: u32) -> Result<(u64, u32, u32), u32> {
        let mut answer = self.compound(&exchange(owner, verifier, flags)).await;
        match answer.next(EXCHANGE_ID) {
            status::OK => {}
            status => return Err(status),
        }
        let reader = &mut answer.reader;
        let known = (reader.u64().unwrap(), reader.u32().unwrap(), reader.u32().unwrap());
        assert_eq!(reader.u32(), Ok(0), "no protection of states");
        assert_eq!(reader.u64(), Ok(0));
        let (major, scope) = (reader.opaque(99).unwrap(), reader.opaque(99).unwrap());
        assert!(major == scope && !major.is_empty());
        assert_eq!(reader.u32(), Ok(0), "no name of the implementation");
        answer.ends();
        Ok(known)
    }

    pub async fn session(&mut self, client: u64, number: u32, fore: [u32; 5]) -> Result<SessionId, u32> {
        let mut answer = self.compound(&create_session(client, number, fore)).await;
        match answer.next(CREATE_SESSION) {
            status::OK => Ok(answer.reader.fixed().unwrap()),
            status => Err(status),
        }
    }
}

impl ClientSession {
    pub async fn new<F: Files>(server: &Arc<Server<F>>, owner: &str) -> ClientSession {
        let mut session = ClientSession::before_reclaim(server, owner).await;
        let done = session.run(call().op(RECLAIM_COMPLETE, args().u32(0))).await;
        assert_eq!(done.status, status::OK);
        session
    }

    pub async fn before_reclaim<F: Files>(server: &Arc<Server<F>>, owner: &str) -> ClientSession {
        let mut wire = Client::new(server);
        let (client, next, _) = wire.exchange(owner, 1, 0).await.unwrap();
        let id = wire.session(client, next, CHANNEL).await.unwrap();
        ClientSession { wire, id, client, sequences: [0; 64] }
    }

    /// A COMPOUND on slot 0; the answer is behind the results of SEQUENCE.
    pub async fn run(&mut self, call: OperationCall) -> Answer {
        self.sequences[0] += 1;
        self.repeat(0, self.sequences[0], true, call).await
    }

    /// A COMPOUND with this number in this slot.
    pub async fn repeat(&mut self, slot: u32, number: u32, keep: bool, rest: OperationCall) -> Answer {
        let mut whole = sequence(&self.id, number, slot, keep);
        whole.count += rest.count;
        whole.bytes = whole.bytes.fixed(&rest.bytes.0);
        let mut answer = self.wire.compound(&whole).await;
        if answer.count > 0 && answer.next(SEQUENCE) == status::OK {
            answer.reader.skip(16 + 5 * 4).unwrap();
        }
        answer
    }

    /// The status of a COMPOUND.
    pub async fn status(&mut self, call: OperationCall) -> u32 {
        self.run(call).await.last()
    }

    /// The handle of the share's root directory.
    pub async fn root(&mut self) -> Bytes {
        let mut answer = self.run(call().then(PUTROOTFH).lookup("records").then(GETFH)).await;
        answer.done(PUTROOTFH);
        answer.done(LOOKUP);
        answer.done(GETFH).opaque(128).unwrap()
    }

    /// Opens a file, which is made if it does not exist.
    pub async fn open(
        &mut self,
        directory: &[u8],
        name: &str,
        owner: &str,
        access: u32,
        deny: u32,
    ) -> (Bytes, Stateid) {
        self.try_open(directory, name, owner, access, deny).await.unwrap()
    }

    pub async fn try_open(
        &mut self,
        directory: &[u8],
        name: &str,
        owner: &str,
        access: u32,
        deny: u32,
    ) -> Result<(Bytes, Stateid), u32> {
        let mode = args().u32(0o644);
        let how = args().open(access, deny, owner).u32(1).u32(0).set(&[super::attributes::MODE], mode);
        let open = how.u32(0).opaque(name.as_bytes());
        let mut answer = self.run(call().at(directory).op(OPEN, open).then(GETFH)).await;
        answer.done(PUTFH);
        match answer.next(OPEN) {
            status::OK => {}
            status => return Err(status),
        }
        let reader = &mut answer.reader;
        let stateid = Stateid::read(reader).unwrap();
        assert_eq!(reader.bool(), Ok(true));
        reader.skip(16).unwrap();
        assert_eq!(reader.u32(), Ok(4), "locks are as POSIX has them");
        let words = reader.u32().unwrap() as usize;
        reader.skip(4 * words).unwrap();
        assert_eq!(reader.u32(), Ok(0), "no delegation");
        let handle = answer.done(GETFH).opaque(128).unwrap();
        answer.ends();
        Ok((handle, stateid))
    }

    pub async fn close(&mut self, file: &[u8], stateid: Stateid) -> u32 {
        self.status(call().at(file).op(CLOSE, args().u32(0).stateid(stateid))).await
    }

    pub async fn write(&mut self, file: &[u8], stateid: Stateid, offset: u64, content: &[u8]) -> u32 {
        let write = args().stateid(stateid).u64(offset).u32(2).opaque(content);
        self.status(call().at(file).op(WRITE, write)).await
    }

    pub async fn read(&mut self, file: &[u8], stateid: Stateid, offset: u64, count: u32) -> Result<(bool, Bytes), u32> {
        self.sequences[1] += 1;
        let read = call().at(file).op(READ, args().stateid(stateid).u64(offset).u32(count));
        let mut answer = self.repeat(1, self.sequences[1], false, read).await;
        answer.done(PUTFH);
        match answer.next(READ) {
            status::OK => {
                let content = (answer.reader.bool().unwrap(), answer.reader.opaque(1 << 20).unwrap());
                answer.ends();
                Ok(content)
            }
            status => Err(status),
        }
    }

    /// Locks bytes for a new lock owner. Fails with the status, or with DENIED and the range and
    /// owner in the way.
    pub async fn lock(
        &mut self,
        file: &[u8],
        open: Stateid,
        owner: &str,
        exclusive: bool,
        range: (u64, u64),
    ) -> Result<Stateid, LockFailure> {
        let head = args().u32(1 + u32::from(exclusive)).u32(0).u64(range.0).u64(range.1).u32(1);
        let lock = head.u32(0).stateid(open).u32(0).u64(0).opaque(owner.as_bytes());
        self.locked(file, LOCK, lock).await.map(Option::unwrap)
    }

    pub async fn lock_again(
        &mut self,
        file: &[u8],
        lock: Stateid,
        exclusive: bool,
        range: (u64, u64),
    ) -> Result<Stateid, LockFailure> {
        let head = args().u32(1 + u32::from(exclusive)).u32(0).u64(range.0).u64(range.1).u32(0);
        self.locked(file, LOCK, head.stateid(lock).u32(0)).await.map(Option::unwrap)
    }

    pub async fn lock_test(
        &mut self,
        file: &[u8],
        owner: &str,
        exclusive: bool,
        range: (u64, u64),
    ) -> Result<(), LockFailure> {
        let test = args().u32(1 + u32::from(exclusive)).u64(range.0).u64(range.1).u64(0).opaque(owner.as_bytes());
        self.locked(file, LOCKT, test).await.map(drop)
    }

    pub async fn unlock(&mut self, file: &[u8], lock: Stateid, range: (u64, u64)) -> Result<Stateid, u32> {
        let unlock = args().u32(1).u32(0).stateid(lock).u64(range.0).u64(range.1);
        let done = self.locked(file, LOCKU, unlock).await;
        done.map(Option::unwrap).map_err(|(status, _)| status)
    }

    async fn locked(&mut self, file: &[u8], number: u32, arguments: Arguments) -> Result<Option<Stateid>, LockFailure> {
        let mut answer = self.run(call().at(file).op(number, arguments)).await;
        answer.done(PUTFH);
        let status = answer.next(number);
        let reader = &mut answer.reader;
        match status {
            status::OK if number == LOCKT => Ok(None),
            status::OK => Ok(Some(Stateid::read(reader).unwrap())),
            status::DENIED => {
                let (offset, length, _kind) = (reader.u64().unwrap(), reader.u64().unwrap(), reader.u32().unwrap());
                let (client, owner) = (reader.u64().unwrap(), reader.opaque(1024).unwrap());
                answer.ends();
                Err((status, Some((offset, length, client, owner))))
            }
            status => Err((status, None)),
        }
    }
}

/// A server in memory, a client with a session, and the root directory.
pub async fn begin() -> (Arc<Server<MemoryFiles>>, ClientSession, Bytes) {
    let server = crate::nfs::testing::server();
    let mut session = ClientSession::new(&server, "client").await;
    let root = session.root().await;
    (server, session, root)
}
