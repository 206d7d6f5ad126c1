//! A volume that is spread over shards, as a port. A request inside one unit goes to its shard as
//! it is; a longer one is taken apart and put together again.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use stele_ground::{Bytes, VolumeId};
use stele_media::{Done, Extent, Geometry, Handle, MediaError, MediaFault, Op, Port, Priority, Shared};

use super::gate::Gate;
use super::registry::Registry;
use super::striping::{Run, Striping};

/// Cheap to clone.
#[derive(Clone)]
pub struct SpreadPort(Arc<Inner>);

struct Inner {
    /// By shard.
    parts: Vec<Handle>,
    striping: Striping,
    block: Bytes,
    gate: Arc<Gate>,
    registry: Arc<Registry>,
    /// The size when it was last looked up. A request inside it needs no look at all parts: each
    /// checks its own again.
    size: AtomicU64,
}

impl SpreadPort {
    pub fn new(
        parts: Vec<Handle>,
        striping: Striping,
        block: Bytes,
        gate: Arc<Gate>,
        registry: Arc<Registry>,
    ) -> SpreadPort {
        SpreadPort(Arc::new(Inner { parts, striping, block, gate, registry, size: AtomicU64::new(0) }))
    }
}

/// Writes of different shards have no common order, and none is whole that lies on two: the port
/// promises neither.
impl Port for SpreadPort {
    fn geometry(&self) -> Geometry {
        let parts: Vec<Bytes> = self.0.parts.iter().map(|part| part.geometry().size).collect();
        let size = self.0.striping.size(&parts);
        self.0.size.store(size.0, Ordering::Relaxed);
        Geometry { size, block: self.0.block }
    }

    fn submit(&self, op: Op, priority: Priority, done: Done) {
        let Some((at, length)) = op.range() else { return self.0.flush(priority, done) };
        let known = Geometry { size: Bytes(self.0.size.load(Ordering::Relaxed)), block: self.0.block };
        if known.admit_range(&op).is_err()
            && let Err(error) = self.geometry().admit_range(&op)
        {
            return done(op, Err(error));
        }
        if self.0.gate.is_shut() {
            let message = "some shards have rolled the volume back and others not; give the command again";
            return done(op, Err(MediaError::new(MediaFault::Refused, message)));
        }
        if !matches!(op, Op::Write { .. } | Op::Zero { .. } | Op::Discard { .. }) {
            return self.0.hand_out(at, length, op, priority, done);
        }
        let port = self.clone();
        let mut held = Some((op, done));
        let entered = self.0.gate.enter(|| {
            let held = held.take();
            Box::new(move || {
                if let Some((op, done)) = held {
                    port.submit(op, priority, done);
                }
            })
        });
        let Some((op, done)) = held.filter(|_| entered) else { return };
        let gate = Arc::clone(&self.0.gate);
        let left = move |op, result| {
            gate.leave();
            done(op, result);
        };
        self.0.hand_out(at, length, op, priority, Box::new(left));
    }
}

impl Inner {
    /// Writes that have completed lie on any shard, so each of them flushes.
    fn flush(&self, priority: Priority, done: Done) {
        let join = Join::new(Op::Flush, Vec::new(), self.parts.len(), self.parts.len(), done);
        for (shard, part) in self.parts.iter().enumerate() {
            part.submit(Op::Flush, priority, join.answer(shard));
        }
    }

    fn hand_out(&self, at: u64, length: u64, op: Op, priority: Priority, done: Done) {
        let mut runs = self.striping.runs(at, length);
        let first = runs.next().expect("a request that was admitted has a first byte");
        let since = |since: Option<VolumeId>| since.map(|snapshot| self.registry.part(snapshot, first.shard));
        if first.length == length {
            let op = match op {
                Op::Extents { length, since: asked, extents, .. } => {
                    let inner = Op::Extents { at: first.at, length, since: since(asked), extents };
                    let done = Box::new(move |op, result| match op {
                        Op::Extents { length, extents, .. } => {
                            done(Op::Extents { at, length, since: asked, extents }, result);
                        }
                        other => done(other, result),
                    });
                    return self.parts[first.shard].submit(inner, priority, done);
                }
                other => moved(other, first.at),
            };
            return self.parts[first.shard].submit(
                op,
                priority,
                Box::new(move |op, result| done(moved(op, at), result)),
            );
        }
        let runs: Vec<Run> = std::iter::once(first).chain(runs).collect();
        let asks = self.asks(&op, &runs);
        let join = Join::new(op, runs, self.parts.len(), asks.len(), done);
        for (shard, ask) in asks {
            self.parts[shard].submit(ask, priority, join.answer(shard));
        }
    }

    /// What each shard is asked for, of those that have a part of the range.
    fn asks(&self, op: &Op, runs: &[Run]) -> Vec<(usize, Op)> {
        let mut ranges: Vec<Option<(u64, u64)>> = vec![None; self.parts.len()];
        let mut data: Vec<Vec<Shared>> = vec![Vec::new(); self.parts.len()];
        let mut rest = match op {
            Op::Write { data, .. } => Pieces::new(data),
            _ => Pieces::new(&[]),
        };
        for run in runs {
            ranges[run.shard].get_or_insert((run.at, 0)).1 += run.length;
            if matches!(op, Op::Write { .. }) {
                rest.take(run.length, |piece| data[run.shard].push(piece));
            }
        }
        let ask = |(shard, range): (usize, Option<(u64, u64)>)| {
            let (at, length) = range?;
            let ask = match op {
                // A copy is made either way; so it is made once, into the caller's buffer.
                Op::Read { .. } | Op::View { .. } => Op::View { at, length, pieces: Vec::new() },
                Op::Write { fua, .. } => Op::Write { at, data: std::mem::take(&mut data[shard]), fua: *fua },
                Op::Zero { .. } => Op::Zero { at, length },
                Op::Discard { .. } => Op::Discard { at, length },
                Op::Extents { since, .. } => {
                    let since = since.map(|snapshot| self.registry.part(snapshot, shard));
                    Op::Extents { at, length, since, extents: Vec::new() }
                }
                Op::Flush => Op::Flush,
            };
            Some((shard, ask))
        };
        ranges.into_iter().enumerate().filter_map(ask).collect()
    }
}

