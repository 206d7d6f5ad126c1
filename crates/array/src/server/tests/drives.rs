//! Drives that come, go and are replaced, on all shards.

use super::*;
use crate::model::{Departed, DriveStatus};

/// Waits until all drives are healthy.
fn all_healthy(server: &PoolServer) {
    let start = std::time::Instant::now();
    loop {
        let there = status(server);
        if there.rebuild.is_none() && there.drives.iter().all(|drive| drive.health == DriveHealth::Healthy) {
            return;
        }
        assert!(start.elapsed().as_secs() < 60, "{there:#?}");
        std::thread::yield_now();
    }
}

/// A drive is replaced, added, emptied and taken back on all shards with one command.
#[test]
fn drives_come_and_go_on_all_shards() {
    let site = Site::new("drives");
    let server = site.made(2);
    let (_, handle) = volume(&server, spec("v", Code::mirror(2), 16 * MIB));
    handle.write_blocking(0, data(3, 16 * MIB), true).expect("written");
    let ask = |command: Command| server.command_blocking(command);
    let size = std::fs::metadata(site.place(0).path).expect("a drive").len();
    let fresh = |name: &str| {
        let path = site.0.join(name);
        drop(DriveFile::create(&path, Bytes(size), Space::Sparse).expect("a file"));
        let index = server.attach(&DrivePlace { path, enclosure: None }).expect("attached");
        (index, DriveId(fresh_identity().expect("an identity")))
    };
    let until = |what: &str, reached: &dyn Fn(&PoolStatus) -> bool| {
        let start = std::time::Instant::now();
        while !reached(&status(&server)) {
            assert!(start.elapsed().as_secs() < 60, "{what}: {:#?}", status(&server));
            std::thread::yield_now();
        }
    };
    let (new, identity) = fresh("new");
    ask(Command::ReplaceDrive { old: 2, new, identity, enclosure: None, give_up: true }).expect("replaced");
    until("replaced", &|status| {
        let drive = status.drives.iter().find(|drive| drive.identity == identity);
        drive.is_some_and(|drive| drive.health == DriveHealth::Healthy) && status.rebuild.is_none()
    });
    let added = fresh("added");
    ask(Command::AddDrives { drives: vec![added] }).expect("added");
    // Given again, as after an answer that was lost.
    ask(Command::AddDrives { drives: vec![added] }).expect_err("it is a member");
    let number = |identity: DriveId| {
        let member = status(&server).drives.into_iter().find(|drive| drive.identity == identity);
        member.expect("a member").index
    };
    until("grown", &|status| status.moving.is_none());
    ask(Command::RemoveDrive { drive: number(identity) }).expect("being emptied");
    until("emptied", &|status| status.drives.iter().all(|drive| drive.identity != identity));
    let there = status(&server);
    assert!(there.drives.iter().all(|drive| drive.note.is_empty()), "{:#?}", there.drives);
    assert_eq!(there.drives.iter().filter(|drive| drive.is_member()).count(), DRIVES);
    assert!(handle.read_blocking(0, 16 * MIB as usize).expect("read").iter().all(|byte| *byte == 3));
}

/// A drive that one shard refuses is put in on none.
#[test]
fn a_drive_that_some_shard_refuses_joins_none() {
    let site = Site::new("refused");
    let server = site.made(2);
    let members = || {
        let of = |reply| match reply {
            Ok(Reply::Status(status)) => {
                status.drives.into_iter().map(|drive| (drive.identity, drive.health)).collect()
            }
            other => panic!("{other:?}"),
        };
        server.shards.ask_all(&Command::Status).into_iter().map(of).collect::<Vec<Vec<(DriveId, DriveHealth)>>>()
    };
    let before = members();
    let attach = |name: &str, size| {
        let path = site.0.join(name);
        drop(DriveFile::create(&path, Bytes(size), Space::Sparse).expect("a file"));
        let index = server.attach(&DrivePlace { path, enclosure: None }).expect("attached");
        (index, DriveId(fresh_identity().expect("an identity")))
    };
    // Its first part is too small, the second is not.
    let (new, identity) = attach("small", 191 * MIB / 2);
    for give_up in [true, false] {
        let replace = Command::ReplaceDrive { old: 2, new, identity, enclosure: None, give_up };
        let refused = server.command_blocking(replace).expect_err("too small");
        assert!(matches!(refused, ArrayError::Invalid(_)), "{refused}");
        assert!(members() == before, "{:?}", members());
    }
    // A shard that takes no changes, while the one behind it would.
    let read_only = |shard: usize, command: &Command| {
        let is_put_in = matches!(command, Command::CheckDrives(_) | Command::AddDrives { .. });
        (shard == 0 && is_put_in).then(|| Err(ArrayError::Degraded("too few drives".into())))
    };
    let refusing = Between { shards: &server.shards, instead: read_only };
    let added = attach("added", 97 * MIB);
    let add = || Command::AddDrives { drives: vec![added] };
    Coordinator::new(&refusing, &server.registry).obey(add()).expect_err("refused");
    assert!(members() == before, "{:?}", members());
    server.command_blocking(add()).expect("added");
    assert!(members().iter().all(|members| members.len() == DRIVES + 1), "{:?}", members());
}

