use stele_ground::{Bytes, Dice, DriveId, VolumeId};

use crate::model::place::DriveNumber;
use crate::model::{AlarmKind, ArrayError, Command, DriveHealth, PoolStatus, VolumeSpec};
use crate::space::layout::RowKind;
use crate::testing::{Fixture, NoAnswer, pattern, spec};

mod held_up;

const KIB: usize = 1024;
const SIZE: usize = 12 << 20;

/// A pool with something on it, and what that is.
struct Scene {
    fixture: Fixture,
    data: VolumeId,
    catalog: VolumeId,
    model: Vec<u8>,
}

fn scene(drives: usize, seed: u64) -> Scene {
    let mut fixture = Fixture::new(drives, drives as u32, seed);
    let data = fixture.create_volume(spec("data", "4+2", SIZE as u64)).id;
    let catalog =
        fixture.create_volume(VolumeSpec { fully_allocated: true, ..spec("catalog", "mirror-4", 1 << 20) }).id;
    let model = pattern(seed, SIZE);
    fixture.write(data, 0, &model).expect("written");
    fixture.write(catalog, 0, &model[..1 << 20]).expect("written");
    Scene { fixture, data, catalog, model }
}

impl Scene {
    /// Blank drives, attached; the command that takes them in.
    fn blanks(&mut self, count: usize) -> Command {
        let drives = (0..count).map(|_| self.fixture.add_blank() as u32);
        Command::AddDrives { drives: drives.map(|index| (index, DriveId([100 + index as u8; 16]))).collect() }
    }

    /// A few small and large writes, as hosts do while the pool is busy. False when the power went.
    fn write_some(&mut self, dice: &mut Dice, rounds: u64) -> bool {
        for _ in 0..rounds {
            let length = [4 * KIB, 12 * KIB, 64 * KIB, 256 * KIB][dice.below(4) as usize];
            let at = dice.below(((SIZE - length) / 4096) as u64) as usize * 4096;
            let new = pattern(dice.roll(), length);
            match self.fixture.write(self.data, at as u64, &new) {
                Ok(()) => self.model[at..at + length].copy_from_slice(&new),
                Err(NoAnswer::PowerCut) => {
                    // Neither acknowledged nor refused: what is there now is what it is.
                    self.fixture.crash().expect("opened");
                    let now = self.fixture.read(self.data, at as u64, length).expect("read");
                    for ((block, old), new) in now.chunks(4096).zip(self.model[at..].chunks(4096)).zip(new.chunks(4096))
                    {
                        assert!(block == old || block == new, "a block is neither old nor new");
                    }
                    self.model[at..at + length].copy_from_slice(&now);
                    return false;
                }
                Err(other) => panic!("{other:?}"),
            }
        }
        true
    }

    fn check(&mut self, case: &str) {
        assert!(self.fixture.read(self.data, 0, SIZE).expect("read") == self.model, "{case}: the data volume");
        assert_eq!(self.fixture.scrub(), (0, 0), "{case}");
        let status = self.fixture.status();
        assert_eq!((status.lost_stripes, status.moving.is_some()), (0, false), "{case}");
    }

    /// Reads everything without any two of the drives, one pair after another.
    fn check_every_pair(&mut self, drives: &[usize], case: &str) {
        self.fixture.options.rebuild_after = stele_ground::Duration::from_secs(3600);
        for pair in drives.windows(2) {
            self.fixture.command(Command::Close).expect("closed");
            pair.iter().for_each(|drive| self.fixture.test_drives.drives[*drive].gone = true);
            self.fixture.open().expect("opened");
            assert!(self.fixture.read(self.data, 0, SIZE).expect("read") == self.model, "{case}: without {pair:?}");
            self.fixture.read(self.catalog, 0, 1 << 20).expect("the catalog answers");
            pair.iter().for_each(|drive| self.fixture.test_drives.drives[*drive].gone = false);
            self.fixture.crash().expect("opened");
            self.fixture.idle();
        }
    }
}

/// Used bytes of the fullest and of the emptiest drive.
fn spread(status: &PoolStatus) -> (u64, u64) {
    let used = || status.drives.iter().map(|drive| drive.used.0);
    (used().max().unwrap_or(0), used().min().unwrap_or(0))
}

/// Drives that have left.
fn names(status: &PoolStatus) -> Vec<&str> {
    status.removed.iter().map(|departed| departed.name.as_str()).collect()
}

