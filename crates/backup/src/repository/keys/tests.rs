use super::*;
use crate::store::Store;
use crate::testing::{PASSWORD, repository, stage};

fn damages(repository: &Closed) -> Vec<(String, String)> {
    let listed = repository.keys_listed().unwrap().into_iter();
    listed.filter_map(|key| Some((key.name, key.damage?))).collect()
}

#[test]
fn only_a_password_of_the_repository_opens_it() {
    let (made, store) = repository(1);
    let open = |password: &[u8]| {
        Repository::open(store.clone(), stage(2), password).map(|opened| opened.keys.secret().clone())
    };
    assert_eq!(open(PASSWORD), Ok(made.keys.secret().clone()));
    assert_eq!(open(b"other"), Err(BackupError::WrongPassword));
    let key = made.add_key(b"other", "second", Cost::LEAST).unwrap();
    assert_eq!(open(b"other"), Ok(made.keys.secret().clone()));
    made.remove_key(&key, PASSWORD).unwrap();
    assert_eq!(open(b"other"), Err(BackupError::WrongPassword));
    let last = made.keys_listed().unwrap().remove(0);
    let Err(BackupError::Refused(told)) = made.remove_key(&last.name, PASSWORD) else { panic!("it went") };
    assert!(told.contains("the last key"), "{told}");
    assert!(matches!(made.remove_key("00", PASSWORD), Err(BackupError::Missing(_))));
}

#[test]
fn a_key_that_the_store_does_not_give_is_no_wrong_password() {
    let (made, store) = repository(1);
    let name = store.names(Folder::Keys).remove(0);
    made.add_key(b"other", "second", Cost::LEAST).unwrap();
    store.fail_reading(&name);
    let open = |password: &[u8]| Repository::open(store.clone(), stage(2), password).map(drop);
    assert_eq!(open(b"other"), Ok(()), "another key opens all the same");
    assert_eq!(open(PASSWORD), Err(BackupError::Failed("the store went away".to_owned())));
}

#[test]
fn every_changed_byte_of_a_stored_key_is_listed() {
    let (made, store) = repository(1);
    let name = store.names(Folder::Keys).remove(0);
    let whole = store.get(&name, KEY_BYTES_MAX).unwrap();
    assert_eq!((name.last().len(), damages(&made)), (2 * NAME_BYTES, Vec::new()));
    for at in 0..whole.len() {
        for shorter in [false, true] {
            store.damage(&name, |bytes| match shorter {
                false => bytes[at] ^= 1,
                true => bytes.truncate(at),
            });
            let found = damages(&made);
            assert!(found.len() == 1 && found[0].0 == name.last(), "byte {at}: {found:?}");
            store.damage(&name, |bytes| bytes.clone_from(&whole));
        }
    }
    store.damage(&name, |bytes| bytes.resize(2000, 0));
    assert!(damages(&made)[0].1.contains("2000 bytes"));
    store.damage(&name, |bytes| *bytes = whole);
    store.set_unreadable(&name, 0..1);
    assert_eq!(damages(&made).len(), 1);
}

#[test]
fn a_key_of_an_earlier_version_has_a_random_name() {
    let (made, store) = repository(1);
    let key = WrappedKey::new(made.keys.secret(), b"old", "old", Cost::LEAST, [3; 32]).unwrap().encode();
    let name = Name::of(Folder::Keys, &[1; 8]);
    store.create(&name, &key).unwrap();
    assert_eq!(damages(&made), []);
    Repository::open(store.clone(), stage(2), b"old").unwrap();
    // More memory than any writer sets.
    store.damage(&name, |bytes| bytes[11] = 0xff);
    assert_eq!(damages(&made).len(), 1);
}

#[test]
fn the_last_good_key_stays_beside_damaged_ones() {
    let (made, store) = repository(1);
    let name = store.names(Folder::Keys).remove(0);
    let other = made.add_key(b"other", "second", Cost::LEAST).unwrap();
    let third = made.add_key(b"third", "third", Cost::LEAST).unwrap();
    for key in [&other, &third] {
        // The salt of one, and the magic of the other.
        let at = if *key == other { 30 } else { 0 };
        let bad = store.names(Folder::Keys).into_iter().find(|name| name.last() == key).unwrap();
        assert!(store.damage(&bad, |bytes| bytes[at] ^= 1));
    }
    let Err(BackupError::Refused(told)) = made.remove_key(name.last(), PASSWORD) else { panic!("it went") };
    assert!(told.contains("a key that stays"), "{told}");
    // Damaged keys go.
    made.remove_key(&other, PASSWORD).unwrap();
    made.remove_key(&third, PASSWORD).unwrap();
    assert_eq!((damages(&made), store.names(Folder::Keys)), (Vec::new(), vec![name.clone()]));
    // With the password that stays, the first one goes too.
    made.add_key(b"new", "new", Cost::LEAST).unwrap();
    assert!(matches!(made.remove_key(name.last(), PASSWORD), Err(BackupError::Refused(_))));
    made.remove_key(name.last(), b"new").unwrap();
    Repository::open(store, stage(2), b"new").unwrap();
}

/// Two holders of a password each remove the key of the other one.
#[test]
fn of_two_removals_at_once_a_key_stays() {
    let (made, store) = repository(1);
    let first = store.names(Folder::Keys).remove(0);
    made.add_key(b"other", "", Cost::LEAST).unwrap();
    let second = store.names(Folder::Keys).into_iter().find(|name| *name != first).unwrap();
    // The other one has removed the key that this one relies on, directly before.
    store.remove_behind(&second, &first);
    let refused = made.remove_key(second.last(), PASSWORD).unwrap_err();
    assert!(matches!(&refused, BackupError::Locked(text) if text.contains("was not removed")), "{refused}");
    assert_eq!(store.names(Folder::Keys), [second]);
    Repository::open(store, stage(2), b"other").unwrap();
}
