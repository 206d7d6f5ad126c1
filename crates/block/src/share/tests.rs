use super::*;

const LIMITS: Limits = Limits { volume_bytes: 1000, connection_bytes: 800, connection_requests: 4, connections: 8 };

#[test]
fn an_initiator_has_the_whole_volume_until_another_comes_and_then_half() {
    let pot = Arc::new(Pot::default());
    let mut first = Share::join(&pot, "a", LIMITS);
    first.take(600);
    assert!(first.has_room(200));
    assert!(!first.has_room(201), "a connection's own limit");
    let mut second = Share::join(&pot, "b", LIMITS);
    assert!(!first.has_room(1), "its half is used");
    assert!(second.has_room(500));
    second.take(500);
    drop(second);
    assert!(first.has_room(200));
}

#[test]
fn connections_of_one_initiator_share_its_part_and_its_turns() {
    let pot = Arc::new(Pot::default());
    let (mut one, mut two) = (Share::join(&pot, "a", LIMITS), Share::join(&pot, "a", LIMITS));
    let other = Share::join(&pot, "b", LIMITS);
    one.take(450);
    two.take(10);
    assert!(!two.has_room(41), "450 and 10 of 500 are used");
    assert!(two.has_room(40));
    assert_eq!((one.part_of(64), other.part_of(64)), (32, 64));
}

#[test]
fn an_initiator_with_nothing_under_way_may_begin_even_the_largest_request() {
    let pot = Arc::new(Pot::default());
    let mut share = Share::join(&pot, "a", LIMITS);
    assert!(share.has_room(5000));
    share.take(5000);
    assert!(!share.has_room(1));
    share.give_back(5000);
    for _ in 0..4 {
        assert!(share.has_room(1));
        share.take(1);
    }
    assert!(!share.has_room(1), "the limit of requests");
}