fn refused(result: Result<crate::model::Reply, NoAnswer>, words: &[&str]) {
    let Err(NoAnswer::Array(error)) = result else { panic!("{result:?}") };
    let text = error.to_string();
    assert!(words.iter().all(|word| text.contains(word)), "{words:?}: {text}");
}

#[test]
fn stripes_move_onto_added_drives_while_hosts_write() {
    let mut scene = scene(7, 1);
    let before = scene.fixture.status();
    let add = scene.blanks(3);
    scene.fixture.command(add).expect("added");
    scene.write_some(&mut Dice::new(1), 150);
    scene.fixture.idle();
    let after = scene.fixture.status();
    assert_eq!(after.drives.len(), 10);
    assert!(after.raw.0 > before.raw.0 && after.drives.iter().all(|drive| drive.health == DriveHealth::Healthy));
    let (most, least) = spread(&after);
    assert!(least * 10 >= most * 6, "the fullest drive has {}, the emptiest {}", Bytes(most), Bytes(least));
    assert!(
        scene.fixture.alarms.iter().any(|alarm| alarm.kind == AlarmKind::GrowthFinished),
        "it says that it has ended"
    );
    scene.check("grown");
    scene.fixture.crash().expect("opened");
    scene.check("opened again");
    scene.check_every_pair(&[0, 7, 8, 3, 9], "grown");
}

#[test]
fn a_drive_is_emptied_while_hosts_write_and_leaves() {
    let mut scene = scene(9, 2);
    scene.fixture.command(Command::RemoveDrive { drive: 4 }).expect("begun");
    let status = scene.fixture.status();
    assert_eq!(status.drives[4].health, DriveHealth::Leaving);
    scene.write_some(&mut Dice::new(2), 150);
    scene.fixture.idle();
    let status = scene.fixture.status();
    assert_eq!(status.drives.iter().map(|drive| drive.index).collect::<Vec<_>>(), [0, 1, 2, 3, 5, 6, 7, 8]);
    assert_eq!(names(&status), ["drives/4"]);
    assert!(scene.fixture.alarms.iter().any(|alarm| alarm.kind == AlarmKind::DriveRemoved && alarm.drive == Some(4)));
    // Whatever happens to it then does not matter to the pool.
    scene.fixture.test_drives.erase(4, 0, 64 << 20);
    scene.check("emptied");
    scene.fixture.crash().expect("opened");
    assert!(
        scene
            .fixture
            .status()
            .drives
            .iter()
            .all(|drive| drive.health == DriveHealth::Healthy || drive.index == u32::MAX)
    );
    scene.check("opened again");
    scene.check_every_pair(&[0, 1, 8], "emptied");
    refused(scene.fixture.command(Command::RemoveDrive { drive: 4 }), &["left the pool already"]);
    // It may join anew, as another drive.
    let join = Command::AddDrives { drives: vec![(4, DriveId([77; 16]))] };
    scene.fixture.pull(&[4]);
    let index = scene.fixture.add_blank() as u32;
    assert!(scene.fixture.command(join).is_err(), "it was not attached since");
    scene.fixture.command(Command::AddDrives { drives: vec![(index, DriveId([77; 16]))] }).expect("added");
    scene.fixture.idle();
    assert!(scene.fixture.status().drives.iter().any(|drive| drive.index == 9));
    scene.check("joined anew");
}

/// Its driver may have ended before it removed the drive from its list, and names it again.
#[test]
fn a_drive_that_has_left_is_told_of_at_the_next_opening_and_is_no_trouble() {
    let mut scene = scene(9, 3);
    scene.fixture.command(Command::RemoveDrive { drive: 4 }).expect("begun");
    scene.fixture.idle();
    scene.fixture.crash().expect("opened");
    let status = scene.fixture.status();
    assert_eq!(status.drives.iter().map(|drive| drive.index).collect::<Vec<_>>(), [0, 1, 2, 3, 5, 6, 7, 8]);
    let left: Vec<_> = status.removed.iter().map(|departed| (departed.index, departed.name.as_str())).collect();
    assert_eq!(left, [(Some(4), "drives/4")]);
    assert!(scene.fixture.alarms.iter().all(|alarm| alarm.kind != AlarmKind::DriveRejected));
    scene.check("opened again");
}

