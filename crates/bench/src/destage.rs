//! Prototypes of the way from the log to the strips, for small random writes: models of the write
//! path, not the product. Decision 039 has their figures, and what follows from them.
//!
//! - *today*: stripe by stripe, with a redo record and flushes for each, as the array does it
//! - *batch*: many stripes in place with one redo record and one flush for each drive
//! - *relocate*: dirty blocks of many stripes become new full stripes; a cleaner makes room
//!
//! On drives in memory real bytes are copied, digested and coded. Figures are processor time, so
//! that a machine with other work shows the same. On modelled hard drives only commands count, in
//! virtual time, with the same digits in every run.

mod hard;
mod hosts;
mod layout;
mod memory;
mod space;

use stele_array::OpenOptions;
use stele_ground::{Bytes, Dice, MIB, VolumeId};
use stele_media::{MemoryDrive, Op, Shared};

use crate::array::{pool_of, random_bytes, volume_of};
use crate::harness::{Bench, TARGET, Unit};
use crate::process::Usage;
use crate::rig::Rig;
use hard::{Machine, Path, Plan};
use hosts::{Skew, Writers};
use layout::{Layout, PAGE};
use memory::in_place::{self, Batch};
use memory::relocate::{self, Relocate};
use memory::today::Today;
use memory::{Destage, MemoryPool, Running, Sizes, Written};
use space::Choice;

/// As `./x bench array --case sustained`, at half of its sizes: several prototypes are in memory at
/// once, so that their rounds alternate.
const SIZES: Sizes =
    Sizes { volume: 256 * MIB, log: 64 * MIB, clean: 128 * MIB, dirty: 32 * MIB, drive: MemoryDrive::new };
/// Writes of hosts that are outstanding: as many share a group of the log.
const DEPTH: usize = 32;
/// Writes of a round: ten times what may be dirty. The kernel counts processor time in steps of
/// 4 ms.
const ROUND: u64 = 10 * SIZES.dirty / PAGE;
/// The volume is read so many times in a round.
const READS: usize = 4;
/// Bytes that a cache absorbs the writes to, so that next to nothing is destaged.
const ABSORBED: u64 = 2 * MIB;

/// A prototype, or the array, with the rest of its measurement.
struct Variant {
    name: String,
    subject: Box<dyn Subject>,
    rates: Vec<f64>,
}

trait Subject {
    fn write(&mut self, count: u64) -> Result<(), String>;

    /// Whether `read` reads what was written.
    fn reads(&self) -> bool {
        false
    }

    /// Reads the whole volume in order, in requests of so many blocks, or as many at random.
    fn read(&mut self, _request: u64, _at_random: bool) {}

    /// Commands and bytes to the drives so far.
    fn counts(&self) -> Option<(u64, u64)> {
        None
    }
}

struct Prototype<D> {
    running: Running<D>,
    hosts: Writers,
    data: Shared,
    next: usize,
}

impl<D: Destage> Subject for Prototype<D> {
    fn write(&mut self, count: u64) -> Result<(), String> {
        let mut group = Vec::with_capacity(DEPTH);
        for _ in 0..count / DEPTH as u64 {
            group.clear();
            for _ in 0..DEPTH {
                self.next = (self.next + 1) % (self.data.len() / PAGE as usize);
                let from = self.next * PAGE as usize;
                group.push((self.hosts.draw(), self.data.slice(from..from + PAGE as usize)));
            }
            self.running.write(&group);
        }
        Ok(())
    }

    fn reads(&self) -> bool {
        D::READS
    }

    fn read(&mut self, request: u64, at_random: bool) {
        let blocks = SIZES.volume / PAGE;
        let mut buffer = vec![0; (request * PAGE) as usize];
        let mut dice = Dice::new(8);
        for first in (0..blocks / request).map(|number| number * request) {
            let first = if at_random { dice.below(blocks / request) * request } else { first };
            self.running.read(first, request, &mut buffer);
            std::hint::black_box(&buffer);
        }
    }

