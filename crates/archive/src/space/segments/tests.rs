use super::*;

fn row(usage: SegmentUse, live: i64) -> SegmentRow {
    SegmentRow { live, ..SegmentRow::new(usage, 1, 0) }
}

#[test]
fn ordinary_writers_leave_the_reserve() {
    let segments = Segments::new(1 << 20, 6, BTreeMap::new());
    let taken: Vec<u32> = std::iter::from_fn(|| segments.take(false)).collect();
    assert_eq!(taken, [1, 2, 3]);
    let reserve: Vec<u32> = std::iter::from_fn(|| segments.take(true)).collect();
    assert_eq!(reserve, [4, 5]);
    segments.give_back(2);
    assert_eq!(segments.take(false), None);
    assert_eq!(segments.take(true), Some(2));
}

#[test]
fn a_segment_is_not_freed_under_a_reader() {
    let segments = Arc::new(Segments::new(1 << 20, 6, BTreeMap::from([(1, row(SegmentUse::Sealed, 0))])));
    let before = segments.reading();
    segments.retire(1, Instant(0));
    let after = segments.reading();
    let long = Instant(10 * CLIENT_READ_MAX.0);
    assert!(segments.freeable(long).is_empty());
    drop(before);
    assert_eq!(segments.freeable(Instant(0)), [1], "the later reader cannot have seen it");
    drop(after);
    segments.freed(1);
    assert_eq!(segments.row(1), None);
}

#[test]
fn a_segment_is_freed_under_a_client_reader_that_overran() {
    let segments = Arc::new(Segments::new(1 << 20, 6, BTreeMap::from([(1, row(SegmentUse::Sealed, 0))])));
    let reader = segments.reading_for_client(Instant(5));
    segments.retire(1, Instant(10));
    assert!(
        segments.freeable(Instant(10 + CLIENT_READ_MAX.0)).is_empty()
            && !reader.is_overtaken(Instant(5 + CLIENT_READ_MAX.0))
    );
    let late = Instant(11 + CLIENT_READ_MAX.0);
    assert_eq!(segments.freeable(late), [1]);
    assert!(reader.is_overtaken(late), "the reader that lost its segment knows");
    segments.retire(1, Instant(10));
    drop(reader);
    assert_eq!(segments.freeable(Instant(10)), [1]);
}

#[test]
fn the_poorest_sealed_segment_is_found() {
    let size = 1 << 20;
    let rows = BTreeMap::from([
        (1, row(SegmentUse::Sealed, size / 2)),
        (2, row(SegmentUse::Open, 0)),
        (3, row(SegmentUse::Sealed, size / 4)),
        (4, row(SegmentUse::Keys(1), 0)),
    ]);
    let segments = Segments::new(size as u32, 6, rows);
    assert_eq!(segments.emptiest(30, &BTreeSet::new()), Some(3));
    assert_eq!(segments.emptiest(20, &BTreeSet::new()), None);
    segments.drop_live(Place { segment: 1, at: 0, length: size as u32 / 2 });
    assert_eq!(segments.emptiest(20, &BTreeSet::new()), Some(1));
    assert_eq!(segments.take_dirty().len(), 1);
    assert!(segments.take_dirty().is_empty());
}

#[test]
fn a_writer_holds_up_the_segments_it_wrote_to_and_no_others() {
    let rows = BTreeMap::from([(1, row(SegmentUse::Sealed, 0)), (2, row(SegmentUse::Sealed, 10))]);
    let segments = Arc::new(Segments::new(1 << 20, 6, rows));
    let (writer, other) = (segments.begin(), segments.begin());
    writer.pin(1);
    writer.pin(1);
    other.pin(1);
    assert_eq!(segments.emptiest(50, &BTreeSet::new()), Some(2));
    drop(writer);
    assert_eq!(segments.emptiest(50, &BTreeSet::new()), Some(2));
    drop(other);
    assert_eq!(segments.emptiest(50, &BTreeSet::new()), Some(1));
}