#[test]
fn a_crash_anywhere_while_drives_join_or_leave_loses_nothing_and_goes_on() {
    for seed in 0..24 {
        let mut scene = scene(8, seed);
        let mut dice = Dice::new(seed);
        let add = scene.blanks(2);
        let commands = match seed % 3 {
            0 => vec![add],
            1 => vec![Command::RemoveDrive { drive: (seed % 8) as u32 }],
            _ => vec![add, Command::RemoveDrive { drive: (seed % 8) as u32 }],
        };
        let (adds, removes) = (seed % 3 != 1, seed % 3 != 0);
        scene.fixture.test_drives.cut_at = Some(scene.fixture.test_drives.operations + dice.below(6000));
        let mut whole = true;
        for command in commands.clone() {
            whole = whole && !matches!(scene.fixture.command(command), Err(NoAnswer::PowerCut));
        }
        if !whole {
            scene.fixture.crash().unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
        } else if scene.write_some(&mut dice, 30) {
            scene.fixture.idle();
            scene.fixture.crash().unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
        }
        scene.fixture.test_drives.cut_at = Some(scene.fixture.test_drives.operations + dice.below(4000));
        scene.fixture.idle();
        scene.fixture.crash().unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
        scene.fixture.idle();
        let case = format!("seed {seed}");
        scene.check(&case);
        // What was promised was done; what was cut off before it was promised was done or not.
        let status = scene.fixture.status();
        let members = status.drives.iter().filter(|drive| drive.index != u32::MAX).count();
        let (most, least) = (8 + 2 * usize::from(adds), 8 - usize::from(removes));
        assert!((least..=most).contains(&members), "{case}: {members} drives");
        if whole {
            assert_eq!(members, 8 + 2 * usize::from(adds) - usize::from(removes), "{case}");
        }
        assert!(
            !status.drives.iter().any(|drive| drive.health == DriveHealth::Leaving),
            "{case}: it goes on after a crash"
        );
    }
}

#[test]
fn a_drive_that_is_lost_in_the_middle_costs_nothing() {
    for seed in 0..16 {
        let mut scene = scene(9, seed);
        let mut dice = Dice::new(seed);
        let lost = dice.below(9) as usize;
        let command = match seed % 2 {
            0 => scene.blanks(2),
            _ => Command::RemoveDrive { drive: dice.below(9) as u32 },
        };
        scene.fixture.test_drives.lose_at = Some((scene.fixture.test_drives.operations + dice.below(4000), vec![lost]));
        scene.fixture.command(command).unwrap_or_else(|error| panic!("seed {seed}: {error:?}"));
        scene.write_some(&mut dice, 20);
        for _ in 0..4 {
            scene.fixture.idle();
        }
        let case = format!("seed {seed}, without drive {lost}");
        assert!(scene.fixture.read(scene.data, 0, SIZE).expect("read") == scene.model, "{case}");
        assert_eq!(scene.fixture.status().lost_stripes, 0, "{case}");
        scene.fixture.crash().unwrap_or_else(|error| panic!("{case}: {error:?}"));
        for _ in 0..4 {
            scene.fixture.idle();
        }
        assert!(scene.fixture.read(scene.data, 0, SIZE).expect("read") == scene.model, "{case}, opened again");
        let status = scene.fixture.status();
        assert_eq!((status.lost_stripes, status.moving.is_some()), (0, false), "{case}, opened again");
        assert!(!status.drives.iter().any(|drive| drive.health == DriveHealth::Leaving), "{case}");
        let exhausted = scene.fixture.alarms.iter().find(|alarm| alarm.kind == AlarmKind::SpareExhausted);
        assert!(exhausted.is_none(), "{case}: {exhausted:?}");
    }
}