/// The same operation at another place.
fn moved(mut op: Op, to: u64) -> Op {
    match &mut op {
        Op::Read { at, .. }
        | Op::View { at, .. }
        | Op::Write { at, .. }
        | Op::Zero { at, .. }
        | Op::Discard { at, .. }
        | Op::Extents { at, .. } => *at = to,
        Op::Flush => {}
    }
    op
}

/// A request that several shards carry out.
struct Join(Mutex<Under>);

struct Under {
    op: Op,
    runs: Vec<Run>,
    /// By shard: what it gave.
    parts: Vec<Op>,
    error: Option<MediaError>,
    left: usize,
    done: Option<Done>,
}

impl Join {
    fn new(op: Op, runs: Vec<Run>, shards: usize, left: usize, done: Done) -> Arc<Join> {
        let parts = (0..shards).map(|_| Op::Flush).collect();
        Arc::new(Join(Mutex::new(Under { op, runs, parts, error: None, left, done: Some(done) })))
    }

    fn answer(self: &Arc<Join>, shard: usize) -> Done {
        let join = Arc::clone(self);
        Box::new(move |op, result| {
            let mut under = join.0.lock().unwrap_or_else(PoisonError::into_inner);
            under.parts[shard] = op;
            if let Err(error) = result {
                // One that asks for patience counts least: another try would not help the others.
                let graver = under.error.as_ref().is_none_or(|known| known.fault == MediaFault::Retry);
                if graver {
                    under.error = Some(error);
                }
            }
            under.left -= 1;
            if under.left > 0 {
                return;
            }
            let op = std::mem::replace(&mut under.op, Op::Flush);
            let (runs, parts) = (std::mem::take(&mut under.runs), std::mem::take(&mut under.parts));
            let (error, done) = (under.error.take(), under.done.take());
            drop(under);
            let Some(done) = done else { return };
            match error {
                Some(error) => done(op, Err(error)),
                None => done(joined(op, &runs, parts), Ok(())),
            }
        })
    }
}

/// Puts what the shards gave in the volume's order.
fn joined(mut op: Op, runs: &[Run], parts: Vec<Op>) -> Op {
    match &mut op {
        Op::Read { buffer, .. } => {
            let mut views = views(&parts);
            let mut at = 0;
            for run in runs {
                views[run.shard].take(run.length, |piece| {
                    buffer[at..at + piece.len()].copy_from_slice(&piece);
                    at += piece.len();
                });
            }
        }
        Op::View { pieces, .. } => {
            let mut views = views(&parts);
            pieces.clear();
            for run in runs {
                views[run.shard].take(run.length, |piece| pieces.push(piece));
            }
        }
        Op::Extents { extents, .. } => {
            let mut lists: Vec<(std::vec::IntoIter<Extent>, Option<Extent>)> = parts
                .into_iter()
                .map(|part| match part {
                    Op::Extents { extents, .. } => (extents.into_iter(), None),
                    _ => (Vec::new().into_iter(), None),
                })
                .collect();
            extents.clear();
            for run in runs {
                let (rest, open) = &mut lists[run.shard];
                let mut wanted = run.length;
                while wanted > 0 {
                    let mut extent = open.take().or_else(|| rest.next()).expect("a listing covers its range");
                    let taken = extent.length.min(wanted);
                    Extent::append(extents, Extent { length: taken, ..extent });
                    wanted -= taken;
                    extent.length -= taken;
                    *open = (extent.length > 0).then_some(extent);
                }
            }
        }
        Op::Write { .. } | Op::Zero { .. } | Op::Discard { .. } | Op::Flush => {}
    }
    op
}

fn views(parts: &[Op]) -> Vec<Pieces<'_>> {
    parts.iter().map(view).collect()
}

fn view(part: &Op) -> Pieces<'_> {
    match part {
        Op::View { pieces, .. } => Pieces::new(pieces),
        _ => Pieces::new(&[]),
    }
}

/// Pieces of memory, taken from the front.
struct Pieces<'a> {
    pieces: &'a [Shared],
    /// Bytes of the first piece that are taken already.
    taken: usize,
}

impl<'a> Pieces<'a> {
    fn new(pieces: &'a [Shared]) -> Pieces<'a> {
        Pieces { pieces, taken: 0 }
    }

    fn take(&mut self, length: u64, mut each: impl FnMut(Shared)) {
        let mut wanted = length as usize;
        while wanted > 0 {
            let (piece, behind) = self.pieces.split_first().expect("as many bytes as the range has");
            let upto = piece.len().min(self.taken + wanted);
            if upto > self.taken {
                each(piece.slice(self.taken..upto));
                wanted -= upto - self.taken;
            }
            self.taken = upto;
            if upto == piece.len() {
                (self.pieces, self.taken) = (behind, 0);
            }
        }
    }
}

#[cfg(test)]
mod tests;
