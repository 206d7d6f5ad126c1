//! The drive trait: submit, reap, and the geometry of a drive.

use stele_ground::{Bytes, Instant};

use crate::{Completion, MediaError, MediaFault, Op, Request};

/// Size and block of a drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Bytes that can be addressed; a multiple of `block`.
    pub size: Bytes,
    /// The unit of offsets and lengths: 512 or 4096.
    pub block: Bytes,
}

impl Geometry {
    /// The refusals common to all drives: `Invalid` for a view, and for an operation that is empty,
    /// misaligned or out of range.
    pub fn admit(&self, op: &Op) -> Result<(), MediaError> {
        if matches!(op, Op::View { .. }) {
            let text = "a drive has no memory to show: it reads into the caller's buffer";
            return Err(MediaError::new(MediaFault::Invalid, text));
        }
        self.admit_range(op)
    }

    /// Like `admit`, for drives that answer views.
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
/// - answers an empty, misaligned or out-of-range request (see [`Geometry::admit`]) with `Invalid`
///   and changes nothing;
/// - returns from a read the content of the last completed write to each block, or, for each block
///   of a write in flight, either its old or its new content;
/// - keeps over a power cut all data that a completed flush or `fua` write promised (see
///   [`crate::Op`]), and of the rest any subset, torn at sector boundaries.
pub trait Drive {
    fn geometry(&self) -> Geometry;

    /// Takes one request. The drive may hold it back until `reap` or `kick`.
    fn submit(&mut self, request: Request);

    /// Starts the requests that `submit` held back; called once after a batch. A drive that starts
    /// at once ignores it.
    fn kick(&mut self) {}

    /// Moves finished operations to `finished`. Never waits.
    fn reap(&mut self, now: Instant, finished: &mut Vec<Completion>);

    /// The time of the next completion, if the drive knows it (simulated drives do).
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