#[test]
fn a_removal_is_refused_where_the_rest_could_not_hold_everything() {
    // As wide as the pool.
    let mut fixture = Fixture::new(6, 6, 1);
    fixture.create_volume(spec("wide", "4+2", 1 << 20));
    refused(
        fixture.command(Command::RemoveDrive { drive: 2 }),
        &["4+2", "needs 6 drives", "5 would remain", "add drives"],
    );
    refused(fixture.command(Command::RemoveDrive { drive: 9 }), &["no", "9"]);
    // Too full.
    let mut fixture = Fixture::new(7, 7, 2);
    let volume = fixture.create_volume(spec("full", "4+2", 1 << 30)).id;
    let mut stored = 0;
    while fixture.write(volume, stored << 20, &pattern(stored, 1 << 20)).is_ok() {
        stored += 1;
    }
    refused(
        fixture.command(Command::RemoveDrive { drive: 2 }),
        &["spare space", "6 drives that would remain", "add drives"],
    );
    assert!(fixture.status().drives.iter().all(|drive| drive.health == DriveHealth::Healthy), "nothing has begun");
    // Room comes with a drive, and then it can go.
    let index = fixture.add_blank() as u32;
    fixture.command(Command::AddDrives { drives: vec![(index, DriveId([50; 16]))] }).expect("added");
    fixture.idle();
    let (most, least) = spread(&fixture.status());
    assert!(least * 10 >= most * 6, "a full pool makes use of it: {} and {}", Bytes(most), Bytes(least));
    let kept = stored - stored / 8;
    fixture.discard(volume, kept << 20, (stored - kept) << 20).expect("discarded");
    fixture.command(Command::RemoveDrive { drive: 2 }).expect("begun");
    fixture.idle();
    assert_eq!(names(&fixture.status()), ["drives/2"]);
    for at in 0..kept {
        assert!(fixture.read(volume, at << 20, 1 << 20).expect("read") == pattern(at, 1 << 20), "{at} MiB");
    }
    // The least there may be.
    let mut fixture = Fixture::new(3, 3, 3);
    refused(fixture.command(Command::RemoveDrive { drive: 0 }), &["at least 3 drives"]);
}

#[test]
fn what_is_not_a_drive_for_this_pool_is_not_added() {
    let mut fixture = Fixture::new(4, 4, 1);
    let add = |index: u32, identity: u8| Command::AddDrives { drives: vec![(index, DriveId([identity; 16]))] };
    refused(fixture.command(add(9, 50)), &["no drive was attached"]);
    refused(fixture.command(Command::AddDrives { drives: Vec::new() }), &["no drive"]);
    let index = fixture.add_blank() as u32;
    refused(fixture.command(add(index, 1)), &["taken by a drive of the pool"]);
    let twice = Command::AddDrives { drives: vec![(index, DriveId([50; 16])), (index, DriveId([51; 16]))] };
    refused(fixture.command(twice), &["in the pool already"]);
    // The label of another pool.
    let mut other = Fixture::of_pool(4, 4, 2, 9);
    other.command(Command::Close).expect("closed");
    let theirs = other.test_drives.peek(0, 0, 512 << 10);
    fixture.test_drives.poke(index as usize, 0, &theirs);
    refused(fixture.command(add(index, 50)), &["belongs to pool", "fixture"]);
    fixture.test_drives.erase(index as usize, 0, 512 << 10);
    fixture.command(add(index, 50)).expect("added");
    refused(fixture.command(add(index, 51)), &["in the pool already"]);
    assert_eq!(fixture.status().drives.len(), 5);
}

#[test]
fn lost_stripes_stay_lost_and_named_when_their_row_moves() {
    let mut fixture = Fixture::new(8, 8, 5);
    let volume = fixture.create_volume(spec("a", "4+2", 24 << 20)).id;
    let data = pattern(1, 24 << 20);
    fixture.write(volume, 0, &data).expect("written");
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened");
    // The first strips of a row on three of its drives: fewer than a drive is given up for.
    let cells: Vec<(usize, u64)> = {
        let engine = &fixture.pool.serving().expect("it is open").engine;
        let layout = engine.layout.read();
        let on = |row: &&crate::space::layout::Row| row.class.kind == RowKind::Data && row.uses(DriveNumber(0));
        let row = layout
            .rows()
            .filter(on)
            .find(|row| engine.look(|core| core.space.used(row.id)) > 20)
            .expect("a row on drive 0");
        let configuration = engine.drives.labels.configuration();
        let mut cells: Vec<_> = row.members.iter().map(|member| member.cell).collect();
        cells.sort_by_key(|cell| cell.drive);
        cells.iter().take(3).map(|cell| (usize::from(cell.drive.0), configuration.cell_at(*cell))).collect()
    };
    for (drive, at) in cells {
        fixture.test_drives.damage(drive, at, 320 << 10);
    }
    fixture.scrub();
    let lost = fixture.status().lost_stripes;
    assert!(lost > 0);
    fixture.command(Command::RemoveDrive { drive: 0 }).expect("begun");
    fixture.idle();
    assert_eq!(names(&fixture.status()), ["drives/0"]);
    assert_eq!(fixture.status().lost_stripes, lost);
    for at in (0..24usize << 20).step_by(4096) {
        match fixture.read(volume, at as u64, 4096) {
            Ok(read) => assert!(read == data[at..at + 4096], "the block at {at} is invented"),
            Err(NoAnswer::Media(error)) => assert_eq!(error.fault, stele_media::MediaFault::Damaged),
            Err(other) => panic!("{other:?}"),
        }
    }
    assert!(matches!(fixture.command(Command::RemoveDrive { drive: 0 }), Err(NoAnswer::Array(ArrayError::Missing(_)))));
}