/// A drive that the last shard alone has is shown, so that it is not taken away from there, with
/// all that a caller needs to put it in on the others.
#[test]
fn a_drive_that_one_shard_has_is_shown() {
    let site = Site::new("in-part");
    let server = site.made(2);
    let path = site.0.join("added");
    drop(DriveFile::create(&path, Bytes(97 * MIB), Space::Sparse).expect("a file"));
    let index = server.attach(&DrivePlace { path: path.clone(), enclosure: None }).expect("attached");
    let identity = DriveId(fresh_identity().expect("an identity"));
    // It cannot be taken out again there, as if the power had gone.
    let cut_off = |shard: usize, command: &Command| {
        let is_first = shard == 0 && matches!(command, Command::AddDrives { .. });
        (is_first || matches!(command, Command::RemoveDrive { .. })).then(too_few)
    };
    let failing = Between { shards: &server.shards, instead: cut_off };
    let add = |index| Command::AddDrives { drives: vec![(index, identity)] };
    let shown = |server: &PoolServer| {
        let here = |drive: &DriveStatus| std::path::Path::new(&drive.name) == path;
        let all: Vec<DriveStatus> = status(server).drives.into_iter().filter(here).collect();
        assert_eq!(all.len(), 1, "{all:#?}");
        all[0].clone()
    };
    Coordinator::new(&failing, &server.registry).obey(add(index)).expect_err("cut off");
    let drive = shown(&server);
    assert_eq!((drive.is_in_part(), drive.identity, drive.attached), (true, identity, Some(index)));
    assert!(drive.note.contains("not all shards"), "{}", drive.note);
    // After a start the first shard refuses its part of the drive, which it does not know.
    server.close().expect("closed");
    let places: Vec<DrivePlace> =
        site.places().into_iter().chain([DrivePlace { path: path.clone(), enclosure: None }]).collect();
    let server = PoolServer::open(&places, OpenOptions::default(), ServerOptions::default()).expect("opened");
    let drive = shown(&server);
    assert_eq!((drive.is_in_part(), drive.identity), (true, identity), "{drive:?}");
    server.command_blocking(add(drive.attached.expect("attached"))).expect("added");
    let drive = shown(&server);
    assert!(drive.is_member() && drive.note.is_empty(), "{drive:?}");
    all_healthy(&server);
}

fn too_few() -> Result<Reply, ArrayError> {
    Err(ArrayError::Degraded("too few drives".into()))
}

/// A shard fails to do what it said that it would. The shards that went first take back what they
/// did: no drive that was added stays there, and no drive that was to leave.
#[test]
fn what_one_shard_fails_to_do_is_undone_on_the_others() {
    let site = Site::new("undone");
    let server = site.made(2);
    let members = || {
        let of = |shard: usize| match server.shards.ask(shard, Command::Status) {
            Ok(Reply::Status(status)) => status.drives.iter().map(|drive| (drive.identity, drive.leaving)).collect(),
            other => panic!("{other:?}"),
        };
        [0, 1].map(|shard| -> Vec<(DriveId, bool)> { of(shard) })
    };
    let before = members();
    let first_fails = |shard: usize, command: &Command| {
        let is_put_in = matches!(command, Command::ReplaceDrive { .. } | Command::AddDrives { .. });
        (shard == 0 && is_put_in).then(too_few)
    };
    let failing = Between { shards: &server.shards, instead: first_fails };
    for name in ["added", "replacing"] {
        let path = site.0.join(name);
        drop(DriveFile::create(&path, Bytes(97 * MIB), Space::Sparse).expect("a file"));
        let new = server.attach(&DrivePlace { path: path.clone(), enclosure: None }).expect("attached");
        let identity = DriveId(fresh_identity().expect("an identity"));
        let command = match name {
            "added" => Command::AddDrives { drives: vec![(new, identity)] },
            _ => Command::ReplaceDrive { old: 2, new, identity, enclosure: None, give_up: false },
        };
        Coordinator::new(&failing, &server.registry).obey(command).expect_err("the first shard fails");
        let start = std::time::Instant::now();
        while members() != before {
            assert!(start.elapsed().as_secs() < 60, "{name}: {:?}", members());
            std::thread::yield_now();
        }
        // It was on one shard alone, and has left the pool.
        let left: Vec<_> = status(&server).removed;
        assert_eq!(
            left.last().map(|left| (left.index, left.name.clone())),
            Some((Some(new), path.display().to_string()))
        );
    }
}

