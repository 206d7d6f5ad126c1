use super::*;
use crate::store::Store;
use crate::testing::repository;

#[test]
fn epochs_and_sessions_read_back_and_damage_is_noticed() {
    let condemned = Condemned::from([(SegmentId([1; 32]), 3), (SegmentId([2; 32]), 5)]);
    let epoch = Epoch { number: 5, condemned };
    let bytes = epoch.encode();
    assert_eq!(Epoch::decode(&bytes), Ok(epoch));
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        assert!(Epoch::decode(&changed).is_err(), "byte {at}");
    }
    let state = SessionState { epoch: 7, ended: true };
    assert_eq!(SessionState::decode(&state.encode()), Ok(state));
}

#[test]
fn two_prunes_at_once_are_one_and_an_error() {
    let (repository, _) = repository(1);
    let epoch = Epoch { number: 1, condemned: Condemned::new() };
    repository.advance(&epoch).unwrap();
    assert!(matches!(repository.advance(&epoch), Err(BackupError::Locked(_))));
    assert_eq!(repository.epoch(), Ok(epoch));
}

#[test]
fn a_session_lives_until_its_end_or_a_day_of_silence() {
    let (repository, store) = repository(1);
    let (session, _) = repository.begin_session().unwrap();
    let live = || repository.sessions().unwrap().0.len();
    assert_eq!(live(), 1);
    store.set_now(1_000_000 + SESSION_SECONDS);
    assert_eq!(live(), 1);
    store.set_now(1_000_001 + SESSION_SECONDS);
    assert_eq!(live(), 0);
    let (second, _) = repository.begin_session().unwrap();
    assert_eq!(live(), 1);
    second.end().unwrap();
    assert_eq!(live(), 0);
    drop(session);
}

#[test]
fn a_session_that_lapsed_never_lives_again() {
    let (made, store) = repository(1);
    let surroundings = crate::testing::stage(2);
    let opened = Closed::open(store.clone(), surroundings.clone()).unwrap();
    let (session, _) = opened.begin_session().unwrap();
    surroundings.elapsed.store(SESSION_SECONDS / 2, std::sync::atomic::Ordering::Relaxed);
    // A renewal behind the gap would hide it: prune may have ended the session meanwhile.
    assert!(session.keep_alive().is_err());
    assert!(session.check().is_err());
    assert_eq!(made.sessions().unwrap().0.len(), 1);
}

#[test]
fn a_session_that_was_abandoned_never_lives_again() {
    let (made, store) = repository(1);
    let surroundings = crate::testing::stage(2);
    let opened = Closed::open(store.clone(), surroundings.clone()).unwrap();
    for is_full in [false, true] {
        let (session, _) = opened.begin_session().unwrap();
        assert_eq!(made.sessions().unwrap().0.len(), 1);
        store.set_full(is_full);
        session.abandon();
        store.set_full(false);
        // A thread that still stored a segment.
        surroundings.elapsed.fetch_add(RENEWAL_SECONDS, std::sync::atomic::Ordering::Relaxed);
        session.keep_alive().unwrap();
        assert_eq!(made.sessions().unwrap().0, [], "full: {is_full}");
    }
    // Without the right to remove, a session in a full store ends after its day.
    let (session, _) = opened.begin_session().unwrap();
    store.set_full(true);
    store.set_append_only(true);
    session.abandon();
    assert_eq!(made.sessions().unwrap().0.len(), 1);
    // One that cannot learn the epoch ends too.
    store.set_full(false);
    store.store_behind(Folder::Sessions, Name::epoch(7), b"no epoch".to_vec());
    assert!(opened.begin_session().is_err());
    assert_eq!(made.sessions().unwrap().0.len(), 1, "a beginning that failed left a session");
}

#[test]
fn a_gap_that_only_the_store_saw_ends_a_session() {
    let (made, store) = repository(1);
    let (session, _) = made.begin_session().unwrap();
    store.set_now(1_000_000 + SESSION_SECONDS / 2 - 1);
    session.check().unwrap();
    // The machine was suspended, or the virtual machine stood still: its own clock shows nothing.
    store.set_now(1_000_000 + SESSION_SECONDS / 2);
    assert!(session.check().is_err());
    assert!(session.keep_alive().is_ok(), "no renewal is due by the agent's clock");
    assert!(session.check().is_err());
}

#[test]
fn a_session_that_is_too_long_counts_as_the_oldest() {
    let (repository, store) = repository(1);
    store.create(&Name::of(Folder::Sessions, &[1; 16]), &[7; SESSION_BYTES_MAX as usize + 1]).unwrap();
    assert_eq!(repository.sessions().unwrap().0, [SessionState { epoch: 0, ended: false }]);
}

#[test]
fn objects_of_other_names_are_no_epochs() {
    let (repository, store) = repository(1);
    let epoch = Epoch { number: 1, condemned: Condemned::new() };
    repository.advance(&epoch).unwrap();
    for digits in [1, 7, 9, 32] {
        store.create(&Name::of(Folder::Epochs, &vec![0xff; digits]), b"planted").unwrap();
    }
    assert_eq!(repository.epoch(), Ok(epoch));
}
