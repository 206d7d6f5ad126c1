use super::*;
use stele_ground::Dice;

const FILE: LockedFile = LockedFile { share: 1, inode: Inode(7) };

fn owner(client: u8, process: u8) -> LockOwner {
    let client = LockClient { protocol: LockProtocol::Nlm, name: Bytes::from(vec![client]) };
    LockOwner { client, handle: Bytes::from(vec![process]) }
}

fn range(offset: u64, length: u64) -> LockRange {
    LockRange::new(offset, length).unwrap()
}

/// What is held, as (process, offset, length, exclusive).
fn held(locks: &Locks) -> Vec<(u8, u64, u64, bool)> {
    let held = locks.held(FILE);
    held.iter().map(|held| (held.owner.handle[0], held.range.offset(), held.range.length(), held.exclusive)).collect()
}

#[test]
fn ranges_end_where_they_should() {
    assert_eq!(LockRange::new(5, u64::MAX), None);
    assert_eq!(LockRange::new(1, u64::MAX), Some(LockRange { first: 1, last: u64::MAX }));
    for (offset, length, shown) in [(0, 0, 0), (7, 0, 0), (7, 1, 1), (0, u64::MAX, u64::MAX), (9, 100, 100)] {
        let range = range(offset, length);
        assert_eq!((range.offset(), range.length()), (offset, shown));
    }
}

#[test]
fn locks_split_and_merge() {
    let locks = Locks::default();
    let own = owner(1, 1);
    let lock = |offset, length, exclusive| locks.lock(FILE, &own, range(offset, length), exclusive).unwrap();
    lock(0, 10, true);
    lock(10, 10, true);
    assert_eq!(held(&locks), [(1, 0, 20, true)]);
    locks.unlock(FILE, &own, range(5, 5)).unwrap();
    assert_eq!(held(&locks), [(1, 0, 5, true), (1, 10, 10, true)]);
    lock(3, 10, false);
    assert_eq!(held(&locks), [(1, 0, 3, true), (1, 3, 10, false), (1, 13, 7, true)]);
    lock(0, 0, true);
    assert_eq!(held(&locks), [(1, 0, 0, true)]);
    locks.unlock(FILE, &own, LockRange::ALL).unwrap();
    assert_eq!((held(&locks).len(), locks.count(), locks.clients().len()), (0, 0, 0));
}

#[test]
fn readers_share_and_writers_do_not() {
    for (first, second, meets) in [(false, false, false), (false, true, true), (true, false, true), (true, true, true)]
    {
        let locks = Locks::default();
        locks.lock(FILE, &owner(1, 1), range(0, 10), first).unwrap();
        let other = owner(1, 2);
        let found = locks.test(FILE, &other, range(9, 5), second).map(|held| held.owner);
        assert_eq!(found, meets.then(|| owner(1, 1)));
        assert_eq!(matches!(locks.lock(FILE, &other, range(9, 5), second), Err(LockError::Held(_))), meets);
        locks.lock(FILE, &other, range(10, 5), second).unwrap();
        let elsewhere = LockedFile { share: 2, ..FILE };
        locks.lock(elsewhere, &other, range(0, 10), second).unwrap();
    }
}

/// The same rules byte by byte: each byte has at most one lock of each owner.
#[derive(Default)]
struct Bytewise(BTreeMap<(u64, LockOwner), bool>);

impl Bytewise {
    fn conflicts(&self, owner: &LockOwner, bytes: std::ops::Range<u64>, exclusive: bool) -> bool {
        self.0.iter().any(|((byte, other), other_exclusive)| {
            bytes.contains(byte) && other != owner && (exclusive || *other_exclusive)
        })
    }
}

