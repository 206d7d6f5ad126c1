//! Rows take turns, so that a stream lies on all drives.

use std::collections::BTreeSet;

use stele_media::Op;

use crate::model::Command;
use crate::testing::{Fixture, pattern, spec};

const STRIPE: u64 = 128 << 10;

/// The drives under rows with data, and the stripes in each of these rows.
fn under_data(fixture: &Fixture) -> (BTreeSet<u16>, Vec<u32>) {
    let engine = &fixture.pool.serving().expect("it is open").engine;
    let layout = engine.layout.read();
    let used = |row| engine.look(|core| core.space.used(row));
    let rows = layout.rows().filter(|row| row.class.code.width() == 10 && used(row.id) > 0);
    let rows: Vec<_> = rows.collect();
    let drives = rows.iter().flat_map(|row| row.members.iter().map(|member| member.cell.drive.0)).collect();
    (drives, rows.iter().map(|row| used(row.id)).collect())
}

#[test]
fn the_stripes_of_a_stream_lie_on_all_drives() {
    for (drives, rows) in [(12, 1), (20, 2), (30, 3)] {
        let mut fixture = Fixture::new(drives, drives as u32, 5);
        let volume = fixture.create_volume(spec("a", "8+2", 8 << 20)).id;
        let data = pattern(1, 30 * STRIPE as usize);
        for at in 0..30 {
            let piece = &data[(at * STRIPE) as usize..][..STRIPE as usize];
            fixture.write(volume, at * STRIPE, piece).expect("written");
        }
        fixture.command(Command::Checkpoint).expect("a checkpoint");
        let (under, stripes) = under_data(&fixture);
        assert_eq!(stripes, vec![30 / rows; rows as usize], "{drives} drives");
        assert_eq!(under.len(), rows as usize * 10, "{drives} drives: {under:?}");
        fixture.crash().expect("opened");
        assert!(fixture.read(volume, 0, data.len()).expect("read") == data, "{drives} drives");
        assert_eq!(fixture.scrub(), (0, 0), "{drives} drives");
    }
}

/// Every other operation waits while one is worked on.
#[test]
fn a_long_discard_of_nothing_leaves_the_driver_its_turns() {
    let mut fixture = Fixture::new(8, 8, 32);
    let volume = fixture.create_volume(spec("large", "2+1", 1 << 30)).id;
    fixture.idle();
    let discard = vec![Op::Discard { at: 0, length: 1 << 30 }];
    let mut first = Vec::new();
    let (_, answers) = fixture.submit_all_and(volume, discard, |_, pool| pool.actions(&mut first));
    assert!(first.is_empty(), "the operation goes on after its first turn: {first:?}");
    assert!(matches!(answers[..], [Some((_, Ok(())))]), "{answers:?}");
}
