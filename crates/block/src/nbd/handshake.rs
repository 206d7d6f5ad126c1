//! The handshake: fixed newstyle negotiation, as a state machine over bytes.
//!
//! Failure model: a client's error is answered with an error if the protocol has one, and otherwise
//! ends the connection. A client without access to an export gets the answer for a missing one.
//! Bytes sent before TLS began never count as bytes sent within it.
//!
//! Limits: [`DATA_MAX`] bytes an option, [`OPTIONS_MAX`] options, and [`OUTGOING_MAX`] bytes of
//! replies that wait, beside those to one option. The caller that moves the bytes limits the time.

use std::sync::Arc;

use super::context::Context;
use super::option::{DATA_MAX, Opt};
use super::wire::{FIXED_NEWSTYLE, Fields, IHAVEOPT, NBDMAGIC, NO_ZEROES, OPTION_REPLY, flag, info, opt, rep};
use super::{PAYLOAD_MAX, reply::Form};
use crate::disk::Denied;
use crate::{Access, Directory, Disk, Peer, Protocol, Target};

/// Largest number of options of one connection; a client that sends more is not negotiating. One
/// that lists the exports may ask two questions about each.
pub(super) const OPTIONS_MAX: u32 = 16_384;
/// While so many bytes of replies wait, no further option is carried out.
const OUTGOING_MAX: usize = 64 << 10;
/// Refusals of one connection that the caller gets to know, for the log.
const REFUSALS_MAX: usize = 8;

/// The TLS policy of the listener.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tls {
    /// The server has no certificate.
    Absent,
    Offered,
    /// Only TLS is negotiated before TLS is up.
    Required,
}

/// The caller's next action.
pub enum HandshakeStep {
    /// Send the pending bytes, and supply more input.
    More,
    /// Send the pending bytes, and go on without more input.
    Again,
    /// Send the pending bytes, start TLS, report it with [`Handshake::secured`], and continue.
    StartTls,
    /// Send the pending bytes, and begin a session.
    Transmit(Box<Negotiated>),
    /// Send the pending bytes, and close.
    End,
}

/// The result of the negotiation.
pub struct Negotiated {
    pub disk: Disk,
    pub form: Form,
    pub contexts: Vec<Context>,
    /// Bytes of the next phase that the client has already sent.
    pub rest: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    ClientFlags,
    Options,
    /// Skips the data of an option that is too large.
    Skipping(u64),
}

pub struct Handshake {
    directory: Directory,
    peer: Peer,
    tls: Tls,
    phase: Phase,
    no_zeroes: bool,
    options: u32,
    form: Form,
    /// The contexts chosen for an export, with its name as the client gave it.
    contexts: Option<(String, Vec<Context>)>,
    /// The log names a client in the clear once, however many options it tries.
    told: bool,
    incoming: Vec<u8>,
    outgoing: Vec<u8>,
    refusals: Vec<String>,
    refused: usize,
}

impl Handshake {
    /// Begins with a greeting to send.
    pub fn new(directory: Directory, peer: Peer, tls: Tls) -> Handshake {
        let mut outgoing = Vec::new();
        outgoing.extend(NBDMAGIC.to_be_bytes());
        outgoing.extend(IHAVEOPT.to_be_bytes());
        outgoing.extend((FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes());
        Handshake {
            directory,
            peer,
            tls,
            phase: Phase::ClientFlags,
            no_zeroes: false,
            options: 0,
            form: Form::Simple,
            contexts: None,
            told: false,
            incoming: Vec::new(),
            outgoing,
            refusals: Vec::new(),
            refused: 0,
        }
    }

    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// The bytes to send now.
    pub fn take_outgoing(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.outgoing)
    }

    /// What was refused since the last call, in words for the log. A connection has few of these,
    /// however much it asks for.
    pub fn take_refusals(&mut self) -> Vec<String> {
        std::mem::take(&mut self.refusals)
    }

    /// TLS is up; `peer` is the peer as now known. Results negotiated in the clear no longer hold.
    pub fn secured(&mut self, peer: Peer) {
        self.peer = peer;
        self.form = Form::Simple;
        self.contexts = None;
    }

