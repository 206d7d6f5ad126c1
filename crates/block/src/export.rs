//! Exports: the volume, its name, and its access rules. An operator makes the record and the server
//! keeps it.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::iscsi::Terms;

/// Longest name of an export in bytes: within the limit of NBD, with room for the rest of a
/// request.
pub const NAME_MAX: usize = 255;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    Nbd,
    Iscsi,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Protocol::Nbd => "nbd",
            Protocol::Iscsi => "iscsi",
        })
    }
}

/// An exported volume. One volume may have several exports.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Export {
    /// The name that clients ask for; unique within its protocol.
    pub name: String,
    pub volume: String,
    pub protocol: Protocol,
    #[serde(default)]
    pub read_only: bool,
    #[serde(default)]
    pub access: Access,
    /// For iSCSI only.
    #[serde(default, skip_serializing_if = "Terms::is_plain")]
    pub iscsi: Terms,
}

/// Access rules. A client must satisfy all that are given.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Access {
    /// Networks of TCP clients; empty: every address that reaches the listener. The mode of the
    /// Unix socket decides about its clients.
    pub networks: Vec<Network>,
    /// Accept TLS only.
    pub tls: bool,
    /// SHA-256 of client certificates, one of which the client must present; empty: no certificate
    /// is required.
    pub certificates: Vec<Fingerprint>,
}

/// The peer, as far as the transport knows it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Peer {
    /// `None` for a Unix socket.
    pub address: Option<IpAddr>,
    /// As displayed to operators: `10.0.0.7:51234`, `uid 1000`.
    pub name: String,
    pub tls: bool,
    /// The fingerprint of the certificate that the client proved to own.
    pub certificate: Option<Fingerprint>,
}

impl Peer {
    /// The unit that shares a volume: all connections of one initiator count as one.
    pub fn initiator(&self) -> String {
        match (&self.certificate, self.address) {
            (Some(certificate), _) => certificate.to_string(),
            (None, Some(address)) => address.to_string(),
            (None, None) => self.name.clone(),
        }
    }
}

impl Access {
    /// Whether the peer may connect; otherwise the reason, for the server's log.
    pub fn admit(&self, peer: &Peer) -> Result<(), String> {
        if let Some(address) = peer.address
            && !self.networks.is_empty()
            && !self.networks.iter().any(|network| network.contains(address))
        {
            return Err(format!("{address} is in none of the export's networks"));
        }
        if (self.tls || !self.certificates.is_empty()) && !peer.tls {
            return Err("the export is served over TLS only".to_owned());
        }
        if self.certificates.is_empty() {
            return Ok(());
        }
        match &peer.certificate {
            None => Err("the client showed no certificate".to_owned()),
            Some(shown) if self.certificates.contains(shown) => Ok(()),
            Some(shown) => Err(format!("the client's certificate {shown} is not among the export's")),
        }
    }
}

/// An address with the length of its prefix, for example `10.1.0.0/16` or `fd00::/8`, or a single
/// address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    pub fn contains(&self, address: IpAddr) -> bool {
        let same = |network: u128, address: u128, width: u8| {
            let shift = u32::from(width.saturating_sub(self.prefix));
            network.checked_shr(shift).unwrap_or(0) == address.checked_shr(shift).unwrap_or(0)
        };
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                same(u128::from(network.to_bits()), u128::from(address.to_bits()), 32)
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => same(network.to_bits(), address.to_bits(), 128),
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = String;
    fn from_str(text: &str) -> Result<Network, String> {
        let wrong = || format!("'{text}' is no network; write an address or address/prefix, as 10.1.0.0/16");
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            Some(prefix) => prefix.parse().ok().filter(|prefix| *prefix <= width).ok_or_else(wrong)?,
            None => width,
        };
        Ok(Network { address, prefix })
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// SHA-256 of a certificate as sent (DER): the value that `openssl x509 -fingerprint -sha256`
/// prints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fingerprint(pub [u8; 32]);

impl FromStr for Fingerprint {
    type Err = String;
    fn from_str(text: &str) -> Result<Fingerprint, String> {
        let digits: Vec<u32> = text.chars().filter(|c| *c != ':').map_while(|c| c.to_digit(16)).collect();
        let wrong = || format!("'{text}' is no SHA-256 fingerprint: 64 hexadecimal digits, with colons or without");
        if text.chars().filter(|c| *c != ':').count() != 64 {
            return Err(wrong());
        }
        let bytes: Vec<u8> =
            digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | *digit as u8)).collect();
        bytes.try_into().map(Fingerprint).map_err(|_| wrong())
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

macro_rules! as_text {
    ($($kind:ty),*) => { $(
        impl Serialize for $kind {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    )* };
}
as_text!(Network, Fingerprint);

/// The rule for names of exports: printable, no spaces, at most [`NAME_MAX`] bytes.
pub fn check_name(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\'' | '\\' | '?' | '#' | '%');
    if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(plain) {
        return Err(format!(
            "'{name}' cannot name an export: 1 to {NAME_MAX} characters of ASCII without spaces, quotes, \\, ?, # and %"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
