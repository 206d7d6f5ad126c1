use super::super::profile::{Machine, profile};
use crate::recipe::ds4500::STREAM_DRIVES;
use stele_lab::modelled::{Array, Effort, LogPlace, Maker, Query, ask};
use stele_lab::raid::Level;
use stele_lab::workload::{self, Alignment};

/// MiB/s of so many outstanding accesses.
fn throughput(level: Level, name: &str, outstanding: u64) -> f64 {
    let spec = workload::named(name).unwrap();
    let array = Array {
        maker: Maker::Ds4500,
        level,
        drives: STREAM_DRIVES,
        cached: name.starts_with("streaming_write"),
        stroke: 8,
        log: LogPlace::Memory,
    };
    let mut running = profile(&array, Machine::PUBLISHED, &spec, Alignment::Request);
    let answer = ask(running.as_mut(), &Query::Loads(vec![outstanding]), Effort::FULL, &|| true).unwrap();
    answer.runs[0].probe.rate * spec.mean_length() as f64 / f64::from(1 << 20)
}

#[test]
fn reads_of_the_fitted_size_come_as_published_and_of_raid_10_near_it() {
    for (level, published) in [(Level::Raid5, 722.0), (Level::Raid10, 728.0)] {
        let found = throughput(level, "streaming_read_64k", 120);
        assert!((found / published - 1.0).abs() < 0.05, "{level:?}: {found} MiB/s");
    }
}

#[test]
fn small_reads_are_answered_from_what_was_read_ahead() {
    let (small, large) =
        (throughput(Level::Raid5, "streaming_read_4k", 1200), throughput(Level::Raid5, "streaming_read_64k", 120));
    assert!(small > large * 0.8, "{small} and {large} MiB/s");
}

#[test]
fn a_row_is_written_without_being_read() {
    // Ten commands for nine segments; a segment alone would take four.
    let found = throughput(Level::Raid5, "streaming_write_64k", 120);
    assert!((found / 650.0 - 1.0).abs() < 0.06, "{found} MiB/s");
}
