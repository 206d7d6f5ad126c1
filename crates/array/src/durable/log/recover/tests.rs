use super::hole;
use crate::model::place::DriveNumber;

#[test]
fn a_hole_in_the_log_names_drives_or_says_that_none_are_known() {
    let said = hole(7, 9, &[DriveNumber(1), DriveNumber(2)], &[DriveNumber(3)]);
    assert!(said.contains("its replicas are on drive 1, drive 2; return"), "{said}");
    let said = hole(7, 9, &[], &[DriveNumber(3)]);
    assert!(said.contains("no label says which drives took it; looked for on drive 3; return"), "{said}");
    let said = hole(7, 9, &[], &[]);
    assert!(said.contains("no drive that holds the log is here"), "{said}");
    assert!(!said.contains(" on ;"), "{said}");
}
