use std::os::unix::fs::FileExt;
use stele_array::{CreateOptions, Shard};

use stele_array::server::{NewDrives, PoolServer, ServerOptions};
use stele_ground::{MIB, PoolId};
use stele_media::Access;

use super::*;
use crate::api::pool::{DriveView, ForgetDrives, ShowPool};
use crate::drives::DriveArgument;

const SIZE: Bytes = Bytes(64 * MIB);

fn node(folder: &Path) -> Node {
    made(folder, 1, SIZE)
}

fn made(folder: &Path, shards: u16, size: Bytes) -> Node {
    made_as(PoolId([7; 16]), folder, shards, size)
}

fn made_as(pool: PoolId, folder: &Path, shards: u16, size: Bytes) -> Node {
    let places: Vec<DrivePlace> = (0..3).map(|at| DrivePlace::new(folder.join(format!("d{at}.img")), at)).collect();
    let create = CreateOptions {
        pool,
        name: "pool".into(),
        drives: Vec::new(),
        seed: 1,
        log: None,
        spare_drives: None,
        created: 0,
        shard: Shard { index: 0, count: shards },
    };
    let new = Some(NewDrives { size, space: Space::Sparse });
    let pool = PoolServer::create(&places, new, create, Default::default(), ServerOptions::default()).unwrap();
    Node::of_pool_at(folder, pool, Config::new(Vec::new()))
}

