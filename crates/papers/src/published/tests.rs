use super::*;

#[test]
fn every_printed_cell_is_there_and_fits_a_shipped_workload() {
    let cells = rated();
    // 100 of Tables 1 and 5; of Tables 4 and 8 80 less the 20 random reads printed as N/A.
    assert_eq!(cells.len(), 160);
    assert_eq!(strokes().len(), 36);
    for cell in &cells {
        assert!(stele_lab::workload::named(&cell.workload_name()).is_some(), "{cell:?}");
        assert!(cell.rate.unwrap() > 0.0 && [20, 60, 100, 140, 180].contains(&cell.drives));
    }
    let one = cells
        .iter()
        .find(|cell| cell.table == "Table 4" && cell.drives == 140 && !cell.cached && cell.size == Some(8192));
    assert_eq!(one.and_then(|cell| cell.rate), Some(30_020.0));
}

#[test]
fn no_uncached_cell_of_20_drives_is_suspect() {
    let basis = rated().into_iter().filter(|cell| cell.drives == 20 && !cell.cached);
    assert_eq!(basis.filter(|cell| suspicion(cell).is_none()).count(), 18);
    assert!(rated().iter().filter(|cell| suspicion(cell).is_some()).count() > 15);
}

#[test]
fn the_figures_of_the_other_papers_are_read_as_they_are_printed() {
    let peaks: Vec<(u8, Option<f64>, Vec<u32>)> =
        archive_peaks().into_iter().map(|peak| (peak.section, peak.rate, peak.threads)).collect();
    assert_eq!(
        peaks,
        [
            (1, Some(23.0), vec![4]),
            (3, Some(63.0), vec![8, 16]),
            (5, Some(28.0), vec![1]),
            (7, Some(31.0), vec![2]),
            (9, Some(110.0), vec![4]),
            (11, None, vec![]),
            (13, Some(37.0), vec![2]),
            (15, Some(47.0), vec![1]),
        ]
    );
    let streamed: Vec<f64> = streamed().iter().map(|one| one.rate).collect();
    assert_eq!(streamed, [4017.0, 4981.0, 3834.0, 5424.0, 4821.0]);
    let cached: Vec<(u8, u32, u64, f64)> =
        cached().iter().map(|one| (one.read, one.depth, one.size, one.rate)).collect();
    assert_eq!(cached.len(), 7);
    assert_eq!(cached.first(), Some(&(50, 32, 512, 401_605.0)));
    assert_eq!(cached.last(), Some(&(100, 16, 512, 474_858.0)));
    let duplex: Vec<(u32, f64)> = duplex().iter().map(|one| (one.depth, one.both)).collect();
    assert_eq!(duplex, [(160, 1534.0), (32, 1537.0)]);
}
