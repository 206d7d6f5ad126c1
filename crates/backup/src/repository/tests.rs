use super::*;
use crate::keyring::{KEY_BYTES_MAX, WrappedKey, escrow, parse_escrow};
use crate::store::memory::Memory;
use crate::testing::{PASSWORD, SMALL, Temporary, repository, save, stage};

#[test]
fn a_repository_is_made_once() {
    let (_, store) = repository(1);
    let again = Repository::make(store, stage(2), PASSWORD, "first", SMALL);
    assert!(matches!(again.map(drop), Err(BackupError::Exists(_))));
    let empty = Closed::open(Arc::new(Memory::default()), stage(1));
    assert!(matches!(empty.map(drop), Err(BackupError::NoRepository(_))));
}

#[test]
fn an_escrow_opens_its_repository_and_no_other() {
    let (first, _) = repository(1);
    let (second, _) = repository(2);
    let (id, secret) = parse_escrow(&escrow(&first.header.id, first.keys.secret())).unwrap();
    assert_eq!(id, first.header.id);
    assert!(Repository::open_with(first.closed.clone(), secret.clone()).is_ok());
    assert!(matches!(Repository::open_with(second.closed.clone(), secret).map(drop), Err(BackupError::WrongPassword)));
}

#[test]
fn a_damaged_header_or_key_is_noticed() {
    let (_, store) = repository(1);
    let header = store.get(&Name::repository(), 1000).unwrap();
    for at in 0..header.len() {
        let mut bytes = header.clone();
        bytes[at] ^= 1;
        assert!(Header::decode(&bytes).is_err(), "byte {at}");
        assert!(Header::decode(&header[..at]).is_err());
    }
    let key = store.names(Folder::Keys).remove(0);
    assert!(store.damage(&key, |bytes| bytes[30] ^= 1));
    let opened = Repository::open(store, stage(2), PASSWORD);
    assert!(matches!(opened.map(drop), Err(BackupError::WrongPassword)));
}

#[test]
fn snapshots_of_one_second_are_in_the_order_of_their_ends() {
    let (repository, store) = repository(1);
    let folder = Temporary::new();
    let mut saved = Vec::new();
    for number in 0..8 {
        folder.write("file", format!("content {number}"));
        let next = save(&repository, &folder.0).unwrap();
        // The parent is the latest one.
        assert_eq!(next.parent, saved.last().copied(), "{number}");
        saved.push(next.id);
    }
    let listed = |repository: &Repository| {
        repository.snapshots().unwrap().into_iter().map(|dated| dated.id).collect::<Vec<SnapshotId>>()
    };
    assert_eq!(listed(&repository), saved);
    // The second of the store decides first, whatever the clock of the agent shows.
    let behind = stage(2);
    behind.instant.store(5, std::sync::atomic::Ordering::Relaxed);
    let late = Repository::open(store.clone(), behind, PASSWORD).unwrap();
    store.set_now(1_000_001);
    folder.write("file", "of a slow clock");
    saved.push(save(&late, &folder.0).unwrap().id);
    assert_eq!(listed(&repository), saved);
    // One that cannot be read is the latest of its second only if it is alone.
    store.damage(&Name::of(Folder::Snapshots, &saved[7].0), |bytes| bytes[40] ^= 1);
    saved[..8].rotate_right(1);
    assert_eq!(listed(&repository), saved);
}

#[test]
fn planted_keys_keep_no_password_from_opening() {
    let (made, store) = repository(1);
    store.set_now(1_000_001);
    let secret = Zeroizing::new([7; 32]);
    for number in 0..KEYS_MAX as u64 + 6 {
        // Their names come first, and the password opens each of them.
        let planted = WrappedKey::new(&secret, PASSWORD, "planted", Cost::LEAST, [9; 32]).unwrap();
        store.create(&Name::of(Folder::Keys, &number.to_be_bytes()), &planted.encode()).unwrap();
    }
    let opened = Repository::open(store, stage(2), PASSWORD).unwrap();
    assert_eq!(opened.keys.secret(), made.keys.secret());
    assert!(matches!(opened.add_key(b"new", "new", Cost::LEAST), Err(BackupError::Full(_))));
}

#[test]
fn a_planted_key_that_is_too_long_is_not_read() {
    let (made, store) = repository(1);
    let planted: Vec<Name> = (0..KEYS_MAX as u8).map(|number| Name::of(Folder::Keys, &[number; 8])).collect();
    // Of the same second, and named before the good one.
    store.set_now(999_999);
    planted.iter().for_each(|name| store.create(name, &[7; KEY_BYTES_MAX as usize + 1]).unwrap());
    store.exchange_at_reading(planted[0].clone(), Name::of(Folder::Damaged, &[1; 32]), Vec::new());
    Repository::open(made.store.clone(), crate::testing::stage(2), crate::testing::PASSWORD).unwrap();
    assert!(store.names(Folder::Keys).contains(&planted[0]), "it was read");
}

#[test]
fn an_escrow_opens_in_the_place_of_a_password() {
    let (made, store) = repository(1);
    let (other, _) = repository(2);
    let open = |password: &str| Repository::open(store.clone(), stage(3), password.as_bytes());
    let text = escrow(&made.header.id, made.keys.secret());
    // All passwords are lost, and a new one comes from the escrow.
    open(text.trim()).unwrap().add_key(b"new", "new", Cost::LEAST).unwrap();
    assert_eq!(open("new").unwrap().keys.secret(), made.keys.secret());
    let foreign = escrow(&other.header.id, other.keys.secret());
    assert!(matches!(open(&foreign).map(drop), Err(BackupError::WrongPassword)));
    // A slip of the pen is told, and is no wrong password.
    let slip = format!("{}0", text.trim());
    let Err(BackupError::Invalid(told)) = open(&slip).map(drop) else { panic!("it opened") };
    assert!(told.contains("digit by digit"), "{told}");
    // Words that only look like an escrow can be a password.
    made.add_key(slip.as_bytes(), "odd", Cost::LEAST).unwrap();
    open(&slip).unwrap();
}

#[test]
fn a_place_with_snapshots_or_segments_gets_no_other_repository() {
    let folder = Temporary::new();
    folder.write("file", b"content");
    for gone in [Folder::Snapshots, Folder::Segments] {
        let (made, store) = repository(1);
        save(&made, &folder.0).unwrap();
        store.remove(&Name::repository()).unwrap();
        store.names(gone).iter().for_each(|name| store.remove(name).unwrap());
        let Err(BackupError::Exists(told)) = Repository::make(store.clone(), stage(2), PASSWORD, "", SMALL).map(drop)
        else {
            panic!("another repository was made");
        };
        assert!(told.contains("is lost"), "{told}");
        // Nor does a command that opens it advise to make one.
        let Err(BackupError::Damaged(told)) = Closed::open(store.clone(), stage(2)).map(drop) else {
            panic!("the place passed for empty");
        };
        assert!(told.contains("'repository' is lost: bring that back"), "{told}");
        assert_eq!(store.names(Folder::Keys).len(), 1);
    }
    // Keys are what an interrupted making leaves.
    let (_, store) = repository(1);
    store.remove(&Name::repository()).unwrap();
    Repository::make(store, stage(2), PASSWORD, "", SMALL).unwrap();
}
