use super::*;
use crate::node::testing::volume;

#[test]
fn a_wrong_name_of_a_volume_tells_what_is_on_it() {
    let volumes = [volume("catalog", Some(CATALOG)), volume("data", Some(DATA)), volume("vm", None)];
    for (catalog_volume, why) in [
        ("vm", "names 'vm', which is no volume of the archive; marked as the archive's catalog_volume: catalog"),
        ("data", "names 'data', which carries the archive of this pool; marked"),
        ("gone", "names 'gone', which does not exist; marked"),
    ] {
        let names = config::Archive { catalog_volume: catalog_volume.into(), ..config::Archive::default() };
        let trouble = find(&volumes, &names).trouble.unwrap();
        assert!(trouble.message.contains(why), "{}", trouble.message);
        assert!(trouble.next.contains("catalog_volume = \"catalog\""), "{}", trouble.next);
    }
}

#[test]
fn a_rebuild_is_the_next_step_for_damage_alone() {
    let damaged = || CatalogError::Damaged("the B-tree has no checkpoint record".into());
    let stopped = || CatalogError::Stopped("the superblock at byte 0 cannot be read: drives are missing".into());
    for (error, is_away, next) in [
        (damaged(), false, "`stele catalog rebuild`"),
        (damaged(), true, "return missing drives"),
        (stopped(), false, "return missing drives"),
        (CatalogError::Busy, false, "start the server again"),
        (CatalogError::Newer("version 2".into()), true, "`stele upgrade check`"),
    ] {
        let failure = unopened(error.clone(), is_away);
        assert!(failure.next.starts_with(next), "{error:?}, {is_away}: {failure:?}");
        assert_eq!(names_damage(&failure), next.contains("rebuild"), "{error:?}, {is_away}: {failure:?}");
    }
    assert!(unopened(stopped(), false).error.contains("drives are missing"));
}

#[test]
fn a_catalog_that_got_no_thread_sends_no_operator_to_the_drives() {
    let failure = unopened(CatalogError::Stopped(format!("{NO_THREAD}: Resource temporarily unavailable")), false);
    assert_eq!(failure.kind, Kind::Failed);
    assert!(failure.next.contains("ulimit -u") && !failure.next.contains("drives"), "{failure}");
}

#[test]
fn a_volume_with_an_owner_is_named_by_its_content() {
    for (volume, owner, named) in [
        ("share-home", OWNER, "the cache of share 'home'"),
        ("files", OWNER, "the cache of a share"),
        ("catalog", CATALOG, "the catalog of this pool"),
        ("share-x", DATA, "the archive of this pool"),
    ] {
        assert_eq!(carried(volume, owner), named);
        let refused = not_deleted(volume, owner);
        assert!(refused.contains(named), "{refused}");
        assert_eq!(refused.contains("stele share remove"), owner == OWNER, "{refused}");
    }
}
