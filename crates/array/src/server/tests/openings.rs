//! What an opening makes of parts that differ.

use super::*;
use crate::model::AlarmKind;

fn incomplete(server: &PoolServer) -> Vec<(String, Option<String>)> {
    status(server).incomplete.into_iter().map(|here| (here.volume, here.rolling_back_to)).collect()
}

/// What a command leaves that was cut off between two shards is put right at the next opening.
#[test]
fn an_opening_puts_right_what_was_cut_off() {
    let site = Site::new("cut");
    let server = site.made(2);
    let (status, handle) = volume(&server, spec("v", Code::mirror(2), 6 * MIB));
    volume(&server, spec("gone", Code::mirror(2), 6 * MIB));
    handle.write_blocking(0, data(1, 2 * MIB), true).expect("written");
    let on = |shard: usize, command: Command| server.shards.ask(shard, command).expect("done there");
    let part = |name: &str, size| VolumeSpec { size: Bytes(size), ..spec(name, Code::mirror(2), 1) };
    // Making a volume, a snapshot of another; deleting; growing; setting.
    on(1, Command::CreateVolume(part("half", 3 * MIB)));
    on(1, Command::SnapshotVolume { volume: "v".into(), name: "v@half".into(), made: 0 });
    on(0, Command::DeleteVolume { name: "gone".into() });
    on(1, Command::ResizeVolume { name: "v".into(), size: Bytes(7 * MIB) });
    on(1, Command::SetVolume { name: "v".into(), read_ahead: Some(5), mode: Some(WriteMode::WriteThrough) });
    drop((handle, server));

    let server = site.open();
    assert_eq!(names(&server), ["v"]);
    let told = |list: &Vec<VolumeStatus>| (list[0].spec.size, list[0].read_ahead, list[0].spec.mode);
    let parts = parts(&server);
    assert_eq!(told(&parts[0]), told(&parts[1]));
    assert_eq!(list(&server)[0].spec.size, status.spec.size);
    // A name that was cut off is free.
    volume(&server, spec("half", Code::mirror(2), 6 * MIB));

    // Shrinking, where the first shard would have refused: the end of the second part comes back.
    let handle = server.volume("v").expect("there");
    handle.write_blocking(4 * MIB, data(4, MIB), true).expect("written");
    server.shards.ask(1, Command::ResizeVolume { name: "v".into(), size: Bytes(2 * MIB) }).expect("shrunk there");
    drop((handle, server));
    let server = site.open();
    let handle = server.volume("v").expect("there");
    assert!(handle.geometry().size >= Bytes(5 * MIB), "{}", handle.geometry().size);
    assert_eq!(handle.read_blocking(4 * MIB, MIB as usize).expect("read")[..], vec![4; MIB as usize]);
    assert_eq!(handle.read_blocking(0, 2 * MIB as usize).expect("read")[..], vec![1; 2 * MIB as usize]);
}

/// A shrinking that reached one shard of three is undone where another holds something behind.
#[test]
fn an_opening_cuts_nothing_off_that_another_shard_holds() {
    let site = Site::new("shrunk");
    let server = site.made(3);
    let (_, handle) = volume(&server, spec("v", Code::mirror(2), 12 * MIB));
    handle.write_blocking(10 * UNIT, data(4, UNIT), true).expect("written");
    server.shards.ask(2, Command::ResizeVolume { name: "v".into(), size: Bytes(2 * MIB) }).expect("shrunk there");
    drop((handle, server));
    let server = site.open();
    let handle = server.volume("v").expect("there");
    assert!(handle.geometry().size >= Bytes(11 * MIB), "{}", handle.geometry().size);
    assert_eq!(handle.read_blocking(10 * UNIT, UNIT as usize).expect("read")[..], vec![4; UNIT as usize]);
}

/// A leftover on a shard in the middle is in the way of a new volume: the new one is made whole.
#[test]
fn a_volume_is_made_whole_beside_a_leftover() {
    let site = Site::new("leftover");
    let server = site.made(3);
    let part = VolumeSpec { size: Bytes(2 * MIB), ..spec("half", Code::mirror(2), 1) };
    server.shards.ask(1, Command::CreateVolume(part)).expect("made there");
    let (_, handle) = volume(&server, spec("half", Code::mirror(2), 6 * MIB));
    assert_eq!(parts(&server).iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 1]);
    handle.write_blocking(0, data(1, 6 * MIB), true).expect("written");
    let taken = server.command_blocking(Command::CreateVolume(spec("half", Code::mirror(2), 6 * MIB)));
    assert!(matches!(taken, Err(ArrayError::Exists(_))), "{taken:?}");
    assert!(handle.read_blocking(0, 6 * MIB as usize).expect("read").iter().all(|byte| *byte == 1));
}

