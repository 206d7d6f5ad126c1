//! Large pools: 24 drives of 20 TB with 10 million stripes, and 24 small drives with so small units
//! that they have as many rows as large ones that are a third full. How long the pool takes to open
//! after kill -9 and to write its first block, and the memory that it needs for each TB.
//!
//! The drives are sparse files in memory. This program fills a volume with stripes of zeros, which
//! take no memory there, and is gone without closing the pool. Then the release server opens it.
//! The times on hard drives are virtual: the same array opens the same files, and each command
//! takes the time of a model. The first pool needs about 14 GB of memory.

mod drives;

use std::process::Command as Program;
use std::time::Instant as WallInstant;

use serde_json::Value;
use stele_array::{DigestUnit, VolumeSpec, WriteMode};
use stele_ground::{BLOCK, Bytes, VolumeId};
use stele_media::{Buffer, Op, Shared};

use crate::harness::{Bench, TARGET, Unit};
use crate::process;
use crate::rig::Rig;
use crate::served::Node;
use drives::{Pace, SparseDrive};

const DRIVES: usize = 24;
const STRIP: u64 = 64 << 10;
/// The most memory that a pool of 480 TB may need.
const MOST: f64 = 4e9;
/// Bytes of memory for each page of the table.
const ENTRY: f64 = 16.0;
/// Random writes through NBD.
const WRITES: u64 = 50_000;
const TABLE: &str = "table = \"64MiB\"";
const LITTLE: &str = "table = \"4MiB\"";
/// Bytes of the caches that the server's memory is measured without, and with which a pool is
/// computed: blocks, table, dirty blocks.
const CACHES: f64 = (256u64 << 20) as f64;

struct Plan {
    case: &'static str,
    drive: u64,
    /// Bytes of a drive that a row takes.
    unit: u64,
    /// Stripes to write.
    slots: u64,
}

const PLANS: [Plan; 2] = [
    Plan { case: "20 TB", drive: 20_000_000_000_000 / (1 << 20) * (1 << 20), unit: 1 << 30, slots: 10_000_000 },
    Plan { case: "small units", drive: 16 << 30, unit: 2 << 20, slots: 2_600_000 },
];

/// Memory of an opened pool whose table has hardly any cache.
struct Memory {
    empty: f64,
    full: f64,
    rows: f64,
    slots: f64,
    /// Pages of the table.
    pages: f64,
}

pub fn run(bench: &mut Bench) -> Result<(), String> {
    bench.note("24 drives, sparse files in memory; one mirror-2 volume with strips of 64 KiB, all its stripes written");
    let mut found = Vec::new();
    for plan in &PLANS {
        if bench.wants(plan.case) || bench.wants("480 TB") {
            found.push(measure(bench, plan)?);
        }
    }
    let [large, small] = &found[..] else { return Ok(()) };
    // What the directory does not explain is ascribed to the rows: more than is true, never less.
    let per_row = (small.full - small.empty - small.pages * ENTRY) / small.rows;
    let pages = large.pages / large.slots;
    bench.note(&format!("a row takes {per_row:.0} bytes of memory, a stripe of a mirror-2 {:.2}", pages * ENTRY));
    let raw = (DRIVES as u64 * PLANS[0].drive) as f64;
    for (code, width) in [("mirror-2", 2), ("8+2", 10)] {
        let rows = raw / PLANS[0].unit as f64 / f64::from(width);
        let stripes = raw / STRIP as f64 / f64::from(width);
        // A stripe's entry in the table grows with its strips, and with it its share of a page.
        let share = f64::from(40 + 64 * width) / f64::from(40 + 64 * 2);
        let bytes = large.empty + CACHES + per_row * rows + pages * share * ENTRY * stripes;
        let case = format!("480 TB full of {code}: memory, computed");
        bench.figure(&case, Unit::less("MB"), bytes / 1e6, Some((TARGET, MOST / 1e6)), Some(1.0));
        let case = format!("480 TB full of {code}: memory for each TB");
        bench.figure(&case, Unit::less("MB"), bytes / raw * 1e6, None, None);
    }
    Ok(())
}

