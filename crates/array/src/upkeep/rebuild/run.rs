//! Strips of neighbouring slots go to where they belong together: one request of each source, one
//! to the target.
//!
//! What may go wrong, and what keeps it from doing harm:
//!
//! 1. A host changes a stripe while its strips are read and computed. No lock keeps it from that,
//!    and what was computed may be old. `is_still` is asked again before the write and, for strips
//!    that move, in the step that records it: what is old is never where anything refers to.
//!    Stripes with CRC-32C digests, which may not tell, are left to `place_strip`.
//! 2. A slot is freed while its strip is on its way to the target, and another stripe is written
//!    there. A shared lock of the stripe is held from `is_still` until the write is flushed;
//!    freeing a slot takes the exclusive one.
//! 3. A crash before the record: the strip is rebuilt again, for the entry names the place it had.
//! 4. A drive or a digest fails: the strip is left to `place_strip`, which notes what failed, under
//!    the stripe's lock.

use std::collections::BTreeSet;
use std::rc::Rc;

use stele_codes::Strips;
use stele_media::{MediaFault, Priority, Shared};

use super::Task;
use crate::durable::log::Purpose;
use crate::durable::records::Record;
use crate::engine::Engine;
use crate::model::ArrayError;
use crate::model::mutation::Mutation;
use crate::model::place::SlotId;
use crate::runtime::sync::{StripeGuard, join_all};
use crate::stripe::StripPlace;
use crate::stripe::run::Pictured;

/// Records appended with one reservation of the log.
const RECORDS: usize = 16;

/// A strip that is to be written.
struct Move {
    /// The stripe's place in the run.
    at: usize,
    target: StripPlace,
    data: Shared,
    /// It lies where it belongs already, and not as it should.
    in_place: bool,
    /// While it is written.
    guard: Option<StripeGuard>,
}

impl Engine {
    /// Brings the member's strips of these slots to the replacement (`to_spare`), or home. Answers
    /// the slots that are left to `place_strip`.
    pub(super) async fn place_run(
        self: &Rc<Self>,
        task: Task,
        slots: &[u32],
        to_spare: bool,
    ) -> Result<BTreeSet<u32>, ArrayError> {
        let member = usize::from(task.member);
        let mut left: BTreeSet<u32> = slots.iter().copied().collect();
        let run = self.picture_run(task.row, slots.iter().copied()).await?;
        let mut wanted = Vec::new();
        let plain = |pictured: &Pictured| !pictured.lacks_units() && pictured.tells_versions();
        for (at, pictured) in run.iter().enumerate().filter(|(_, pictured)| plain(pictured)) {
            let Some(target) = self.target(&pictured.of, member, to_spare) else { continue };
            if to_spare && pictured.is_moved(member) && self.drives.is_sound(target.cell.drive) {
                left.remove(&pictured.of.slot.index);
            } else if self.drives.index(target.cell.drive).is_some() {
                wanted.push((at, target));
            }
        }
        let stripes: Vec<usize> = wanted.iter().map(|(at, _)| *at).collect();
        let spares = self.spares_source(task);
        let asked: Vec<usize> = stripes.iter().copied().filter(|at| !spares || run[*at].is_moved(member)).collect();
        let own = self.read_neighbours(&run, &asked, Strips::of([member]), Priority::Rebuild).await;
        let own = own.into_iter().nth(member).unwrap_or_default();
        let lacking: Vec<usize> = stripes.iter().copied().filter(|at| own[*at].is_none()).collect();
        let made = self.reconstruct_run(&run, &lacking, member, Priority::Rebuild).await;
        let mut moves = Vec::new();
        for (at, target) in wanted {
            let in_place = run[at].is_moved(member) == to_spare;
            match (&own[at], &made[at]) {
                (Some(_), _) if in_place => {
                    // Its drive has it.
                    let _pages = self.pages_of(&run[at]).await?;
                    if self.is_still(&run[at]) {
                        left.remove(&run[at].of.slot.index);
                    }
                }
                (Some(data), _) | (None, Some(data)) => {
                    moves.push(Move { at, target, data: data.clone(), in_place, guard: None });
                }
                (None, None) => {}
            }
        }
        drop((own, made));
        self.write_moves(&run, moves, member, to_spare, &mut left).await?;
        for index in slots.iter().filter(|index| !left.contains(index)) {
            self.losses_seen.note_waiting(SlotId { row: task.row, index: *index }, task.member, None);
        }
        Ok(left)
    }

