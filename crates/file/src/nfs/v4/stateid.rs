//! Names of opens and locks on the wire (`stateid4`).
//!
//! | length | content |
//! | --- | --- |
//! | 4 | sequence: rises with every change of the state; 0 stands for the latest |
//! | 8 | number of the client |
//! | 4 | number of the state, unique for its client |
//!
//! A client's number begins with the number of the server's start, so a name of an earlier start is
//! unknown here.

use super::super::xdr::{Malformed, Reader, Writer};

pub const OTHER: usize = 12;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stateid {
    pub sequence: u32,
    pub other: [u8; OTHER],
}

impl Stateid {
    /// No open: the call stands by itself.
    pub const ANONYMOUS: Stateid = Stateid { sequence: 0, other: [0; OTHER] };
    /// As the anonymous one; a read passes denied shares too.
    pub const BYPASS: Stateid = Stateid { sequence: u32::MAX, other: [0xff; OTHER] };
    /// The state that an earlier operation of the same COMPOUND made.
    pub const CURRENT: Stateid = Stateid { sequence: 1, other: [0; OTHER] };
    /// The name of a state that has ended. It is never valid.
    pub const INVALID: Stateid = Stateid { sequence: u32::MAX, other: [0; OTHER] };

    pub fn new(client: u64, number: u32, sequence: u32) -> Stateid {
        let mut other = [0; OTHER];
        let bytes = client.to_be_bytes().into_iter().chain(number.to_be_bytes());
        for (into, from) in other.iter_mut().zip(bytes) {
            *into = from;
        }
        Stateid { sequence, other }
    }

    pub fn read(reader: &mut Reader) -> Result<Stateid, Malformed> {
        Ok(Stateid { sequence: reader.u32()?, other: reader.fixed()? })
    }

    pub fn put(self, out: &mut Vec<u8>) {
        out.put_u32(self.sequence);
        out.put_fixed(&self.other);
    }

    pub fn is_special(self) -> bool {
        self.other == [0; OTHER] || self.other == [0xff; OTHER]
    }

    /// The client and the number of the state.
    pub fn parts(self) -> (u64, u32) {
        let (client, number) = self.other.split_first_chunk::<8>().unwrap_or((&[0; 8], &[]));
        (u64::from_be_bytes(*client), number.first_chunk().map_or(0, |number| u32::from_be_bytes(*number)))
    }
}
