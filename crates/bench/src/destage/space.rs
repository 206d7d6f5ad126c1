//! The bookkeeping of relocation: a map from the blocks of a volume to places, and cleaning.
//!
//! Dirty blocks are written together as parcels: whole stripes in free places. A parcel's first
//! block names the owners of the others. Segments are rows of parcels; they become free when
//! nothing of them is live any more, and the cleaner makes that so. Nothing here does I/O, so that
//! drives in memory and modelled drives share it.

/// A place or an owner that is none.
pub const NONE: u32 = u32::MAX;

/// Whose blocks a parcel holds. What survived a cleaning lives longer than what hosts just wrote,
/// so the two never share a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stream {
    Hosts = 0,
    Cleaner = 1,
}

/// Which segment is cleaned next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// The one with the fewest live blocks.
    Greedy,
    /// The one with the largest age * free / (1 + live), as in Rosenblum's file system.
    CostBenefit,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Free,
    Open,
    Full,
    Cleaned,
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    live: u32,
    state: State,
    /// When it was filled, in blocks placed.
    filled: u64,
}

/// Parcels that lie one after another in a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    pub first: u32,
    pub parcels: u32,
}

#[derive(Debug)]
pub struct Space {
    /// Blocks of a parcel, its owners' block included, and parcels of a segment.
    parcel: u32,
    segment: u32,
    choice: Choice,
    /// The place of each block.
    map: Vec<u32>,
    /// The owner of each place. On the drives it is in the parcel's first block.
    owners: Vec<u32>,
    segments: Vec<Segment>,
    free: Vec<u32>,
    /// Open segments of both streams, with the parcels that are taken: taken in turn, so that all
    /// drives work.
    open: [Vec<(u32, u32)>; 2],
    turn: usize,
    lanes: usize,
    placed: u64,
    pub moved: u64,
}

impl Space {
    /// Room for `blocks` where they take the share `full` of it.
    pub fn new(blocks: u64, parcel: u64, segment: u64, full: f64, lanes: usize, choice: Choice) -> Space {
        let usable = segment * (parcel - 1);
        let segments = (blocks as f64 / full / usable as f64).ceil() as usize;
        let places = segments as u64 * segment * parcel;
        assert!(places < u64::from(NONE), "{places} places do not fit 32 bits");
        Space {
            parcel: parcel as u32,
            segment: segment as u32,
            choice,
            map: vec![NONE; blocks as usize],
            owners: vec![NONE; places as usize],
            segments: vec![Segment { live: 0, state: State::Free, filled: 0 }; segments],
            free: (0..segments as u32).rev().collect(),
            open: [Vec::new(), Vec::new()],
            turn: 0,
            lanes,
            placed: 0,
            moved: 0,
        }
    }

    pub fn parcels(&self) -> u64 {
        self.segments.len() as u64 * u64::from(self.segment)
    }

    /// Blocks that a parcel can hold.
    pub fn room(&self) -> usize {
        self.parcel as usize - 1
    }

    pub fn place_of(&self, block: u32) -> u32 {
        self.map[block as usize]
    }

    /// Free segments below which the cleaner works: each lane of both streams can open one, and one
    /// more is being cleaned.
    fn reserve(&self) -> usize {
        2 * self.lanes + 2
    }

    pub fn is_short(&self) -> bool {
        self.free.len() < self.reserve()
    }

    /// Hosts wait while the cleaner may need the rest.
    pub fn admits_hosts(&self) -> bool {
        self.free.len() > self.lanes
    }

    /// Takes up to so many neighbouring parcels for the stream. None where no segment is free.
    pub fn take(&mut self, stream: Stream, most: u32) -> Option<Run> {
        let lanes = self.lanes;
        if self.open[stream as usize].len() < lanes
            && let Some(segment) = self.free.pop()
        {
            let entry = &mut self.segments[segment as usize];
            assert!(entry.live == 0 && entry.state == State::Free, "segment {segment} is not free");
            entry.state = State::Open;
            self.open[stream as usize].push((segment, 0));
        }
        let open = &mut self.open[stream as usize];
        self.turn += 1;
        let lane = self.turn % open.len().max(1);
        let (segment, taken) = open.get_mut(lane)?;
        let parcels = most.min(self.segment - *taken);
        let run = Run { first: *segment * self.segment + *taken, parcels };
        *taken += parcels;
        if *taken == self.segment {
            let entry = &mut self.segments[*segment as usize];
            (entry.state, entry.filled) = (State::Full, self.placed);
            open.swap_remove(lane);
        }
        Some(run)
    }

    /// The blocks now lie in the parcel, in this order, behind its owners.
    pub fn settle(&mut self, parcel: u32, blocks: impl Iterator<Item = u32>) {
        for (at, block) in blocks.enumerate() {
            assert!(at < self.room(), "a parcel has room for {} blocks", self.room());
            let place = parcel * self.parcel + 1 + at as u32;
            let old = std::mem::replace(&mut self.map[block as usize], place);
            if old != NONE {
                self.segments[(old / self.parcel / self.segment) as usize].live -= 1;
            }
            self.owners[place as usize] = block;
            self.segments[(parcel / self.segment) as usize].live += 1;
            self.placed += 1;
        }
    }

    /// The segment to clean. It stays taken until `release`.
    pub fn victim(&mut self) -> Option<u32> {
        let size = f64::from(self.segment * (self.parcel - 1));
        let worth = |segment: &Segment| {
            let live = f64::from(segment.live) / size;
            match self.choice {
                Choice::Greedy => 1.0 - live,
                Choice::CostBenefit => (self.placed - segment.filled + 1) as f64 * (1.0 - live) / (1.0 + live),
            }
        };
        let full = self.segments.iter().enumerate().filter(|(_, segment)| segment.state == State::Full);
        let (best, _) = full.max_by(|(_, one), (_, other)| worth(one).total_cmp(&worth(other)))?;
        self.segments[best].state = State::Cleaned;
        Some(best as u32)
    }

    /// The live blocks of a segment with their places.
    pub fn live_in(&self, segment: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        let places = self.parcel * self.segment;
        (segment * places..(segment + 1) * places).filter_map(|place| {
            let owner = self.owners[place as usize];
            (owner != NONE && self.map[owner as usize] == place).then_some((owner, place))
        })
    }

    /// Whether nothing of the segment is live.
    pub fn is_dead(&self, segment: u32) -> bool {
        self.segments[segment as usize].live == 0
    }

    /// A cleaned segment is free again.
    pub fn release(&mut self, segment: u32) {
        let entry = &mut self.segments[segment as usize];
        assert!(entry.live == 0 && entry.state == State::Cleaned, "segment {segment} is released with live blocks");
        entry.state = State::Free;
        let places = (self.parcel * self.segment) as usize;
        self.owners[segment as usize * places..][..places].fill(NONE);
        self.free.push(segment);
    }
}
