use std::path::PathBuf;

use stele_codes::Code;
use stele_ground::{Dice, Instant, MIB, PoolId};
use stele_media::conformance::{self, Subject};
use stele_media::{Drive, ExtentState, Op, Remote, Shared, Space};

use super::*;
use crate::model::{DriveHealth, VolumeSpec, WriteMode};

mod drives;
mod openings;

const DRIVES: usize = 6;
/// Of a mirror with strips of 16 KiB.
const UNIT: u64 = MIB;

/// Drives of a test: files on the disk of the build, removed at the end.
struct Site(PathBuf);

impl Site {
    fn new(name: &str) -> Site {
        let parent = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/scratch");
        let path = parent.join(format!("server-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a scratch directory");
        Site(path)
    }

    fn places(&self) -> Vec<DrivePlace> {
        (0..DRIVES).map(|drive| self.place(drive)).collect()
    }

    fn place(&self, drive: usize) -> DrivePlace {
        DrivePlace { path: self.0.join(drive.to_string()), enclosure: None }
    }

    fn create(&self, shards: u16) -> Result<PoolServer, ArrayError> {
        let options = CreateOptions {
            pool: PoolId([7; 16]),
            name: "tested".to_owned(),
            drives: Vec::new(),
            seed: 1,
            log: Some(Bytes(8 * MIB)),
            spare_drives: Some(1),
            created: 0,
            shard: Shard { index: 0, count: shards },
        };
        let new = NewDrives { size: Bytes(u64::from(shards) * 48 * MIB + 12345 * 4096 % MIB), space: Space::Sparse };
        PoolServer::create(&self.places(), Some(new), options, OpenOptions::default(), ServerOptions::default())
    }

    fn made(&self, shards: u16) -> PoolServer {
        self.create(shards).expect("a pool")
    }

    fn open(&self) -> PoolServer {
        PoolServer::open(&self.places(), OpenOptions::default(), ServerOptions::default()).expect("the pool opens")
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn spec(name: &str, code: Option<Code>, size: u64) -> VolumeSpec {
    VolumeSpec { code: code.expect("a code"), spread: true, ..crate::testing::spec(name, "mirror-2", size) }
}

fn volume(server: &PoolServer, spec: VolumeSpec) -> (VolumeStatus, Handle) {
    let name = spec.name.clone();
    let Reply::Volume(status) = server.command_blocking(Command::CreateVolume(spec)).expect("a volume") else {
        panic!("a volume")
    };
    (status, server.volume(&name).expect("its handle"))
}

fn names(server: &PoolServer) -> Vec<String> {
    list(server).into_iter().map(|volume| volume.spec.name).collect()
}

fn list(server: &PoolServer) -> Vec<VolumeStatus> {
    match server.command_blocking(Command::ListVolumes).expect("a list") {
        Reply::Volumes(all) => all,
        other => panic!("{other:?}"),
    }
}

fn status(server: &PoolServer) -> PoolStatus {
    match server.command_blocking(Command::Status).expect("a status") {
        Reply::Status(status) => *status,
        other => panic!("{other:?}"),
    }
}

fn data(byte: u8, length: u64) -> Vec<Shared> {
    vec![Shared::from(vec![byte; length as usize])]
}

/// What each shard lists.
fn parts(server: &PoolServer) -> Vec<Vec<VolumeStatus>> {
    let list = |reply| match reply {
        Ok(Reply::Volumes(list)) => list,
        other => panic!("{other:?}"),
    };
    server.shards.ask_all(&Command::ListVolumes).into_iter().map(list).collect()
}

/// A spread volume as a drive.
struct Spread {
    site: Site,
    server: Option<(Remote, PoolServer)>,
}

impl Spread {
    fn new(name: &str, shards: u16, spec: VolumeSpec) -> Spread {
        let site = Site::new(name);
        let server = site.made(shards);
        let (status, handle) = volume(&server, spec);
        assert!(status.spec.spread);
        Spread { site, server: Some((Remote::new(handle), server)) }
    }
}

impl Subject for Spread {
    fn drive(&mut self) -> &mut dyn Drive {
        &mut self.server.as_mut().expect("open").0
    }
    fn wait(&mut self) -> Instant {
        std::thread::yield_now();
        Instant(0)
    }
    fn cut_power(&mut self) -> bool {
        self.server = None;
        let server = self.site.open();
        self.server = Some((Remote::new(server.volume("under test").expect("its handle")), server));
        true
    }
}

#[test]
fn spread_volumes_conform() {
    conformance::check("mirror on 2 shards", 1, &mut |seed| {
        Box::new(Spread::new(&format!("mirror-{seed}"), 2, spec("under test", Code::mirror(2), 5 * MIB + 8192)))
    });
    conformance::check("4+1 on 3 shards", 2, &mut |seed| {
        Box::new(Spread::new(&format!("coded-{seed}"), 3, spec("under test", Code::parity(4, 1), 7 * MIB)))
    });
}

/// Requests over several units give and take the same bytes as small ones.
#[test]
fn long_requests_are_their_bytes_in_order() {
    let site = Site::new("long");
    let server = site.made(2);
    let (_, handle) = volume(&server, spec("v", Code::mirror(2), 8 * MIB));
    let mut bytes = vec![0; 8 * MIB as usize];
    Dice::new(5).fill(&mut bytes);
    let (at, length) = (UNIT / 2, 5 * UNIT);
    let range = at as usize..(at + length) as usize;
    // In uneven pieces.
    let whole = Shared::from(bytes[range.clone()].to_vec());
    let cuts = [0, 4096, 12288, 12288 + 3 * MIB as usize, length as usize];
    let pieces = cuts.windows(2).map(|cut| whole.slice(cut[0]..cut[1])).collect();
    handle.write_blocking(at, pieces, true).expect("written");
    let read = |at: u64, length: u64| handle.read_blocking(at, length as usize).expect("read");
    assert!(read(at, length)[..] == bytes[range.clone()]);
    for here in (at..at + length).step_by(128 << 10) {
        assert!(read(here, 128 << 10)[..] == bytes[here as usize..][..128 << 10], "at {here}");
    }
    let (sender, receiver) = channel();
    let view = Op::View { at, length, pieces: Vec::new() };
    handle.submit(view, stele_media::Priority::Host, Box::new(move |op, result| drop(sender.send((op, result)))));
    let Ok((Op::View { at: 524_288, pieces, .. }, Ok(()))) = receiver.recv() else { panic!("a view") };
    assert!(pieces.concat() == bytes[range]);
    let extents = handle.extents_blocking(0, 8 * MIB).expect("listed");
    assert_eq!(extents.iter().map(|extent| extent.length).sum::<u64>(), 8 * MIB);
    assert_eq!(extents.first().map(|extent| extent.state), Some(ExtentState::Hole));
    handle.zero_blocking(0, 8 * MIB).expect("zeroed");
    assert!(read(0, 8 * MIB).iter().all(|byte| *byte == 0));
    let error = handle.read_blocking(8 * MIB, 4096).expect_err("behind its end");
    assert!(error.message.contains("beyond the end"), "{error}");
}

/// Volumes, snapshots, clones and sizes are the same before and after the pool is closed, and a
/// volume that is not spread lies on the first shard.
#[test]
fn what_commands_made_is_there_when_the_pool_is_opened_again() {
    let site = Site::new("commands");
    let server = site.made(2);
    let (_, handle) = volume(&server, spec("v", Code::mirror(2), 6 * MIB));
    volume(
        &server,
        VolumeSpec { spread: false, owner: Some("catalog".into()), ..spec("whole", Code::mirror(3), 4 * MIB) },
    );
    let (small, _) = volume(&server, spec("small", Code::mirror(2), MIB + 4096));
    assert!(!small.spec.spread, "it has no unit for each shard");
    let ask = |command: Command| server.command_blocking(command);
    handle.write_blocking(0, data(1, 6 * MIB), true).expect("written");
    ask(Command::SnapshotVolume { volume: "v".into(), name: "v@1".into(), made: 9 }).expect("a snapshot");
    handle.write_blocking(MIB, data(2, 2 * MIB), true).expect("written");
    ask(Command::CloneSnapshot { snapshot: "v@1".into(), name: "c".into() }).expect("a clone");
    ask(Command::ResizeVolume { name: "v".into(), size: Bytes(9 * MIB + 4096) }).expect("grown");
    assert_eq!(handle.geometry().size, Bytes(9 * MIB + 4096));
    ask(Command::SetVolume { name: "v".into(), read_ahead: Some(3), mode: None }).expect("set");
    let taken = ask(Command::CreateVolume(spec("v", Code::mirror(2), 6 * MIB))).expect_err("the name is taken");
    assert!(matches!(taken, ArrayError::Exists(_)), "{taken}");
    let tiny = ask(Command::ResizeVolume { name: "v".into(), size: Bytes(MIB) }).expect_err("too small");
    assert!(matches!(tiny, ArrayError::Invalid(_)), "{tiny}");
    let full = ask(Command::ResizeVolume { name: "v".into(), size: Bytes(5 * MIB) }).expect_err("it holds data there");
    assert_eq!(handle.geometry().size, Bytes(9 * MIB + 4096), "{full}");
    let before = list(&server);
    server.close().expect("closed");

    let server = site.open();
    let after = list(&server);
    assert_eq!(after, before);
    let by_name = |name: &str| after.iter().find(|volume| volume.spec.name == name).expect("listed");
    assert_eq!((by_name("v").spec.size, by_name("v").read_ahead), (Bytes(9 * MIB + 4096), 3));
    assert_eq!(by_name("v@1").origin.as_deref(), Some("v"));
    let read = |name: &str, at: u64| server.volume(name).expect("there").read_blocking(at, 4096).expect("read")[0];
    for (name, expected) in [("v", [1, 2, 2, 1]), ("v@1", [1; 4]), ("c", [1; 4])] {
        assert_eq!([0, 1, 2, 3].map(|unit| read(name, unit * UNIT)), expected, "{name}");
    }
    let ask = |command: Command| server.command_blocking(command);
    let held = ask(Command::DeleteVolume { name: "v@1".into() }).expect_err("it has a clone");
    assert!(matches!(held, ArrayError::Refused(_)), "{held}");
    for name in ["c", "v@1", "v", "small"] {
        ask(Command::DeleteVolume { name: name.into() }).expect("deleted");
    }
    assert_eq!(names(&server), ["whole"]);
    assert_eq!(status(&server).shards, 2);
}

#[test]
fn room_that_lacks_is_told_of_each_shard() {
    let site = Site::new("lacks");
    let whole = |name: &str, size: u64| VolumeSpec { fully_allocated: true, ..spec(name, Code::mirror(2), size) };
    let server = site.made(2);
    let refused = server.command_blocking(Command::CreateVolume(whole("v", 1 << 40))).expect_err("no room");
    assert!(matches!(&refused, ArrayError::Full(text) if text.contains("on each of 2 shards")), "{refused}");
    // The pool is as it was.
    volume(&server, whole("v", 4 * MIB));
}

/// A volume of a shape that no pool has is refused, before anything is computed from its strip.
#[test]
fn a_volume_without_a_strip_is_refused() {
    let site = Site::new("strip");
    let mut server = site.made(2);
    for strip in [0, 1 << 63] {
        let shape = VolumeSpec { strip: Bytes(strip), ..spec("v", Code::mirror(2), 4 * MIB) };
        let refused = server.command_blocking(Command::CreateVolume(shape)).expect_err("no strip");
        assert!(matches!(refused, ArrayError::Invalid(_)), "{refused}");
    }
    volume(&server, spec("v", Code::mirror(2), 4 * MIB));
    assert!(!server.is_stopped());

    // A pool whose commands have no thread any more says so.
    let Commands { queue, thread } = server.commands.take().expect("several shards");
    drop(queue);
    thread.join().expect("it has ended");
    let ended = std::thread::spawn(|| ());
    while !ended.is_finished() {
        std::thread::yield_now();
    }
    server.commands = Some(Commands { queue: channel().0, thread: ended });
    assert!(server.is_stopped());
    let stopped = server.command_blocking(Command::Checkpoint).expect_err("no thread takes it");
    assert!(matches!(stopped, ArrayError::Stopped(_)), "{stopped}");
}

/// Nothing that has an owner and is protected goes, on whichever shard the protection is known.
#[test]
fn a_protected_volume_stays_on_all_shards() {
    let site = Site::new("protected");
    let server = site.made(2);
    let (status, _) =
        volume(&server, VolumeSpec { owner: Some("archive".into()), ..spec("data", Code::mirror(2), 4 * MIB) });
    let protect = |server: &PoolServer, retained| {
        server.command_blocking(Command::Protect { volume: status.id, owner: "archive".into(), retained })
    };
    protect(&server, true).expect("protected");
    let refused = |server: &PoolServer| {
        let error = server.command_blocking(Command::DeleteVolume { name: "data".into() }).expect_err("protected");
        assert!(matches!(error, ArrayError::Refused(_)), "{error}");
        assert!(list(server)[0].retained);
    };
    refused(&server);
    // As if the release had been cut off after the first shard.
    let first = &server.shards.servers[0];
    let release = Command::Protect { volume: status.id, owner: "archive".into(), retained: false };
    first.command_blocking(release).expect("released there");
    refused(&server);
    drop(server);
    let server = site.open();
    refused(&server);
    list(&server);
    protect(&server, false).expect("released");
    server.command_blocking(Command::DeleteVolume { name: "data".into() }).expect("deleted");
    assert!(parts(&server).iter().all(Vec::is_empty));
}

/// Shards of which a test answers some commands itself, or does something before them.
struct Between<'a, F> {
    shards: &'a Threads,
    instead: F,
}

impl<F: Fn(usize, &Command) -> Option<Result<Reply, ArrayError>>> Shards for Between<'_, F> {
    fn count(&self) -> usize {
        self.shards.count()
    }

    fn ask(&self, shard: usize, command: Command) -> Result<Reply, ArrayError> {
        (self.instead)(shard, &command).unwrap_or_else(|| self.shards.ask(shard, command))
    }

    fn ask_all(&self, command: &Command) -> Vec<Result<Reply, ArrayError>> {
        (0..self.count()).map(|shard| self.ask(shard, command.clone())).collect()
    }

    fn without_writes(&self, volume: VolumeId, work: &mut dyn FnMut()) {
        self.shards.without_writes(volume, work);
    }
}

/// A snapshot shows a moment: of two writes one after the other, on different shards, never the
/// second without the first.
#[test]
fn a_snapshot_has_no_write_without_those_before_it() {
    let site = Site::new("moment");
    let server = site.made(2);
    let (_, handle) = volume(&server, spec("v", Code::mirror(2), 4 * MIB));
    handle.write_blocking(0, data(1, 2 * MIB), false).expect("written");
    // Between the snapshots of the last shard and of the first one, a host tries to write to both.
    let write = |shard: usize, command: &Command| {
        if shard == 0 && matches!(command, Command::SnapshotVolume { .. }) {
            for at in [UNIT, 0] {
                let (sender, receiver) = channel();
                let write = Op::Write { at, data: data(2, 4096), fua: false };
                let done = Box::new(move |_, result| drop(sender.send(result)));
                handle.submit(write, stele_media::Priority::Host, done);
                // The next write follows an answer, which does not come while writes are held back.
                if receiver.recv_timeout(std::time::Duration::from_millis(200)).is_err() {
                    break;
                }
            }
        }
        None
    };
    let writing = Between { shards: &server.shards, instead: write };
    let take = Command::SnapshotVolume { volume: "v".into(), name: "v@1".into(), made: 0 };
    Coordinator::new(&writing, &server.registry).obey(take).expect("a snapshot");
    let shown = server.volume("v@1").expect("there");
    let read = |at| shown.read_blocking(at, 4096).expect("read")[0];
    assert_eq!((read(UNIT), read(0)), (1, 1));
    // What was held back is written now.
    let start = std::time::Instant::now();
    while handle.read_blocking(UNIT, 4096).expect("read")[0] != 2 {
        assert!(start.elapsed().as_secs() < 30, "the write goes on when the gate opens");
        std::thread::yield_now();
    }
}

/// Divided drives must hold a pool in each part.
#[test]
fn too_many_shards_are_refused() {
    let site = Site::new("many");
    for shards in [0, Shard::MAX + 1] {
        assert!(matches!(site.create(shards), Err(ArrayError::Invalid(_))));
    }
    let memory = (0..DRIVES as u32).map(|n| Source::other(stele_media::MemoryDrive::new(Bytes(64 * MIB)), "m", n));
    let options = CreateOptions {
        pool: PoolId([7; 16]),
        name: "tested".to_owned(),
        drives: (0..DRIVES as u8).map(|n| DriveId([n; 16])).collect(),
        seed: 1,
        log: None,
        spare_drives: None,
        created: 0,
        shard: Shard { index: 0, count: 2 },
    };
    let refused = PoolServer::create_on(memory.collect(), options, OpenOptions::default(), ServerOptions::default());
    assert!(matches!(refused.map(drop), Err(ArrayError::Invalid(_))));
}
