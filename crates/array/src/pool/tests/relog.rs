//! Stripes that cannot be destaged while drives are away. What waits for them in the log keeps no
//! other writer from it, no wait is without end, and when the drives are back everything is
//! finished.

use stele_ground::{Duration, VolumeId};
use stele_media::{Buffer, MediaFault, Op};

use super::KIB;
use crate::model::{AlarmKind, Command, DigestUnit, DriveHealth, VolumeSpec};
use crate::pool::State;
use crate::space::layout::RowKind;
use crate::testing::{Fixture, NoAnswer, pattern, spec};

mod little_room;

const STRIPE: usize = 128 * KIB;
const CATALOG: usize = 1 << 20;

/// A pool of twelve drives, or more, in six enclosures whose log has 8 MiB, and which gives no
/// drive up.
struct Scene {
    fixture: Fixture,
    data: VolumeId,
    catalog: VolumeId,
    /// What the volumes hold.
    model: Vec<u8>,
    mirrored: Vec<u8>,
    round: u64,
}

fn scene(seed: u64, size: usize, digest: DigestUnit) -> Scene {
    scene_of(12, seed, size, digest)
}

fn scene_of(drives: usize, seed: u64, size: usize, digest: DigestUnit) -> Scene {
    let mut fixture = Fixture::new(drives, 6, seed);
    fixture.options.rebuild_after = Duration::from_secs(24 * 3600);
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened");
    let data = fixture.create_volume(VolumeSpec { digest, ..spec("data", "8+2", size as u64) }).id;
    let catalog =
        fixture.create_volume(VolumeSpec { fully_allocated: true, ..spec("catalog", "mirror-4", CATALOG as u64) }).id;
    let model = pattern(seed, size);
    fixture.write(data, 0, &model).expect("written");
    fixture.write(catalog, 0, &pattern(1, CATALOG)).expect("written");
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened");
    Scene { fixture, data, catalog, model, mirrored: pattern(1, CATALOG), round: 0 }
}

fn write(at: usize, data: &[u8]) -> Op {
    Op::Write { at: at as u64, data: vec![Buffer::copy_of(data).freeze()], fua: false }
}

impl Scene {
    /// Changes of so many bytes in every stripe, all at once, of which the power or drives may take
    /// some.
    fn burst(&mut self, bytes: usize) {
        let stripes = self.model.len() / STRIPE;
        let pieces: Vec<Vec<u8>> = (0..stripes).map(|stripe| pattern(7000 + stripe as u64, bytes)).collect();
        let ops = pieces.iter().enumerate().map(|(stripe, piece)| write(stripe * STRIPE, piece)).collect();
        let (_, answers) = self.fixture.submit_all(self.data, ops);
        for (stripe, answer) in answers.into_iter().enumerate() {
            let (_, result) = answer.unwrap_or_else(|| panic!("the write to stripe {stripe} hangs"));
            assert_eq!(result, Ok(()), "stripe {stripe}");
            self.model[stripe * STRIPE..][..bytes].copy_from_slice(&pieces[stripe]);
        }
    }

    /// 64 writes to the mirror at once, each of which is answered well.
    fn mirror_goes_on(&mut self, case: &str) {
        self.round += 1;
        let round = self.round;
        let pieces: Vec<Vec<u8>> = (0..64).map(|number| pattern(round * 64 + number, 12 * KIB)).collect();
        let ops = pieces.iter().enumerate().map(|(number, piece)| write(number * 16 * KIB, piece)).collect();
        let (_, answers) = self.fixture.submit_all(self.catalog, ops);
        for (number, answer) in answers.into_iter().enumerate() {
            let (_, result) = answer.unwrap_or_else(|| panic!("{case}: write {number} of round {round} hangs"));
            assert_eq!(result, Ok(()), "{case}: write {number} of round {round}");
            self.mirrored[number * 16 * KIB..][..12 * KIB].copy_from_slice(&pieces[number]);
        }
    }

    fn lose(&mut self, drives: &[usize]) {
        self.fixture.pull(drives);
    }

    fn give_back(&mut self, drives: &[usize], case: &str) {
        for drive in drives {
            self.fixture.give_back(*drive);
        }
        self.fixture.idle();
        self.check_whole(case);
        self.fixture.command(Command::Close).unwrap_or_else(|error| panic!("{case}: {error:?}"));
        self.fixture.open().unwrap_or_else(|error| panic!("{case}: {error:?}"));
        self.check_whole(case);
    }

    fn check_whole(&mut self, case: &str) {
        let read = self.fixture.read(self.data, 0, self.model.len()).expect("readable");
        assert!(read == self.model, "{case}: the data volume is not what was written");
        assert!(self.fixture.read(self.catalog, 0, CATALOG).expect("readable") == self.mirrored, "{case}: the mirror");
        let status = self.fixture.status();
        assert_eq!((status.dirty.0, status.lost_stripes), (0, 0), "{case}");
        assert_eq!(self.fixture.scrub().0, 0, "{case}");
    }