#[tokio::test]
async fn a_drive_that_the_pool_has_stays_and_another_is_taken_back() {
    let folder = std::env::temp_dir().join(format!("stele-membership-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let node = node(&folder);
    let place = |name: &str| DrivePlace::new(folder.join(name), 9);
    let had = offer(&node, place("had.img"), Some(SIZE), false).await.unwrap();
    let not = offer(&node, place("not.img"), Some(SIZE), false).await.unwrap();
    node.pool.command(Command::AddDrives { drives: vec![(had.index, had.identity)] }).await.unwrap();

    take_back(&node, &[had, not]).await;
    assert!(folder.join("had.img").exists() && !folder.join("not.img").exists());
    let Ok(Reply::Status(status)) = node.pool.command(Command::Status).await else { panic!("no status") };
    let health: Vec<DriveHealth> = status.drives.iter().map(|drive| drive.health).collect();
    assert_eq!(health, [DriveHealth::Healthy; 4]);
    assert!(DriveFile::open(folder.join("had.img"), Access::Exclusive).is_err(), "it is attached still");
    node.close().await.unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A mistyped path leaves neither a rejected drive nor an alarm in the status.
#[tokio::test]
async fn a_drive_of_another_pool_is_refused_before_it_is_attached() {
    let folder = std::env::temp_dir().join(format!("stele-other-pool-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("other")).unwrap();
    let node = node(&folder);
    made_as(PoolId([8; 16]), &folder.join("other"), 1, SIZE).close().await.unwrap();
    let path = folder.join("other/d0.img");
    let drive = DriveArgument(DrivePlace::new(path.clone(), 9));
    let actor = Actor { uid: 0 };
    let add = AddDrives { drives: vec![drive.clone()], size: None, grow_later: true, destroy: true };
    let replace = ReplaceDrive { old: 0, new: drive, size: None, give_up: true, destroy: true };
    for refused in [
        add.perform(&node, &actor).await.map(drop),
        replace.perform(&node, &actor).await.map(drop),
        Online { drive: 0, path: path.clone() }.perform(&node, &actor).await.map(drop),
    ] {
        let refused = refused.unwrap_err();
        assert!(refused.kind == Kind::Refused && refused.error.contains("belongs to pool 'pool'"), "{refused:?}");
        assert!(refused.next.contains("--pool ID"), "{refused:?}");
    }
    let Ok(Reply::Status(status)) = node.pool.command(Command::Status).await else { panic!("no status") };
    let health: Vec<DriveHealth> = status.drives.iter().map(|drive| drive.health).collect();
    assert_eq!(health, [DriveHealth::Healthy; 3]);
    assert!(DriveFile::open(&path, Access::Exclusive).is_ok(), "nothing holds it");
    node.close().await.unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
}

/// The answer had no next step.
#[tokio::test]
async fn a_drive_that_came_back_too_small_is_told_so() {
    let folder = std::env::temp_dir().join(format!("stele-too-small-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let node = node(&folder);
    let path = folder.join("d0.img");
    let online = async || {
        let config = Config::new(Vec::new());
        config.write(&folder.join("stele.toml")).unwrap();
        Online { drive: 0, path: path.clone() }.perform(&node, &Actor { uid: 0 }).await.map(drop)
    };
    let is_away = async || match node.pool.command(Command::Status).await {
        Ok(Reply::Status(status)) => status.drives.iter().any(|drive| drive.index == 0 && drive.attached.is_none()),
        _ => panic!("no status"),
    };
    node.pool.detach(0);
    while !is_away().await {
        tokio::task::yield_now().await;
    }
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(SIZE.0 / 2).unwrap();
    let refused = online().await.unwrap_err();
    assert!(refused.kind == Kind::Refused && refused.error.contains("it has 32 MiB, the pool needs"), "{refused}");
    assert!(refused.next == SIZE_NEXT && is_away().await, "{refused}");
    let Ok(Reply::Status(status)) = node.pool.command(Command::Status).await else { panic!("no status") };
    assert_eq!(status.drives.len(), 3, "it does not stand as rejected");
    file.set_len(SIZE.0).unwrap();
    online().await.unwrap();
    node.close().await.unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_drive_that_another_process_holds_is_busy() {
    let busy = unattached(ArrayError::Busy("/d/1.img: is in use by process 708".into()));
    assert!(busy.kind == Kind::Busy && busy.next == HELD_NEXT, "{busy:?}");
    let refused = unattached(ArrayError::Refused("/d/1.img: is in use by this process itself".into()));
    assert!(refused.kind == Kind::Refused && refused.next.is_empty(), "{refused:?}");
}

/// A drive left, and a command names a new one at its path before the server has forgotten the
/// former.
#[tokio::test]
async fn the_entry_of_a_new_drive_is_not_taken_for_that_of_a_drive_that_left() {
    let folder = std::env::temp_dir().join(format!("stele-departures-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let node = node(&folder);
    let path = folder.join("left.img");
    let entry = DriveArgument(DrivePlace::new(path.clone(), 9));
    let config = folder.join("stele.toml");
    let name = || Config::new(vec![entry.clone()]).write(&config).unwrap();
    let is_named = || Config::read(&config).unwrap().pool.drives.contains(&entry);
    let left = offer(&node, entry.0.clone(), Some(SIZE), false).await.unwrap();
    node.pool.command(Command::AddDrives { drives: vec![(left.index, left.identity)] }).await.unwrap();
    node.pool.command(Command::RemoveDrive { drive: 3 }).await.unwrap();
    while !matches!(node.pool.command(Command::Status).await, Ok(Reply::Status(status)) if status.removed.len() == 1) {
        tokio::task::yield_now().await;
    }
    name();
    ForgetDrives {}.perform(&node, &Actor { uid: 0 }).await.unwrap();
    assert!(!is_named(), "the former drive is forgotten");
    name();
    node.departures.forget(&node.pool).await.unwrap();
    assert!(is_named(), "this is another drive");
    node.close().await.unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A file system, of which only the mark is made: that of XFS.
#[tokio::test]
async fn a_drive_that_holds_a_file_system_is_taken_only_where_that_is_asked_for() {
    let folder = std::env::temp_dir().join(format!("stele-content-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let node = node(&folder);
    let path = folder.join("foreign.img");
    let mut content = vec![0; SIZE.0 as usize];
    content[..4].copy_from_slice(b"XFSB");
    std::fs::write(&path, &content).unwrap();
    let drive = DriveArgument(DrivePlace::new(path.clone(), 9));
    let adding = |destroy| AddDrives { drives: vec![drive.clone()], size: None, grow_later: true, destroy };
    let replace = ReplaceDrive { old: 0, new: drive.clone(), size: None, give_up: true, destroy: false };
    for refused in
        [adding(false).perform(&node, &Actor { uid: 0 }).await, replace.perform(&node, &Actor { uid: 0 }).await]
    {
        let refused = refused.unwrap_err();
        assert!(refused.kind == Kind::Refused && refused.error.contains("a file system (XFS)"), "{refused:?}");
        assert!(std::fs::read(&path).unwrap() == content, "it was written to");
    }
    let site = Site::find(Some(&folder.join("new")), None);
    let wanted = crate::node::create::PoolWanted {
        drives: vec![drive.clone()],
        name: "pool".into(),
        size: None,
        preallocate: false,
        log: None,
        spare: None,
        shards: 1,
        data: "none".into(),
        destroy: false,
    };
    let refused = crate::node::create::pool(&site, wanted).await.unwrap_err();
    assert!(refused.error.contains("a file system (XFS)"), "{refused:?}");
    adding(true).perform(&node, &Actor { uid: 0 }).await.unwrap();
    assert!(std::fs::read(&path).unwrap() != content);
    node.close().await.unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Of a pool with shards, a drive may be on the last ones alone. It has no number then.
#[tokio::test]
async fn a_drive_that_some_shards_have_may_be_a_member() {
    let folder = std::env::temp_dir().join(format!("stele-in-part-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let node = node(&folder);
    let mut status = ShowPool {}.perform(&node, &Actor { uid: 0 }).await.unwrap();
    let path = folder.join("in-part.img");
    let in_part = DriveView {
        drive: stele_array::NOT_A_MEMBER,
        identity: DriveId([9; 16]).to_string(),
        path: path.display().to_string(),
        ..status.drives[0].clone()
    };
    let rejected = DriveView { identity: DriveId::default().to_string(), ..in_part.clone() };
    status.drives.push(rejected);
    assert!(!crate::named::may_be_member(&path, &status));
    // An entry cannot be read, and others name all numbered drives.
    let site = Site::find(Some(&folder), None);
    let entries = status.drives[..3].iter().map(|drive| drive.path.clone().into()).chain([folder.join("moved.img")]);
    let config = Config::new(entries.map(|path| DriveArgument(DrivePlace { path, enclosure: None })).collect());
    assert_eq!(crate::named::spare_entries(&site, &config, &status).len(), 1);
    status.drives.push(in_part);
    assert!(crate::named::may_be_member(&path, &status));
    assert!(crate::named::spare_entries(&site, &config, &status).is_empty(), "the entry may name it");
    node.close().await.unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Half of a drive: what one of two shards has of it.
const PART: u64 = 48 * MIB;

/// A pool of three drives in two shards, in which a command reached the last shard alone, before
/// the server ended. The parts of the first shard are as they were before.
async fn cut_off(folder: &Path, new: &Path, command: impl AsyncFnOnce(&Node)) -> Node {
    let paths: Vec<PathBuf> = (0..3).map(|at| folder.join(format!("d{at}.img"))).collect();
    let opened = |paths: &[PathBuf]| {
        let places: Vec<DrivePlace> = (0..).zip(paths).map(|(at, path)| DrivePlace::new(path.clone(), at)).collect();
        let pool = PoolServer::open(&places, Default::default(), ServerOptions::default()).unwrap();
        Node::of_pool_at(folder, pool, Config::new(Vec::new()))
    };
    let part = |path: &PathBuf| {
        let mut bytes = vec![0; PART as usize];
        std::fs::File::open(path).unwrap().read_exact_at(&mut bytes, 0).unwrap();
        bytes
    };
    made(folder, 2, Bytes(2 * PART)).close().await.unwrap();
    let before: Vec<Vec<u8>> = paths.iter().map(part).collect();
    let node = opened(&paths);
    command(&node).await;
    node.close().await.unwrap();
    let put_back = |path: &Path, bytes: &[u8]| {
        std::fs::OpenOptions::new().write(true).open(path).unwrap().write_all_at(bytes, 0).unwrap();
    };
    paths.iter().zip(&before).for_each(|(path, bytes)| put_back(path, bytes));
    put_back(new, &vec![0; PART as usize]);
    opened(&[paths, vec![new.to_owned()]].concat())
}

/// A repeated command takes the drive as the shards know it that have it already.
#[tokio::test]
async fn a_command_that_reached_some_shards_is_finished_when_it_is_repeated() {
    for case in ["add", "replace", "give up"] {
        let folder = std::env::temp_dir().join(format!("stele-cut-off-{case}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let new = folder.join("new.img");
        drop(DriveFile::create(&new, Bytes(2 * PART), Space::Sparse).unwrap());
        let entry = DriveArgument(DrivePlace::new(new.clone(), 9));
        let adding = |drives: Vec<DriveArgument>| AddDrives { drives, size: None, grow_later: true, destroy: false };
        let act = async |node: &Node| {
            let actor = &Actor { uid: 0 };
            let replace = |give_up| ReplaceDrive { old: 1, new: entry.clone(), size: None, give_up, destroy: false };
            match case {
                "add" => add(node, adding(vec![entry.clone()]), actor).await,
                case => super::replace(node, replace(case == "give up"), actor).await,
            }
        };
        let node = cut_off(&folder, &new, async |node| act(node).await.unwrap()).await;
        let shown = async || {
            let Ok(Reply::Status(status)) = node.pool.command(Command::Status).await else { panic!("no status") };
            let here = status.drives.into_iter().filter(|drive| Path::new(&drive.name) == new);
            here.map(|drive| (drive.is_in_part(), drive.is_member(), drive.enclosure, drive.note)).collect::<Vec<_>>()
        };
        let before = shown().await;
        assert!(matches!(before[..], [(true, false, ..)]), "{case}: {before:?}");
        // A command that fails takes nothing away.
        let gone = DriveArgument(DrivePlace::new(folder.join("gone.img"), 9));
        add(&node, adding(vec![entry.clone(), gone]), &Actor { uid: 0 }).await.unwrap_err();
        assert_eq!(shown().await, before, "{case}");

        act(&node).await.unwrap_or_else(|failure| panic!("{case}: {failure:?}"));
        let after = shown().await;
        assert!(
            matches!(&after[..], [(false, true, 9, note)] if !note.contains("not all shards")),
            "{case}: {after:?}"
        );
        node.close().await.unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

/// Shards finish with drives in different orders, so the list of those that left may get one in
/// front of others.
#[test]
fn each_drive_that_left_is_dealt_with_once() {
    let left = |name: &str, index| Departed { index: Some(index), name: name.to_owned() };
    let done = BTreeMap::from([("b".to_owned(), 1)]);
    let removed = [left("a", 1), left("b", 2), left("b", 5), left("c", 3)];
    let names = |removed: &[Departed]| unhandled(removed, &done).into_iter().map(|left| left.index).collect::<Vec<_>>();
    assert_eq!(names(&removed), [Some(1), Some(5), Some(3)]);
    assert_eq!(names(&removed[1..2]), []);
}

/// A command was killed after it had named the drive in the configuration, and the pool was opened.
#[tokio::test]
async fn a_drive_that_is_named_and_that_no_pool_has_is_added() {
    let folder = std::env::temp_dir().join(format!("stele-named-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    node(&folder).close().await.unwrap();
    let new = folder.join("d3.img");
    drop(DriveFile::create(&new, SIZE, Space::Sparse).unwrap());
    let places: Vec<DrivePlace> = (0..4).map(|at| DrivePlace::new(folder.join(format!("d{at}.img")), at)).collect();
    let pool = PoolServer::open(&places, Default::default(), ServerOptions::default()).unwrap();
    let node = Node::of_pool_at(&folder, pool, Config::new(Vec::new()));
    let status = async || ShowPool {}.perform(&node, &Actor { uid: 0 }).await.unwrap();
    let before = status().await;
    let unused = before.drives.last().unwrap();
    assert!(!unused.is_member() && unused.next.contains("stele pool add"), "{unused:?}");
    let drives = vec![DriveArgument(DrivePlace::new(new, 9))];
    let adding = AddDrives { drives, size: None, grow_later: true, destroy: false };
    add(&node, adding, &Actor { uid: 0 }).await.unwrap();
    let after = status().await;
    assert_eq!(after.drives.len(), 4, "{:?}", after.drives);
    let added = after.drives.last().unwrap();
    assert_eq!((added.drive, &*added.health, added.enclosure), (3, "healthy", 9), "{added:?}");
    node.close().await.unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
}
