use super::super::layer::tests::Late;
use super::*;
use crate::closed::{Length, Loop};
use crate::workload::{AccessSpec, Alignment, Generator};

/// Mean response in milliseconds, and accesses and bytes that the array saw for each that was
/// asked.
fn measured(random: u8, size: u64, outstanding: u64) -> (f64, f64, f64) {
    let spec = AccessSpec { name: "test".into(), random: Some(random), read: Some(100), sizes: vec![(size, 100)] };
    let generator = Generator::new(spec, Alignment::Request, Dice::new(3));
    // An array that takes five milliseconds for each access.
    let cache = ReadCache::before(Late::new(64 << 20, Duration::from_millis(5)), Dice::new(5));
    let mut running = Loop::new(cache, generator, Instant::default());
    running.warm_up(outstanding, 2000, &|| true).unwrap();
    let before = (running.target().behind().count, running.target().behind().bytes);
    let probe = running.probe(outstanding, Length { warm_up: 0, round: 2000, rounds_max: 5 }, &|| true).unwrap();
    let answered = 2000.0 * 5.0;
    let slow = running.target().behind();
    let (count, bytes) = ((slow.count - before.0) as f64, (slow.bytes - before.1) as f64);
    (probe.mean_millis(), count / answered, bytes / answered)
}

#[test]
fn half_of_random_reads_are_answered_from_memory() {
    let (mean, count, _) = measured(100, 4096, 4);
    assert!((count - 0.5).abs() < 0.03 && (mean - 2.5).abs() < 0.2, "{mean} ms, {count}");
}

#[test]
fn reads_in_order_are_read_ahead_in_windows() {
    let (mean, count, bytes) = measured(0, 4096, 1);
    // Half of all pages are there already: windows have holes.
    assert!(count < 0.3 && bytes <= 4096.0 && mean < 1.5, "{mean} ms, {count} accesses, {bytes} bytes");
}

#[test]
fn smaller_reads_than_a_page_bring_it_once() {
    let (_, count, bytes) = measured(0, 512, 1);
    assert!(count < 0.05 && bytes < 520.0, "{count} accesses, {bytes} bytes");
}