    fn counted(&self) -> (u64, u64, u64) {
        let engine = &self.fixture.pool.serving().expect("open").engine;
        (engine.log.used().0, engine.stuck_bytes(), engine.look(|core| core.redo.bytes()))
    }
}

#[test]
fn a_mirror_goes_around_the_log_while_a_third_lost_drive_keeps_stripes_from_their_strips() {
    let mut stuck = 0;
    for case in 0..4u64 {
        let digest = if case.is_multiple_of(2) { DigestUnit::Block } else { DigestUnit::Strip };
        let mut scene = scene(case, 4 << 20, digest);
        let name = format!("case {case}");
        scene.burst([4, 16, 36, 48][case as usize] * KIB);
        let drives = [1, 4, 9];
        scene.lose(&drives);
        // 24 MiB through a log of 8.
        for _ in 0..32 {
            scene.mirror_goes_on(&name);
        }
        stuck += scene.counted().1;
        if case % 2 == 1 {
            scene.fixture.crash().unwrap_or_else(|error| panic!("{name}: {error:?}"));
            for _ in 0..16 {
                scene.mirror_goes_on(&name);
            }
        }
        scene.give_back(&drives, &name);
    }
    assert!(stuck > 0, "nothing waited for the drives");
}

/// Three drives go so many operations after destage began. Answers the bytes of images that wait
/// for them.
fn lose_in_destage(case: u64, after: u64) -> u64 {
    let digest = if case.is_multiple_of(2) { DigestUnit::Block } else { DigestUnit::Strip };
    let mut scene = scene(case, 4 << 20, digest);
    let name = format!("case {case}, after {after} operations");
    scene.burst(20 * KIB);
    let drives = [1, 4, 9];
    scene.fixture.test_drives.lose_at = Some((scene.fixture.test_drives.operations + after, drives.to_vec()));
    let checkpoint = scene.fixture.command(Command::Checkpoint);
    let known = matches!(checkpoint, Ok(_) | Err(NoAnswer::Array(crate::model::ArrayError::Degraded(_))));
    assert!(known, "{name}: {checkpoint:?}");
    scene.lose(&drives);
    let owed = scene.counted().2;
    for _ in 0..32 {
        scene.mirror_goes_on(&name);
    }
    if case.is_multiple_of(3) {
        scene.fixture.crash().unwrap_or_else(|error| panic!("{name}: {error:?}"));
        for _ in 0..16 {
            scene.mirror_goes_on(&name);
        }
    }
    scene.give_back(&drives, &name);
    owed
}

#[test]
fn a_mirror_goes_around_the_log_while_redo_images_wait_for_drives() {
    let owed: u64 = (0..6).map(|case| lose_in_destage(case, 20 + case * 80)).sum();
    assert!(owed > 0, "no case left images waiting");
}

/// Moments at which the log filled up for good. Its last room was kept for stripes that could not
/// use it. Or the oldest record was no dirty block but an image. Or its destage lacked room for the
/// record of its end, or stood in line behind the patient.
#[test]
fn a_log_filled_by_what_waits_is_emptied_from_its_oldest_record_on() {
    for (case, after) in [(0, 114), (1, 36), (1, 110), (3, 62)] {
        lose_in_destage(case, after);
    }
}

/// The scene in a pool without a free cell, with so many drives' worth of spare space.
fn full_scene(seed: u64, spare: u32) -> Scene {
    let options = crate::model::OpenOptions {
        rebuild_after: Duration::from_secs(24 * 3600),
        ..crate::model::OpenOptions::default()
    };
    let mut fixture = Fixture::begin(12, 6, seed, options, |create| create.spare_drives = Some(spare));
    assert_eq!(fixture.settle(), Ok(()));
    let catalog =
        fixture.create_volume(VolumeSpec { fully_allocated: true, ..spec("catalog", "mirror-4", CATALOG as u64) }).id;
    fixture.write(catalog, 0, &pattern(1, CATALOG)).expect("written");
    let data = fixture.create_volume(spec("data", "8+2", 4 << 20)).id;
    let model = pattern(seed, 4 << 20);
    fixture.write(data, 0, &model).expect("written");
    let rest = fixture.create_volume(spec("rest", "mirror-2", 1 << 30)).id;
    let mut at = 0;
    while fixture.write(rest, at, &pattern(at, 1 << 20)).is_ok() {
        at += 1 << 20;
        fixture.command(Command::Checkpoint).expect("a checkpoint");
    }
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened");
    Scene { fixture, data, catalog, model, mirrored: pattern(1, CATALOG), round: 0 }
}