    /// Processes the bytes that have arrived, as far as possible.
    pub fn receive(&mut self, bytes: &[u8]) -> HandshakeStep {
        self.incoming.extend_from_slice(bytes);
        loop {
            if self.outgoing.len() >= OUTGOING_MAX {
                return HandshakeStep::Again;
            }
            let step = match self.phase {
                Phase::ClientFlags => self.client_flags(),
                Phase::Options => self.option(),
                Phase::Skipping(left) => self.skip(left),
            };
            match step {
                Some(step) => return step,
                None => continue,
            }
        }
    }

    /// Returns `None` to continue at once.
    fn client_flags(&mut self) -> Option<HandshakeStep> {
        let Some(flags) = Fields(&self.incoming).u32() else { return Some(HandshakeStep::More) };
        self.incoming.drain(..4);
        if flags & !u32::from(FIXED_NEWSTYLE | NO_ZEROES) != 0 || flags & u32::from(FIXED_NEWSTYLE) == 0 {
            return Some(HandshakeStep::End);
        }
        self.no_zeroes = flags & u32::from(NO_ZEROES) != 0;
        self.phase = Phase::Options;
        None
    }

    fn skip(&mut self, left: u64) -> Option<HandshakeStep> {
        let here = self.incoming.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        self.incoming.drain(..here);
        let left = left - here as u64;
        self.phase = if left == 0 { Phase::Options } else { Phase::Skipping(left) };
        (left > 0).then_some(HandshakeStep::More)
    }

    fn option(&mut self) -> Option<HandshakeStep> {
        let mut fields = Fields(&self.incoming);
        match fields.u64() {
            Some(IHAVEOPT) => {}
            Some(_) => return Some(HandshakeStep::End),
            None => return Some(HandshakeStep::More),
        }
        let (Some(number), Some(length)) = (fields.u32(), fields.u32()) else { return Some(HandshakeStep::More) };
        if length > DATA_MAX {
            self.options += 1;
            self.reply(number, rep::ERR_TOO_BIG, b"an option of more than 64 KiB");
            self.incoming.drain(..16);
            self.phase = Phase::Skipping(u64::from(length));
            return if number == opt::EXPORT_NAME { Some(HandshakeStep::End) } else { None };
        }
        let Some(data) = fields.bytes(length as usize) else { return Some(HandshakeStep::More) };
        let option = Opt::parse(number, data);
        self.incoming.drain(..16 + length as usize);
        self.options += 1;
        if self.options > OPTIONS_MAX {
            return Some(HandshakeStep::End);
        }
        self.obey(number, option)
    }

    fn obey(&mut self, number: u32, option: Opt) -> Option<HandshakeStep> {
        let secure_first = self.tls == Tls::Required && !self.peer.tls;
        if secure_first && !self.told && !matches!(option, Opt::Abort | Opt::StartTls) {
            self.told = true;
            self.refuse(format!("{} is refused: this server speaks TLS only, and it began without", self.peer.name));
        }
        match option {
            Opt::Abort => {
                self.reply(number, rep::ACK, b"");
                return Some(HandshakeStep::End);
            }
            Opt::StartTls => return self.start_tls(number),
            Opt::ExportName(_) if secure_first => return Some(HandshakeStep::End),
            _ if secure_first => self.reply(number, rep::ERR_TLS_REQD, b"this server speaks TLS only"),
            Opt::ExportName(name) => return Some(self.export_name(&name)),
            Opt::List => self.list(number),
            Opt::Info { name, infos, go } => return self.info(number, &name, &infos, go),
            Opt::StructuredReply => {
                if self.form == Form::Simple {
                    self.form = Form::Structured;
                }
                self.reply(number, rep::ACK, b"");
            }
            Opt::ExtendedHeaders => {
                self.form = Form::Extended;
                self.reply(number, rep::ACK, b"");
            }
            Opt::MetaContext { name, queries, set } => self.meta_context(number, &name, &queries, set),
            Opt::Malformed if number == opt::EXPORT_NAME => return Some(HandshakeStep::End),
            Opt::Malformed => self.reply(number, rep::ERR_INVALID, b"malformed option"),
            Opt::Unknown => self.reply(number, rep::ERR_UNSUP, b"unknown option"),
        }
        None
    }