/// Shards finish with a drive in any order. It has left when none has it, and not before.
#[test]
fn a_drive_leaves_when_its_last_shard_has_finished() {
    let site = Site::new("leaving");
    let server = site.made(2);
    let shards = || -> Vec<PoolStatus> {
        let of = |reply| match reply {
            Ok(Reply::Status(status)) => *status,
            other => panic!("{other:?}"),
        };
        server.shards.ask_all(&Command::Status).into_iter().map(of).collect()
    };
    let merged = |shards| merge::statuses(shards, &server.registry);
    let left = |shard: &mut PoolStatus| {
        let drive = shard.drives.remove(3);
        shard.removed.push(Departed { index: drive.attached, name: drive.name });
    };
    for (done, health, note) in [
        (0, DriveHealth::Suspect, "slow"),
        (1, DriveHealth::Suspect, "slow"),
        (0, DriveHealth::Leaving, ""),
        (1, DriveHealth::Leaving, ""),
    ] {
        let mut shards = shards();
        let identity = shards[0].drives[3].identity;
        shards.iter_mut().for_each(|shard| {
            let drive = &mut shard.drives[3];
            (drive.leaving, drive.health, drive.note) = (true, health, note.into());
        });
        left(&mut shards[done]);
        let whole = merged(shards);
        let drive = whole.drives.iter().find(|drive| drive.identity == identity).expect("the other shard has it");
        assert_eq!((drive.is_in_part(), drive.leaving, drive.note.as_str()), (done == 0, true, note), "shard {done}");
        assert_eq!(whole.removed, [], "shard {done}");
    }
    // The first shard keeps it again, and the other does not yet.
    let mut kept = shards();
    kept[1].drives[3].leaving = true;
    assert!(merged(kept).drives[3].leaving);
    let mut all = shards();
    all.iter_mut().for_each(left);
    let name = all[0].removed[0].name.clone();
    let first = merged(all).removed;
    assert_eq!(first.len(), 1, "{first:?}");
    // Another drive was put in at the path, and leaves too: the first shard has finished with it.
    let mut again = shards();
    left(&mut again[0]);
    again.iter_mut().for_each(|shard| shard.removed.insert(0, Departed { index: Some(3), name: name.clone() }));
    assert_eq!(merged(again).removed.len(), 1);
}

/// Its health says what is worse than that it leaves.
#[test]
fn the_removal_of_a_suspect_drive_is_cancelled_on_all_shards() {
    let site = Site::new("suspect");
    let server = site.made(2);
    let kept = std::cell::RefCell::new(Vec::new());
    let suspect = |shard: usize, command: &Command| match command {
        Command::Status => match server.shards.ask(shard, Command::Status) {
            Ok(Reply::Status(mut status)) => {
                (status.drives[3].leaving, status.drives[3].health) = (true, DriveHealth::Suspect);
                Some(Ok(Reply::Status(status)))
            }
            other => Some(other),
        },
        Command::KeepDrive { drive: 3 } => {
            kept.borrow_mut().push(shard);
            Some(Ok(Reply::Done))
        }
        _ => None,
    };
    let between = Between { shards: &server.shards, instead: suspect };
    Coordinator::new(&between, &server.registry).obey(Command::KeepDrive { drive: 3 }).expect("kept");
    assert_eq!(*kept.borrow(), [1, 0]);
}