#[test]
fn a_mirror_of_a_full_pool_goes_around_the_log_without_three_drives() {
    let mut scene = full_scene(1, 2);
    scene.burst(16 * KIB);
    let drives = [1, 4, 9];
    scene.lose(&drives);
    for _ in 0..32 {
        scene.mirror_goes_on("full");
    }
    scene.give_back(&drives, "full");
}

#[test]
fn drives_that_only_the_tables_miss_are_missed_by_the_pool() {
    const DRIVES: usize = 15;
    let mut silent = 0;
    for seed in 0..8 {
        // Three rows of the mirror leave three drives.
        let mut scene = scene_of(DRIVES, seed, STRIPE, DigestUnit::Block);
        let drives: Vec<usize> = {
            let engine = std::rc::Rc::clone(&scene.fixture.pool.serving().expect("open").engine);
            let layout = engine.layout.read();
            let on = |kind: RowKind, drive: usize| {
                let mut rows = layout.rows().filter(|row| row.class.kind == kind);
                rows.any(|row| row.members.iter().any(|member| usize::from(member.cell.drive.0) == drive))
            };
            let mirrored = |drive: usize| {
                let rows = layout.rows().filter(|row| row.class.code.is_mirror() && row.class.kind == RowKind::Data);
                rows.flat_map(|row| &row.members).any(|member| usize::from(member.cell.drive.0) == drive)
            };
            (0..DRIVES).filter(|drive| on(RowKind::Table, *drive) && !mirrored(*drive)).take(2).collect()
        };
        if drives.len() < 2 {
            continue;
        }
        silent += 1;
        // No event says that they have gone.
        drives.iter().for_each(|drive| scene.fixture.test_drives.drives[*drive].gone = true);
        for _ in 0..16 {
            scene.mirror_goes_on(&format!("seed {seed}"));
        }
        let status = scene.fixture.status();
        assert!(drives.iter().all(|drive| status.drives[*drive].health == DriveHealth::Missing), "{:?}", status.drives);
    }
    assert!(silent > 0, "no seed has such drives");
}

/// The drives of each row that holds pages of the tables.
fn table_rows(fixture: &Fixture) -> Vec<Vec<usize>> {
    let engine = std::rc::Rc::clone(&fixture.pool.serving().expect("open").engine);
    let layout = engine.layout.read();
    let rows = layout.rows().filter(|row| row.class.kind == RowKind::Table);
    rows.map(|row| row.members.iter().map(|member| usize::from(member.cell.drive.0)).collect()).collect()
}

#[test]
fn where_no_checkpoint_can_be_written_writes_end_with_the_cause_and_go_on_when_drives_return() {
    // Three drives on which every row of the tables has a member: nowhere is left to write pages
    // to.
    let found = (0..8).find_map(|seed| {
        let scene = full_scene(seed, 0);
        let rows = table_rows(&scene.fixture);
        let triples = (0..12).flat_map(|a| (a + 1..12).flat_map(move |b| (b + 1..12).map(move |c| [a, b, c])));
        let mut all = triples.filter(|drives| rows.iter().all(|row| drives.iter().any(|drive| row.contains(drive))));
        all.next().map(|drives| (scene, drives))
    });
    let (mut scene, drives) = found.expect("in no pool do three drives carry a part of every row");
    scene.lose(&drives);
    let piece = pattern(5, 12 * KIB);
    let mut refused = None;
    for round in 0..2000usize {
        let at = round % 64 * 16 * KIB;
        match scene.fixture.write(scene.catalog, at as u64, &piece) {
            Ok(()) => scene.mirrored[at..at + piece.len()].copy_from_slice(&piece),
            Err(NoAnswer::Media(error)) => {
                refused = Some(error);
                break;
            }
            Err(other) => panic!("write {round}: {other:?}"),
        }
    }
    let error = refused.expect("the log fills up, and then writes are refused");
    assert_eq!(error.fault, MediaFault::Refused, "{error}");
    assert!(error.message.contains("no checkpoint can be written"), "{error}");
    assert!(scene.fixture.alarms.iter().any(|alarm| alarm.kind == AlarmKind::LogDegraded));
    // Many more attempts than the log has room for their records.
    scene.fixture.pass(Duration::from_secs(1800));
    let closed = scene.fixture.command(Command::Close);
    assert!(matches!(closed, Err(NoAnswer::Array(_))), "{closed:?}");
    assert!(matches!(scene.fixture.pool.state(), State::Ready { .. }), "the pool is still there");
    let late = scene.fixture.write(scene.catalog, 0, &piece);
    assert!(
        matches!(&late, Err(NoAnswer::Media(error)) if error.message.contains("no checkpoint can be written")),
        "{late:?}"
    );
    scene.give_back(&drives, "no checkpoint");
    for _ in 0..16 {
        scene.mirror_goes_on("afterwards");
    }
}