    fn counts(&self) -> Option<(u64, u64)> {
        Some((self.running.store.drives.commands, self.running.store.drives.written))
    }
}

/// The log alone: what is above the limit is forgotten.
#[derive(Default)]
struct Forget(usize);

impl Destage for Forget {
    const READS: bool = false;

    fn accept(&mut self, _: &mut MemoryPool, blocks: &[(u64, Written)]) {
        self.0 += blocks.len();
    }

    fn dirty(&self) -> usize {
        self.0
    }

    fn destage(&mut self, _: &mut MemoryPool) {
        self.0 = 0;
    }

    fn read(&self, _: &mut MemoryPool, _: u64, _: u64, _: &mut [u8]) {}
}

/// The array itself, as a host of this program drives it.
struct Real {
    rig: Rig<MemoryDrive>,
    volume: VolumeId,
    hosts: Writers,
    data: Shared,
}

impl Subject for Real {
    fn write(&mut self, count: u64) -> Result<(), String> {
        let (hosts, data) = (&mut self.hosts, &self.data);
        let next = |number: u64, _: Option<Op>| {
            let from = (number * PAGE) as usize % data.len();
            Op::Write { at: hosts.draw() * PAGE, data: vec![data.slice(from..from + PAGE as usize)], fua: false }
        };
        self.rig.drive(self.volume, DEPTH, count, next).map(drop)
    }
}

/// Strips of 64 KiB in small rows, so that as many of them are free as of a large pool's.
fn layout_in_memory(code: &str) -> Layout {
    match code {
        "mirror-2" => Layout { k: 1, m: 1, drives: 4, strip: 16, row: 32, turns: false },
        _ => Layout { k: 8, m: 2, drives: 10, strip: 16, row: 4, turns: false },
    }
}

/// A filled volume in place.
fn in_place<D: Destage>(code: &str, make: impl FnOnce(&Layout) -> D) -> Running<D> {
    let layout = layout_in_memory(code);
    let stripes = (SIZES.volume / PAGE).div_ceil(layout.stripe());
    let mut store = MemoryPool::new(layout, stripes, in_place::words(&layout, stripes), SIZES);
    in_place::begin(&mut store, stripes);
    Running::new(store, make(&layout), SIZES)
}

/// A filled volume in parcels of 512 KiB.
fn relocated(code: &str, full: f64, choice: Choice) -> Running<Relocate> {
    let layout = match layout_in_memory(code) {
        mirror @ Layout { k: 1, .. } => Layout { strip: 128, row: 4, ..mirror },
        other => other,
    };
    let blocks = SIZES.volume / PAGE;
    let destage = Relocate::new(&layout, blocks, relocate::Room { full, choice, parcels: 8 });
    let store = MemoryPool::new(layout, destage.space().parcels(), blocks as usize, SIZES);
    let mut running = Running::new(store, destage, SIZES);
    let zeros = Shared::from(vec![0; PAGE as usize]);
    for first in (0..blocks).step_by(DEPTH) {
        let group: Vec<(u64, Shared)> = (first..first + DEPTH as u64).map(|block| (block, zeros.clone())).collect();
        running.write(&group);
    }
    running
}

fn variant<D: Destage + 'static>(name: &str, running: Running<D>, skew: Skew, data: &Shared) -> Variant {
    let hosts = Writers::new(5, SIZES.volume / PAGE, skew);
    let subject = Box::new(Prototype { running, hosts, data: data.clone(), next: 0 });
    Variant { name: name.to_owned(), subject, rates: Vec::new() }
}

