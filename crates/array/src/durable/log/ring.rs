//! Reading the ring of one member: whole groups that continue the chain, and anything that claims
//! to be a group.

use stele_ground::{BLOCK, PoolId};
use stele_media::{MediaFault, Priority, Shared};

use super::group::{self, Header};
use crate::drives::label::LOG_AT;
use crate::runtime::io::Io;

/// Bytes read at once.
pub(super) const CHUNK: u64 = 1 << 20;

/// What the next group must be.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    pub pool: PoolId,
    pub sequence: u64,
    pub epoch: u64,
    pub previous: u32,
    pub check_epoch: bool,
    pub check_chain: bool,
}

impl Expected {
    fn admits(&self, header: &Header) -> bool {
        header.pool == self.pool
            && header.sequence == self.sequence
            && (header.epoch == self.epoch || !self.check_epoch)
            && (header.previous == self.previous || !self.check_chain)
    }
}

/// What a drive shows where the expected group should lie.
pub enum Sight {
    /// The group, whole.
    Whole(Header, Shared),
    /// Something else: the drive does not have the group.
    Other,
    /// A part of the place cannot be read: the drive may have the group.
    Unreadable,
}

/// One member's ring, read in windows.
pub struct RingReader {
    io: Io,
    index: usize,
    ring: u64,
    start: u64,
    window: Shared,
    priority: Priority,
    /// Bytes read at once at least.
    chunk: u64,
}

impl RingReader {
    pub fn new(io: &Io, index: usize, ring: u64, priority: Priority) -> RingReader {
        RingReader { io: io.clone(), index, ring, start: 0, window: Shared::new(), priority, chunk: CHUNK }
    }

    /// Reads nothing ahead: the caller wants single groups, and none being written behind them.
    pub fn only_what_is_asked(self) -> RingReader {
        RingReader { chunk: 0, ..self }
    }

    /// Asks the drive again for what was read ahead.
    pub fn forget(&mut self) {
        self.window = Shared::new();
    }

    /// Bytes of the ring; none where the drive cannot read them.
    pub async fn bytes(&mut self, offset: u64, length: u64) -> Option<Shared> {
        let end = offset.checked_add(length).filter(|end| *end <= self.ring)?;
        if offset < self.start || end > self.start + self.window.len() as u64 {
            let ahead = length.max(self.chunk).min(self.ring - offset);
            // The memory of what is no longer looked at serves for what comes.
            self.window = Shared::new();
            let read = match self.read(offset, ahead).await {
                // One bad sector must not hide its neighbours.
                None if ahead > length => self.read(offset, length).await,
                read => read,
            };
            self.window = read?;
            self.start = offset;
        }
        let within = (offset - self.start) as usize;
        Some(self.window.slice(within..within + length as usize))
    }

    /// Passing failures are asked once more.
    async fn read(&self, offset: u64, length: u64) -> Option<Shared> {
        let ask = || self.io.read(self.index, LOG_AT + offset, length as usize, self.priority);
        let read = match ask().await {
            Err(error) if error.fault == MediaFault::Retry => ask().await,
            read => read,
        };
        read.ok().map(|buffer| buffer.freeze())
    }

    /// The group at this place, if it is the expected one and whole.
    pub async fn group(&mut self, offset: u64, expected: &Expected) -> Option<(Header, Shared)> {
        match self.sight(offset, expected).await {
            Sight::Whole(header, bytes) => Some((header, bytes)),
            Sight::Other | Sight::Unreadable => None,
        }
    }

    /// What lies at this place, where the expected group should be.
    pub async fn sight(&mut self, offset: u64, expected: &Expected) -> Sight {
        if offset + BLOCK as u64 > self.ring {
            return Sight::Other;
        }
        let Some(head) = self.bytes(offset, BLOCK as u64).await else { return Sight::Unreadable };
        let header = Header::decode(&head).filter(|header| expected.admits(header));
        let Some(header) = header.filter(|header| offset + header.total() <= self.ring) else { return Sight::Other };
        match self.bytes(offset, header.total()).await {
            Some(bytes) if group::is_whole(&header, &bytes) => Sight::Whole(header, bytes),
            Some(_) => Sight::Other,
            None => Sight::Unreadable,
        }
    }

    /// Every header in a stretch of the ring that is admitted. What a whole group holds is no
    /// header, whatever it looks like.
    pub async fn headers(
        &mut self,
        from: u64,
        to: u64,
        admit: impl Fn(&Header, &[u8]) -> bool,
        mut found: impl FnMut(&Header),
    ) {
        let mut at = from;
        while at < to {
            let block = self.bytes(at, BLOCK as u64).await;
            let header = block.as_deref().and_then(|block| Some((Header::decode(block)?, block)));
            let Some((header, _)) = header.filter(|(header, block)| admit(header, block)) else {
                at += BLOCK as u64;
                continue;
            };
            found(&header);
            let total = header.total();
            let bytes = if at + total <= to { self.bytes(at, total).await } else { None };
            let whole = bytes.is_some_and(|bytes| group::is_whole(&header, &bytes));
            at += if whole { total } else { BLOCK as u64 };
        }
    }

    /// Whether anything in a stretch of the ring looks like a header of the pool's groups, or
    /// cannot be read.
    pub async fn may_have_groups(&mut self, from: u64, to: u64, pool: PoolId) -> bool {
        match self.bytes(from, to - from).await {
            Some(bytes) => bytes.chunks(BLOCK).any(|b| Header::decode(b).is_some_and(|header| header.pool == pool)),
            None => true,
        }
    }
}
