//! Access specifications as data, with Iometer's semantics.
//!
//! The size of each access is drawn by the shares of the specification. Read or write and random or
//! sequential are drawn for each access too. A sequential access continues where the last one on
//! that target ended.

use stele_ground::{Bytes, Dice};

use crate::mix::{Mix, Mixer};

/// What an access specification asks for. Percentages are whole numbers; the shares of the sizes
/// sum to 100.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AccessSpec {
    pub name: String,
    /// Percent of accesses at a random place; none where the source does not say.
    pub random: Option<u8>,
    /// Percent of accesses that read.
    pub read: Option<u8>,
    /// Bytes, and percent of accesses of that size.
    pub sizes: Vec<(u64, u8)>,
}

impl AccessSpec {
    /// Bytes of the longest access.
    pub fn length_max(&self) -> u64 {
        self.sizes.iter().map(|(size, _)| *size).max().unwrap_or(512)
    }

    /// Bytes of an access in the mean, 1 at least.
    pub fn mean_length(&self) -> u64 {
        let all: u64 = self.sizes.iter().map(|(size, share)| size * u64::from(*share)).sum();
        (all / 100).max(1)
    }

    /// Whether any access writes; where the source does not say, all read.
    pub fn writes(&self) -> bool {
        self.read.is_some_and(|percent| percent < 100)
    }
}

/// Where random accesses begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Alignment {
    /// At any multiple of 512 bytes.
    Sector,
    /// At multiples of the access's own size.
    Request,
}

/// What FFSB weighs: accesses of one kind within one file, one behind another or each at a random
/// place of it, before the next file is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation {
    /// Bytes that one reads, and that one writes; whole accesses, and at least one.
    pub read: u64,
    pub write: u64,
}

/// One access of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    pub target: usize,
    pub at: u64,
    pub length: u64,
    pub write: bool,
}

/// The specifications that are shipped, from `data/workloads.csv`.
pub fn shipped() -> Vec<AccessSpec> {
    let mut specs: Vec<AccessSpec> = Vec::new();
    for row in crate::csv::rows(include_str!("../data/workloads.csv")) {
        let [name, random, read, size, share] = row.as_slice() else { continue };
        let size = (size.parse().unwrap_or(0), share.parse().unwrap_or(0));
        match specs.last_mut() {
            Some(last) if last.name == *name => last.sizes.push(size),
            _ => specs.push(AccessSpec {
                name: (*name).to_owned(),
                random: random.parse().ok(),
                read: read.parse().ok(),
                sizes: vec![size],
            }),
        }
    }
    specs
}

/// The shipped specification of that name.
pub fn named(name: &str) -> Option<AccessSpec> {
    shipped().into_iter().find(|spec| spec.name == name)
}

/// Draws accesses. Each target has its own end for sequential ones.
#[derive(Clone, Debug)]
pub struct Generator {
    spec: AccessSpec,
    alignment: Alignment,
    dice: Dice,
    ends: Vec<u64>,
    /// Bytes of each file, where a target is made of files.
    file: Option<u64>,
    /// The share that reads, and that of random ones, is then of operations.
    operation: Option<(Operation, UnderWay)>,
    /// Streams that accesses belong to, in place of the specification.
    mixer: Option<Mixer>,
}

/// How far an operation has come.
#[derive(Clone, Copy, Default, Debug)]
struct UnderWay {
    write: bool,
    random: bool,
    /// Where its file begins.
    file: u64,
    next: u64,
    /// Bytes.
    left: u64,
}

impl Generator {
    pub fn new(spec: AccessSpec, alignment: Alignment, dice: Dice) -> Generator {
        Generator { spec, alignment, dice, ends: Vec::new(), file: None, operation: None, mixer: None }
    }

    /// The first sequential access is there.
    pub fn starting_at(self, at: u64) -> Generator {
        Generator { ends: vec![at], ..self }
    }