    fn start_tls(&mut self, number: u32) -> Option<HandshakeStep> {
        if self.peer.tls {
            self.reply(number, rep::ERR_INVALID, b"TLS is in use already");
            return None;
        }
        if self.tls == Tls::Absent {
            self.reply(number, rep::ERR_POLICY, b"this server has no certificate");
            return None;
        }
        // A client must wait for the answer: bytes that it sent before are not protected, and are
        // dropped.
        if !self.incoming.is_empty() {
            return Some(HandshakeStep::End);
        }
        self.reply(number, rep::ACK, b"");
        Some(HandshakeStep::StartTls)
    }

    /// Finds the export if this peer may use it. An empty name means the only export.
    fn find(&mut self, name: &str) -> Option<Arc<Target>> {
        if !name.is_empty() {
            let target = self.directory.find(Protocol::Nbd, name)?;
            if let Err(reason) = target.export.access.admit(&self.peer) {
                self.refuse(format!("{} may not use export '{name}': {reason}", self.peer.name));
                return None;
            }
            return Some(target);
        }
        let admitted = |target: &Arc<Target>| target.export.access.admit(&self.peer).is_ok();
        let mut all = self.directory.list(Some(Protocol::Nbd)).into_iter().filter(admitted);
        all.next().filter(|_| all.next().is_none())
    }

    /// Whether the client could find the export if it used TLS: with a certificate, if one is asked
    /// for. To a client from another network no export is there.
    fn wants_tls(&self, name: &str) -> bool {
        let secured = Peer { tls: true, ..self.peer.clone() };
        let is_kept_from_it = |access: &Access| {
            let any_certificate = Access { certificates: Vec::new(), ..access.clone() };
            (access.tls || !access.certificates.is_empty()) && any_certificate.admit(&secured).is_ok()
        };
        let target = self.directory.find(Protocol::Nbd, name);
        !self.peer.tls && self.tls != Tls::Absent && target.is_some_and(|target| is_kept_from_it(&target.export.access))
    }

    fn list(&mut self, number: u32) {
        for target in self.directory.list(Some(Protocol::Nbd)) {
            if target.export.access.admit(&self.peer).is_ok() {
                let name = target.export.name.as_bytes();
                let mut data = (name.len() as u32).to_be_bytes().to_vec();
                data.extend_from_slice(name);
                self.reply(number, rep::SERVER, &data);
            }
        }
        self.reply(number, rep::ACK, b"");
    }

    fn export_name(&mut self, name: &str) -> HandshakeStep {
        let Some(target) = self.find(name) else { return HandshakeStep::End };
        let disk = match Disk::open(&target, &self.peer) {
            Ok(disk) => disk,
            Err(denied) => {
                self.note_denied(name, &denied);
                return HandshakeStep::End;
            }
        };
        self.outgoing.extend(disk.geometry().size.0.to_be_bytes());
        self.outgoing.extend(transmission_flags(disk.is_read_only()).to_be_bytes());
        if !self.no_zeroes {
            self.outgoing.extend([0; 124]);
        }
        self.agree(name, disk)
    }

    fn info(&mut self, number: u32, name: &str, infos: &[u16], go: bool) -> Option<HandshakeStep> {
        let Some(target) = self.find(name) else {
            match self.wants_tls(name) {
                true => self.reply(number, rep::ERR_TLS_REQD, b"this export is served over TLS only"),
                false => self.reply(number, rep::ERR_UNKNOWN, b"no such export"),
            }
            return None;
        };
        let geometry = target.handle.geometry();
        let mut sizes = info::BLOCK_SIZE.to_be_bytes().to_vec();
        sizes.extend([geometry.block.0 as u32, 4096, PAYLOAD_MAX].into_iter().flat_map(u32::to_be_bytes));
        if geometry.block.0 > 512 && !infos.contains(&info::BLOCK_SIZE) {
            // The sizes spare the client a question, if it can keep them.
            self.reply(number, rep::INFO, &sizes);
            self.reply(
                number,
                rep::ERR_BLOCK_SIZE_REQD,
                b"blocks of this volume are 4096 bytes, and the client does not ask for block sizes; volumes made with --block 512 serve it",
            );
            return None;
        }
        let disk = match go.then(|| Disk::open(&target, &self.peer)).transpose() {
            Ok(disk) => disk,
            Err(denied) => {
                self.note_denied(name, &denied);
                let reason: &[u8] = match denied {
                    Denied::Closed => b"the export takes no connection at present",
                    _ => b"the export has as many connections as it may have",
                };
                self.reply(number, rep::ERR_POLICY, reason);
                return None;
            }
        };
        let mut export = info::EXPORT.to_be_bytes().to_vec();
        export.extend(geometry.size.0.to_be_bytes());
        export.extend(transmission_flags(target.export.read_only).to_be_bytes());
        self.reply(number, rep::INFO, &export);
        if infos.contains(&info::NAME) {
            let mut data = info::NAME.to_be_bytes().to_vec();
            data.extend_from_slice(target.export.name.as_bytes());
            self.reply(number, rep::INFO, &data);
        }
        if infos.contains(&info::DESCRIPTION) {
            let mut data = info::DESCRIPTION.to_be_bytes().to_vec();
            data.extend_from_slice(format!("Stele volume {}", target.export.volume).as_bytes());
            self.reply(number, rep::INFO, &data);
        }
        if infos.contains(&info::BLOCK_SIZE) {
            self.reply(number, rep::INFO, &sizes);
        }
        self.reply(number, rep::ACK, b"");
        disk.map(|disk| self.agree(name, disk))
    }

