//! Stele 4+2 on six loop devices over files in memory, served by its own thread over io_uring. The
//! figures stand beside those of btrfs raid6 on the same devices, measured on the reference
//! machine. The cases need root and `losetup`, and are left out without them.

use std::process::Command as Process;
use std::sync::mpsc;
use std::time::Instant as WallInstant;

use stele_array::server::{DrivePlace, PoolServer, ServerOptions};
use stele_array::{Command, CreateOptions, DigestUnit, OpenOptions, Reply, VolumeSpec, WriteMode};
use stele_ground::{Bytes, Dice, PoolId};
use stele_media::{Handle, Op, Priority, Shared};

use crate::harness::{Bench, Unit};

const MIB: u64 = 1 << 20;
const DEVICES: usize = 6;
const DEVICE_SIZE: u64 = 768 * MIB;
const BTRFS: &str = "btrfs raid6, reference machine";

/// Loop devices over files in memory; dropping removes them with their files.
struct Loops {
    directory: String,
    devices: Vec<String>,
}

impl Loops {
    fn new() -> Result<Loops, String> {
        let directory = format!("/dev/shm/stele-bench-{}", std::process::id());
        std::fs::create_dir(&directory).map_err(|error| error.to_string())?;
        let mut loops = Loops { directory, devices: Vec::new() };
        for number in 0..DEVICES {
            let path = format!("{}/{number}", loops.directory);
            // Write the whole file, so that its memory is allocated before the measurement.
            std::fs::write(&path, vec![0u8; DEVICE_SIZE as usize]).map_err(|error| error.to_string())?;
            let output = Process::new("losetup").args(["--find", "--show", &path]).output();
            let output = output.map_err(|error| format!("losetup: {error}"))?;
            if !output.status.success() {
                return Err(format!("losetup: {}", String::from_utf8_lossy(&output.stderr).trim()));
            }
            loops.devices.push(String::from_utf8_lossy(&output.stdout).trim().to_owned());
        }
        Ok(loops)
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        for device in &self.devices {
            drop(Process::new("losetup").args(["--detach", device]).status());
        }
        drop(std::fs::remove_dir_all(&self.directory));
    }
}

/// Keeps `depth` operations under way until `count` have finished; returns the seconds that it
/// took.
fn drive(volume: &Handle, depth: u64, count: u64, mut make: impl FnMut(u64) -> Op) -> Result<f64, String> {
    let (sender, receiver) = mpsc::channel();
    let begin = WallInstant::now();
    let (mut submitted, mut done) = (0, 0);
    while done < count {
        while submitted < count && submitted - done < depth {
            let sender = sender.clone();
            let answer = Box::new(move |_, result| drop(sender.send(result)));
            volume.submit(make(submitted), Priority::Host, answer);
            submitted += 1;
        }
        receiver.recv().map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        done += 1;
    }
    Ok(begin.elapsed().as_secs_f64())
}

pub fn run(bench: &mut Bench, data: &Shared) -> Result<(), String> {
    let names = [
        "4+2 on 6 RAM loop devices, fresh sequential write 1 MiB",
        "4+2 on 6 RAM loop devices, random write 4 KiB, depth 32",
        "4+2 on 6 RAM loop devices, write 4 KiB + fsync, one at a time",
    ];
    if !names.iter().any(|name| bench.wants(name)) {
        return Ok(());
    }
    let loops = match Loops::new() {
        Ok(loops) => loops,
        Err(reason) => {
            bench.note(&format!("left out, 4+2 on 6 RAM loop devices: {reason}"));
            return Ok(());
        }
    };
    let places: Vec<DrivePlace> =
        loops.devices.iter().enumerate().map(|(at, path)| DrivePlace::new(path, at as u32)).collect();
    let create = CreateOptions {
        pool: PoolId([3; 16]),
        name: "loops".into(),
        drives: Vec::new(),
        seed: 1,
        log: Some(Bytes(96 * MIB)),
        spare_drives: Some(0),
        created: 0,
        shard: Default::default(),
    };
    let server = PoolServer::create(&places, None, create, OpenOptions::default(), ServerOptions::default())
        .map_err(|error| error.to_string())?;
    let result = cases(bench, &server, data, &names);
    drop(server);
    drop(loops);
    result
}

fn cases(bench: &mut Bench, server: &PoolServer, data: &Shared, names: &[&str; 3]) -> Result<(), String> {
    let size = 1024 * MIB;
    let mut number = 0;
    let mut fresh = || -> Result<Handle, String> {
        if number > 0 {
            let name = format!("v{}", number - 1);
            server.command_blocking(Command::DeleteVolume { name }).map_err(|error| error.to_string())?;
        }
        let spec = VolumeSpec {
            name: format!("v{number}"),
            code: "4+2".parse().map_err(|error| format!("{error}"))?,
            size: Bytes(size),
            strip: Bytes(64 << 10),
            block: Bytes(4096),
            digest: DigestUnit::Block,
            mode: WriteMode::WriteBack,
            fully_allocated: false,
            spread: false,
            owner: None,
        };
        number += 1;
        match server.command_blocking(Command::CreateVolume(spec)).map_err(|error| error.to_string())? {
            Reply::Volume(status) => Ok(server.volume_of(&status)),
            other => Err(format!("{other:?}")),
        }
    };
    let stream = |number: u64| {
        let from = (number % 16 * MIB) as usize;
        Op::Write { at: number * MIB, data: vec![data.slice(from..from + MIB as usize)], fua: false }
    };
    if bench.wants(names[0]) {
        bench.case(names[0], Unit::more("MB/s")).target(2.0).against(BTRFS, 658.0).run(|| {
            let volume = fresh()?;
            Ok(size as f64 / drive(&volume, 8, size / MIB, stream)? / 1e6)
        })?;
    }
    let volume = fresh()?;
    drive(&volume, 8, size / MIB, stream)?;
    let mut places = Dice::new(9);
    let mut block = move |number: u64| {
        let from = (number % 4096 * 4096) as usize;
        Op::Write { at: places.below(size / 4096) * 4096, data: vec![data.slice(from..from + 4096)], fua: false }
    };
    if bench.wants(names[1]) {
        // Longer than log and cache can absorb, so that the figure is sustained.
        bench
            .case(names[1], Unit::more("writes/s"))
            .target(2.0)
            .against(BTRFS, 7800.0)
            .run(|| Ok(15_000.0 / drive(&volume, 32, 15_000, &mut block)?))?;
    }
    if bench.wants(names[2]) {
        bench.case(names[2], Unit::more("writes/s")).target(2.0).against(BTRFS, 1168.0).run(|| {
            let begin = WallInstant::now();
            for number in 0..2000 {
                drive(&volume, 1, 1, |_| block(number))?;
                drive(&volume, 1, 1, |_| Op::Flush)?;
            }
            Ok(2000.0 / begin.elapsed().as_secs_f64())
        })?;
    }
    Ok(())
}
