//! `iscsi://[USER%PASSWORD@]HOST[:PORT]/TARGET/LUN`, as libiscsi and QEMU read it.

use std::fmt;

use crate::error::LabError;
use crate::live::stream::{decoded, with_port};

#[derive(Clone, PartialEq, Eq)]
pub struct IscsiAddress {
    /// `HOST:PORT`.
    pub place: String,
    pub target: String,
    pub lun: u16,
    /// User and secret of CHAP.
    pub chap: Option<(String, String)>,
    pub header_digest: bool,
    pub data_digest: bool,
}

impl IscsiAddress {
    /// The LUN as a command carries it: peripheral addressing, or flat above 255.
    pub fn unit(&self) -> u64 {
        let flat = if self.lun < 256 { 0 } else { 0x4000 };
        u64::from(self.lun | flat) << 48
    }
}

impl std::str::FromStr for IscsiAddress {
    type Err = LabError;
    fn from_str(text: &str) -> Result<IscsiAddress, LabError> {
        let bad = || {
            LabError::Usage(
                "an iSCSI target: say iscsi://[USER%PASSWORD@]HOST[:PORT]/TARGET/LUN[?header_digest=crc32c&data_digest=crc32c]"
                    .into(),
            )
        };
        let rest = text.strip_prefix("iscsi://").ok_or_else(bad)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (place, rest) = rest.split_once('/').ok_or_else(bad)?;
        let (target, lun) = rest.rsplit_once('/').ok_or_else(bad)?;
        let (chap, host) = match place.rsplit_once('@') {
            Some((who, host)) => (Some(who.split_once('%').ok_or_else(bad)?), host),
            None => (None, place),
        };
        let chap = chap.map(|(user, secret)| decoded(user).zip(decoded(secret)).ok_or_else(bad)).transpose()?;
        let (mut header_digest, mut data_digest) = (false, false);
        for part in query.split('&').filter(|part| !part.is_empty()) {
            match part {
                "header_digest=crc32c" => header_digest = true,
                "data_digest=crc32c" => data_digest = true,
                _ => return Err(bad()),
            }
        }
        let target = decoded(target).filter(|target| !target.is_empty()).ok_or_else(bad)?;
        let lun = lun.parse().ok().filter(|lun| *lun < 0x4000).ok_or_else(bad)?;
        Ok(IscsiAddress {
            place: with_port(host, 3260).ok_or_else(bad)?,
            target,
            lun,
            chap,
            header_digest,
            data_digest,
        })
    }
}

/// Without the secret: it is printed, and kept with the results.
impl fmt::Display for IscsiAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.chap.as_ref().map_or(String::new(), |(user, _)| format!("{user}@"));
        write!(f, "iscsi://{user}{}/{}/{}", self.place, self.target, self.lun)
    }
}

impl fmt::Debug for IscsiAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
