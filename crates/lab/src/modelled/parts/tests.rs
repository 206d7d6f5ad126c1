use stele_ground::Duration;

use super::super::layer::tests::Late;
use super::*;

/// Where each access went.
struct Places(Vec<(usize, u64)>);

impl SimulatedTarget for Places {
    fn sizes(&self) -> Vec<u64> {
        vec![3 << 20, (1 << 20) + 4096]
    }

    fn submit(&mut self, _: Instant, _: u64, access: Access) -> Result<(), String> {
        self.0.push((access.target, access.at));
        Ok(())
    }

    fn next_event(&self) -> Option<Instant> {
        None
    }

    fn advance(&mut self, _: Instant, _: &mut Vec<u64>) -> Result<(), String> {
        Ok(())
    }

    fn drives_worked(&self) -> Vec<f64> {
        Vec::new()
    }
}

#[test]
fn parts_lie_one_behind_another_in_whole_grains() {
    let mut parts = Parts::before(Places(Vec::new()), 2);
    assert_eq!(parts.sizes(), [2 << 20, 2 << 20]);
    for (target, at) in [(0, 0), (1, 0), (1, 4096)] {
        parts.submit(Instant::default(), 1, Access { target, at, length: 4096, write: true }).unwrap();
    }
    assert_eq!(parts.behind().0, [(0, 0), (0, 2 << 20), (0, (2 << 20) + 4096)]);
}

#[test]
fn one_part_is_the_whole_target_and_answers_with_it() {
    let mut parts = Parts::before(Late::new(12_345, Duration::from_millis(1)), 1);
    assert_eq!(parts.sizes(), [12_345]);
    parts.submit(Instant::default(), 9, Access { target: 0, at: 0, length: 1, write: false }).unwrap();
    let (now, mut finished) = (parts.next_event().unwrap(), Vec::new());
    parts.advance(now, &mut finished).unwrap();
    assert_eq!((now, finished), (Instant::default() + Duration::from_millis(1), vec![9]));
}