    /// No access goes beyond a multiple of it. A random one is at a random place of a random file;
    /// a sequential one that would leave its file begins at the start of a random one.
    pub fn within(self, file: Option<Bytes>) -> Generator {
        Generator { file: file.map(|file| file.0), ..self }
    }

    /// Accesses come in operations, on one target.
    pub fn in_operations(self, operation: Option<Operation>) -> Generator {
        Generator { operation: operation.map(|operation| (operation, UnderWay::default())), ..self }
    }

    /// Accesses are those of streams.
    pub fn in_streams(self, mix: Option<Mix>) -> Generator {
        Generator { mixer: mix.map(Mixer::new), ..self }
    }

    /// Bytes of an access in the mean, 1 at least.
    pub fn mean_length(&self) -> u64 {
        self.spec.mean_length()
    }

    /// The next access of a target of so many bytes.
    pub fn draw(&mut self, target: usize, bytes: u64) -> Access {
        if let Some(access) = self.mixer.as_mut().and_then(|mixer| mixer.draw(&mut self.dice, target, bytes)) {
            return access;
        }
        let length = self.size().min(bytes);
        if let Some((operation, way)) = self.operation {
            return self.draw_within(operation, way, Access { target, at: 0, length, write: false }, bytes);
        }
        let (write, random) = self.kind();
        if self.ends.len() <= target {
            self.ends.resize(target + 1, 0);
        }
        let at = if let Some(file) = self.file {
            let (last, start) = (self.ends[target], self.dice.below(bytes / file) * file);
            let fits = last > 0 && !last.is_multiple_of(file) && last % file + length <= file;
            match (random, self.alignment) {
                (false, _) if fits => last,
                (false, _) => start,
                (true, Alignment::Sector) => start + self.dice.below((file - length) / 512 + 1) * 512,
                (true, Alignment::Request) => start + self.dice.below(file / length) * length,
            }
        } else if random {
            let step = match self.alignment {
                Alignment::Sector => 512,
                Alignment::Request => length,
            };
            self.dice.below((bytes - length) / step + 1) * step
        } else if self.ends[target] + length <= bytes {
            self.ends[target]
        } else {
            0
        };
        self.ends[target] = at + length;
        Access { target, at, length, write }
    }

    /// Whether the next one writes, and whether it is at a random place.
    fn kind(&mut self) -> (bool, bool) {
        let write = self.dice.below(100) >= u64::from(self.spec.read.unwrap_or(100));
        (write, self.dice.below(100) < u64::from(self.spec.random.unwrap_or(100)))
    }

    fn draw_within(&mut self, operation: Operation, mut way: UnderWay, access: Access, bytes: u64) -> Access {
        let length = access.length;
        let file = self.file.unwrap_or(bytes).min(bytes);
        let step = match self.alignment {
            Alignment::Sector => 512,
            Alignment::Request => length,
        };
        if way.left < length {
            (way.write, way.random) = self.kind();
            let whole = if way.write { operation.write } else { operation.read };
            way.left = (whole - whole % length).min(file - file % length).max(length);
            way.file = self.dice.below(bytes / file) * file;
            // So that all of it lies in the file.
            way.next = way.file + self.dice.below((file - way.left) / step + 1) * step;
        }
        if way.random {
            way.next = way.file + self.dice.below((file - length) / step + 1) * step;
        }
        let at = way.next;
        (way.next, way.left) = (at + length, way.left - length);
        self.operation = Some((operation, way));
        Access { at, write: way.write, ..access }
    }

    fn size(&mut self) -> u64 {
        if let [(only, _)] = self.spec.sizes.as_slice() {
            return *only;
        }
        let mut drawn = self.dice.below(100);
        for (size, share) in &self.spec.sizes {
            let share = u64::from(*share);
            if drawn < share {
                return *size;
            }
            drawn -= share;
        }
        self.spec.sizes.last().map_or(512, |(size, _)| *size)
    }
}

#[cfg(test)]
mod tests;