#[test]
fn snapshots_clones_and_what_waits_nameless_move_with_their_rows() {
    for seed in 0..6 {
        let mut fixture = Fixture::new(9, 9, seed);
        let mut dice = Dice::new(seed);
        let volume = fixture.create_volume(spec("a", "4+2", 8 << 20)).id;
        let mut model = pattern(seed, 8 << 20);
        fixture.write(volume, 0, &model).expect("written");
        let mut change = |fixture: &mut Fixture, volume: VolumeId, model: &mut Vec<u8>| {
            for _ in 0..12 {
                let (at, new) = (dice.below(2000) as usize * 4096, pattern(dice.roll(), 64 * KIB));
                fixture.write(volume, at as u64, &new).expect("written");
                model[at..at + new.len()].copy_from_slice(&new);
            }
        };
        let snapshot = |fixture: &mut Fixture, name: &str| {
            let command = Command::SnapshotVolume { volume: "a".into(), name: name.into(), made: 1 };
            match fixture.command(command) {
                Ok(crate::model::Reply::Volume(status)) => status.id,
                other => panic!("{other:?}"),
            }
        };
        let first = (snapshot(&mut fixture, "first"), model.clone());
        change(&mut fixture, volume, &mut model);
        let second = (snapshot(&mut fixture, "second"), model.clone());
        change(&mut fixture, volume, &mut model);
        let clone = Command::CloneSnapshot { snapshot: "second".into(), name: "clone".into() };
        let Ok(crate::model::Reply::Volume(clone)) = fixture.command(clone) else { panic!("no clone") };
        let mut cloned = second.1.clone();
        change(&mut fixture, clone.id, &mut cloned);
        // The layer given up has stripes that others see through it, or is taken apart while its
        // rows move.
        fixture.command(Command::RollBackVolume { volume: "a".into(), snapshot: "first".into() }).expect("rolled back");
        model = first.1.clone();
        change(&mut fixture, volume, &mut model);
        fixture.command(Command::RemoveDrive { drive: (seed % 9) as u32 }).expect("begun");
        if seed % 2 == 1 {
            fixture.test_drives.cut_at = Some(fixture.test_drives.operations + 500 * seed);
        }
        fixture.idle();
        fixture.crash().expect("opened");
        fixture.idle();
        let case = format!("seed {seed}");
        assert!(!fixture.status().drives.iter().any(|drive| drive.index == (seed % 9) as u32), "{case}: it has left");
        fixture.test_drives.erase((seed % 9) as usize, 0, 64 << 20);
        let views = [(volume, &model), (first.0, &first.1), (second.0, &second.1), (clone.id, &cloned)];
        for (at, (view, model)) in views.into_iter().enumerate() {
            assert!(fixture.read(view, 0, 8 << 20).expect("read") == **model, "{case}: view {at}");
        }
        assert_eq!(fixture.scrub(), (0, 0), "{case}");
    }
}

