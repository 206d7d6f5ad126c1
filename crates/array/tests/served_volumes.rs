//! The suite that every drive passes, over volumes of a real pool behind its reactor: on memory
//! drives that forget what was not flushed, and on files.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stele_array::server::{DrivePlace, NewDrives, PoolServer, ServerOptions, Source, fresh_identity};
use stele_array::{Command, CreateOptions, DigestUnit, OpenOptions, Reply, VolumeSpec, WriteMode};
use stele_codes::Code;
use stele_ground::{Bytes, DriveId, Instant, MIB, PoolId};
use stele_media::conformance::{self, Subject};
use stele_media::{Buffer, Completion, Drive, Engine, Geometry, MemoryDrive, Op, Priority, Remote, Request, Space};

const DRIVES: usize = 6;

/// A memory drive that survives its reactor.
#[derive(Clone)]
struct Kept(Arc<Mutex<MemoryDrive>>);

impl Kept {
    fn lock(&self) -> MutexGuard<'_, MemoryDrive> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drive for Kept {
    fn geometry(&self) -> Geometry {
        self.lock().geometry()
    }
    fn submit(&mut self, request: Request) {
        self.lock().submit(request);
    }
    fn reap(&mut self, now: Instant, finished: &mut Vec<Completion>) {
        self.lock().reap(now, finished);
    }
}

fn spec(code: Code, block: u64, mode: WriteMode) -> VolumeSpec {
    VolumeSpec {
        name: "under test".to_owned(),
        code,
        size: Bytes(5 * MIB),
        strip: Bytes(16 << 10),
        block: Bytes(block),
        digest: DigestUnit::Block,
        mode,
        fully_allocated: false,
        spread: false,
        owner: None,
    }
}

fn create_options() -> CreateOptions {
    CreateOptions {
        pool: PoolId(fresh_identity().expect("an identity")),
        name: "tested".to_owned(),
        drives: (0..DRIVES).map(|_| DriveId(fresh_identity().expect("an identity"))).collect(),
        seed: 1,
        log: Some(Bytes(8 * MIB)),
        spare_drives: Some(0),
        created: 0,
        shard: Default::default(),
    }
}

enum Drives {
    Memory(Vec<Kept>),
    Files(Vec<DrivePlace>),
}

struct Volume {
    /// Before the drives: the server lets go of them first.
    server: Option<(Remote, PoolServer)>,
    drives: Drives,
    whole_discards: bool,
}

impl Volume {
    fn new(drives: Drives, spec: &VolumeSpec, engine: Engine) -> Volume {
        let (open, server) = (OpenOptions::default(), ServerOptions { engine, ..ServerOptions::default() });
        let server = match &drives {
            Drives::Memory(kept) => PoolServer::create_on(sources(kept), create_options(), open, server),
            Drives::Files(places) => {
                let new = NewDrives { size: Bytes(64 * MIB), space: Space::Sparse };
                PoolServer::create(places, Some(new), create_options(), open, server)
            }
        }
        .expect("a pool");
        let reply = server.command_blocking(Command::CreateVolume(spec.clone())).expect("a volume");
        assert!(matches!(reply, Reply::Volume(status) if status.spec.name == spec.name));
        let remote = Remote::new(server.volume(&spec.name).expect("its handle"));
        Volume { server: Some((remote, server)), drives, whole_discards: spec.block == Bytes(4096) }
    }
}

fn sources(kept: &[Kept]) -> Vec<Source> {
    kept.iter().enumerate().map(|(n, drive)| Source::other(drive.clone(), format!("memory {n}"), n as u32)).collect()
}

impl Subject for Volume {
    fn drive(&mut self) -> &mut dyn Drive {
        &mut self.server.as_mut().expect("open").0
    }
    /// The reactor stops at once, memory drives forget what was not flushed, and the pool is opened
    /// again.
    fn cut_power(&mut self) -> bool {
        self.server = None;
        let (open, options) = (OpenOptions::default(), ServerOptions::default());
        let server = match &self.drives {
            Drives::Memory(kept) => {
                kept.iter().for_each(|drive| drive.lock().cut_power());
                PoolServer::open_on(sources(kept), open, options)
            }
            Drives::Files(places) => PoolServer::open(places, open, options),
        }
        .expect("the pool opens again");
        let remote = Remote::new(server.volume("under test").expect("its handle"));
        self.server = Some((remote, server));
        true
    }
    /// The array forgets whole blocks of 4096 bytes; parts of them at the ends of a discard stay.
    fn discard_zeroes(&self) -> bool {
        self.whole_discards
    }
}