/// Hosts write to the first `span` bytes.
fn array_itself(name: &str, code: &str, span: u64, data: &Shared) -> Result<Variant, String> {
    let options =
        OpenOptions { block_cache: Bytes(SIZES.clean), dirty_limit: Bytes(SIZES.dirty), ..OpenOptions::default() };
    // Twice the volume's share of a drive, beside log and tables.
    let layout = layout_in_memory(code);
    let share = SIZES.volume * layout.width() as u64 / (layout.k * layout.drives) as u64;
    let mut rig = pool_of(layout.drives, 2 * share + 2 * SIZES.log, options)?;
    let volume = volume_of(&mut rig, "small", code, SIZES.volume, PAGE)?;
    let fill = |number: u64, _| Op::Write { at: number * MIB, data: vec![data.clone()], fua: false };
    rig.drive(volume, 8, SIZES.volume / MIB, fill)?;
    let hosts = Writers::new(5, span / PAGE, Skew::Uniform);
    let subject = Box::new(Real { rig, volume, hosts, data: data.clone() });
    Ok(Variant { name: name.to_owned(), subject, rates: Vec::new() })
}

/// How full the room is, and where hosts write.
const FILLINGS: [(f64, Skew, Choice); 8] = [
    (0.8, Skew::Uniform, Choice::Greedy),
    (0.7, Skew::Uniform, Choice::Greedy),
    (0.9, Skew::Uniform, Choice::Greedy),
    (0.7, Skew::Hot, Choice::Greedy),
    (0.8, Skew::Hot, Choice::Greedy),
    (0.9, Skew::Hot, Choice::Greedy),
    (0.8, Skew::Hot, Choice::CostBenefit),
    (0.9, Skew::Hot, Choice::CostBenefit),
];

fn filling_name(full: f64, skew: Skew, choice: Choice) -> String {
    let choice = if choice == Choice::Greedy { "greedy" } else { "cost-benefit" };
    format!("relocate, {:.0} % full, {}, {choice}", 100.0 * full, skew.name())
}

type Build<'a> = Box<dyn Fn() -> Result<Variant, String> + 'a>;

fn in_memory<'a>(code: &'a str, data: &'a Shared) -> Vec<(String, Build<'a>)> {
    let mut all: Vec<(String, Build<'a>)> = vec![
        ("the array itself".into(), { Box::new(move || array_itself("the array itself", code, SIZES.volume, data)) }),
        ("the array, absorbed".into(), Box::new(move || array_itself("the array, absorbed", code, ABSORBED, data))),
        ("log alone".into(), {
            Box::new(move || Ok(variant("log alone", in_place(code, |_| Forget(0)), Skew::Uniform, data)))
        }),
        ("today".into(), {
            Box::new(move || Ok(variant("today", in_place(code, |_| Today::default()), Skew::Uniform, data)))
        }),
    ];
    for stripes in [8, 64, 512] {
        let name = format!("batch of {stripes}");
        let build = move |name: &str| {
            let make = |layout: &Layout| Batch::new(layout, SIZES.volume / PAGE, stripes);
            variant(name, in_place(code, make), Skew::Uniform, data)
        };
        all.push((name.clone(), Box::new(move || Ok(build(&name)))));
    }
    for (full, skew, choice) in FILLINGS {
        let name = filling_name(full, skew, choice);
        let shown = name.clone();
        all.push((shown, Box::new(move || Ok(variant(&name, relocated(code, full, choice), skew, data)))));
    }
    all
}

const ENDS: [&str; 6] =
    [": writes", ": CPU each", ": commands each", ": to drives per byte", ": read in order", ": read at random"];

/// Variants in memory at once.
const SIDE_BY_SIDE: usize = 8;

