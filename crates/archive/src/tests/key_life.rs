//! The end of an access key, under every setting of the system clock.

use super::*;
use crate::model::time::{DAY, Surroundings};
use crate::space::superblock::FORMAT;

async fn made(archive: &Archive, rights: Rights, life: KeyLife) -> String {
    archive.create_expiring_access_key(&admin(), "temporary", rights, life).await.unwrap().id
}

fn user() -> Rights {
    Rights::user("records", "")
}

fn is_expired<T>(answer: Result<T>) -> bool {
    matches!(answer, Err(ArchiveError::ExpiredAccessKey(_)))
}

fn is_denied<T>(answer: Result<T>) -> bool {
    matches!(answer, Err(ArchiveError::Denied(_)))
}

#[tokio::test]
async fn a_key_is_valid_up_to_its_end() {
    let world = World::new(1);
    let archive = world.create().await;
    assert_eq!(archive.store().witnessing().superblock().format, 1);
    let endless = archive.create_access_key(&admin(), "endless", user()).await.unwrap().id;
    assert_eq!(archive.store().witnessing().superblock().format, 1, "a key without an end changes no format");
    let key = made(&archive, user(), KeyLife::For(DAY)).await;
    assert_eq!(archive.store().witnessing().superblock().format, FORMAT, "older versions would accept an ended key");
    world.stage.pass(DAY - 1);
    archive.credentials(&key).await.unwrap();
    world.stage.pass(1);
    assert!(is_expired(archive.credentials(&key).await));
    assert!(is_expired(archive.officer_credentials(&key).await));
    world.stage.pass(10_000 * DAY);
    archive.credentials(&endless).await.unwrap();
    let keys = archive.list_access_keys(&admin()).await.unwrap();
    let listed = |id: &str| keys.iter().find(|info| info.id == id).map(|info| (info.expires.is_some(), info.expired));
    assert_eq!((listed(&key), listed(&endless)), (Some((true, true)), Some((false, false))));
}

#[tokio::test]
async fn no_setting_of_the_clock_revives_a_key() {
    let world = World::new(2);
    let archive = world.create().await;
    let key = made(&archive, user(), KeyLife::For(10 * DAY)).await;
    let begun = world.stage.now().wall;
    world.stage.pass(11 * DAY);
    world.stage.set_wall(begun);
    assert!(is_expired(archive.credentials(&key).await), "set back while the store is open");
    let other = made(&archive, user(), KeyLife::For(10 * DAY)).await;
    archive.credentials(&other).await.unwrap();
    // While the store is closed, the compliance clock stays behind.
    archive.close().await.unwrap();
    drop(archive);
    let closed = world.stage.now().wall;
    world.stage.set_wall(Timestamp(begun.0 + 30 * DAY));
    let archive = world.open().await;
    assert!(is_expired(archive.credentials(&other).await), "ended while the store was closed");
    world.stage.set_wall(closed);
    assert!(archive.store().later_now() < Timestamp(begun.0 + 20 * DAY), "both clocks are behind the end");
    assert!(is_expired(archive.credentials(&other).await), "set back after the opening");
    archive.close().await.unwrap();
    drop(archive);
    let archive = world.open().await;
    assert!(is_expired(archive.credentials(&other).await), "set back, and opened again");
}

#[tokio::test]
async fn an_end_is_brought_forward_and_put_off_before_it_comes() {
    let world = World::new(3);
    let archive = world.create().await;
    let key = made(&archive, user(), KeyLife::For(10 * DAY)).await;
    archive.set_key_life(&admin(), &key, KeyLife::For(20 * DAY)).await.unwrap();
    let now = world.stage.now().wall;
    let info = archive.set_key_life(&admin(), &key, KeyLife::Until(now.plus_days(2))).await.unwrap();
    assert_eq!((info.expires, info.expired), (Some(now.plus_days(2)), false));
    let past = archive.set_key_life(&admin(), &key, KeyLife::Until(now)).await;
    assert!(matches!(past, Err(ArchiveError::InvalidArgument(_))), "{past:?}");
    let caller = archive.credentials(&key).await.unwrap().caller;
    assert!(is_denied(archive.set_key_life(&caller, &key, KeyLife::Endless).await), "not by its holder");
    world.stage.pass(2 * DAY);
    assert!(is_denied(archive.set_key_life(&admin(), &key, KeyLife::Endless).await), "an ended key stays ended");
    assert!(is_expired(archive.credentials(&key).await));
    archive.revoke_access_key(&admin(), &key).await.unwrap();
    let records = archive.audit_records(&admin(), 1, 100).await.unwrap();
    let done: Vec<_> = records.iter().filter(|record| record.refused.is_none()).map(|r| r.action.as_str()).collect();
    assert_eq!(done.iter().filter(|action| **action == "ProlongAccessKey").count(), 1);
    assert_eq!(done.iter().filter(|action| **action == "NarrowAccessKey").count(), 1);
}

#[tokio::test]
async fn an_officer_gets_no_later_end_without_approval() {
    let world = World::new(4);
    let archive = world.create().await;
    let key = made(&archive, Rights::officer(), KeyLife::For(10 * DAY)).await;
    assert!(is_denied(archive.set_key_life(&admin(), &key, KeyLife::For(11 * DAY)).await));
    assert!(is_denied(archive.set_key_life(&admin(), &key, KeyLife::Endless).await));
    archive.set_key_life(&admin(), &key, KeyLife::For(DAY)).await.unwrap();
}

#[tokio::test]
async fn the_approval_of_an_officer_names_the_end_of_the_key() {
    let world = World::new(6);
    let archive = world.create().await;
    for _ in 0..2 {
        archive.create_access_key(&admin(), "officer", Rights::officer()).await.unwrap();
    }
    let end = world.stage.now().wall.plus_days(10);
    let key =
        archive.create_expiring_access_key(&admin(), "carl", Rights::officer(), KeyLife::Until(end)).await.unwrap();
    let endless = archive.create_access_key(&admin(), "dora", Rights::officer()).await.unwrap();
    for (key, says) in [(&key, format!("until {end}")), (&endless, "without an end".into())] {
        let requests = archive.requests(&admin()).await.unwrap();
        let request = requests.iter().find(|request| Some(&request.id) == key.awaits.as_ref()).unwrap();
        assert!(request.says.contains(&key.id) && request.says.contains(&says), "{}", request.says);
    }
    // What the approval records is what the officer was shown.
    let ben = crate::testing::officer("ben", 2);
    let approved = archive.approve(&ben, key.awaits.as_ref().unwrap()).await.unwrap();
    assert!(approved.contains(&format!("until {end}")), "{approved}");
}

#[tokio::test]
async fn a_rebuilt_catalog_keeps_the_ends_of_keys() {
    let mut world = World::new(5);
    let archive = world.create().await;
    let key = made(&archive, user(), KeyLife::For(10 * DAY)).await;
    archive.set_key_life(&admin(), &key, KeyLife::For(DAY)).await.unwrap();
    archive.close().await.unwrap();
    drop(archive);
    world.catalog = std::sync::Arc::new(stele_catalog::MemoryCatalog::new());
    let (archive, _) = Archive::rebuild(world.foundation(), world.options.clone()).await.unwrap();
    archive.credentials(&key).await.unwrap();
    world.stage.pass(DAY);
    assert!(is_expired(archive.credentials(&key).await));
}
