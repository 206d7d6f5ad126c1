use super::*;
use crate::job::Job;
use crate::live::target::{Opening, Target};

/// Slots of each worker under a load.
fn slots(load: &str, workers: u32) -> u32 {
    let ready = Target::Null.open(Opening::default(), &mut |_, _| true).unwrap();
    let cells = Job::parse(&format!("[load]\n{load}\n[time]\nwarm-up = '0s'")).unwrap().cells().unwrap();
    open_slots(&ready, &cells[0].setup, workers).unwrap()
}

#[test]
fn an_open_loop_has_no_more_under_way_than_half_a_second_asks_for() {
    assert_eq!((slots("rate = 2000.0", 1), slots("rate = 2000.0", 4)), (1_000, 250));
    assert_eq!(slots("rate-bytes = '8MiB'", 1), 1_024, "of 4 KiB each");
    assert_eq!(slots("profile = ['0s=100', '9s=4000']", 1), 2_000, "as the highest rate asks for");
    assert_eq!(slots("rate = 10.0", 2), 64);
    assert_eq!(slots("rate = 1e9", 2), 32_768);
    assert_eq!(slots("outstanding = 5", 2), 0, "a closed loop says it");
}

#[test]
fn an_open_loop_pins_no_more_than_its_share_of_the_memory() {
    assert_eq!(fitting(1 << 30, 2, 1 << 20), 512);
    assert_eq!(fitting(1 << 20, 64, 1 << 20), 0, "none: it is refused");
}
