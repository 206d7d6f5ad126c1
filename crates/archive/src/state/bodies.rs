//! What all bodies on their way to the data volume share.

use std::sync::Arc;

use stele_digests::Lanes;

use crate::space::frames::FRAME;
use crate::state::body_memory::BodyMemory;

pub(crate) struct Bodies {
    memory: BodyMemory,
    lanes: Arc<Lanes>,
    piece_frames: usize,
}

impl Bodies {
    /// `in_flight`: bytes of all bodies in memory; `segment`: bytes of a segment.
    pub fn new(in_flight: u64, segment: u32) -> Bodies {
        Bodies {
            memory: BodyMemory::new(in_flight),
            lanes: Lanes::fastest(),
            piece_frames: (segment as usize / (8 * FRAME)).clamp(1, 16),
        }
    }

    /// The memory that bodies share.
    pub fn memory(&self) -> &BodyMemory {
        &self.memory
    }

    /// Where the MD5s of all bodies are computed side by side.
    pub fn lanes(&self) -> &Arc<Lanes> {
        &self.lanes
    }

    /// Frames in a full piece.
    pub fn piece_frames(&self) -> usize {
        self.piece_frames
    }
}
