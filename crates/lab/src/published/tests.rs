use super::*;

#[test]
fn every_printed_cell_is_there_and_fits_a_shipped_workload() {
    let cells = cells();
    // 100 of Tables 1 and 5; of Tables 4 and 8 80 less the 20 random reads printed as N/A.
    assert_eq!(cells.len(), 160);
    assert_eq!(strokes().len(), 36);
    for cell in &cells {
        assert!(crate::workload::named(&workload_of(cell)).is_some(), "{cell:?}");
        assert!(cell.rate > 0.0 && [20, 60, 100, 140, 180].contains(&cell.drives));
    }
    let one = cells.iter().find(|cell| cell.table == 4 && cell.drives == 140 && !cell.cached && cell.size == 8192);
    assert_eq!(one.map(|cell| cell.rate), Some(30_020.0));
}

#[test]
fn no_uncached_cell_of_20_drives_is_suspect() {
    let basis = cells().into_iter().filter(|cell| cell.drives == 20 && !cell.cached);
    assert_eq!(basis.filter(|cell| suspicion(cell).is_none()).count(), 18);
    assert!(cells().iter().filter(|cell| suspicion(cell).is_some()).count() > 15);
}
