//! Login of a normal session: security where the target or the address asks for it, then the
//! operational parameters.

use std::io::{self, Read, Write};

use stele_block::iscsi::chap::Algorithm;
use stele_block::iscsi::pdu::{HEADER, Header, opcode, padding};
use stele_block::iscsi::text::{self, Pairs};

use super::address::IscsiAddress;
use super::{DATA_MAX, FINAL};
use crate::live::stream::{take, wrong};

const SECURITY: u8 = 0;
const OPERATIONAL: u8 = 1;
const FULL_FEATURE: u8 = 3;
const CONTINUE: u8 = 0x40;
/// Requests of a login at most.
const EXCHANGES_MAX: u32 = 16;
const TEXT_MAX: usize = 64 << 10;

/// What both sides agreed on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Terms {
    pub header_digest: bool,
    pub data_digest: bool,
    pub their_data_max: u32,
    pub first_burst: u32,
    pub initial_r2t: bool,
    pub immediate_data: bool,
}

impl std::fmt::Display for Terms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let digests = match (self.header_digest, self.data_digest) {
            (false, false) => "without digests",
            (true, false) => "digests of headers",
            (false, true) => "digests of data",
            (true, true) => "digests of headers and data",
        };
        write!(f, "{digests}, {} with a command", stele_ground::Bytes(u64::from(self.unasked())))
    }
}

impl Terms {
    /// Bytes of a write that go without being asked for.
    fn unasked(&self) -> u32 {
        match (self.immediate_data, self.initial_r2t) {
            (_, false) => self.first_burst,
            (true, true) => self.first_burst.min(self.their_data_max),
            (false, true) => 0,
        }
    }
}

pub struct Agreed {
    pub terms: Terms,
    pub command_number: u32,
    pub window_end: u32,
    pub status_number: u32,
}

pub fn login(stream: &mut (impl Read + Write), address: &IscsiAddress) -> io::Result<Agreed> {
    let mut dialogue = Dialogue { stream, isid: isid(), status_number: 0, exchanges: 0 };
    let mut pairs = Pairs::default();
    pairs.add("InitiatorName", initiator());
    pairs.add("SessionType", "Normal");
    pairs.add("TargetName", &address.target);
    pairs.add("AuthMethod", if address.chap.is_some() { "CHAP,None" } else { "None" });
    let (mut header, mut said) = dialogue.ask(SECURITY, OPERATIONAL, pairs)?;
    if value(&said, "AuthMethod") == Some("CHAP") {
        let (user, secret) =
            address.chap.as_ref().ok_or_else(|| wrong("the target asks for CHAP, which was not offered"))?;
        let mut pairs = Pairs::default();
        // MD5 first: targets that take the first one they know hold 7 for another hash than RFC
        // 7143 does (tgt: SHA-1).
        pairs.add("CHAP_A", "5,6,7");
        (_, said) = dialogue.ask(SECURITY, SECURITY, pairs)?;
        let need = |key| value(&said, key).ok_or_else(|| wrong(format!("the target's challenge has no {key}")));
        let algorithm =
            Algorithm::choose(need("CHAP_A")?).ok_or_else(|| wrong("the target chose no hash that was offered"))?;
        let identifier = text::number(need("CHAP_I")?).and_then(|number| u8::try_from(number).ok());
        let challenge = text::binary(need("CHAP_C")?);
        let (identifier, challenge) =
            identifier.zip(challenge).ok_or_else(|| wrong("the target's challenge is none"))?;
        let mut pairs = Pairs::default();
        pairs.add("CHAP_N", user);
        pairs.add("CHAP_R", text::hexadecimal(&algorithm.respond(identifier, secret, &challenge)));
        (header, _) = dialogue.ask(SECURITY, OPERATIONAL, pairs)?;
    }
    let mut stage = header.flags() & 3;
    if header.flags() & FINAL == 0 {
        stage = SECURITY;
        // A target without security may want to be asked once more to go on.
        (header, _) = dialogue.ask(stage, OPERATIONAL, Pairs::default())?;
    }
    if stage == SECURITY && header.flags() & FINAL == 0 {
        return Err(wrong("the target does not end the security stage"));
    }
    let mut pairs = Pairs::default();
    let digest = |wanted: bool| if wanted { "CRC32C" } else { "None" };
    for (key, text) in [
        ("HeaderDigest", digest(address.header_digest)),
        ("DataDigest", digest(address.data_digest)),
        ("InitialR2T", "No"),
        ("ImmediateData", "Yes"),
        ("MaxBurstLength", "1048576"),
        ("FirstBurstLength", "262144"),
        ("MaxOutstandingR2T", "1"),
        ("MaxConnections", "1"),
        ("DataPDUInOrder", "Yes"),
        ("DataSequenceInOrder", "Yes"),
        ("DefaultTime2Wait", "2"),
        ("DefaultTime2Retain", "0"),
        ("ErrorRecoveryLevel", "0"),
    ] {
        pairs.add(key, text);
    }
    pairs.add("MaxRecvDataSegmentLength", DATA_MAX.to_string());
    let mut all = Vec::new();
    loop {
        let (answer, said) = dialogue.ask(OPERATIONAL, FULL_FEATURE, std::mem::take(&mut pairs))?;
        all.extend(said);
        if answer.flags() & FINAL != 0 && answer.flags() & 3 == FULL_FEATURE {
            header = answer;
            break;
        }
    }
    let terms = terms(&all, address)?;
    Ok(Agreed {
        terms,
        command_number: header.u32(28),
        window_end: header.u32(32),
        status_number: dialogue.status_number,
    })
}