#[test]
fn the_table_agrees_with_one_lock_for_each_byte() {
    const BYTES: u64 = 24;
    let mut dice = Dice::new(6);
    for _ in 0..300 {
        let (locks, mut twin) = (Locks::default(), Bytewise::default());
        for _ in 0..60 {
            let own = owner(dice.below(2) as u8, dice.below(2) as u8);
            let offset = dice.below(BYTES);
            let length = 1 + dice.below(BYTES - offset);
            let (bytes, wanted) = (offset..offset + length, range(offset, length));
            let exclusive = dice.one_in(2);
            match dice.below(8) {
                0 => {
                    locks.release(&own.client);
                    twin.0.retain(|(_, owner), _| owner.client != own.client);
                }
                1..=2 => {
                    locks.unlock(FILE, &own, wanted).unwrap();
                    twin.0.retain(|(byte, owner), _| *owner != own || !bytes.contains(byte));
                }
                _ => {
                    let refused = twin.conflicts(&own, bytes.clone(), exclusive);
                    assert_eq!(locks.test(FILE, &own, wanted, exclusive).is_some(), refused);
                    assert_eq!(locks.lock(FILE, &own, wanted, exclusive).is_err(), refused);
                    if !refused {
                        twin.0.extend(bytes.map(|byte| ((byte, own.clone()), exclusive)));
                    }
                }
            }
            let mut shown = BTreeMap::new();
            let held = locks.held(FILE);
            for lock in &held {
                for byte in lock.range.first..=lock.range.last {
                    let before = shown.insert((byte, lock.owner.clone()), lock.exclusive);
                    assert_eq!(before, None, "two locks of one owner on byte {byte}");
                }
            }
            assert_eq!(shown, twin.0);
            assert_eq!(locks.count(), held.len());
            let merged = |a: &Held, b: &Held| {
                a.owner == b.owner && a.exclusive == b.exclusive && a.range != b.range && a.range.touches(b.range)
            };
            assert!(!held.iter().any(|a| held.iter().any(|b| merged(a, b))), "neighbours that are not joined");
        }
    }
}

#[test]
fn what_exceeds_a_limit_is_refused_and_changes_nothing() {
    let locks = Locks::new(Limits { locks_max: 6, client_max: 4, file_max: 3 });
    let own = owner(1, 1);
    let file = |inode| LockedFile { share: 1, inode: Inode(inode) };
    let lock = |inode, owner: &LockOwner, offset| locks.lock(file(inode), owner, range(offset, 2), true);
    for offset in [0, 10, 20] {
        lock(1, &own, offset).unwrap();
    }
    assert_eq!(lock(1, &own, 30), Err(LockError::Full), "a file's limit");
    lock(2, &own, 0).unwrap();
    assert_eq!(lock(3, &own, 0), Err(LockError::Full), "a client's limit");
    // Its neighbour makes it no further lock.
    lock(1, &own, 2).unwrap();
    lock(3, &owner(2, 1), 0).unwrap();
    lock(3, &owner(2, 1), 5).unwrap();
    assert_eq!(lock(4, &owner(3, 1), 0), Err(LockError::Full), "the limit of all");
    let reservation = Reservation { owner: owner(3, 1), access: Uses::default(), deny: Uses::default() };
    assert_eq!(locks.reserve(file(4), reservation), Err(LockError::Full));
    assert_eq!(locks.unlock(file(1), &own, range(0, 1)), Ok(()));
    assert_eq!(locks.unlock(file(1), &own, range(21, 1)), Ok(()));
    assert_eq!(locks.count(), 6);
}

#[test]
fn unlocking_the_middle_needs_room() {
    let locks = Locks::new(Limits { locks_max: 1, client_max: 1, file_max: 1 });
    locks.lock(FILE, &owner(1, 1), range(0, 10), true).unwrap();
    assert_eq!(locks.unlock(FILE, &owner(1, 1), range(5, 1)), Err(LockError::Full));
    assert_eq!(held(&locks), [(1, 0, 10, true)]);
    locks.unlock(FILE, &owner(1, 1), range(5, 0)).unwrap();
    assert_eq!(held(&locks), [(1, 0, 5, true)]);
}

