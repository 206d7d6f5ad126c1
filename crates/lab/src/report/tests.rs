use super::*;
use crate::published;
use crate::set::Figure;

#[test]
fn the_page_states_every_cell_once_and_its_errors_by_what_bounds_it() {
    let figure = |rate: f64, busy: f64| Figure { rate, busy, steady: true };
    let rows: Vec<Row> = published::cells()
        .into_iter()
        .map(|cell| {
            let busy = if cell.drives >= 100 { 1.0 } else { 0.5 };
            let (profile, stele) = (figure(cell.rate * 1.1, busy), figure(cell.rate * 2.2, 0.0));
            Row { cell, profile, stele: Some(stele), stele_log_on_drives: None }
        })
        .collect();
    let page = markdown(&rows, &[]);
    assert_eq!(page.lines().filter(|line| line.contains("+10.0 %") && line.starts_with('|')).count(), 160);
    assert!(page.contains("`./x bench virtual`"));
    assert!(page.contains("at or above the profile (to 1 %) in 160 of 160 cells"), "{page}");
    for (name, found) in nearness_lines(&rows) {
        assert!(found.cells > 0 && (found.error - 0.1).abs() < 1e-9, "{name}: {found:?}");
    }
    assert_eq!(thousands(1_234_567.4), "1,234,567");
}
