//! The registrants of a unit, and the format in which they survive a power loss
//! (`FORMAT/reservations.md`).

use crc_fast::{CrcAlgorithm, checksum};

use super::Port;
use super::field::{Page, be16, be32, be64, octet, part};

const MAGIC: &[u8; 8] = b"STELEPR1";
/// Largest number of registrants of a unit; more are refused.
pub const REGISTRANTS_MAX: usize = 256;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Registration {
    pub port: Port,
    pub key: u64,
}

/// The reservation, if there is one. With an all-registrants type, every registrant holds it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    pub port: Port,
    pub kind: u8,
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Registrations {
    pub generation: u32,
    pub list: Vec<Registration>,
    pub holder: Option<Holder>,
    /// APTPL: the last registration asked for persistence over a loss of power.
    pub persists: bool,
}

impl Registrations {
    pub fn encode(&self) -> Vec<u8> {
        let position = self.holder.as_ref().and_then(|holder| self.list.iter().position(|one| one.port == holder.port));
        let kind = self.holder.as_ref().map_or(0, |holder| holder.kind);
        let mut page = Page::default()
            .bytes(MAGIC)
            .u32(self.generation)
            .u8(kind)
            .u8(0)
            .u16(position.unwrap_or(0) as u16)
            .u16(self.list.len() as u16);
        for one in &self.list {
            let name = one.port.initiator.as_bytes();
            page = page.u64(one.key).u16(one.port.target).u16(name.len() as u16).bytes(name);
        }
        let sum = checksum(CrcAlgorithm::Crc32Iscsi, &page.0) as u32;
        page.u32(sum).0
    }

    /// Returns `None` for damaged bytes, and for bytes of another form than `encode` writes.
    pub fn decode(bytes: &[u8]) -> Option<Registrations> {
        let body = bytes.len().checked_sub(4).and_then(|end| bytes.get(..end))?;
        if !body.starts_with(MAGIC) || checksum(CrcAlgorithm::Crc32Iscsi, body) as u32 != be32(bytes, body.len()) {
            return None;
        }
        let (kind, position, count) = (octet(body, 12), usize::from(be16(body, 14)), usize::from(be16(body, 16)));
        let mut at = 18;
        let mut list = Vec::new();
        for _ in 0..count {
            let length = usize::from(be16(body, at + 10));
            if body.len() < at + 12 + length {
                return None;
            }
            let initiator = String::from_utf8(part(body, at + 12, length).to_vec()).ok()?;
            list.push(Registration { port: Port { initiator, target: be16(body, at + 8) }, key: be64(body, at) });
            at += 12 + length;
        }
        let holder = match kind {
            0 => None,
            kind => Some(Holder { port: list.get(position)?.port.clone(), kind }),
        };
        (at == body.len()).then_some(Registrations { generation: be32(body, 8), list, holder, persists: true })
    }

    /// The version of bytes that a later version of Stele kept, if they are whole.
    pub fn later(bytes: &[u8]) -> Option<char> {
        let body = bytes.len().checked_sub(4).and_then(|end| bytes.get(..end))?;
        let (word, version) = (MAGIC.get(..7)?, body.get(7).copied().filter(u8::is_ascii_graphic)?);
        let is_whole = checksum(CrcAlgorithm::Crc32Iscsi, body) as u32 == be32(bytes, body.len());
        (body.starts_with(word) && Some(&version) > MAGIC.last() && is_whole).then_some(char::from(version))
    }

    pub fn key_of(&self, port: &Port) -> Option<u64> {
        self.list.iter().find(|one| one.port == *port).map(|one| one.key)
    }

    /// True for types 7 and 8.
    pub fn held_by_all(&self) -> bool {
        self.holder.as_ref().is_some_and(|holder| holder.kind >= 7)
    }

    pub fn is_holder(&self, port: &Port) -> bool {
        match &self.holder {
            None => false,
            Some(holder) => holder.port == *port || (holder.kind >= 7 && self.key_of(port).is_some()),
        }
    }
}

#[cfg(test)]
mod tests;