    fn agree(&mut self, name: &str, disk: Disk) -> HandshakeStep {
        let contexts = self.contexts.take().filter(|(chosen, _)| chosen == name);
        HandshakeStep::Transmit(Box::new(Negotiated {
            disk,
            form: self.form,
            contexts: contexts.map(|(_, contexts)| contexts).unwrap_or_default(),
            rest: std::mem::take(&mut self.incoming),
        }))
    }

    fn meta_context(&mut self, number: u32, name: &str, queries: &[String], set: bool) {
        if set {
            self.contexts = None;
        }
        if self.form == Form::Simple {
            return self.reply(number, rep::ERR_INVALID, b"metadata needs structured replies");
        }
        let Some(target) = self.find(name) else {
            let wants_tls = self.wants_tls(name);
            let kind = if wants_tls { rep::ERR_TLS_REQD } else { rep::ERR_UNKNOWN };
            return self.reply(number, kind, b"no such export");
        };
        let all = Context::all(&target.snapshots());
        let is_meant = |context: &Context| {
            (queries.is_empty() && !set) || queries.iter().any(|query| context.is_meant(query, !set))
        };
        let chosen: Vec<Context> = all.into_iter().filter(is_meant).collect();
        for context in &chosen {
            let mut data = if set { context.id } else { 0 }.to_be_bytes().to_vec();
            data.extend_from_slice(context.name.as_bytes());
            self.reply(number, rep::META_CONTEXT, &data);
        }
        self.reply(number, rep::ACK, b"");
        if set {
            self.contexts = Some((name.to_owned(), chosen));
        }
    }

    fn note_denied(&mut self, name: &str, denied: &Denied) {
        let peer = &self.peer.name;
        self.refuse(match denied {
            Denied::Access(reason) => format!("{peer} may not use export '{name}': {reason}"),
            Denied::Crowded => format!("{peer} is refused: export '{name}' has as many connections as it may have"),
            Denied::Closed => format!("{peer} is refused: export '{name}' is closed at present"),
        });
    }

    fn refuse(&mut self, refusal: String) {
        if self.refused < REFUSALS_MAX {
            self.refused += 1;
            self.refusals.push(refusal);
        }
    }

    fn reply(&mut self, number: u32, kind: u32, data: &[u8]) {
        self.outgoing.extend(OPTION_REPLY.to_be_bytes());
        self.outgoing.extend(number.to_be_bytes());
        self.outgoing.extend(kind.to_be_bytes());
        self.outgoing.extend((data.len() as u32).to_be_bytes());
        self.outgoing.extend_from_slice(data);
    }
}

/// Several connections are as good as one: a flush covers the writes completed on any of them, and
/// no connection caches content.
fn transmission_flags(read_only: bool) -> u16 {
    let reading =
        flag::HAS_FLAGS | flag::SEND_FLUSH | flag::SEND_FUA | flag::SEND_DF | flag::CAN_MULTI_CONN | flag::SEND_CACHE;
    match read_only {
        true => reading | flag::READ_ONLY,
        false => reading | flag::SEND_TRIM | flag::SEND_WRITE_ZEROES | flag::SEND_FAST_ZERO,
    }
}