fn terms(said: &[(String, String)], address: &IscsiAddress) -> io::Result<Terms> {
    let number = |key: &str, default: u32| match value(said, key) {
        None => Ok(default),
        Some(text) => {
            let number = text::number(text).and_then(|number| u32::try_from(number).ok());
            number
                .filter(|number| (512..=0xff_ffff).contains(number))
                .ok_or_else(|| wrong(format!("the target says {key}={text}")))
        }
    };
    let agreed = |key: &str, wanted: bool| match (value(said, key), wanted) {
        (Some("CRC32C"), true) => Ok(true),
        (_, false) => Ok(false),
        (other, true) => {
            Err(wrong(format!("the target does not agree to {key}=CRC32C, but says {}", other.unwrap_or("nothing"))))
        }
    };
    Ok(Terms {
        header_digest: agreed("HeaderDigest", address.header_digest)?,
        data_digest: agreed("DataDigest", address.data_digest)?,
        their_data_max: number("MaxRecvDataSegmentLength", 8192)?,
        first_burst: number("FirstBurstLength", 65_536)?.min(number("MaxBurstLength", 262_144)?),
        initial_r2t: value(said, "InitialR2T") != Some("No"),
        immediate_data: value(said, "ImmediateData") != Some("No"),
    })
}

fn value<'a>(pairs: &'a [(String, String)], key: &str) -> Option<&'a str> {
    pairs.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
}

/// Of this process: targets tell sessions by it.
fn initiator() -> String {
    format!("iqn.2026-01.local.stele:lab-{}", std::process::id())
}

/// Another one for each session of the process.
fn isid() -> [u8; 6] {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let [a, b, c, d] = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    // 0x80: a number that the initiator chooses at random. A counter is as good within a process.
    [0x80, a, b, 0, c, d]
}

struct Dialogue<'a, S> {
    stream: &'a mut S,
    isid: [u8; 6],
    status_number: u32,
    exchanges: u32,
}

impl<S: Read + Write> Dialogue<'_, S> {
    /// One request, with all parts of its answer.
    fn ask(&mut self, stage: u8, next: u8, pairs: Pairs) -> io::Result<(Header, Vec<(String, String)>)> {
        let transit = if stage == next { 0 } else { FINAL | next };
        self.send(transit | stage << 2, &pairs.0)?;
        let mut body = Vec::new();
        loop {
            let (header, part) = self.receive()?;
            body.extend(part);
            if body.len() > TEXT_MAX {
                return Err(wrong("the target's answer to the login does not end"));
            }
            if header.flags() & CONTINUE == 0 {
                let pairs = text::parse(&body).ok_or_else(|| wrong("the target's answer to the login is no text"))?;
                return Ok((header, pairs));
            }
            self.send(stage << 2, &[])?;
        }
    }

    fn send(&mut self, flags: u8, data: &[u8]) -> io::Result<()> {
        self.exchanges += 1;
        if self.exchanges > EXCHANGES_MAX {
            return Err(wrong("the login does not come to its end"));
        }
        let mut header = Header::new(opcode::LOGIN | 0x40, flags);
        header.put(8, &self.isid);
        header.put32(24, 1);
        header.put32(28, self.status_number);
        header.set_data_length(data.len());
        let bytes = [&header.0[..], data, &[0; 3][..padding(data.len())]].concat();
        self.stream.write_all(&bytes)
    }

    fn receive(&mut self) -> io::Result<(Header, Vec<u8>)> {
        let header = Header(take::<HEADER>(self.stream)?);
        if header.opcode() != opcode::LOGGED_IN {
            return Err(wrong("this is no iSCSI target, or not one that takes a login"));
        }
        let length = header.data_length();
        if length > TEXT_MAX {
            return Err(wrong(format!("the target answers the login with {length} bytes")));
        }
        let mut body = vec![0; header.additional_length() + length + padding(length)];
        self.stream.read_exact(&mut body)?;
        self.status_number = header.u32(24).wrapping_add(1);
        match (header.u8(36), header.u8(37)) {
            (0, _) => {}
            (class, detail) => return Err(io::Error::new(io::ErrorKind::PermissionDenied, refusal(class, detail))),
        }
        let from = header.additional_length();
        Ok((header, body.get(from..from + length).unwrap_or_default().to_vec()))
    }
}

pub(super) fn refusal(class: u8, detail: u8) -> String {
    let why = match (class, detail) {
        (1, _) => "the target has moved, and says so instead of serving",
        (2, 1) => "it does not accept the user or the secret; give them as iscsi://USER%PASSWORD@...",
        (2, 2) => "this initiator may not reach it",
        (2, 3) => "there is no such target",
        (2, 4) => "the target was removed",
        (2, 6) => "it has too many connections",
        (3, 1) => "the target is out of service",
        (3, 2) => "it has no room for another session",
        _ => "the login is refused",
    };
    format!("{why} (status {class:02x}{detail:02x})")
}
