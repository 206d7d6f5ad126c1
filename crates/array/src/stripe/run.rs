//! Runs: the stripes in neighbouring slots of a row. A row puts neighbouring slots at neighbouring
//! places of each of its drives, so that one request reads or writes a strip of each of them.
//!
//! A run is read without the locks of its stripes: hosts do not wait for megabytes. What was read
//! counts only if it verifies, and is used only after [`Engine::is_still`] has compared the entry
//! with the picture again. Everything that is not plain is left to the work on single stripes,
//! under their locks. Not plain are a unit that does not verify, a unit listed as lost, an image
//! that is owed, and a stripe that changes meanwhile.

use std::rc::Rc;

use stele_codes::Strips;
use stele_ground::VolumeId;
use stele_media::{Buffer, Priority, Shared};

use crate::durable::table::{PageRef, Peek};
use crate::engine::Engine;
use crate::formats::entry::{self, DigestKind, LOST};
use crate::formats::map::{self, Home};
use crate::model::ArrayError;
use crate::model::place::{PageId, RowId, SlotId, StripeKey};
use crate::runtime::sync::join_all;
use crate::stripe::Stripe;
use crate::volumes::Volume;

/// Bytes of a drive between two strips that a request reads over: a hard drive passes them in less
/// time than it takes to begin another request.
const GAP_MAX: u64 = 128 << 10;

/// A stripe of a run, as its entry described it, with the pages that tell whether it still does.
/// They are not held: those of all runs under way may be more than the table's memory takes.
pub struct Pictured {
    pub of: Stripe,
    pub volume: Rc<Volume>,
    /// Strips that lie in spare cells.
    pub exceptions: u32,
    slot_page: (PageId, usize),
    map_page: (PageId, usize),
}

impl Pictured {
    /// A unit of it is listed as lost.
    pub fn lacks_units(&self) -> bool {
        self.of.digests.contains(&LOST)
    }

    /// The entry changes with every write to the stripe. A CRC-32C stays the same under some of
    /// them (FORMAT/slots.md), and a strip computed from sources of different versions may have it
    /// too.
    pub fn tells_versions(&self) -> bool {
        self.of.binding.kind() != DigestKind::Crc32c
    }

    /// All drives that hold something of it answer.
    pub fn is_reachable(&self, engine: &Engine) -> bool {
        let places = self.of.places.iter().enumerate();
        places
            .filter(|(strip, _)| !is_blank(&self.of, *strip))
            .all(|(_, of)| engine.drives.index(of.cell.drive).is_some())
    }
}

/// What was read of a run: for each strip of the code and each stripe of the run, the bytes, if all
/// of them verify.
pub type RunStrips = Vec<Vec<Option<Shared>>>;

impl Engine {
    /// Pictures of the stripes in these slots of the row; without those that are changing owners.
    pub async fn picture_run(
        &self,
        row: RowId,
        slots: impl IntoIterator<Item = u32>,
    ) -> Result<Vec<Pictured>, ArrayError> {
        let mut run = Vec::new();
        for index in slots {
            let slot = SlotId { row, index };
            let Some(shape) = self.row_shape(slot) else { break };
            let slot_page = self.slot_page(&shape, slot).await?;
            let head = slot_page.0.read(|bytes| entry::head(bytes, slot_page.1));
            if head.is_free() {
                continue;
            }
            let Some(volume) = self.look(|core| core.volumes.get(VolumeId(head.volume))) else { continue };
            let map_page = self.map_page(StripeKey { volume: volume.id, stripe: head.stripe }).await?;
            let pages = (Engine::slot_page_id(&shape, slot), Engine::map_page_id(volume.id, head.stripe));
            // From here on nothing waits: this is one moment.
            let Some(of) = self.picture(&volume, head.stripe, slot, &slot_page.0, slot_page.1) else { continue };
            let exceptions = slot_page.0.read(|bytes| entry::head(bytes, slot_page.1)).exceptions;
            drop((slot_page, map_page));
            let pictured = Pictured { of, volume, exceptions, slot_page: pages.0, map_page: pages.1 };
            if self.is_still(&pictured) {
                run.push(pictured);
            }
        }
        Ok(run)
    }