/// A larger drive in the place of another is there on all shards when the pool is opened again.
#[test]
fn a_larger_drive_is_there_at_the_next_opening() {
    let site = Site::new("larger");
    let server = site.made(2);
    let (_, handle) = volume(&server, spec("v", Code::mirror(2), 8 * MIB));
    handle.write_blocking(0, data(3, 8 * MIB), true).expect("written");
    let size = std::fs::metadata(site.place(2).path).expect("a drive").len() + 32 * MIB;
    let path = site.0.join("new");
    drop(DriveFile::create(&path, Bytes(size), Space::Sparse).expect("a file"));
    server.detach(2);
    let new = server.attach(&DrivePlace { path: path.clone(), enclosure: None }).expect("attached");
    let identity = DriveId(fresh_identity().expect("an identity"));
    let replace = Command::ReplaceDrive { old: 2, new, identity, enclosure: None, give_up: true };
    server.command_blocking(replace).expect("replaced");
    all_healthy(&server);
    server.close().expect("closed");
    std::fs::rename(path, site.place(2).path).expect("renamed");

    let server = site.open();
    let there = status(&server);
    let healthy = there.drives.iter().all(|drive| drive.health == DriveHealth::Healthy && drive.note.is_empty());
    assert!(healthy, "{:#?}", there.drives);
    // Both shards use what it has more.
    assert!(there.drives[2].size > Bytes(size - 4 * MIB), "{}", there.drives[2].size);
    let handle = server.volume("v").expect("there");
    assert!(handle.read_blocking(0, 8 * MIB as usize).expect("read").iter().all(|byte| *byte == 3));
}

/// Earlier versions noted a larger drive with the size of the one that it replaced.
#[test]
fn a_drive_with_a_smaller_size_in_its_label_is_divided_evenly() {
    let site = Site::new("smaller");
    let server = site.made(2);
    let (_, handle) = volume(&server, spec("v", Code::mirror(2), 8 * MIB));
    handle.write_blocking(0, data(3, 8 * MIB), true).expect("written");
    server.close().expect("closed");
    let mut bytes = std::fs::read(site.place(2).path).expect("a drive");
    let second = bytes.split_off(48 * MIB as usize);
    bytes.resize(64 * MIB as usize, 0);
    bytes.extend(second);
    bytes.resize(128 * MIB as usize, 0);
    std::fs::write(site.place(2).path, bytes).expect("written");
    let server = site.open();
    let there = status(&server);
    assert!(there.drives.iter().all(|drive| drive.health == DriveHealth::Healthy), "{:#?}", there.drives);
    let handle = server.volume("v").expect("there");
    assert!(handle.read_blocking(0, 8 * MIB as usize).expect("read").iter().all(|byte| *byte == 3));
}

/// A pool opens without one of its drives, whose label says in how many parts they are divided.
#[test]
fn drives_say_how_they_are_divided() {
    let site = Site::new("divided");
    let server = site.made(3);
    let (_, handle) = volume(&server, spec("v", Code::mirror(2), 12 * MIB));
    handle.write_blocking(0, data(6, 12 * MIB), true).expect("written");
    server.close().expect("closed");
    std::fs::remove_file(site.place(4).path).expect("a drive is away");
    // Another one has lost its labels at the start.
    let damaged = std::fs::OpenOptions::new().write(true).open(site.place(1).path).expect("a drive");
    std::os::unix::fs::FileExt::write_all_at(&damaged, &[0; 128 << 10], 0).expect("damaged");
    drop(damaged);
    let server = site.open();
    let there = status(&server);
    assert_eq!((there.shards, there.pool), (3, PoolId([7; 16])));
    assert_eq!(
        there.drives.iter().filter(|drive| drive.health == DriveHealth::Missing).count(),
        1,
        "{:#?}",
        there.drives
    );
    let handle = server.volume("v").expect("there");
    assert!(handle.read_blocking(0, 12 * MIB as usize).expect("read").iter().all(|byte| *byte == 6));
    drop((handle, server));

    // A pool is not made over it, whatever its number of shards; and is, when the labels at both
    // ends of each drive are gone.
    for shards in [1, 2, 3] {
        assert!(matches!(site.create(shards), Err(ArrayError::Refused(_))), "{shards}");
    }
    for place in site.places().iter().filter(|place| place.path.exists()) {
        let file = std::fs::OpenOptions::new().write(true).open(&place.path).expect("a drive");
        let size = file.metadata().expect("its size").len();
        for at in crate::drives::label::places(size) {
            let zeros = vec![0; crate::drives::label::LABEL_SIZE as usize];
            std::os::unix::fs::FileExt::write_all_at(&file, &zeros, at).expect("wiped");
        }
    }
    assert_eq!(names(&site.made(3)), Vec::<String>::new());
}
