//! What a new pool refuses and notes, and what an opening restores, mends and reports.

use super::*;
use crate::drives::label::LOG_AT;
use crate::model::{ArrayError, CreateOptions, DriveStatus, OpenOptions};
use crate::space::layout::RowClass;

/// What came of a pool that is created otherwise than by default, on six drives in three
/// enclosures.
fn created(options: OpenOptions, change: impl FnOnce(&mut CreateOptions)) -> (Fixture, Result<(), NoAnswer>) {
    let mut fixture = Fixture::begin(6, 3, 1, options, change);
    let ended = fixture.settle();
    (fixture, ended)
}

fn drive(fixture: &mut Fixture, at: usize) -> DriveStatus {
    fixture.status().drives[at].clone()
}

/// Promised slots of the class in which volumes of the fixture's strip and this code lie.
fn promised(fixture: &Fixture, volume: stele_ground::VolumeId) -> (RowClass, u64) {
    let engine = fixture.engine();
    let class = engine.look(|core| core.volumes.get(volume)).expect("a volume").class;
    (class, engine.look(|core| core.space.reserved(class)))
}

#[test]
fn a_new_pool_knows_its_drives_by_name_and_spares_an_enclosure() {
    let (mut fixture, ended) = created(OpenOptions::default(), |_| ());
    assert_eq!(ended, Ok(()));
    let names: Vec<String> = fixture.status().drives.into_iter().map(|drive| drive.name).collect();
    assert_eq!(names, ["drives/0", "drives/1", "drives/2", "drives/3", "drives/4", "drives/5"]);
    assert_eq!(fixture.engine().drives.labels.configuration().spare_drives, 2);
}

#[test]
fn a_pool_is_not_created_with_the_same_identity_twice() {
    let (_, ended) = created(OpenOptions::default(), |create| create.drives[4] = create.drives[1]);
    assert!(matches!(ended, Err(NoAnswer::Array(ArrayError::Invalid(text))) if text.contains("same identity")));
}

#[test]
fn a_pool_is_not_created_on_the_drives_of_another_one() {
    let (fixture, ended) = created(OpenOptions::default(), |_| ());
    assert_eq!(ended, Ok(()));
    let mut second = Fixture::begin_on(fixture.test_drives, 3, 1, OpenOptions::default(), |_| ());
    let refused = second.settle();
    assert!(matches!(&refused, Err(NoAnswer::Array(ArrayError::Refused(_)))), "{refused:?}");
    second.open().expect("the first pool is as it was");
}

#[test]
fn limits_of_the_cache_that_make_no_sense_are_refused_at_every_start() {
    let nonsense = || OpenOptions { flush_high: 10, flush_low: 20, ..OpenOptions::default() };
    let (_, ended) = created(nonsense(), |_| ());
    assert!(matches!(ended, Err(NoAnswer::Array(ArrayError::Invalid(_)))), "{ended:?}");
    let (mut fixture, ended) = created(OpenOptions::default(), |_| ());
    assert_eq!(ended, Ok(()));
    fixture.options = nonsense();
    let ended = fixture.open();
    assert!(matches!(ended, Err(NoAnswer::Array(ArrayError::Invalid(_)))), "{ended:?}");
}

#[test]
fn an_opening_promises_again_what_was_promised() {
    let mut fixture = Fixture::new(6, 3, 2);
    let thin = fixture.create_volume(spec("thin", "4+2", 8 << 20)).id;
    let full = fixture.create_volume(VolumeSpec { fully_allocated: true, ..spec("full", "2+1", 4 << 20) }).id;
    // One stripe that has a slot and is dirty again, and two that have none.
    fixture.write(thin, 0, &pattern(1, 64 * KIB)).expect("written");
    fixture.command(Command::Checkpoint).expect("destaged");
    for at in [0, 1 << 20, 2 << 20] {
        fixture.write(thin, at, &pattern(at, 4 * KIB)).expect("written");
    }
    fixture.write(full, 0, &pattern(3, 4 * KIB)).expect("written");
    let counted = |fixture: &mut Fixture, name: &str| {
        let counters = fixture.status().counters;
        counters.iter().find(|(counter, _)| *counter == name).map_or(0, |(_, value)| *value)
    };
    let stripes = (4 << 20) / (32 << 10);
    let before = (promised(&fixture, thin), promised(&fixture, full));
    assert_eq!((before.0.1, before.1.1), (2, stripes));
    let (dirty, reserved) = (counted(&mut fixture, "dirty stripes"), counted(&mut fixture, "log bytes reserved"));
    assert_eq!(dirty, 4);
    fixture.crash().expect("opened");
    assert_eq!((promised(&fixture, thin), promised(&fixture, full)), before);
    assert_eq!(counted(&mut fixture, "log bytes reserved"), reserved);
    // What was promised is given back when it is used: none is left over, and none was given twice.
    fixture.command(Command::Checkpoint).expect("destaged");
    fixture.idle();
    let after = (promised(&fixture, thin).1, promised(&fixture, full).1);
    assert_eq!((after, counted(&mut fixture, "log bytes reserved")), ((0, stripes - 1), 0));
}