/// After an opening that accepted a loss, the first shard may have forgotten a volume. Its other
/// parts stay, and are named, until someone deletes them.
#[test]
fn an_opening_that_accepted_a_loss_keeps_parts_without_their_first() {
    let site = Site::new("accepted");
    let server = site.made(3);
    let (_, handle) = volume(&server, spec("v", Code::mirror(2), 7 * MIB));
    handle.write_blocking(0, data(1, 7 * MIB), true).expect("written");
    let take = |name: &str| Command::SnapshotVolume { volume: "v".into(), name: name.into(), made: 0 };
    server.command_blocking(take("v@1")).expect("a snapshot");
    for name in ["v@1", "v"] {
        server.shards.ask(0, Command::DeleteVolume { name: name.into() }).expect("deleted there");
    }
    drop((handle, server));
    let accepting = OpenOptions { override_quorum: true, ..OpenOptions::default() };
    let options = [accepting, OpenOptions { read_only: true, ..OpenOptions::default() }, OpenOptions::default()];
    for options in options {
        let read_only = options.read_only;
        let server = PoolServer::open(&site.places(), options, ServerOptions::default()).expect("the pool opens");
        assert_eq!(names(&server), ["v", "v@1"]);
        let there = status(&server);
        assert_eq!((incomplete(&server), there.loss_accepted), (vec![("v".into(), None), ("v@1".into(), None)], true));
        let whole = &list(&server)[0];
        assert_eq!((whole.spec.size, &whole.unreadable), (Bytes(6 * MIB), &vec![(0, 6 * MIB)]));
        server.volume("v").expect("a handle").read_blocking(MIB, 4096).expect_err("it lacks a part");
        if read_only {
            continue;
        }
        let ask = |command: Command| server.command_blocking(command);
        let taken = ask(Command::CreateVolume(spec("v", Code::mirror(2), 7 * MIB))).expect_err("the name is kept");
        assert!(matches!(taken, ArrayError::Exists(_)), "{taken}");
        for command in [
            take("v@2"),
            Command::CloneSnapshot { snapshot: "v@1".into(), name: "c".into() },
            Command::ResizeVolume { name: "v".into(), size: Bytes(9 * MIB) },
        ] {
            let refused = ask(command).expect_err("refused");
            assert!(refused.to_string().contains("lacks its part on 1 of 3 shards"), "{refused}");
        }
    }
    let server = site.open();
    for name in ["v@1", "v"] {
        server.command_blocking(Command::DeleteVolume { name: name.into() }).expect("deleted");
    }
    assert_eq!(incomplete(&server), []);
    volume(&server, spec("v", Code::mirror(2), 7 * MIB));
    drop(server);
    assert_eq!(list(&site.open())[0].unreadable, []);
}

/// A shard that takes no changes keeps the difference, and the pool opens. While the first one is
/// such, it may lack what was acknowledged: nothing goes.
#[test]
fn an_opening_leaves_differences_that_a_shard_does_not_let_go() {
    let site = Site::new("stuck");
    let server = site.made(2);
    volume(&server, spec("v", Code::mirror(2), 6 * MIB));
    let on = |shard: usize, command: Command| server.shards.ask(shard, command).expect("done there");
    on(0, Command::SetVolume { name: "v".into(), read_ahead: Some(5), mode: None });
    on(1, Command::ResizeVolume { name: "v".into(), size: Bytes(7 * MIB) });
    on(1, Command::CreateVolume(spec("half", Code::mirror(2), 3 * MIB)));
    for shard in [1, 0] {
        let instead = |asked: usize, command: &Command| match command {
            _ if asked != shard => None,
            Command::ListVolumes => None,
            Command::Status => match server.shards.ask(shard, Command::Status) {
                Ok(Reply::Status(status)) => {
                    Some(Ok(Reply::Status(Box::new(PoolStatus { read_only: true, ..*status }))))
                }
                other => Some(other),
            },
            _ => Some(Err(ArrayError::Degraded("too few drives".to_owned()))),
        };
        let stuck = Between { shards: &server.shards, instead };
        Coordinator::new(&stuck, &server.registry).reconcile(true).expect("the pool opens");
        assert_eq!(names(&server), ["v", "half"], "shard {shard} takes no changes");
        assert_eq!(list(&server)[0].spec.size, Bytes(6 * MIB));
    }
    drop(server);
    let server = site.open();
    assert_eq!(names(&server), ["v"]);
    assert_eq!(incomplete(&server), []);
}

