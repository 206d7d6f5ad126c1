use super::*;
use crate::node::testing::volume;

/// Such a volume refuses snapshots, so none is offered as the next step.
#[test]
fn a_rollback_of_a_volume_with_an_owner_offers_no_snapshot() {
    let volumes = [volume("vm", None), volume("data", Some("archive"))].map(VolumeView::from);
    let refused = no_snapshot(&volumes, "data", "monday").unwrap();
    assert_eq!(refused.kind, Kind::Refused);
    assert!(refused.error.contains("carries the archive of this pool") && refused.next.is_empty(), "{refused}");
    let missing = no_snapshot(&volumes, "vm", "monday").unwrap();
    assert_eq!(missing.kind, Kind::Missing);
    assert!(missing.next.contains("`stele volume snapshot vm NAME`"), "{missing}");
    assert!(no_snapshot(&volumes, "gone", "monday").is_none() && no_snapshot(&volumes, "vm", "data").is_none());
}

#[test]
fn a_wrong_name_in_a_pool_without_volumes_leads_to_making_one() {
    assert!(volumes_here::<&str>(&[]).contains("`stele volume create`"));
    assert_eq!(volumes_here(&["vm1", "vm2"]), "the volumes here: vm1, vm2");
}

#[test]
fn what_is_no_snapshot_is_told_before_connected_hosts_are() {
    let snapshot =
        |name: &str, of: &str| VolumeStatus { snapshot: true, origin: Some(of.to_owned()), ..volume(name, None) };
    let clone = VolumeStatus { origin: Some("monday".to_owned()), ..volume("test", None) };
    let volumes =
        [volume("vm1", None), volume("vm2", None), snapshot("monday", "vm1"), snapshot("friday", "vm2"), clone]
            .map(VolumeView::from);
    assert!(no_way_back(&volumes, "vm1", "monday").is_none());
    for name in ["test", "vm2", "vm1", "friday"] {
        let refused = no_way_back(&volumes, "vm1", name).unwrap();
        let says = format!("'{name}' is no snapshot of volume 'vm1'");
        assert!(refused.kind == Kind::Usage && refused.error.starts_with(&says), "{name}: {refused}");
    }
    let missing = no_way_back(&volumes, "vm1", "nope").unwrap();
    assert!(missing.kind == Kind::Missing && missing.next.contains("monday"), "{missing}");
}
