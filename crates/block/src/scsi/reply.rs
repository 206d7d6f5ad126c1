//! The end of a command.

use stele_media::Shared;

use super::Sense;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Status {
    Good = 0x00,
    CheckCondition = 0x02,
    Busy = 0x08,
    ReservationConflict = 0x18,
    TaskSetFull = 0x28,
}

/// Status, the data for the initiator, and sense if the status is CHECK CONDITION.
#[derive(Debug)]
pub struct Reply {
    pub status: Status,
    pub sense: Option<Sense>,
    pub data: Vec<Shared>,
}

impl Reply {
    pub fn good() -> Reply {
        Reply { status: Status::Good, sense: None, data: Vec::new() }
    }

    pub fn data(bytes: Vec<u8>, allocated: u32) -> Reply {
        let mut bytes = bytes;
        bytes.truncate(allocated as usize);
        Reply { status: Status::Good, sense: None, data: vec![Shared::from(bytes)] }
    }

    pub fn pieces(data: Vec<Shared>) -> Reply {
        Reply { status: Status::Good, sense: None, data }
    }

    pub fn failed(sense: Sense) -> Reply {
        Reply { status: Status::CheckCondition, sense: Some(sense), data: Vec::new() }
    }

    pub fn status(status: Status) -> Reply {
        Reply { status, sense: None, data: Vec::new() }
    }
}

impl From<Sense> for Reply {
    fn from(sense: Sense) -> Reply {
        Reply::failed(sense)
    }
}