fn measure(bench: &mut Bench, plan: &Plan) -> Result<Memory, String> {
    let case = plan.case;
    let size = plan.drive.to_string();
    let paths: Vec<String> = (0..DRIVES).map(|number| format!("d{number}.img@{number}")).collect();
    let mut create = vec!["--size", &size, "--data", "none", "--spare", "1", "--log", "256MiB"];
    paths.iter().for_each(|path| create.extend(["--drive", path]));
    let begun = WallInstant::now();
    let changes = [("[nbd]\n", "[nbd]\nlisten = \"127.0.0.1:0\"\n"), (TABLE, LITTLE)];
    let mut node = Node::create("large", &create, &changes)?;
    let mut say = |what: &str, unit, value| bench.figure(&format!("{case}: {what}"), unit, value, None, None);
    say("create the pool", Unit::less("s"), begun.elapsed().as_secs_f64());
    say("open, empty", Unit::less("s"), serve(&mut node)?);
    let empty = process::anonymous(node.process()) as f64;
    node.kill();

    let begun = WallInstant::now();
    let mut rig = drives::open(node.dir(), DRIVES, plan.drive, Pace::Memory)?;
    let volume = fill(&mut rig, plan.slots)?;
    drop(rig);
    say("stripes written, in process", Unit::more("1/s"), plan.slots as f64 / begun.elapsed().as_secs_f64());

    say("open after the writer was gone", Unit::less("s"), serve(&mut node)?);
    // Without what was read from the log.
    node.stop()?;
    serve(&mut node)?;
    let full = process::anonymous(node.process()) as f64;
    say("memory of the server beside its caches, empty", Unit::less("MB"), empty / 1e6);
    say("memory of the server beside its caches, full", Unit::less("MB"), full / 1e6);
    node.kill();

    node.configure(LITTLE, TABLE)?;
    serve(&mut node)?;
    node.run(&["volume", "export", "large", "--nbd"])?;
    let begun = WallInstant::now();
    let status = node.ask(&["pool", "status"])?;
    say("stele pool status", Unit::less("ms"), begun.elapsed().as_secs_f64() * 1e3);
    let pages = status["counters"]["table pages"].as_f64().ok_or("the status has no pages of the table")?;
    let url = format!("nbd+unix:///large?socket={}", node.dir().join("nbd.sock").display());
    say("first write over NBD", Unit::less("ms"), write(&url, 1, 1)?.longest * 1e3);
    let writes = write(&url, WRITES, 16)?;
    say("random writes of 4 KiB, depth 16", Unit::more("1/s"), writes.rate);
    say("random writes of 4 KiB, the longest of 50,000", Unit::less("ms"), writes.longest * 1e3);
    say("memory of the server after them", Unit::less("MB"), process::anonymous(node.process()) as f64 / 1e6);
    node.kill();
    say("open after kill -9", Unit::less("s"), serve(&mut node)?);
    let cpu = process::Usage::of(node.process()).cpu_nanoseconds as f64 / 1e9;
    say("open after kill -9, processor time", Unit::less("s"), cpu);
    node.kill();

    let mut rig = drives::open(node.dir(), DRIVES, plan.drive, Pace::HardDrives)?;
    let opened = rig.now();
    say("open after kill -9 on hard drives, virtual", Unit::less("s"), opened.0 as f64 / 1e9);
    // Behind what is written: the stripe has no slot yet.
    let data = Buffer::copy_of(&[7; BLOCK]).freeze();
    rig.drive(volume, 1, 1, |_, _| write_of(plan.slots, &data))?;
    say("first write on hard drives, virtual", Unit::less("ms"), rig.now().since(opened).as_secs_f64() * 1e3);
    let rows = (plan.slots * STRIP) as f64 / plan.unit as f64;
    Ok(Memory { empty, full, rows, slots: plan.slots as f64, pages })
}

/// Starts the server; returns the seconds until it is ready.
fn serve(node: &mut Node) -> Result<f64, String> {
    let begun = WallInstant::now();
    node.serve()?;
    Ok(begun.elapsed().as_secs_f64())
}

/// Makes the volume and writes all its stripes but the last thousand.
fn fill(rig: &mut Rig<SparseDrive>, slots: u64) -> Result<VolumeId, String> {
    let spec = VolumeSpec {
        name: "large".into(),
        code: "mirror-2".parse().map_err(|error| format!("{error}"))?,
        size: Bytes((slots + 1000) * STRIP),
        strip: Bytes(STRIP),
        block: Bytes(BLOCK as u64),
        digest: DigestUnit::Block,
        mode: WriteMode::WriteBack,
        fully_allocated: false,
        spread: false,
        owner: None,
    };
    let volume = rig.create(spec)?;
    let zeros = Buffer::zeroed(STRIP as usize).freeze();
    rig.drive(volume, 64, slots, |stripe, _| write_of(stripe, &zeros))?;
    Ok(volume)
}

fn write_of(stripe: u64, data: &Shared) -> Op {
    Op::Write { at: stripe * STRIP, data: vec![data.clone()], fua: false }
}

struct Writes {
    rate: f64,
    /// Seconds of the slowest.
    longest: f64,
}

/// Random writes of 4 KiB through fio.
fn write(url: &str, count: u64, depth: u32) -> Result<Writes, String> {
    let output = Program::new("fio")
        .args(["--ioengine=nbd", "--name=w", "--norandommap", "--randrepeat=0", "--rw=randwrite", "--bs=4k"])
        .args(["--output-format=json", &format!("--uri={url}"), &format!("--number_ios={count}")])
        .arg(format!("--iodepth={depth}"))
        .output()
        .map_err(|error| format!("cannot run fio: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    let json = said.find('{').and_then(|at| said.get(at..)).unwrap_or_default();
    let said: Value =
        serde_json::from_str(json).map_err(|error| format!("fio said something else than JSON: {error}"))?;
    let side = &said["jobs"][0]["write"];
    let longest = side["lat_ns"]["max"].as_f64().filter(|longest| *longest > 0.0).ok_or("fio wrote nothing")?;
    Ok(Writes { rate: side["iops"].as_f64().unwrap_or_default(), longest: longest / 1e9 })
}
