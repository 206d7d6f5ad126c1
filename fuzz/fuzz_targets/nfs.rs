//! NFS from bytes that no client vouches for: a raw stream, and then the same bytes as the
//! arguments of well-formed calls with genuine handles, on a share in memory. Then they choose
//! operations of version 4.1 in a genuine session. Every answer must be a whole record.
#![no_main]

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use stele_file::locks::{Limits, Locks};
use stele_file::nfs::handle::HandleKey;
use stele_file::nfs::rpc::{self, Reply};
use stele_file::nfs::server::Peer;
use stele_file::nfs::v4;
use stele_file::nfs::xdr::Writer;
use stele_file::nfs::{
    ConnectionEnd, Export, Handle, Network, Options, Program, Rule, Server, Squash, serve_connection,
};
use stele_file::{Inode, MemoryFiles, Moment};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::{Builder, Runtime};

const SECRET: [u8; 32] = [1; 32];
const SHARE: u32 = 1;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Builder::new_current_thread().enable_time().build().unwrap());

/// Gives what it holds in pieces, and keeps what it is given.
struct Wire {
    calls: VecDeque<u8>,
    piece: usize,
    answers: Vec<u8>,
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let count = self.piece.min(self.calls.len()).min(into.remaining());
        for byte in self.calls.drain(..count) {
            into.put_slice(&[byte]);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        let count = from.len().min(self.piece * 16);
        self.answers.extend_from_slice(&from[..count]);
        Poll::Ready(Ok(count))
    }
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let first = from.iter().find(|slice| !slice.is_empty()).map_or(&[][..], |slice| slice);
        self.poll_write(context, first)
    }
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

fn serve(server: &Arc<Server<MemoryFiles>>, calls: Vec<u8>, piece: usize) {
    let mut wire = Wire { calls: calls.into(), piece, answers: Vec::new() };
    let peer = Peer { address: ([127, 0, 0, 1], 700).into(), secure: false };
    let ended = RUNTIME.block_on(serve_connection(&mut wire, peer, server.clone()));
    assert!(matches!(ended, ConnectionEnd::Closed | ConnectionEnd::Record(_)), "{ended:?}");
    let mut rest = &wire.answers[..];
    while let Some((mark, behind)) = rest.split_first_chunk() {
        let length = u32::from_be_bytes(*mark) ^ 1 << 31;
        assert!(length >= 20 && length.is_multiple_of(4), "an answer of {length} bytes");
        rest = behind.get(length as usize..).expect("the last answer is cut off");
    }
    assert!(rest.is_empty());
}

/// One call: what its first bytes choose, and its arguments. Answers the bytes that are left.
fn call<'i>(input: &'i [u8], handles: &HandleKey, calls: &mut Vec<u8>) -> Option<&'i [u8]> {
    let ([program, procedure, file, length], rest) = input.split_first_chunk()?;
    let program = [Program::Nfs, Program::Nfs, Program::Nfs, Program::Lock, Program::Mount][usize::from(*program) % 5];
    let (arguments, rest) = rest.split_at((usize::from(*length) * 4).min(rest.len()));
    let handle = handles.encode(Handle { share: SHARE, inode: Inode(u64::from(*file % 8)) });
    let (number, version) = program.number();
    let mut call = rpc::call(calls.len() as u32, number, version, u32::from(*procedure) % 24);
    match program {
        Program::Nfs => call.put_opaque(&handle),
        Program::Lock => {
            call.put_opaque(b"cookie");
            // Flags: UNLOCK has none, TEST one, and the others two.
            let flags = [0, 1, 2, 2, 0].get(usize::from(*procedure) % 24).copied().unwrap_or_default();
            (0..flags).for_each(|_| call.put_bool(*length % 2 == 1));
            call.put_opaque(b"host");
            call.put_opaque(&handle);
        }
        _ => {}
    }
    call.put_fixed(arguments);
    // Second handles: RENAME and LINK have them at the end or behind a name.
    if *file >= 128 {
        call.put_opaque(&handle);
        call.put_opaque(b"name");
    }
    calls.extend(Reply::of(call).head);
    Some(rest)
}