fn memory(bench: &mut Bench, code: &str, target: f64) -> Result<(), String> {
    let data = random_bytes(MIB as usize);
    let head = |name: &str| format!("memory, {code}, {name}");
    let wanted: Vec<(String, Build<'_>)> =
        in_memory(code, &data).into_iter().filter(|(name, _)| bench.wants_any(&head(name), ENDS)).collect();
    for some in wanted.chunks(SIDE_BY_SIDE) {
        let mut variants = some.iter().map(|(_, build)| build()).collect::<Result<Vec<Variant>, String>>()?;
        let mut counts = Vec::new();
        // What was filled in order is rewritten, until the cleaner has as much to do as it will.
        for variant in &mut variants {
            variant.subject.write(3 * SIZES.volume / PAGE)?;
            counts.push(variant.subject.counts());
        }
        for _ in 0..bench.rounds() {
            for variant in &mut variants {
                let before = Usage::own().cpu_nanoseconds;
                variant.subject.write(ROUND)?;
                let took = Usage::own().cpu_nanoseconds - before;
                variant.rates.push(ROUND as f64 * 1e9 / took as f64);
            }
        }
        let after: Vec<Option<(u64, u64)>> = variants.iter().map(|variant| variant.subject.counts()).collect();
        let mut reads: Vec<[Vec<f64>; 2]> = variants.iter().map(|_| Default::default()).collect();
        for _ in 0..bench.rounds() {
            for (variant, reads) in variants.iter_mut().zip(&mut reads).filter(|(variant, _)| variant.subject.reads()) {
                for (request, at_random, read) in [(256, false, 0), (1, true, 1)] {
                    let before = Usage::own().cpu_nanoseconds;
                    (0..READS).for_each(|_| variant.subject.read(request, at_random));
                    reads[read].push((Usage::own().cpu_nanoseconds - before) as f64);
                }
            }
        }
        let counts = counts.into_iter().zip(after);
        for ((variant, counts), [in_order, at_random]) in variants.iter().zip(counts).zip(reads) {
            let name = head(&variant.name);
            let [writes, cpu, commands, bytes, order, random] = ENDS.map(|end| format!("{name}{end}"));
            bench.figures(&writes, Unit::more("writes/s"), &variant.rates, Some((TARGET, target)), None);
            let each: Vec<f64> = variant.rates.iter().map(|rate| 1e6 / rate).collect();
            bench.figures(&cpu, Unit::less("us"), &each, None, None);
            let (Some((commands_before, written_before)), Some((commands_after, written_after))) = counts else {
                continue;
            };
            let count = (u64::from(bench.rounds()) * ROUND) as f64;
            bench.figure(&commands, Unit::less("1"), (commands_after - commands_before) as f64 / count, None, None);
            let written = (written_after - written_before) as f64 / PAGE as f64;
            bench.figure(&bytes, Unit::less("B/B"), written / count, None, None);
            if !variant.subject.reads() {
                continue;
            }
            let rate: Vec<f64> =
                in_order.iter().map(|took| (READS as u64 * SIZES.volume) as f64 * 1e3 / took).collect();
            bench.figures(&order, Unit::more("MB/s"), &rate, None, None);
            let count = (READS as u64 * SIZES.volume / PAGE) as f64;
            let each: Vec<f64> = at_random.iter().map(|took| took / 1e3 / count).collect();
            bench.figures(&random, Unit::less("us"), &each, None, None);
        }
    }
    Ok(())
}

/// Codes and numbers of drives.
const POOLS: [(&str, usize, usize, usize); 9] = [
    ("4+1", 4, 1, 5),
    ("8+1", 8, 1, 9),
    ("9+1", 9, 1, 10),
    ("9+1", 9, 1, 20),
    ("9+1", 9, 1, 24),
    ("mirror-2", 1, 1, 10),
    ("mirror-2", 1, 1, 24),
    ("8+2", 8, 2, 10),
    ("8+2", 8, 2, 24),
];
/// MiB of the cache that may be dirty: what the laboratory gives the array where it compares with
/// the DS4500, and four times as much.
const CACHES: [u64; 2] = [64, 256];
const HARD_ENDS: [&str; 5] =
    [": writes", ": commands each", ": to drives per byte", ": read in order", ": read at random"];

/// Stripes of a batch, and KiB of the gaps in its reads and writes.
const BATCHES: [(usize, u64, u64); 5] = [(8, 0, 0), (64, 0, 0), (512, 0, 0), (512, 64, 0), (512, 64, 64)];

/// A path with its name, where hosts write, and whether roles turn with every stripe.
type Way = (String, Path, Skew, bool);

fn paths(layout: &Layout, cache: u64) -> Vec<Way> {
    let (drives, is_mirror) = (layout.drives, layout.is_mirror());
    let mut all: Vec<Way> = Vec::new();
    for turns in [false, true] {
        // The copies of a mirror are alike.
        if turns && is_mirror {
            continue;
        }
        let turning = if turns { ", roles by stripe" } else { "" };
        if !turns {
            all.push(("profile".into(), Path::Profile, Skew::Uniform, turns));
        }
        all.push((format!("today{turning}"), Path::Today, Skew::Uniform, turns));
        for (stripes, read, write) in BATCHES.into_iter().filter(|(_, read, _)| *read == 0 || !is_mirror) {
            let gaps = match (read, write) {
                (0, _) => String::new(),
                (_, 0) => format!(", gaps of {read} KiB read"),
                _ => format!(", gaps of {read} KiB read and written"),
            };
            let path = Path::Batch { stripes, read_gap: read << 10, write_gap: write << 10 };
            all.push((format!("batch of {stripes}{gaps}{turning}"), path, Skew::Uniform, turns));
        }
    }
    // All fillings would take minutes for each pool.
    let shown = |full: f64, skew| drives == 10 && cache == CACHES[0] || full == 0.8 && skew == Skew::Uniform;
    for (full, skew, choice) in FILLINGS.into_iter().filter(|(full, skew, _)| shown(*full, *skew)) {
        all.push((filling_name(full, skew, choice), Path::Relocate { full, choice }, skew, false));
    }
    all
}

fn hard_drives(bench: &mut Bench, pool: (&str, usize, usize, usize), cache: u64) {
    let (code, k, m, drives) = pool;
    let layout = hard::layout(k, m, drives);
    let row = layout.row * layout.stripe();
    let blocks = hard::blocks_of_drive() * drives as u64 * k as u64 / layout.width() as u64 / row * row;
    let limit = cache * MIB / PAGE;
    let mut profile = None;
    for (name, path, skew, turns) in paths(&layout, cache) {
        let name = format!("hard drives, {code} on {drives}, cache {cache} MiB, {name}");
        if !bench.wants_any(&name, HARD_ENDS) {
            continue;
        }
        let mut plan = Plan::new(path, Layout { turns, ..layout }, blocks, limit, skew);
        let mut machine = Machine::new(drives);
        // Relocation has moved every block, and cleans as much as it will.
        plan.age(if matches!(path, Path::Relocate { .. }) { 3 * blocks } else { 2 * limit });
        let wrote = hard::write(&mut plan, &mut machine, 2 * (1500 * drives as u64).max(limit));
        hard::settle(&mut plan, &mut machine);
        let in_order = hard::read_in_order(&plan, &mut machine, 64 * MIB / PAGE);
        let at_random = hard::read_at_random(&plan, &mut machine, 2000, drives);
        if path == Path::Profile {
            profile = Some(wrote.rate);
        }
        let beside = profile.map(|rate| ("the profile", rate));
        let is_raid5 = m == 1 && k > 1;
        let target = (is_raid5 && path != Path::Profile).then_some(2.0).filter(|_| beside.is_some());
        let [writes, commands, bytes, order, random] = HARD_ENDS.map(|end| format!("{name}{end}"));
        bench.figure(&writes, Unit::more("writes/s"), wrote.rate, beside, target);
        bench.figure(&commands, Unit::less("1"), wrote.commands, None, None);
        bench.figure(&bytes, Unit::less("B/B"), wrote.amplification, None, None);
        bench.figure(&order, Unit::more("MiB/s"), in_order, None, None);
        bench.figure(&random, Unit::less("ms"), at_random, None, None);
    }
}

pub fn run(bench: &mut Bench) -> Result<(), String> {
    bench.note("memory: processor time of one thread; hard drives: virtual time, the log in memory, the cache full");
    for (code, target) in [("mirror-2", 250_000.0), ("8+2", 120_000.0)] {
        memory(bench, code, target)?;
    }
    for cache in CACHES {
        POOLS.into_iter().for_each(|pool| hard_drives(bench, pool, cache));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