    /// Has the pages that `is_still` looks at in memory, for as long as they are held.
    pub async fn pages_of(&self, pictured: &Pictured) -> Result<(PageRef, PageRef), ArrayError> {
        Ok((self.table.page(pictured.slot_page.0).await?, self.table.page(pictured.map_page.0).await?))
    }

    /// Whether the stripe is in the slot still, and the slot holds what it held when the picture
    /// was made. False also where the pages are not in memory.
    pub fn is_still(&self, pictured: &Pictured) -> bool {
        let Pictured { of, exceptions, slot_page: (slot_page, slot_at), map_page: (map_page, map_at), .. } = pictured;
        let (Peek::Here(slot_page), Peek::Here(map_page)) = (self.table.peek(*slot_page), self.table.peek(*map_page))
        else {
            return false;
        };
        if slot_page.is_forgotten() || map_page.is_forgotten() || pictured.volume.is_gone() {
            return false;
        }
        map_page.read(|bytes| map::get(bytes, *map_at)) == Home::Slot(of.slot)
            && slot_page.read(|bytes| {
                let head = entry::head(bytes, *slot_at);
                let same = !head.is_free() && (head.volume, head.stripe) == (of.volume.0, of.stripe);
                same && (head.generation, head.exceptions) == (of.generation, *exceptions)
                    && of.digests.iter().enumerate().all(|(at, digest)| entry::digest(bytes, *slot_at, at) == *digest)
            })
            && self.places(&of.shape, of.slot, *exceptions) == of.places
    }

    /// The strips of these stripes of the run that verify, each as a whole. Nothing is noted of
    /// drives that fail.
    pub async fn read_neighbours(
        &self,
        run: &[Pictured],
        stripes: &[usize],
        strips: Strips,
        priority: Priority,
    ) -> RunStrips {
        let width = run.first().map_or(0, |pictured| pictured.of.shape.width());
        let mut read: RunStrips = vec![vec![None; run.len()]; width];
        for strip in strips.iter() {
            for at in stripes.iter().filter(|at| is_blank(&run[**at].of, strip)) {
                read[strip][*at] = Some(Buffer::zeroed(run[*at].of.shape.strip).freeze());
            }
        }
        let asked = strips.iter().flat_map(|strip| {
            let written: Vec<usize> = stripes.iter().copied().filter(|at| !is_blank(&run[*at].of, strip)).collect();
            requests(run, &written, strip)
                .into_iter()
                .map(move |request| self.read_request(run, request, strip, priority))
        });
        for (strip, found) in join_all(asked).await {
            for (at, data) in found {
                read[strip][at] = Some(data);
            }
        }
        read
    }

    /// One request: strips of stripes that follow each other on one drive.
    async fn read_request(
        &self,
        run: &[Pictured],
        stripes: Vec<usize>,
        strip: usize,
        priority: Priority,
    ) -> (usize, Vec<(usize, Shared)>) {
        let place = |at: usize| run[at].of.places[strip];
        let (Some(first), Some(last)) = (stripes.first(), stripes.last()) else { return (strip, Vec::new()) };
        let (begin, size) = (place(*first).at, run[*first].of.shape.strip);
        let Some(index) = self.drives.index(place(*first).cell.drive) else { return (strip, Vec::new()) };
        let length = (place(*last).at - begin) as usize + size;
        let Ok(mut buffer) = self.io.read(index, begin, length, priority).await else { return (strip, Vec::new()) };
        let mut good = Vec::new();
        for at in stripes {
            let of = &run[at].of;
            let from = (of.places[strip].at - begin) as usize;
            if self.verify(of, strip, 0..of.shape.units, &mut buffer[from..from + size]).iter().all(|good| *good) {
                good.push((at, from));
            }
        }
        let buffer = buffer.freeze();
        (strip, good.into_iter().map(|(at, from)| (at, buffer.slice(from..from + size))).collect())
    }

