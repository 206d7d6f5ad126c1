use super::*;

/// As little as shows that nothing depends on chance, threads or neighbours.
const TINY: Effort = Effort { round: 100, probes_max: 2 };

fn wants(cell: &Cell, who: Asked) -> bool {
    let small = cell.level == Level::Raid5 && cell.drives == 20 && cell.size == 4096 && !cell.cached;
    small && cell.workload != "oltp" && who != Asked::SteleLogOnDrives
}

#[test]
fn a_cell_gives_the_same_digits_with_any_threads_and_any_neighbours() {
    let digits = |wants: &(dyn Fn(&Cell, Asked) -> bool + Sync), threads: usize| -> Vec<(String, u64, u64)> {
        let bits = |figure: Option<Figure>| figure.map_or(0, |figure| figure.rate.to_bits());
        let rows = rows(wants, (TINY, TINY), threads).unwrap();
        rows.iter().map(|row| (name(&row.cell), row.profile.rate.to_bits(), bits(row.stele))).collect()
    };
    let all = digits(&wants, 1);
    assert_eq!(all.len(), 2);
    assert!(all.iter().all(|(_, profile, stele)| *profile != 0 && *stele != 0));
    let alone = |cell: &Cell, who: Asked| wants(cell, who) && cell.workload == "random_write";
    assert_eq!(digits(&alone, 3), all[1..], "the second cell alone, and more threads than cells");
}

#[test]
fn a_wider_stroke_lowers_the_rate() {
    let rows = strokes(&|stroke| stroke.size == 8192 && [30, 90].contains(&stroke.percent), Effort::SMALL, 2).unwrap();
    assert_eq!(rows.len(), 4);
    for row in rows {
        assert!((row.ours / row.published - 1.0).abs() < 0.15, "{row:?}");
    }
}