/// A spread volume that lacks a part is never read from the parts that are there.
#[test]
fn a_volume_without_one_of_its_parts_is_not_read() {
    let site = Site::new("lacking");
    let server = site.made(2);
    volume(&server, spec("v", Code::mirror(2), 4 * MIB));
    server.shards.ask(1, Command::DeleteVolume { name: "v".into() }).expect("deleted there");
    drop(server);
    let server = site.open();
    assert_eq!(list(&server)[0].unreadable, [(0, list(&server)[0].spec.size.0)]);
    assert_eq!(incomplete(&server), [("v".into(), None)]);
    let handle = server.volume("v").expect("a handle");
    handle.read_blocking(0, 4096).expect_err("it lacks a part");
    handle.write_blocking(0, data(1, 4096), true).expect_err("it lacks a part");
}

/// A volume is rolled back on all shards or on none. Where some parts show the snapshot and others
/// do not, it is neither read nor written until a second attempt, or an opening, has finished.
#[test]
fn a_volume_is_rolled_back_on_all_shards_or_is_shut() {
    let site = Site::new("back");
    let server = site.made(3);
    let (_, handle) = volume(&server, spec("v", Code::mirror(2), 6 * MIB));
    let take = |name: &str| Command::SnapshotVolume { volume: "v".into(), name: name.into(), made: 0 };
    let back = |snapshot: &str| Command::RollBackVolume { volume: "v".into(), snapshot: snapshot.into() };
    let read = |handle: &Handle| [0, 1, 2, 5].map(|unit| handle.read_blocking(unit * UNIT, 4096).map(|block| block[0]));
    for (byte, name) in [(1, "v@1"), (2, "v@2"), (3, "last")] {
        handle.write_blocking(0, data(byte, 6 * MIB), true).expect("written");
        server.command_blocking(take(name)).expect("a snapshot");
    }
    server.command_blocking(back("v@2")).expect("rolled back");
    assert_eq!(read(&handle), [Ok(2), Ok(2), Ok(2), Ok(2)]);
    for (of, error) in [("v", "no snapshot of"), ("none", "no volume named")] {
        let refused = server.command_blocking(back(of)).expect_err("refused");
        assert!(refused.to_string().contains(error), "{refused}");
    }
    handle.write_blocking(0, data(4, 6 * MIB), true).expect("written");

    // The first shard that is asked refuses: nothing has changed.
    let roll_back = |to: &str, fails: usize, error: ArrayError| {
        let instead = |shard: usize, command: &Command| {
            (shard == fails && matches!(command, Command::RollBackVolume { .. })).then(|| Err(error.clone()))
        };
        let failing = Between { shards: &server.shards, instead };
        Coordinator::new(&failing, &server.registry).obey(back(to)).expect_err("one shard fails")
    };
    let (refused, failed) = (ArrayError::Refused("too deep".into()), ArrayError::Degraded("no drives".into()));
    assert_eq!(roll_back("v@1", 2, refused.clone()), refused);
    assert_eq!((read(&handle), incomplete(&server)), ([Ok(4), Ok(4), Ok(4), Ok(4)], Vec::new()));
    // It fails, and may have taken the record all the same. Then one behind it does. Another
    // attempt that is refused leaves the volume shut.
    for (shard, error) in [(2, &failed), (1, &failed), (0, &failed), (2, &refused)] {
        let error = roll_back("v@1", shard, error.clone());
        assert!(error.to_string().contains("was cut off: "), "{error}");
        assert_eq!(incomplete(&server), [("v".into(), Some("v@1".into()))]);
        assert!(read(&handle).iter().all(Result::is_err), "{:?}", read(&handle));
        handle.write_blocking(0, data(5, 4096), true).expect_err("it is shut");
    }
    for command in [
        take("v@3"),
        Command::ResizeVolume { name: "v".into(), size: Bytes(9 * MIB) },
        Command::DeleteVolume { name: "v@1".into() },
    ] {
        let refused = server.command_blocking(command).expect_err("refused");
        assert!(refused.to_string().contains("was cut off"), "{refused}");
    }
    server.command_blocking(back("v@1")).expect("rolled back");
    assert_eq!((read(&handle), incomplete(&server)), ([Ok(1), Ok(1), Ok(1), Ok(1)], Vec::new()));

    // An opening finishes it; one for reading alone shows no mixture.
    roll_back("v@2", 0, failed);
    drop((handle, server));
    let reading = OpenOptions { read_only: true, ..OpenOptions::default() };
    let server = PoolServer::open(&site.places(), reading, ServerOptions::default()).expect("the pool opens");
    assert_eq!(incomplete(&server), [("v".into(), Some("v@2".into()))]);
    assert_eq!(list(&server)[0].unreadable, [(0, 6 * MIB)]);
    assert!(read(&server.volume("v").expect("a handle")).iter().all(Result::is_err));
    drop(server);
    let server = site.open();
    let handle = server.volume("v").expect("a handle");
    assert_eq!((read(&handle), incomplete(&server)), ([Ok(2), Ok(2), Ok(2), Ok(2)], Vec::new()));
    assert_eq!(status(&server).rolling_back, None);
}