    /// Writes the strips, flushes them, and records those that moved.
    async fn write_moves(
        self: &Rc<Self>,
        run: &[Pictured],
        moves: Vec<Move>,
        member: usize,
        to_spare: bool,
        left: &mut BTreeSet<u32>,
    ) -> Result<(), ArrayError> {
        let mut ready: Vec<Move> = Vec::new();
        for mut next in moves {
            let of = &run[next.at].of;
            let _pages = self.pages_of(&run[next.at]).await?;
            next.guard = self.locks.try_shared(of.volume, of.stripe);
            let same = self.is_still(&run[next.at]) && self.target(of, member, to_spare) == Some(next.target);
            if next.guard.is_some() && same {
                ready.push(next);
            }
        }
        let mut written = self.write_neighbours(run, ready).await;
        let mut moving = Vec::new();
        for done in &mut written {
            if done.in_place {
                // The lock kept the stripe as it was.
                let slot = run[done.at].of.slot;
                left.remove(&slot.index);
                self.count_placed(slot.row, member);
            } else {
                moving.push((done.at, done.target));
            }
            done.guard = None;
        }
        for batch in moving.chunks(RECORDS) {
            let record = |pictured: &Pictured| Record::Moved {
                slot: pictured.of.slot,
                generation: pictured.of.generation,
                strip: member as u8,
                replaced: to_spare,
            };
            let cost = batch.iter().map(|(at, _)| self.log.cost(&record(&run[*at]))).sum();
            let mut reservation = self.log.reserve(cost, Purpose::Inside).await?;
            self.check_writable()?;
            let mut moved = Vec::new();
            for (at, target) in batch {
                let pictured = &run[*at];
                let of = &pictured.of;
                let _looked_at = self.pages_of(pictured).await?;
                let pages = self.pages_for(&record(pictured)).await?;
                // Nothing waits from here on. A lock holder may be about to change the stripe.
                let free = !self.locks.is_held(of.volume, of.stripe);
                if free && self.is_still(pictured) && self.target(of, member, to_spare) == Some(*target) {
                    self.append(&record(pictured), &pages, &mut reservation);
                    self.count_placed(of.slot.row, member);
                    left.remove(&of.slot.index);
                    moved.push(*at);
                }
            }
            // At once: what moved is readable, whatever becomes of the next batch.
            for of in moved.into_iter().map(|at: usize| &run[at].of) {
                self.look_again(&of.shape, of.slot).await?;
            }
        }
        Ok(())
    }

    /// Writes strips, all on one drive and those at neighbouring places with one request, and
    /// flushes them. Answers those that are durable. The drive is charged with one error at most,
    /// however many requests failed or joined the flush.
    async fn write_neighbours(&self, run: &[Pictured], moves: Vec<Move>) -> Vec<Move> {
        let Some(cell) = moves.first().map(|first| first.target.cell) else { return Vec::new() };
        let Some(index) = self.drives.index(cell.drive) else { return Vec::new() };
        let since = self.drives.labels.attachments();
        let mut groups: Vec<Vec<Move>> = Vec::new();
        for next in moves.into_iter().filter(|next| next.target.cell == cell) {
            let size = run[next.at].of.shape.strip as u64;
            let joins = |before: &Move| before.target.at + size == next.target.at;
            match groups.last_mut().filter(|group| group.last().is_some_and(joins)) {
                Some(group) => group.push(next),
                None => groups.push(vec![next]),
            }
        }
        let writes = groups.into_iter().map(|group| async move {
            let at = group.first().map_or(0, |first| first.target.at);
            let pieces: Vec<Shared> = group.iter().map(|strip| strip.data.clone()).collect();
            let mut result = self.io.write(index, at, pieces.clone(), Priority::Rebuild).await;
            if matches!(&result, Err(error) if error.fault == MediaFault::Retry) {
                result = self.io.write(index, at, pieces, Priority::Rebuild).await;
            }
            result.map(|()| group)
        });
        let mut written = Vec::new();
        let mut failed = None;
        for result in join_all(writes).await {
            match result {
                Ok(group) => written.extend(group),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        // Durable only with the drive's flush.
        if !written.is_empty()
            && !self.io.is_disabled(Mutation::MoveFlush)
            && let Err(error) = self.io.flush(index).await
        {
            written.clear();
            failed = failed.or(Some(error));
        }
        if let Some(error) = failed {
            self.note_write_error(index, &error);
        }
        if !self.drives.labels.has_stayed(cell.drive, since) {
            // It was away in between, and its cache is lost.
            written.clear();
        }
        written
    }
}

impl Pictured {
    fn is_moved(&self, member: usize) -> bool {
        self.exceptions >> member & 1 == 1
    }
}
