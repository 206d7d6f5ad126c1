//! Where the next access goes: which file, which place in it, and how long it is; in fio's order.

use stele_ground::Dice;
use stele_ground::digest::context;

use super::map::BlockBitmap;
use super::options::{Options, Service};
use super::spread::BlockDistribution;
use crate::workload::Access;

/// The part of a file that is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    pub offset: u64,
    pub length: u64,
    /// Bytes of the file.
    pub file: u64,
}

struct Place {
    region: Region,
    /// Where the last read ended, and the last write; and where they began. In the file.
    ends: [u64; 2],
    begins: [Option<u64>; 2],
    map: Option<BlockBitmap>,
    spreads: [BlockDistribution; 2],
    /// Nothing is left to do in this pass.
    done: bool,
    begun_again: bool,
}

pub struct Places<'a> {
    options: &'a Options,
    dice: Dice,
    places: Vec<Place>,
    /// The file in use, and accesses before the next one is.
    file: Option<usize>,
    file_left: u64,
    next: usize,
    /// Accesses until the next random one.
    run_left: u64,
    /// A file began from its start again within a pass.
    begun_again: Option<usize>,
}

/// The place of an access within its region.
struct Found {
    at: u64,
    /// Blocks that were drawn already may be touched again.
    again: bool,
}

impl<'a> Places<'a> {
    pub fn new(options: &'a Options, regions: &[Region], mut dice: Dice) -> Places<'a> {
        let places = regions.iter().map(|region| Place::new(options, *region, dice.roll())).collect();
        Places { options, dice, places, file: None, file_left: 0, next: 0, run_left: 1, begun_again: None }
    }

    /// Begins from the start again: another pass.
    pub fn rewind(&mut self) {
        self.places.iter_mut().for_each(|place| place.rewind(self.options));
        self.file = None;
    }

    /// The file, once, that began again since this was asked last.
    pub fn begun_again(&mut self) -> Option<usize> {
        self.begun_again.take()
    }

    pub fn count(&self) -> usize {
        self.places.len()
    }

    /// All files had all their accesses in this pass.
    pub fn is_done(&self) -> bool {
        self.places.iter().all(|place| place.done)
    }

    /// None: the pass is over.
    pub fn next(&mut self, write: bool) -> Option<Access> {
        loop {
            let file = self.choose()?;
            if let Some((at, length)) = self.in_file(file, usize::from(write)) {
                return Some(Access { target: file, at, length, write });
            }
            self.places[file].done = true;
            self.file = None;
        }
    }

    fn choose(&mut self) -> Option<usize> {
        if let Some(file) = self.file.filter(|file| !self.places[*file].done) {
            if self.options.service == Service::Sequential {
                return Some(file);
            }
            if self.file_left > 0 {
                self.file_left -= 1;
                return Some(file);
            }
        }
        let (places, all) = (&self.places, self.places.len());
        let is_open = |file: &usize| !places[*file].done;
        let chosen = match self.options.service {
            Service::Random => {
                let open = (0..all).filter(is_open).count() as u64;
                let drawn = if open > 0 { self.dice.below(open) } else { 0 };
                (0..all).filter(is_open).nth(drawn as usize)
            }
            Service::RoundRobin | Service::Sequential => (self.next..all).chain(0..self.next).find(is_open),
        }?;
        self.next = if chosen + 1 < self.places.len() { chosen + 1 } else { 0 };
        (self.file, self.file_left) = (Some(chosen), self.options.service_run - 1);
        Some(chosen)
    }

    fn in_file(&mut self, file: usize, way: usize) -> Option<(u64, u64)> {
        let begins_run = self.run_left <= 1;
        self.run_left = if begins_run { self.options.run } else { self.run_left - 1 };
        let found = self.place(file, way, begins_run);
        if std::mem::take(&mut self.places[file].begun_again) {
            self.begun_again = Some(file);
        }
        let (found, place) = (found?, &mut self.places[file]);
        if found.at >= place.region.length {
            return None;
        }
        let at = place.region.offset + found.at;
        let mut length = self.options.blocks[way].draw(&mut self.dice, place.region.length - found.at)?;
        if let Some(map) = place.map.as_mut().filter(|_| !found.again) {
            let unit = self.options.block_least();
            // Not into what was drawn before.
            length = length.min(map.take(found.at / unit, length.div_ceil(unit)) * unit);
        }
        place.begins[way] = Some(at);
        place.ends[way] = at + length;
        Some((at, length))
    }

    fn place(&mut self, file: usize, way: usize, begins_run: bool) -> Option<Found> {
        let options = self.options;
        if !options.random {
            return self.places[file].behind_last(options, way).map(|at| Found { at, again: true });
        }
        let follows = match begins_run {
            true => self.dice.below(100) >= u64::from(options.random_percent[way]),
            false => true,
        };
        if follows {
            let place = &mut self.places[file];
            let at = match !begins_run && options.identical {
                true => Some(place.begins[way].map_or(0, |at| at - place.region.offset)),
                false => place.behind_last(options, way).filter(|at| *at < place.region.length),
            };
            if let Some(at) = at {
                return Some(Found { at, again: true });
            }
        }
        let at = self.places[file].random(options, way, &mut self.dice)?;
        Some(Found { at, again: false })
    }
}

impl Place {
    fn new(options: &Options, region: Region, seed: u64) -> Place {
        let spread = |way: usize| {
            let align = align_of(options, way);
            // The last place is the last one at which an access fits.
            let places = region.length.saturating_sub(options.blocks[way].least) / align + 1;
            BlockDistribution::new(&options.distribution, places, context(seed, way as u64))
        };
        let mut place = Place {
            region,
            ends: [region.offset; 2],
            begins: [None; 2],
            map: None,
            spreads: [spread(0), spread(1)],
            done: false,
            begun_again: false,
        };
        place.rewind(options);
        place
    }

    fn rewind(&mut self, options: &Options) {
        (self.ends, self.begins, self.done) = ([self.region.offset; 2], [None; 2], false);
        let mapped = options.random && !options.repeats;
        self.map = mapped.then(|| BlockBitmap::new(self.region.length / options.block_least()));
    }

    /// Where a sequential access goes, within the region; none where the file is over.
    fn behind_last(&mut self, options: &Options, way: usize) -> Option<u64> {
        let Region { offset, length, file } = self.region;
        // In a run by time there is no end.
        if self.ends[way] >= offset + length && options.time_based {
            (self.ends[way], self.begun_again) = (offset, true);
        }
        let last = self.ends[way];
        if last >= file {
            return None;
        }
        let at = last - offset;
        if at == 0 || options.skip == 0 {
            return Some(at);
        }
        // With gaps between accesses it begins again at the file's end, not at the region's.
        let skipped = at + options.skip;
        Some(if skipped >= file { offset } else { skipped })
    }

    fn random(&mut self, options: &Options, way: usize, dice: &mut Dice) -> Option<u64> {
        let align = align_of(options, way);
        if self.region.length < options.blocks[way].least {
            return None;
        }
        let at = self.spreads[way].draw(dice) * align;
        let Some(map) = &mut self.map else { return Some(at) };
        let unit = options.block_least();
        let mut free = map.next_free(at / unit);
        if free.is_none() && options.time_based {
            *map = BlockBitmap::new(self.region.length / unit);
            self.begun_again = true;
            free = map.next_free(at / unit);
        }
        free.map(|block| block * unit)
    }
}

/// What random places are multiples of.
fn align_of(options: &Options, way: usize) -> u64 {
    options.align.map_or(options.blocks[way].least, |align| align[way]).max(1)
}

#[cfg(test)]
mod tests;