/// Where the snapshot of a rollback that was cut off lacks a part, the volume stays shut: at every
/// opening, until it is rolled back to another snapshot or deleted.
#[test]
fn a_mixture_whose_snapshot_lacks_a_part_stays_shut() {
    for ends_with in ["rollback", "deletion"] {
        let site = Site::new(&format!("mixture-{ends_with}"));
        let server = site.made(3);
        let (_, handle) = volume(&server, spec("v", Code::mirror(2), 6 * MIB));
        volume(&server, spec("w", Code::mirror(2), 6 * MIB));
        let take =
            |volume: &str, name: &str| Command::SnapshotVolume { volume: volume.into(), name: name.into(), made: 0 };
        let back = |volume: &str, to: &str| Command::RollBackVolume { volume: volume.into(), snapshot: to.into() };
        let delete = |name: &str| Command::DeleteVolume { name: name.into() };
        for (byte, name) in [(1, "v@1"), (2, "v@2")] {
            handle.write_blocking(0, data(byte, 6 * MIB), true).expect("written");
            server.command_blocking(take("v", name)).expect("a snapshot");
        }
        server.command_blocking(take("w", "w@1")).expect("a snapshot");
        let failed = |shard: usize, command: &Command| {
            let is_last = shard == 0 && matches!(command, Command::RollBackVolume { .. });
            is_last.then(|| Err(ArrayError::Degraded("no drives".into())))
        };
        let failing = Between { shards: &server.shards, instead: failed };
        Coordinator::new(&failing, &server.registry).obey(back("v", "v@1")).expect_err("cut off");
        server.shards.ask(1, delete("v@1")).expect("deleted there");
        drop((handle, server));

        let read = |server: &PoolServer| {
            let handle = server.volume("v").expect("a handle");
            [0, 1, 2].map(|unit| handle.read_blocking(unit * UNIT, 4096).map(|block| block[0]))
        };
        let is_shut = |server: &PoolServer| read(server).iter().all(Result::is_err);
        let accepting = OpenOptions { override_quorum: true, ..OpenOptions::default() };
        let server = PoolServer::open(&site.places(), accepting, ServerOptions::default()).expect("the pool opens");
        assert_eq!(incomplete(&server), [("v".into(), Some("v@1".into())), ("v@1".into(), None)]);
        assert!(is_shut(&server), "{:?}", read(&server));
        server.command_blocking(back("v", "v@1")).expect_err("it lacks a part");
        server.command_blocking(delete("v@1")).expect("deleted");
        assert!(is_shut(&server), "{:?}", read(&server));
        drop(server);

        let server = site.open();
        assert_eq!(incomplete(&server), [("v".into(), None)]);
        assert!(is_shut(&server), "{:?}", read(&server));
        let refused = server.command_blocking(back("w", "w@1")).expect_err("the other one first");
        assert!(refused.to_string().contains("the rollback of volume 'v' was cut off"), "{refused}");
        if ends_with == "rollback" {
            server.command_blocking(back("v", "v@2")).expect("rolled back");
            assert_eq!(read(&server), [Ok(2), Ok(2), Ok(2)]);
        } else {
            server.command_blocking(delete("v@2")).expect("deleted");
            server.command_blocking(delete("v")).expect("deleted");
        }
        assert_eq!((incomplete(&server), status(&server).rolling_back), (Vec::new(), None));
        server.command_blocking(back("w", "w@1")).expect("rolled back");
    }
}

