//! The drive trait: submit, reap, and what a drive says about itself.

use stele_ground::{Bytes, Instant};

use crate::{Completion, MediaError, MediaFault, Op, Request};

/// What a drive says about itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Bytes that can be addressed; a multiple of `block`.
    pub size: Bytes,
    /// The unit of offsets and lengths: 512 or 4096.
    pub block: Bytes,
}

impl Geometry {
    /// The refusals that every drive shares: `Invalid` for an operation that is empty, misaligned or out of range, or a view.
    pub fn admit(&self, op: &Op) -> Result<(), MediaError> {
        if matches!(op, Op::View { .. }) {
            let text = "a drive has nothing to show: it reads into the buffer of who asks";
            return Err(MediaError::new(MediaFault::Invalid, text));
        }
        self.admit_range(op)
    }

    /// As `admit`, for what answers views too.
    pub fn admit_range(&self, op: &Op) -> Result<(), MediaError> {
        let Some((at, length)) = op.range() else { return Ok(()) };
        let Bytes(block) = self.block;
        if length == 0 {
            return Err(MediaError::new(
                MediaFault::Invalid,
                format!("an empty request at {at}: ask for at least {block} bytes"),
            ));
        }
        if !at.is_multiple_of(block) || !length.is_multiple_of(block) {
            return Err(MediaError::new(
                MediaFault::Invalid,
                format!("{length} bytes at {at} are misaligned: offset and length must be multiples of {block}"),
            ));
        }
        if at.checked_add(length).is_none_or(|end| end > self.size.0) {
            return Err(MediaError::new(
                MediaFault::Invalid,
                format!("{length} bytes at {at} reach beyond the end at {}", self.size.0),
            ));
        }
        Ok(())
    }
}

/// Storage with one owner, which submits operations and reaps their completions. A drive is polled:
/// it never calls back and never blocks in `submit` or `reap`.
///
/// Every conforming drive, whatever it is made of:
/// - completes each request exactly once, in any order, with the operation and its buffers;
/// - answers a request that is empty, out of range or misaligned (see [`Geometry::admit`]) with `Invalid` and touches nothing;
/// - returns from a read what the last completed write to each block left, or, for blocks of a write in
///   flight, either content a block at a time;
/// - keeps over a power cut everything a completed flush or `fua` write promised (see [`crate::Op`]), and of
///   the rest any subset, torn at sector boundaries.
pub trait Drive {
    fn geometry(&self) -> Geometry;

    /// Hands over one request. It may be held back until `reap` or `kick`.
    fn submit(&mut self, request: Request);

    /// Starts what `submit` held back; one call after a batch of submits. A drive that starts at once ignores it.
    fn kick(&mut self) {}

    /// Moves finished operations to `finished`. Never waits.
    fn reap(&mut self, now: Instant, finished: &mut Vec<Completion>);

    /// The time at which `reap` will have something, where the drive knows (simulated drives do).
    fn next_event(&self) -> Option<Instant> {
        None
    }
}

impl<D: Drive + ?Sized> Drive for Box<D> {
    fn geometry(&self) -> Geometry {
        (**self).geometry()
    }
    fn submit(&mut self, request: Request) {
        (**self).submit(request);
    }
    fn kick(&mut self) {
        (**self).kick();
    }
    fn reap(&mut self, now: Instant, finished: &mut Vec<Completion>) {
        (**self).reap(now, finished);
    }
    fn next_event(&self) -> Option<Instant> {
        (**self).next_event()
    }
}
