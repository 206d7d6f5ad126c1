use super::*;
use crate::node::testing::volume;

/// Such a volume refuses snapshots, so none is offered as the next step.
#[test]
fn a_rollback_of_a_volume_with_an_owner_offers_no_snapshot() {
    let volumes = [volume("vm", None), volume("data", Some("archive"))];
    let refused = no_snapshot(&volumes, "data", "monday").unwrap();
    assert_eq!(refused.kind, Kind::Refused);
    assert!(refused.error.contains("carries the archive of this pool") && refused.next.is_empty(), "{refused}");
    let missing = no_snapshot(&volumes, "vm", "monday").unwrap();
    assert_eq!(missing.kind, Kind::Missing);
    assert!(missing.next.contains("`stele volume snapshot vm NAME`"), "{missing}");
    assert!(no_snapshot(&volumes, "gone", "monday").is_none() && no_snapshot(&volumes, "vm", "data").is_none());
}
