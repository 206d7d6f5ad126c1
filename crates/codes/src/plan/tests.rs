use super::*;

#[test]
fn sets_of_strips() {
    let set = Strips::of([0, 3, 9]);
    assert_eq!(set.iter().collect::<Vec<_>>(), [0, 3, 9]);
    assert_eq!((set.len(), set.contains(3), set.contains(4), set.contains(40)), (3, true, false, false));
    assert_eq!(Strips::all(4).without(set), Strips::of([1, 2]));
    assert_eq!(format!("{set:?}"), "{0, 3, 9}");
    assert!(Strips::NONE.is_empty());
}

#[test]
fn a_plan_reads_k_strips_and_prefers_data_then_p() {
    let code = Code::parity(4, 3).unwrap();
    let sources = |lost: &[usize]| {
        let lost = Strips::of(lost.iter().copied());
        Plan::new(code, Kernel::best(), Strips::all(7).without(lost), lost).map(|plan| plan.sources().iter().collect())
    };
    assert_eq!(sources(&[1]), Some(vec![0, 2, 3, 4]));
    assert_eq!(sources(&[5]), Some(vec![0, 1, 2, 3]));
    assert_eq!(sources(&[1, 4]), Some(vec![0, 2, 3, 5]));
    assert_eq!(sources(&[0, 1, 2]), Some(vec![3, 4, 5, 6]));
    assert_eq!(sources(&[0, 1, 2, 3]), None);
}

#[test]
fn a_mirror_is_read_from_its_first_copy() {
    let code = Code::mirror(3).unwrap();
    let plan = Plan::new(code, Kernel::best(), Strips::of([1, 2]), Strips::of([0])).unwrap();
    assert_eq!(plan.sources(), Strips::of([1]));
    assert!(Plan::new(code, Kernel::best(), Strips::NONE, Strips::of([0])).is_none());
}

#[test]
#[should_panic(expected = "a wanted strip is present")]
fn a_strip_at_hand_is_not_computed() {
    let code = Code::parity(2, 1).unwrap();
    Plan::new(code, Kernel::best(), Strips::all(3), Strips::of([0]));
}