/// EXCHANGE_ID, CREATE_SESSION and RECLAIM_COMPLETE, so that the calls behind them have a session.
fn session(calls: &mut Vec<u8>) -> [u8; 16] {
    let mut exchange = rpc::call(1, 100_003, 4, v4::COMPOUND);
    [0, 1, 1, v4::number::EXCHANGE_ID, 0, 1].into_iter().for_each(|word| exchange.put_u32(word));
    exchange.put_opaque(b"owner");
    [0, 0, 0].into_iter().for_each(|word| exchange.put_u32(word));
    calls.extend(Reply::of(exchange).head);
    let mut create = rpc::call(2, 100_003, 4, v4::COMPOUND);
    [0, 1, 1, v4::number::CREATE_SESSION, 0, 1, 1, 0].into_iter().for_each(|word| create.put_u32(word));
    let channel = [0, 1 << 20, 1 << 20, 4096, 16, 4, 0];
    channel.into_iter().chain(channel).chain([0, 0]).for_each(|word| create.put_u32(word));
    calls.extend(Reply::of(create).head);
    // The first session of the first client, as the server computes it.
    let named: Vec<u8> = 1_u64.to_be_bytes().into_iter().chain(1_u64.to_be_bytes()).collect();
    let session = *blake3::keyed_hash(&SECRET, &named).as_bytes().first_chunk().expect("a digest has 32 bytes");
    let complete = compound(&session, 1, 1, |call| {
        call.put_u32(v4::number::RECLAIM_COMPLETE);
        call.put_bool(false);
    });
    calls.extend(complete);
    session
}

/// A call of SEQUENCE and `count` other operations.
fn compound(session: &[u8; 16], sequence: u32, count: u32, rest: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut call = rpc::call(100 + sequence, 100_003, 4, v4::COMPOUND);
    [0, 1, 1 + count, v4::number::SEQUENCE].into_iter().for_each(|word| call.put_u32(word));
    call.put_fixed(session);
    [sequence, 0, 0, sequence % 2].into_iter().for_each(|word| call.put_u32(word));
    rest(&mut call);
    Reply::of(call).head
}

/// One call of version 4.1: a file, and operations with the numbers and arguments that the bytes
/// choose. Some stateids are those of the first states.
fn operations<'i>(
    input: &'i [u8],
    handles: &HandleKey,
    session: &[u8; 16],
    sequence: u32,
    calls: &mut Vec<u8>,
) -> Option<&'i [u8]> {
    let ([file, count], mut rest) = input.split_first_chunk()?;
    let count = u32::from(*count % 4) + 1;
    let handle = handles.encode(Handle { share: SHARE, inode: Inode(u64::from(*file % 4)) });
    calls.extend(compound(session, sequence, count + 1, |call| {
        call.put_u32(v4::number::PUTFH);
        call.put_opaque(&handle);
        for _ in 0..count {
            let Some(([number, state, length], behind)) = rest.split_first_chunk() else { break };
            let (arguments, behind) = behind.split_at((usize::from(*length % 32) * 4).min(behind.len()));
            rest = behind;
            call.put_u32(u32::from(*number % 60));
            if state % 2 == 1 {
                [u32::from(*state % 4), 0, 1, u32::from(*state / 4 % 8)]
                    .into_iter()
                    .for_each(|word| call.put_u32(word));
            }
            call.put_fixed(arguments);
            let padding = arguments.len().wrapping_neg() % 4;
            (0..padding).for_each(|_| call.push(0));
        }
    }));
    Some(rest)
}

fuzz_target!(|input: &[u8]| {
    let Some((choice, bytes)) = input.split_first() else { return };
    let _guard = RUNTIME.enter();
    let options = Options { grace: Duration::ZERO, ..Options::default() };
    let locks = Locks::new(Limits { locks_max: 12, client_max: 8, file_max: 6 });
    let server = Arc::new(Server::new(SECRET, 1, Arc::new(locks), options));
    let rule = Rule { squash: Squash::None, anonymous_uid: 0, ..Rule::new(Network::ALL_V4) };
    let files = Arc::new(MemoryFiles::new(Moment::default).with_capacity(1 << 20));
    let export = Export { path: "/share".to_owned(), share: SHARE, files, rules: vec![rule] };
    server.add(export).expect("the only export");
    let piece = 1 + usize::from(*choice) * 9;
    serve(&server, bytes.to_vec(), piece);
    let (mut calls, mut rest) = (Vec::new(), bytes);
    let handles = HandleKey::new(SECRET);
    while let Some(behind) = call(rest, &handles, &mut calls) {
        rest = behind;
    }
    serve(&server, calls, piece);
    let (mut calls, mut rest) = (Vec::new(), bytes);
    let session = session(&mut calls);
    for sequence in 2.. {
        let Some(behind) = operations(rest, &handles, &session, sequence, &mut calls) else { break };
        rest = behind;
    }
    serve(&server, calls, piece);
    RUNTIME.block_on(server.expire());
});
