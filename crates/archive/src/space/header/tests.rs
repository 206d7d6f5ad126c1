use super::*;

#[test]
fn headers_survive_and_any_changed_bit_is_noticed() {
    let record = RecordHeader {
        kind: Kind::Whole,
        payload: 5000,
        note: 300,
        scope: 7,
        first_frame: 0,
        object: 11,
        stream: 12,
        salt: [3; 16],
        incarnation: 99,
        sequence: 1 << 40,
        check: 0xDEAD_BEEF,
    };
    let mut bytes = [0; RECORD_HEADER as usize];
    record.encode(&mut bytes);
    assert_eq!(RecordHeader::decode(&bytes, 99), Some(record.clone()));
    assert_eq!(RecordHeader::decode(&bytes, 98), None, "another incarnation");
    assert_eq!(RecordHeader::decode(&bytes[..79], 99), None, "cut short");
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(RecordHeader::decode(&bytes, 99), None, "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }

    let segment = SegmentHeader { store: [5; 16], number: 4, kind: SegmentKind::Keys, ordinal: 2, incarnation: 8 };
    let bytes = segment.encode();
    assert_eq!(SegmentHeader::decode(&bytes, &[5; 16], 4), Some(segment));
    assert_eq!(SegmentHeader::decode(&bytes, &[6; 16], 4), None, "another store");
    assert_eq!(SegmentHeader::decode(&bytes, &[5; 16], 5), None, "another place");

    let footer = SegmentFooter { incarnation: 8, used: 5000 };
    assert_eq!(SegmentFooter::decode(&footer.encode(), 8), Some(footer));
    assert_eq!(SegmentFooter::decode(&footer.encode(), 9), None);
}

#[test]
fn a_header_of_a_record_longer_than_any_segment_is_none() {
    for (payload, sound) in [(5000, true), (1 << 30, true), ((1 << 30) + 1, false), (u32::MAX - 90, false)] {
        let record = RecordHeader {
            kind: Kind::Piece,
            payload,
            note: 0,
            scope: 7,
            first_frame: 0,
            object: 11,
            stream: 12,
            salt: [3; 16],
            incarnation: 99,
            sequence: 0,
            check: 0,
        };
        let mut bytes = [0; RECORD_HEADER as usize];
        record.encode(&mut bytes);
        let length = RecordHeader::decode(&bytes, 99).map(|header| u64::from(header.length()));
        assert_eq!(length.is_some(), sound, "{payload}");
        assert!(length.is_none_or(|length| length >= u64::from(payload)), "{payload}");
    }
}
