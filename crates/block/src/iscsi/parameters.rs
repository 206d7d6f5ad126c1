//! Negotiation of operational parameters (RFC 7143, 13).

use super::text::{Pairs, number};

/// The longest data segment that we accept.
pub const DATA_MAX: u32 = 256 << 10;
const BURST_MAX: u32 = 1 << 20;
/// Largest number of connections of a session.
pub const CONNECTIONS_MAX: u16 = 8;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parameters {
    pub header_digest: bool,
    pub data_digest: bool,
    /// The longest data segment that the initiator accepts.
    pub their_data_max: u32,
    pub max_burst: u32,
    pub first_burst: u32,
    pub initial_r2t: bool,
    pub immediate_data: bool,
    pub connections: u16,
}

impl Default for Parameters {
    /// The values of the standard before any negotiation.
    fn default() -> Parameters {
        Parameters {
            header_digest: false,
            data_digest: false,
            their_data_max: 8192,
            max_burst: 262_144,
            first_burst: 65_536,
            initial_r2t: true,
            immediate_data: true,
            connections: 1,
        }
    }
}

/// A value that the standard does not allow.
#[derive(Debug)]
pub struct Unacceptable;

impl Parameters {
    /// The parameters of a further connection: its own for the values of a connection, the
    /// session's for all others.
    pub fn on_connection(&self, own: &Parameters) -> Parameters {
        Parameters {
            header_digest: own.header_digest,
            data_digest: own.data_digest,
            their_data_max: own.their_data_max,
            ..self.clone()
        }
    }

    /// Negotiates one key. `leading`: the first connection of a session, which may negotiate the
    /// session's own keys.
    pub fn negotiate(&mut self, key: &str, value: &str, leading: bool, out: &mut Pairs) -> Result<(), Unacceptable> {
        let offers = |wanted: &str| value.split(',').any(|one| one.trim() == wanted);
        let ranged = |low: u64, high: u64| number(value).filter(|n| (low..=high).contains(n)).ok_or(Unacceptable);
        let yes = || match value {
            "Yes" => Ok(true),
            "No" => Ok(false),
            _ => Err(Unacceptable),
        };
        let say = |truth: bool| if truth { "Yes" } else { "No" };
        match key {
            "HeaderDigest" | "DataDigest" => {
                // The initiator lists its preferences in order.
                let first = value.split(',').map(str::trim).find(|one| matches!(*one, "None" | "CRC32C"));
                let Some(first) = first else {
                    out.add(key, "Reject");
                    return Ok(());
                };
                let wanted = first == "CRC32C" && offers("CRC32C");
                match key {
                    "HeaderDigest" => self.header_digest = wanted,
                    _ => self.data_digest = wanted,
                }
                out.add(key, first);
            }
            "MaxRecvDataSegmentLength" => {
                self.their_data_max = ranged(512, 0xff_ffff)? as u32;
            }
            "MaxBurstLength" if leading => {
                self.max_burst = (ranged(512, 0xff_ffff)? as u32).min(BURST_MAX);
                self.first_burst = self.first_burst.min(self.max_burst);
                out.add(key, self.max_burst.to_string());
            }
            "FirstBurstLength" if leading => {
                self.first_burst = (ranged(512, 0xff_ffff)? as u32).min(DATA_MAX).min(self.max_burst);
                out.add(key, self.first_burst.to_string());
            }
            "InitialR2T" if leading => {
                self.initial_r2t = yes()?;
                out.add(key, say(self.initial_r2t));
            }
            "ImmediateData" if leading => {
                self.immediate_data = yes()?;
                out.add(key, say(self.immediate_data));
            }
            "MaxConnections" if leading => {
                self.connections = (ranged(1, 65_535)? as u16).min(CONNECTIONS_MAX);
                out.add(key, self.connections.to_string());
            }
            "MaxOutstandingR2T" if leading => {
                ranged(1, 65_535)?;
                out.add(key, "1");
            }
            "DataPDUInOrder" | "DataSequenceInOrder" if leading => {
                yes()?;
                out.add(key, "Yes");
            }
            "DefaultTime2Wait" if leading => out.add(key, ranged(0, 3600)?.max(2).to_string()),
            "DefaultTime2Retain" if leading => {
                ranged(0, 3600)?;
                out.add(key, "0");
            }
            "ErrorRecoveryLevel" if leading => {
                ranged(0, 2)?;
                out.add(key, "0");
            }
            "IFMarker" | "OFMarker" => {
                yes()?;
                out.add(key, "No");
            }
            "IFMarkInt" | "OFMarkInt" => out.add(key, "Irrelevant"),
            "RDMAExtensions" => out.add(key, "No"),
            "TaskReporting" => out.add(key, if offers("RFC3720") { "RFC3720" } else { "Reject" }),
            "iSCSIProtocolLevel" => out.add(key, ranged(0, 31)?.min(1).to_string()),
            "InitiatorAlias" => {}
            _ => out.add(key, "NotUnderstood"),
        }
        Ok(())
    }
}