fn memory() -> Drives {
    let drive = || Kept(Arc::new(Mutex::new(MemoryDrive::volatile(Bytes(64 * MIB)))));
    Drives::Memory((0..DRIVES).map(|_| drive()).collect())
}

#[test]
fn volumes_on_memory_conform() {
    let cases = [
        ("mirror-3, write-back", Code::mirror(3), 4096, WriteMode::WriteBack),
        ("4+2, write-back", Code::parity(4, 2), 4096, WriteMode::WriteBack),
        ("4+2, write-through", Code::parity(4, 2), 4096, WriteMode::WriteThrough),
        ("2+1 of 512, write-back", Code::parity(2, 1), 512, WriteMode::WriteBack),
    ];
    for (seed, (name, code, block, mode)) in cases.into_iter().enumerate() {
        let spec = spec(code.expect("a code"), block, mode);
        conformance::check(name, seed as u64, &mut |_| Box::new(Volume::new(memory(), &spec, Engine::Best)));
    }
}

/// Files of one test, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a scratch directory");
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn volumes_on_files_conform() {
    for engine in [Engine::Best, Engine::Threads] {
        let scratch = Scratch::new(&format!("volumes-{engine:?}"));
        let spec = spec(Code::parity(4, 2).expect("a code"), 4096, WriteMode::WriteBack);
        conformance::check("4+2 on files", 7, &mut |seed| {
            let places = (0..DRIVES).map(|n| DrivePlace::new(scratch.0.join(format!("{seed}-{n}")), n as u32));
            Box::new(Volume::new(Drives::Files(places.collect()), &spec, engine))
        });
    }
}

#[test]
fn a_write_that_another_follows_is_ordered_before_it_is_done() {
    let kept = |_| Kept(Arc::new(Mutex::new(MemoryDrive::volatile(Bytes(64 * MIB)))));
    let first = spec("3+1".parse().expect("a code"), 4096, WriteMode::WriteBack);
    let volume = Volume::new(Drives::Memory((0..DRIVES).map(kept).collect()), &first, Engine::Best);
    let Some((_, server)) = &volume.server else { panic!("it is open") };
    let through = VolumeSpec { name: "through".to_owned(), mode: WriteMode::WriteThrough, ..first.clone() };
    let second = VolumeSpec { name: "beside".to_owned(), ..first };
    for spec in [&through, &second] {
        server.command_blocking(Command::CreateVolume(spec.clone())).expect("a volume");
    }
    let [one, through, beside] = ["under test", "through", "beside"].map(|name| server.volume(name).expect("a handle"));
    assert!(one.order().is_some() && one.order() == beside.order());
    let data = |length| vec![Buffer::zeroed(length).freeze()];
    // A block, whole stripes, both; with a write behind it and with none.
    for (handle, length) in [(&one, 4096), (&one, 48 << 10), (&one, 100 << 10), (&through, 4096)] {
        for followed in [true, false] {
            let (sender, said) = std::sync::mpsc::channel();
            let theirs = sender.clone();
            let ordered = Box::new(move || theirs.send("ordered").expect("somebody listens"));
            let done = Box::new(move |_, result: Result<(), _>| {
                sender.send(if result.is_ok() { "done" } else { "failed" }).expect("somebody listens");
            });
            handle.submit_ordered(Op::Write { at: 0, data: data(length), fua: true }, Priority::Host, ordered, done);
            assert_eq!(said.recv(), Ok("ordered"), "{length} bytes");
            if followed {
                beside.write_blocking(0, data(4096), true).expect("written");
            }
            assert_eq!(said.recv(), Ok("done"), "{length} bytes");
            assert!(said.recv().is_err(), "{length} bytes: something was said twice");
        }
    }
}
