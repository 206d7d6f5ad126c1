use std::collections::BTreeMap;

use stele_ground::Dice;

use super::*;
use crate::workload::{Alignment, named};

/// Answers each access after a fixed time, any number at once; after twice that where the access is
/// of every second hundred and `uneven`.
struct Fixed {
    nanos: u64,
    uneven: bool,
    due: BTreeMap<(Instant, u64), ()>,
}

impl SimulatedTarget for Fixed {
    fn sizes(&self) -> Vec<u64> {
        vec![1 << 30; 3]
    }
    fn submit(&mut self, now: Instant, tag: u64, _: Access) -> Result<(), String> {
        let slow = self.uneven && (tag / 100).is_multiple_of(2);
        self.due.insert((now + Duration(if slow { 2 * self.nanos } else { self.nanos }), tag), ());
        Ok(())
    }
    fn drives_worked(&self) -> Vec<f64> {
        Vec::new()
    }
    fn next_event(&self) -> Option<Instant> {
        self.due.first_key_value().map(|((at, _), ())| *at)
    }
    fn advance(&mut self, now: Instant, finished: &mut Vec<u64>) -> Result<(), String> {
        while self.next_event().is_some_and(|at| at <= now) {
            finished.extend(self.due.pop_first().map(|((_, tag), ())| tag));
        }
        Ok(())
    }
}

fn fixed(nanos: u64) -> Loop<Fixed> {
    answering(Fixed { nanos, uneven: false, due: BTreeMap::new() })
}

fn answering(target: Fixed) -> Loop<Fixed> {
    let generator = Generator::new(named("oltp_4k").unwrap(), Alignment::Sector, Dice::new(1));
    Loop::new(target, generator, Instant(0))
}

const LENGTH: Length = Length { warm_up: 50, round: 100, rounds_max: 9 };

#[test]
fn rate_and_response_obey_littles_law_at_every_load_in_turn() {
    let mut running = fixed(1_000_000);
    for outstanding in [1, 7, 30, 4] {
        let probe = running.probe(outstanding, LENGTH, &|| true).unwrap();
        assert_eq!(probe.mean_millis(), 1.0);
        assert!((probe.rate / (outstanding as f64 * 1000.0) - 1.0).abs() < 0.05, "{outstanding}: {}", probe.rate);
        assert!(probe.steady);
    }
}

#[test]
fn a_target_that_comes_and_goes_is_steady_over_rounds_long_enough_to_hold_both() {
    let mut running = answering(Fixed { nanos: 1_000_000, uneven: true, due: BTreeMap::new() });
    let probe = running.probe(1, Length { warm_up: 0, ..LENGTH }, &|| true).unwrap();
    assert!(probe.steady, "{:?}", probe.rates);
    assert!((probe.rate / 666.7 - 1.0).abs() < 0.05, "{}", probe.rate);
    assert!(running.window().iter().all(|round| round.count() >= 200));
    // Each round of the window has the accesses of those it was joined from.
    let span: f64 = running.window().iter().map(|round| round.span.as_secs_f64()).sum();
    assert!((probe.response.count() as f64 / span / probe.rate - 1.0).abs() < 1e-9);
}