#[test]
fn numbers_of_deleted_volumes_are_not_used_again_after_an_opening() {
    let mut fixture = Fixture::new(6, 3, 3);
    let _first = fixture.create_volume(spec("a", "4+2", 8 << 20)).id;
    let second = fixture.create_volume(spec("b", "4+2", 8 << 20)).id;
    let high = |fixture: &Fixture| fixture.engine().look(|core| core.space.generation_high);
    fixture.write(second, 0, &pattern(1, 64 * KIB)).expect("written");
    fixture.command(Command::DeleteVolume { name: "b".into() }).expect("deleted");
    let before = high(&fixture);
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened");
    assert!(before > 0 && high(&fixture) >= before);
    assert!(fixture.create_volume(spec("c", "4+2", 8 << 20)).id > second);
}

#[test]
fn an_opening_tells_of_log_groups_that_it_copied_again() {
    for damaged in [true, false] {
        let mut fixture = Fixture::new(6, 3, 4);
        let volume = fixture.create_volume(spec("a", "4+2", 8 << 20)).id;
        fixture.write(volume, 0, &pattern(1, 4 * KIB)).expect("written");
        let (members, _) = fixture.engine().log.members();
        fixture.test_drives.kill();
        if damaged {
            fixture.test_drives.damage(usize::from(members[0].0), LOG_AT, 8 << 20);
        }
        fixture.open().expect("opened");
        assert_eq!(fixture.told(AlarmKind::LogRepaired).len(), usize::from(damaged));
        assert!(fixture.told(AlarmKind::ReadOnly).is_empty());
    }
}

#[test]
fn an_opening_for_reading_says_why_it_only_reads() {
    let mut fixture = Fixture::new(6, 3, 5);
    fixture.command(Command::Close).expect("closed");
    fixture.options.read_only = true;
    fixture.open().expect("opened");
    let told = fixture.told(AlarmKind::ReadOnly);
    assert!(told.len() == 1 && told[0].contains("asked for"), "{told:?}");
}

#[test]
fn an_opening_tells_which_drive_is_not_there_and_which_was_away() {
    let mut fixture = Fixture::new(6, 3, 6);
    fixture.options.rebuild_after = stele_ground::Duration::from_secs(3600);
    fixture.command(Command::Close).expect("closed");
    fixture.test_drives.drives[2].gone = true;
    fixture.open().expect("opened");
    let seen = drive(&mut fixture, 2);
    assert_eq!(seen.health, DriveHealth::Missing, "{seen:?}");
    assert!(seen.since.is_some() && seen.note.contains("not attached"), "{seen:?}");
    let told = fixture.told(AlarmKind::DriveMissing);
    assert!(told.iter().any(|text| text.starts_with("drive 2 of the pool is not attached")), "{told:?}");
    let volume = fixture.create_volume(spec("a", "4+2", 8 << 20)).id;
    fixture.write(volume, 0, &pattern(1, 64 * KIB)).expect("written");
    fixture.command(Command::Close).expect("closed");
    fixture.test_drives.drives[2].gone = false;
    fixture.alarms.clear();
    fixture.open().expect("opened");
    let told = fixture.told(AlarmKind::DriveStale);
    assert!(told.contains(&"drive 2 was away and is brought up to date"), "{told:?}");
    fixture.idle();
    assert_eq!(drive(&mut fixture, 2).health, DriveHealth::Healthy);
    assert_eq!(fixture.scrub(), (0, 0));
}

#[test]
fn a_drive_of_unknown_name_is_told_by_its_number() {
    let mut fixture = Fixture::new(6, 3, 8);
    fixture.command(Command::Close).expect("closed");
    fixture.test_drives.drives[2].gone = true;
    fixture.open().expect("opened");
    let standing = fixture.status().standing;
    let texts: Vec<&str> = standing.iter().map(|alarm| alarm.message.as_str()).collect();
    assert!(texts.iter().any(|text| text.starts_with("drive 2: not attached")), "{texts:?}");
    assert!(texts.iter().all(|text| !text.contains("()")), "{texts:?}");
}

#[test]
fn what_was_lost_is_known_after_an_opening() {
    let mut fixture = Fixture::new(6, 3, 7);
    let volume = fixture.create_volume(spec("a", "4+2", 8 << 20)).id;
    fixture.write(volume, 0, &pattern(1, 64 * KIB)).expect("written");
    fixture.command(Command::Checkpoint).expect("destaged");
    // Three of its six strips, on three drives.
    for at in 0..3 {
        fixture.test_drives.erase_from(at, 12 << 20);
    }
    let found = fixture.scrub();
    let lost = fixture.status().lost_stripes;
    assert!(lost > 0, "{found:?}");
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened");
    assert_eq!(fixture.status().lost_stripes, lost);
    assert!(fixture.read(volume, 0, 64 * KIB).is_err());
}