/// There is one note of a rollback that was cut off: a rollback of another volume waits for it.
#[test]
fn a_second_volume_is_not_rolled_back_before_the_first() {
    let site = Site::new("second");
    let server = site.made(2);
    for name in ["v", "w"] {
        let (_, handle) = volume(&server, spec(name, Code::mirror(2), 4 * MIB));
        handle.write_blocking(0, data(1, 4 * MIB), true).expect("written");
        let take = Command::SnapshotVolume { volume: name.into(), name: format!("{name}@1"), made: 0 };
        server.command_blocking(take).expect("a snapshot");
        handle.write_blocking(0, data(2, 4 * MIB), true).expect("written");
    }
    let back = |name: &str| Command::RollBackVolume { volume: name.into(), snapshot: format!("{name}@1") };
    let full = |shard: usize, command: &Command| {
        let is_last = shard == 0 && matches!(command, Command::RollBackVolume { .. });
        is_last.then(|| Err(ArrayError::Full("no room".into())))
    };
    let failing = Between { shards: &server.shards, instead: full };
    Coordinator::new(&failing, &server.registry).obey(back("v")).expect_err("cut off");
    let refused = server.command_blocking(back("w")).expect_err("the other one first");
    assert!(refused.to_string().contains("the rollback of volume 'v' was cut off"), "{refused}");
    let read = |server: &PoolServer, name: &str| {
        let handle = server.volume(name).expect("there");
        [0, 1].map(|unit| handle.read_blocking(unit * UNIT, 4096).map(|block| block[0]))
    };
    assert_eq!(read(&server, "w"), [Ok(2), Ok(2)]);
    drop(server);

    let server = site.open();
    assert_eq!((read(&server, "v"), read(&server, "w")), ([Ok(1), Ok(1)], [Ok(2), Ok(2)]));
    server.command_blocking(back("w")).expect("rolled back");
    assert_eq!(read(&server, "w"), [Ok(1), Ok(1)]);
}

/// A disk that dies may still be there: it has no size any more, or cannot be opened.
#[test]
fn a_drive_that_cannot_be_used_is_missing_and_named() {
    let site = Site::new("unusable");
    let path = site.place(3).path;
    drop(site.made(1));
    for why in ["is empty", "is neither a file nor a block device"] {
        match why {
            "is empty" => std::fs::write(&path, []).expect("emptied"),
            _ => std::fs::remove_file(&path).and_then(|()| std::fs::create_dir(&path)).expect("a directory"),
        }
        let told = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&told);
        let alarms = move |alarm| heard.lock().expect("no poison").push(alarm);
        let server = ServerOptions { alarms: Some(Box::new(alarms)), ..ServerOptions::default() };
        let server = PoolServer::open(&site.places(), OpenOptions::default(), server).expect("the pool opens");
        let there = status(&server);
        let seen = &there.drives[3];
        assert_eq!((there.drives.len(), there.read_only, seen.health), (DRIVES, false, DriveHealth::Missing));
        let named = format!("{}: {why}", path.display());
        assert!(seen.note.contains(&named), "{}", seen.note);
        let told = told.lock().expect("no poison");
        let told: Vec<&Alarm> = told.iter().filter(|alarm| alarm.kind == AlarmKind::DriveMissing).collect();
        assert!(told.len() == 1 && told[0].message.contains(&named), "{told:?}");
        drop(server);
    }
    // A new pool takes no such drive.
    let refused = Site::new("unusable-new");
    std::fs::create_dir(refused.place(3).path).expect("a directory");
    assert!(matches!(refused.create(1), Err(ArrayError::Invalid(_))));
}
