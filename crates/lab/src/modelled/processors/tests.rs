use stele_ground::{Dice, Duration};

use super::super::layer::tests::Late;
use super::*;
use crate::closed::{Length, Loop};
use crate::workload::{self, Alignment, Generator};

fn rate(count: u32, outstanding: u64) -> (f64, f64) {
    let spec = workload::named("random_read_8k").unwrap();
    let processors = Processors::measured(Level::Raid10, count);
    let late = Late::new(1 << 30, Duration::from_millis(1));
    let generator = Generator::new(spec, Alignment::Request, Dice::new(1));
    let mut running = Loop::new(Charged::before(late, processors), generator, Instant::default());
    let length = Length { warm_up: 2000, round: 2000, rounds_max: 12 };
    let probe = running.probe(outstanding, length, &|| true).unwrap();
    (probe.rate, running.window()[0].busy.processors.unwrap())
}

#[test]
fn costs_go_through_what_was_measured() {
    let processors = Processors::measured(Level::Raid5, 1);
    for (write, length, micros) in
        [(false, 4096, 8.0), (false, 256 << 10, 197.4), (true, 4096, 47.1), (true, 256 << 10, 300.3)]
    {
        let nanos = processors.nanos(&Access { target: 0, at: 0, length, write });
        assert!((nanos as f64 / 1000.0 - micros).abs() < 0.5, "{nanos} for {micros}");
    }
}

#[test]
fn an_array_that_is_fast_is_bound_by_its_processors() {
    let cost = Processors::measured(Level::Raid10, 1).read.of(8192) as f64;
    for count in [1, 4] {
        let (most, busy) = rate(count, 1000);
        let bound = f64::from(count) * 1e9 / cost;
        assert!((most / bound - 1.0).abs() < 0.03 && busy > 0.97, "{most} a second, {bound} at most, busy {busy}");
    }
    let (few, busy) = rate(1, 1);
    let alone = 1e9 / (1e6 + cost);
    assert!((few / alone - 1.0).abs() < 0.01 && busy < 0.05, "{few} a second, {alone} alone, busy {busy}");
}