    /// The strip of these stripes computed from `k` others; none where too few verify, or it is not
    /// what was stored.
    pub async fn reconstruct_run(
        &self,
        run: &[Pictured],
        stripes: &[usize],
        strip: usize,
        priority: Priority,
    ) -> Vec<Option<Shared>> {
        let mut made: Vec<Option<Shared>> = vec![None; run.len()];
        let Some(first) = stripes.first().map(|at| &run[*at].of) else { return made };
        let sources = self.sources(first, strip);
        if sources.len() < first.shape.k {
            return made;
        }
        let mut read = self.read_neighbours(run, stripes, sources, priority).await;
        let enough = |read: &RunStrips, at: usize| {
            read.iter().filter(|strips| strips[at].is_some()).count() >= run[at].of.shape.k
        };
        let short: Vec<usize> = stripes.iter().copied().filter(|at| !enough(&read, *at)).collect();
        if !short.is_empty() {
            let others = Strips::all(first.shape.width()).without(sources).without(Strips::of([strip]));
            let more = self.read_neighbours(run, &short, others, priority).await;
            for (strips, more) in read.iter_mut().zip(more) {
                strips.iter_mut().zip(more).for_each(|(strip, more)| *strip = strip.take().or(more));
            }
        }
        for at in stripes {
            let of = &run[*at].of;
            if !enough(&read, *at) {
                continue;
            }
            let given: Vec<Option<&[u8]>> = read.iter().map(|strips| strips[*at].as_deref()).collect();
            let mut buffer = Buffer::zeroed(of.shape.strip);
            let possible = of.shape.coder.reconstruct(&given, Strips::of([strip]), &mut [&mut buffer]);
            // Invariant 3: what was computed counts only if it is what was stored.
            if possible && self.verify(of, strip, 0..of.shape.units, &mut buffer).iter().all(|good| *good) {
                self.count.reconstructed.add(of.shape.units as u64);
                made[*at] = Some(buffer.freeze());
            }
        }
        made
    }

    /// The `k` other strips whose drives have the least to do; slow drives last.
    fn sources(&self, of: &Stripe, strip: usize) -> Strips {
        let load = |other: usize| {
            let drive = of.places[other].cell.drive;
            Some((!self.is_prompt(drive), self.io.load(self.drives.index(drive)?)))
        };
        let width = of.shape.width();
        let turned = (0..width).map(|at| (at + of.slot.index as usize) % width).filter(|other| *other != strip);
        let mut others: Vec<_> = turned.filter_map(|other| Some((load(other)?, other))).collect();
        others.sort_by_key(|(load, _)| *load);
        Strips::of(others.into_iter().take(of.shape.k).map(|(_, other)| other))
    }
}

/// No drive is asked for a strip that was never written.
fn is_blank(of: &Stripe, strip: usize) -> bool {
    of.is_blank(strip, 0..of.shape.units)
}

/// The stripes whose strips one request reads: on one drive, one after another, with small gaps.
fn requests(run: &[Pictured], stripes: &[usize], strip: usize) -> Vec<Vec<usize>> {
    let mut requests: Vec<Vec<usize>> = Vec::new();
    for at in stripes {
        let (of, place) = (&run[*at].of, run[*at].of.places[strip]);
        let before = requests.last().and_then(|request| request.last()).map(|before| run[*before].of.places[strip]);
        let near = before.is_some_and(|before| {
            let end = before.at + of.shape.strip as u64;
            before.cell == place.cell && (end..=end + GAP_MAX).contains(&place.at)
        });
        match requests.last_mut().filter(|_| near) {
            Some(request) => request.push(*at),
            None => requests.push(vec![*at]),
        }
    }
    requests
}
