use super::*;
use crate::model::place::Lsn;
use stele_ground::{Dice, VolumeId};

const SECRET: u64 = 0x5EC2;

fn header() -> Header {
    Header {
        pool: PoolId([3; 16]),
        epoch: 7,
        sequence: 12,
        first: Lsn(0),
        count: 0,
        length: 0,
        watermark: 10,
        trim: Lsn(4),
        previous: 99,
        payload: Payload::Crc(0),
        tag: 0,
        crc: 0,
    }
}

fn filled(buffers: &Buffers, records: &[Record]) -> (Header, Shared) {
    let mut filling = Filling::new(buffers, 1000, Lsn(40), Instant(0));
    for record in records {
        filling.push(record, record.encoded());
    }
    filling.finish(buffers, header(), SECRET)
}

#[test]
fn a_group_comes_back_and_every_flipped_byte_is_noticed() {
    let records = [
        Record::Write { volume: VolumeId(1), at: 8, data: vec![vec![5; 300].into(), vec![6; 77].into()] },
        Record::Destaged { volume: VolumeId(1), stripe: 3, covers: Lsn(2) },
    ];
    let buffers = Buffers::default();
    let (made, bytes) = filled(&buffers, &records);
    let read = Header::decode(&bytes).expect("a header");
    assert_eq!((read, read.first, read.count), (made, Lsn(40), 2));
    let back = super::records(&read, &bytes).expect("whole");
    let Record::Write { data, .. } = &back[0] else { panic!("another record came back: {back:?}") };
    assert_eq!(data.concat(), [vec![5; 300], vec![6; 77]].concat());
    assert_eq!(back[1], records[1]);
    let mut dice = Dice::new(1);
    let covered = HEADER + read.length as usize;
    for _ in 0..3_000 {
        let mut broken = bytes.to_vec();
        let at = dice.below(covered as u64) as usize;
        broken[at] ^= 1 << dice.below(8);
        let broken = Shared::from(broken);
        let whole = Header::decode(&broken).is_some_and(|header| header == read && is_whole(&header, &broken));
        assert!(!whole, "a flip at byte {at} went unnoticed");
    }
}

#[test]
fn buffers_come_back_and_leave_nothing_of_former_groups() {
    let buffers = Buffers::default();
    let long = Record::Write { volume: VolumeId(1), at: 0, data: vec![vec![0xAA; 100_000].into()] };
    let (_, bytes) = filled(&buffers, std::slice::from_ref(&long));
    let place = bytes.as_ptr();
    drop(bytes);
    let (made, bytes) = filled(&buffers, &[Record::Seal]);
    assert_eq!(bytes.as_ptr(), place, "the buffer is used again");
    assert_eq!(bytes.len() as u64, made.total());
    assert!(bytes[HEADER + 8..].iter().all(|byte| *byte == 0), "padding is zeros");
}

#[test]
fn a_group_that_version_0_1_0_wrote_is_read() {
    let record = Record::Write { volume: VolumeId(1), at: 8, data: vec![vec![5; 300].into()] };
    let buffers = Buffers::default();
    let (made, bytes) = filled(&buffers, std::slice::from_ref(&record));
    let payload = Payload::Crc(crc32c(&bytes[HEADER..HEADER + made.length as usize]));
    let former = Shared::from(resealed(Header { payload, ..made }, &bytes));
    let header = Header::decode(&former).expect("a header");
    assert_eq!((header.payload, super::records(&header, &former)), (payload, Some(vec![record])));
    let mut broken = former.to_vec();
    broken[HEADER + 40] ^= 1;
    assert!(!is_whole(&header, &Shared::from(broken)), "and compared");
}

#[test]
fn an_older_content_with_a_checksum_of_its_own_is_no_part_of_a_group() {
    let version = |number: u64| {
        let mut block = vec![7; 4096];
        block[..8].copy_from_slice(&number.to_le_bytes());
        let own = crc32c(&block[..8]);
        block[8..12].copy_from_slice(&own.to_le_bytes());
        block
    };
    let write = |number: u64| Record::Write { volume: VolumeId(1), at: 0, data: vec![version(number).into()] };
    let buffers = Buffers::default();
    let (header, new) = filled(&buffers, &[write(2)]);
    let (_, old) = filled(&buffers, &[write(1)]);
    let torn = Shared::from([&new[..HEADER], &old[HEADER..]].concat());
    assert!(is_whole(&header, &new) && !is_whole(&header, &torn));
}

#[test]
fn a_tag_is_made_with_the_secret_and_no_other() {
    let (made, bytes) = filled(&Buffers::default(), &[Record::Seal]);
    assert_eq!(made.tag, tag_of(&bytes, SECRET));
    assert_ne!(made.tag, tag_of(&bytes, SECRET + 1));
    // Whatever of the header is another, the tag is too.
    for at in (12..TAG_AT).step_by(8) {
        let mut other = bytes.to_vec();
        other[at] ^= 1;
        assert_ne!(made.tag, tag_of(&other, SECRET), "byte {at}");
    }
}