#[test]
fn a_drive_does_not_leave_where_the_rest_could_not_agree_on_it() {
    let hour = stele_ground::Duration::from_secs(3600);
    let mut fixture = Fixture::new(6, 6, 1);
    fixture.options.rebuild_after = hour;
    let volume = fixture.create_volume(spec("a", "mirror-3", 4 << 20)).id;
    let data = pattern(1, 4 << 20);
    fixture.write(volume, 0, &data).expect("written");
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened");
    fixture.pull(&[0, 1]);
    refused(fixture.command(Command::RemoveDrive { drive: 5 }), &["more than half of 6 drives", "3 besides it"]);
    fixture.give_back(0);
    fixture.give_back(1);
    fixture.idle();
    // Begun with all of them, and then two are away for a while.
    fixture.command(Command::RemoveDrive { drive: 5 }).expect("begun");
    fixture.pull(&[2, 3]);
    fixture.pass(stele_ground::Duration::from_secs(60));
    let status = fixture.status();
    assert!(!status.read_only, "it goes on writing");
    assert!(status.drives.iter().any(|drive| drive.index == 5), "it waits for them");
    fixture.write(volume, 0, &data).expect("written");
    assert!(fixture.alarms.iter().any(|alarm| alarm.kind == AlarmKind::MovingPutOff), "{:?}", fixture.alarms);
    assert!(fixture.status().moving_put_off.is_some_and(|(why, _)| why.contains("cannot move")));
    fixture.give_back(2);
    fixture.give_back(3);
    fixture.idle();
    assert_eq!(fixture.status().moving_put_off, None, "it stands as long as its cause");
    assert_eq!(names(&fixture.status()), ["drives/5"]);
    assert!(fixture.read(volume, 0, 4 << 20).expect("read") == data);
}

#[test]
fn what_cannot_be_read_when_its_row_moves_is_told_and_never_invented() {
    for (code, drives, size, damaged) in [("4+2", 8, 24 << 20, 3), ("mirror-2", 5, 16 << 20, 2)] {
        let mut fixture = Fixture::new(drives, drives as u32, 5);
        let volume = fixture.create_volume(spec("a", code, size as u64)).id;
        let data = pattern(1, size);
        fixture.write(volume, 0, &data).expect("written");
        fixture.command(Command::Close).expect("closed");
        fixture.open().expect("opened");
        for drive in 0..damaged {
            fixture.test_drives.damage(drive, 12 << 20, 8 << 20);
        }
        fixture.command(Command::RemoveDrive { drive: 0 }).expect("begun");
        fixture.idle();
        assert_eq!(names(&fixture.status()), ["drives/0"], "{code}");
        let lost = fixture.status().lost_stripes;
        let told: Vec<_> = fixture.alarms.iter().filter(|alarm| alarm.kind == AlarmKind::StripeLost).collect();
        assert!(
            lost > 0 && told.len() == 1 && told[0].message.contains(&format!("{lost} stripes")),
            "{code}: {told:?}"
        );
        for at in (0..size).step_by(4096) {
            match fixture.read(volume, at as u64, 4096) {
                Ok(read) => assert!(read == data[at..at + 4096], "{code}: the block at {at} is invented"),
                Err(NoAnswer::Media(error)) => assert_eq!(error.fault, stele_media::MediaFault::Damaged),
                Err(other) => panic!("{code}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_crash_anywhere_in_the_change_of_members_leaves_it_made_or_not_and_the_pool_at_work() {
    for (case, at) in (0..2).flat_map(|case| (0..24).map(move |at| (case, at))) {
        let mut fixture = Fixture::new(6, 6, at);
        let volume = fixture.create_volume(spec("a", "2+1", 4 << 20)).id;
        let data = pattern(at, 4 << 20);
        fixture.write(volume, 0, &data).expect("written");
        fixture.command(Command::Checkpoint).expect("a checkpoint");
        let command = match case {
            0 => {
                let first = fixture.add_blank() as u32;
                let second = fixture.add_blank() as u32;
                Command::AddDrives { drives: vec![(first, DriveId([70; 16])), (second, DriveId([71; 16]))] }
            }
            _ => Command::RemoveDrive { drive: 2 },
        };
        fixture.test_drives.cut_at = Some(fixture.test_drives.operations + 2 * at);
        let _ = fixture.command(command);
        for round in 0..3 {
            fixture.crash().unwrap_or_else(|error| panic!("case {case}, {at}, round {round}: {error:?}"));
            fixture
                .write(volume, 0, &data)
                .unwrap_or_else(|error| panic!("case {case}, {at}, round {round}: {error:?}"));
        }
        fixture.idle();
        let status = fixture.status();
        let count = status.drives.iter().filter(|drive| drive.index != u32::MAX).count();
        let allowed = if case == 0 { [6, 8] } else { [5, 6] };
        assert!(allowed.contains(&count), "case {case}, {at}: {count} drives");
        assert!(fixture.read(volume, 0, 4 << 20).expect("read") == data, "case {case}, {at}");
        assert_eq!(fixture.scrub(), (0, 0), "case {case}, {at}");
    }
}
