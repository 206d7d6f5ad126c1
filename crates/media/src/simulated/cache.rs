//! The volatile write cache of a simulated drive: every version of every sector since it was last
//! durable.
//!
//! The cache keeps all versions, and not only the newest, because a real drive may destage an early
//! version of a sector and lose a later one. Between flushes it may do so in any order.

use std::collections::{BTreeMap, VecDeque};

use stele_ground::{BLOCK, Dice};

use super::platter::{Page, Platter, SECTOR, SECTORS, bytes_of, is_zero, merge};

/// Limit on cached versions: 64 MiB. Beyond it the oldest become durable, as in a drive with a full
/// cache.
const VERSIONS_MAX: usize = 16_384;

#[derive(Clone, Debug)]
struct Version {
    sequence: u64,
    /// The sectors of the page that this write touched and that are not durable yet.
    mask: u8,
    content: Page,
}

/// A part of a page that a power cut may lose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unsettled {
    pub page: u64,
    /// First sector of the unit; the unit is one sector, or all eight if they are written as one.
    pub sector: u8,
    /// Number of possible contents after the cut: the durable one and the later versions. At least
    /// 2.
    pub choices: usize,
}

/// The cache. A power cut loses its content, except for the parts that chance keeps.
#[derive(Clone, Debug)]
pub struct Cache {
    pages: BTreeMap<u64, Vec<Version>>,
    /// Sequence and page of every version, oldest first; entries of versions that became durable
    /// stay until popped.
    order: VecDeque<(u64, u64)>,
    sequence: u64,
    /// Bytes that are torn as one: 512 or 4096.
    tear: usize,
}

impl Cache {
    pub fn new(tear: usize) -> Cache {
        Cache { pages: BTreeMap::new(), order: VecDeque::new(), sequence: 0, tear }
    }

    /// A mark of all writes applied so far; a flush submitted now covers them.
    pub fn mark(&self) -> u64 {
        self.sequence
    }

    /// A new sequence number for the next write.
    pub fn next(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// The pages from `first` to `last` as a read sees them, in order; `None` for zeros. It hands
    /// out references: a count of holders for each page took a tenth of a run's time.
    pub fn view(&self, platter: &Platter, first: u64, last: u64, mut each: impl FnMut(u64, Option<&[u8; BLOCK]>)) {
        let mut stored = platter.stored(first, last).peekable();
        let mut cached = self.pages.range(first..=last).peekable();
        for page in first..=last {
            let below = stored.next_if(|(index, _)| **index == page).map(|(_, leaf)| leaf);
            let Some((_, versions)) = cached.next_if(|(index, _)| **index == page) else {
                each(page, below.map(|leaf| &**leaf));
                continue;
            };
            match versions.last() {
                Some(last) if last.mask == u8::MAX => each(page, last.content.as_deref()),
                _ => {
                    let mut content = bytes_of(below);
                    versions.iter().for_each(|version| merge(&mut content, version.mask, version.content.as_ref()));
                    each(page, (!is_zero(&content)).then_some(&content));
                }
            }
        }
    }

    /// Makes a write of some sectors of a page visible, but not durable.
    pub fn put(&mut self, platter: &mut Platter, sequence: u64, page: u64, mask: u8, content: Page) {
        self.pages.entry(page).or_default().push(Version { sequence, mask, content });
        self.order.push_back((sequence, page));
        while self.order.len() > VERSIONS_MAX {
            if let Some((oldest, page)) = self.order.pop_front() {
                self.settle_page(platter, page, oldest);
            }
        }
    }

    /// Makes a write of some sectors visible and durable at once, over all older versions.
    pub fn put_through(&mut self, platter: &mut Platter, page: u64, mask: u8, content: Page) {
        if let Some(versions) = self.pages.get_mut(&page) {
            versions.iter_mut().for_each(|version| version.mask &= !mask);
            versions.retain(|version| version.mask != 0);
            if versions.is_empty() {
                self.pages.remove(&page);
            }
        }
        platter.set_sectors(page, mask, content);
    }

    /// Makes every write up to `mark` durable.
    pub fn flush(&mut self, platter: &mut Platter, mark: u64) {
        while let Some(&(sequence, page)) = self.order.front() {
            if sequence > mark {
                break;
            }
            self.order.pop_front();
            self.settle_page(platter, page, sequence);
        }
    }

    fn settle_page(&mut self, platter: &mut Platter, page: u64, mark: u64) {
        let Some(versions) = self.pages.get_mut(&page) else { return };
        let durable = versions.iter().take_while(|version| version.sequence <= mark).count();
        for version in versions.drain(..durable) {
            platter.set_sectors(page, version.mask, version.content);
        }
        if versions.is_empty() {
            self.pages.remove(&page);
        }
    }

    /// Every place at which a power cut has a choice, in order.
    pub fn unsettled(&self) -> Vec<Unsettled> {
        let mut all = Vec::new();
        for (&page, versions) in &self.pages {
            for (sector, unit) in self.units() {
                let choices = 1 + versions.iter().filter(|version| version.mask & unit != 0).count();
                if choices > 1 {
                    all.push(Unsettled { page, sector, choices });
                }
            }
        }
        all
    }

    /// First sector and mask of every unit that is torn as one.
    fn units(&self) -> impl Iterator<Item = (u8, u8)> + use<> {
        let step = self.tear / SECTOR;
        let mask = if step >= SECTORS { u8::MAX } else { (1 << step) - 1 };
        (0..SECTORS).step_by(step).map(move |sector| (sector as u8, mask << sector))
    }

    /// Cuts the power: each unsettled place keeps the chosen version (0 is the durable content).
    /// Choices come in the order of [`Cache::unsettled`].
    pub fn cut(&mut self, platter: &mut Platter, mut choose: impl FnMut(Unsettled) -> usize) {
        let places = self.unsettled();
        for place in places {
            let chosen = choose(place);
            if chosen == 0 {
                continue;
            }
            let step = self.tear / SECTOR;
            let unit = if step >= SECTORS { u8::MAX } else { ((1 << step) - 1) << place.sector };
            let version = self
                .pages
                .get(&place.page)
                .and_then(|versions| versions.iter().filter(|version| version.mask & unit != 0).nth(chosen - 1));
            if let Some(version) = version {
                platter.set_sectors(place.page, version.mask & unit, version.content.clone());
            }
        }
        self.pages.clear();
        self.order.clear();
    }
}

/// The severity of one power cut, drawn for each cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// The cache is lost.
    NothingSurvives,
    /// The drive wrote the whole cache.
    EverythingSurvives,
    /// Each place keeps a random version.
    Any,
    /// Each place keeps its newest version with this chance in 256, otherwise the durable content.
    Newest(u8),
}

impl Cut {
    pub fn drawn(dice: &mut Dice) -> Cut {
        match dice.below(8) {
            0 | 1 => Cut::NothingSurvives,
            2 => Cut::EverythingSurvives,
            3 | 4 => Cut::Newest((1 << dice.below(8)) as u8),
            5 => Cut::Newest(!((1 << dice.below(8)) as u8)),
            _ => Cut::Any,
        }
    }

    pub fn choose(self, dice: &mut Dice, place: Unsettled) -> usize {
        match self {
            Cut::NothingSurvives => 0,
            Cut::EverythingSurvives => place.choices - 1,
            Cut::Any => dice.below(place.choices as u64) as usize,
            Cut::Newest(chance) if dice.below(256) < u64::from(chance) => place.choices - 1,
            Cut::Newest(_) => 0,
        }
    }
}
