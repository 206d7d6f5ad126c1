use super::*;
use bytes::BufMut;
use stele_ground::Dice;

fn fragment(bytes: &[u8], last: bool) -> Vec<u8> {
    let mark = bytes.len() as u32 | if last { LAST_FRAGMENT } else { 0 };
    [&mark.to_be_bytes(), bytes].concat()
}

/// Reads at most `piece` bytes at a time, as from a stream; answers the records.
fn feed(records: &mut Records, mut bytes: &[u8], mut piece: impl FnMut() -> usize) -> Result<Vec<Bytes>, RecordError> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let mut room = records.room();
        let free = room.remaining_mut();
        assert!(free > 0, "no room to read to");
        let count = free.min(bytes.len()).min(piece().max(1));
        let (now, later) = bytes.split_at(count);
        room.put_slice(now);
        bytes = later;
        records.filled();
        while let Some(record) = records.take()? {
            found.push(record);
        }
    }
    Ok(found)
}

#[test]
fn records_come_out_as_they_went_in() {
    let mut dice = Dice::new(3);
    for round in 0..100 {
        let mut records = Records::default();
        let (mut wire, mut expected) = (Vec::new(), Vec::new());
        for _ in 0..1 + dice.below(20) {
            let longest = if dice.one_in(5) { 300_000 } else { 3000 };
            let mut record = vec![0; dice.below(longest) as usize];
            dice.fill(&mut record);
            let cuts = if dice.one_in(3) { dice.below(4) } else { 0 };
            let mut rest = &record[..];
            for _ in 0..cuts {
                let (part, later) = rest.split_at(dice.below(rest.len() as u64 + 1) as usize);
                wire.extend(fragment(part, false));
                rest = later;
            }
            wire.extend(fragment(rest, true));
            expected.push(record);
        }
        let most = 1 + dice.below(if round % 2 == 0 { 40 } else { 1 << 20 });
        let found = feed(&mut records, &wire, || dice.below(most) as usize).unwrap();
        assert!(found == expected, "round {round}");
        assert!(!records.is_partial());
    }
}

#[test]
fn a_record_of_one_fragment_is_not_copied() {
    let mut records = Records::default();
    let mut room = records.room();
    room.put_slice(&fragment(b"abcd", true));
    let at = room.get_ref()[4..].as_ptr();
    assert_eq!(records.take().unwrap().unwrap().as_ptr(), at);
}

#[test]
fn what_is_too_long_is_refused_at_its_mark() {
    let mark = |length: u32| length.to_be_bytes();
    let longest = RECORD_MAX as u32;
    for (wire, expected) in [
        (mark(longest + 1).to_vec(), RecordError::TooLong),
        (mark(LAST_FRAGMENT | 0x7fff_ffff).to_vec(), RecordError::TooLong),
        (mark(0x7fff_ffff).to_vec(), RecordError::TooLong),
        ([fragment(&[1; 100], false), mark(longest - 99).to_vec()].concat(), RecordError::TooLong),
        (fragment(b"", false).repeat(FRAGMENTS_MAX + 1), RecordError::TooManyFragments),
    ] {
        let found = feed(&mut Records::default(), &wire, || usize::MAX);
        assert_eq!(found, Err(expected), "{:?}", &wire[..4]);
    }
    let whole = fragment(&vec![7; RECORD_MAX], true);
    assert_eq!(feed(&mut Records::default(), &whole, || 50_000).unwrap()[0].len(), RECORD_MAX);
}

#[test]
fn buffers_are_used_again_and_stay_bounded() {
    let mut records = Records::default();
    let wire = fragment(&[1; 4200], true).repeat(32);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..1000 {
        drop(feed(&mut records, &wire, || usize::MAX).unwrap());
        seen.insert(records.room().get_ref().as_ptr() as usize / BUFFER_MAX);
        assert!(records.held <= BUFFER_MAX && records.retired.len() <= RETIRED_MAX);
    }
    assert!(seen.len() <= 12, "{} places of buffers", seen.len());
    records.shrink();
    assert_eq!((records.held, records.retired.len()), (BUFFER_MIN, 0));
}

#[test]
fn slices_that_are_kept_stay_as_they_are() {
    let mut records = Records::default();
    let mut kept = Vec::new();
    for number in 0..200_u8 {
        let wire = fragment(&[number; 5000], true).repeat(3);
        kept.extend(feed(&mut records, &wire, || 7000).unwrap().into_iter().map(|record| (number, record)));
    }
    assert_eq!(kept.len(), 600);
    assert!(kept.iter().all(|(number, record)| record.len() == 5000 && record.iter().all(|byte| byte == number)));
}

#[test]
fn a_small_record_does_not_keep_a_large_buffer() {
    let mut records = Records::default();
    let large = fragment(&vec![1; 400_000], true);
    let mut small = Vec::new();
    for _ in 0..20 {
        let wire = [large.clone(), fragment(&[7; 100], true)].concat();
        small.extend(feed(&mut records, &wire, || 1 << 20).unwrap().pop());
    }
    assert!(small.iter().all(|record| record.len() == 100 && record.is_unique()));
}

#[test]
fn long_records_that_follow_each_other_are_not_copied() {
    let mut records = Records::default();
    let wire = fragment(&vec![7; 262_300], true).repeat(20);
    let mut rest = &wire[..];
    let (mut reads, mut copied, mut kept) = (0, 0, Vec::new());
    while !rest.is_empty() {
        let partial = records.buffer.len();
        let before = records.buffer.as_ptr();
        let mut room = records.room();
        copied += if room.get_ref().as_ptr() == before { 0 } else { partial };
        let (now, later) = rest.split_at(room.remaining_mut().min(rest.len()));
        room.put_slice(now);
        rest = later;
        reads += 1;
        records.filled();
        while let Some(record) = records.take().unwrap() {
            kept.push(record);
        }
        // As many as are under way at once.
        kept.drain(..kept.len().saturating_sub(4));
    }
    assert!(copied < 64 << 10, "{copied} bytes were copied to another buffer");
    assert!(reads < 26, "{reads} reads for 20 records");
}
