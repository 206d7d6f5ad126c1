//! Changes under the matter `rebuild`, and the drives that come back.

use super::*;
use crate::testing::officer;
use crate::{Act, People};

/// Any writer may change tags. The hold and the longer retention are in a note that is lost then.
#[tokio::test]
async fn a_change_under_the_matter_rebuild_loses_no_retention() {
    for change in ["tags", "retention", "hold", "matter"] {
        let (world, info, lost, _) = with_a_lost_note(61).await;
        world.bench.lose(lost.clone());
        let world = anew(world);
        let (archive, _) = rebuild(&world, losses()).await.unwrap();
        let version = Some(info.version);
        let soon = archive.store().compliance_now().plus_days(2);
        match change {
            "tags" => {
                let tags = [("colour".to_owned(), "red".to_owned())].into();
                archive.set_tags(&admin(), "locked", "kept", version, tags).await.unwrap();
            }
            "retention" => {
                let longer = Some(Retention { mode: RetentionMode::Compliance, until: soon });
                archive.set_retention(&admin(), "locked", "kept", version, longer, false).await.unwrap();
            }
            "hold" => {
                archive.set_legal_hold(&admin(), "locked", "kept", version, true).await.unwrap();
            }
            _ => {
                archive.open_matter(&admin(), "smith", "Smith v. Jones").await.unwrap();
                let name = VersionName { bucket: "locked".into(), key: "kept".into(), version };
                archive.hold_listed(&admin(), "smith", vec![name], true).await.unwrap();
            }
        }
        archive.close().await.unwrap();
        drop(archive);
        // A second rebuild with the same losses leaves the beginning of the matter.
        let world = anew(world);
        let (archive, _) = rebuild(&world, losses()).await.unwrap();
        archive.close().await.unwrap();
        drop(archive);
        world.bench.lose(0..0);
        let mut world = anew(world);
        // The last rebuild reads what the one before it has noted.
        for turn in 0..2 {
            let (archive, report) = rebuild(&world, Rebuild::default()).await.unwrap();
            assert!(report.losses.is_empty() && archive.rebuild_matter().is_none(), "{report:?}");
            assert!(archive.legal_hold(&admin(), "locked", "kept", version).await.unwrap(), "{change}, {turn}");
            let kept = archive.retention(&admin(), "locked", "kept", version).await.unwrap();
            assert!(kept.until > archive.store().compliance_now().plus_days(3000), "{change}, {turn}: {kept:?}");
            let (tags, _) = archive.tags(&admin(), "locked", "kept", version).await.unwrap();
            assert_eq!(tags.len(), usize::from(change == "tags"), "{change}, {turn}");
            let why = archive.why(&admin(), "locked", "kept", version).await.unwrap();
            let matter = why.reasons.iter().any(|reason| reason.contains("smith"));
            assert_eq!(matter, change == "matter", "{change}, {turn}: {why:?}");
            // A hold that is released afterwards stays released.
            if turn == 1 {
                archive.set_legal_hold(&admin(), "locked", "kept", version, false).await.unwrap();
            }
            archive.close().await.unwrap();
            world = anew(world);
        }
        let (archive, _) = rebuild(&world, Rebuild::default()).await.unwrap();
        assert!(!archive.legal_hold(&admin(), "locked", "kept", version).await.unwrap(), "{change}");
    }
}

/// The same of a bucket's level, of a rule of an act, and of a key that was revoked.
#[tokio::test]
async fn a_change_under_the_matter_rebuild_revives_no_key() {
    let (world, _, lost, [anna, _, user]) = with_a_lost_note(62).await;
    let archive = world.open().await;
    assert_eq!(u64::from(archive.store().appender().tail().unwrap().0), lost.start / SEGMENT);
    let level = BucketChange::Protection(Protection::Compliance);
    archive.change_bucket(&admin(), "locked", level).await.unwrap();
    let asked = archive.request_restriction(&officer("cleo", 3), Act::Bypass, People::Two).await.unwrap();
    archive.approve(&officer("dora", 4), &asked.id).await.unwrap();
    archive.revoke_access_key(&admin(), &user).await.unwrap();
    archive.narrow_access_key(&admin(), &anna, Rights::default()).await.unwrap();
    archive.close().await.unwrap();
    drop(archive);
    world.bench.lose(lost);
    let world = anew(world);
    let (archive, _) = rebuild(&world, losses()).await.unwrap();
    let tags = [("colour".to_owned(), "red".to_owned())].into();
    archive.change_bucket(&admin(), "locked", BucketChange::Tags(tags)).await.unwrap();
    let change = KeyChange { quota_bytes: Some(Some(1 << 30)), ..KeyChange::default() };
    for key in [&anna, &user] {
        archive.change_key(&admin(), key, change).await.unwrap();
    }
    archive.close().await.unwrap();
    drop(archive);
    world.bench.lose(0..0);
    let mut world = anew(world);
    for turn in 0..2 {
        let (archive, report) = rebuild(&world, Rebuild::default()).await.unwrap();
        assert!(report.losses.is_empty() && archive.rebuild_matter().is_none(), "{report:?}");
        let bucket = archive.bucket(&admin(), "locked").await.unwrap();
        assert_eq!((bucket.protection, bucket.tags.len()), (Protection::Compliance, 1), "{turn}");
        assert_eq!(archive.store().people_for(Act::Bypass), People::Two, "{turn}");
        assert!(archive.credentials(&user).await.is_err(), "{turn}: revoked");
        assert!(!archive.credentials(&anna).await.unwrap().caller.rights.approves(), "{turn}: narrowed");
        archive.close().await.unwrap();
        drop(archive);
        world = anew(world);
    }
}