#[test]
fn reservations_deny_what_they_say() {
    let uses = |bits: u8| Uses { read: bits & 1 != 0, write: bits & 2 != 0 };
    for (access, deny, other_access, other_deny, meets) in [
        (3, 0, 3, 0, false),
        (1, 2, 1, 2, false),
        (1, 2, 2, 0, true),
        (2, 0, 1, 2, true),
        (1, 3, 0, 0, false),
        (1, 1, 1, 0, true),
    ] {
        let locks = Locks::default();
        let reserve = |process, access, deny| {
            let owner = owner(1, process);
            locks.reserve(FILE, Reservation { owner, access: uses(access), deny: uses(deny) })
        };
        reserve(1, access, deny).unwrap();
        assert_eq!(reserve(2, other_access, other_deny).is_err(), meets, "{access} {deny} {other_access} {other_deny}");
        reserve(1, access, deny).unwrap();
        locks.unreserve(FILE, &owner(1, 2));
        assert_eq!(locks.count(), 1);
        locks.unreserve(FILE, &owner(1, 1));
        assert_eq!((locks.count(), locks.clients().len()), (0, 0));
    }
}

#[test]
fn a_share_that_goes_takes_its_locks_along() {
    let locks = Locks::default();
    let other = LockedFile { share: 2, ..FILE };
    for file in [FILE, other] {
        locks.lock(file, &owner(1, 1), range(0, 1), false).unwrap();
        locks.lock(file, &owner(2, 1), range(0, 1), false).unwrap();
        let open = Uses { read: true, write: false };
        locks.reserve(file, Reservation { owner: owner(2, 1), access: open, deny: Uses::default() }).unwrap();
    }
    locks.forget_share(1);
    assert_eq!((locks.count(), locks.held(FILE).len(), locks.held(other).len()), (3, 0, 2));
    locks.forget_share(2);
    assert_eq!((locks.count(), locks.clients().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_goes_on_when_the_lock_is_released() {
    let locks = std::sync::Arc::new(Locks::default());
    locks.lock(FILE, &owner(1, 1), range(0, 10), true).unwrap();
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.lock_when_free(FILE, &owner(2, 2), range(5, 10), true).await }
    });
    tokio::task::yield_now().await;
    locks.unlock(FILE, &owner(1, 1), range(5, 2)).unwrap();
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    locks.release(&owner(1, 1).client);
    assert_eq!(waiting.await.unwrap(), Ok(()));
    assert_eq!(held(&locks), [(2, 5, 10, true)]);
}

fn named(name: &str) -> LockOwner {
    let client = LockClient { protocol: LockProtocol::Nlm, name: Bytes::copy_from_slice(name.as_bytes()) };
    LockOwner { client, handle: Bytes::new() }
}

/// Locks of many names of one host, spread over a few files.
fn crowded(names: u64) -> (Locks, Vec<LockOwner>) {
    let locks = Locks::default();
    let owners: Vec<LockOwner> = (0..names).map(|number| named(&format!("host/a.{number}"))).collect();
    for (number, owner) in (0..).zip(&owners) {
        let file = LockedFile { inode: Inode(number % 16), ..FILE };
        locks.lock(file, owner, range(number, 1), true).unwrap();
    }
    (locks, owners)
}

#[test]
fn releasing_looks_only_at_the_files_of_those_who_go() {
    let (locks, owners) = crowded(20_000);
    assert_eq!(locks.release(&owners[5].client), 20_000 / 16);
    let others: BTreeSet<LockClient> = owners[6..].iter().map(|owner| owner.client.clone()).collect();
    let looked = locks.release_all(&others);
    assert!(looked < 20_000, "{looked}");
    assert_eq!((locks.count(), locks.clients().len()), (5, 5));
    assert_eq!(locks.clients_of_host(LockProtocol::Nlm, b"host/").len(), 5);
    assert!(locks.clients_of_host(LockProtocol::Nlm, b"hos/").is_empty());
}

#[test]
fn the_names_of_a_host_share_its_limit() {
    let locks = Locks::new(Limits { client_max: 10, ..Limits::default() });
    for number in 0..10 {
        locks.lock(FILE, &named(&format!("host/{number}")), range(number, 1), true).unwrap();
    }
    assert_eq!(locks.lock(FILE, &named("host/x"), range(50, 1), true), Err(LockError::Full));
    locks.lock(FILE, &named("other/x"), range(50, 1), true).unwrap();
    locks.release(&named("host/3").client);
    locks.lock(FILE, &named("host/x"), range(60, 1), true).unwrap();
}
