//! What no record of ours says is not believed.

use stele_ground::VolumeId;
use stele_media::Shared;

use super::*;
use crate::model::place::PageId;
use crate::space::layout::{Member, RowClass, RowKind};

#[test]
fn a_write_of_parts_of_blocks_is_refused_before_the_cache_cuts_it_up() {
    let write =
        |at: u64, length: usize| Record::Write { volume: VolumeId(0), at, data: vec![vec![0u8; length].into()] };
    let zero = |at: u64, length: u64| Record::Zero { volume: VolumeId(0), at, length, unmap: false };
    let cases = [
        (write(4096, 8192), true),
        (write(4096, 4097), false),
        (write(512, 4096), false),
        (zero(0, 4096), true),
        (zero(0, 512), false),
        (zero(u64::MAX - 4095, 8192), false),
    ];
    for (record, sound) in cases {
        let mut bytes = vec![0; record.encoded()];
        record.encode(&mut bytes);
        let decoded = Record::decode(&mut Shared::from(bytes)).expect("a record");
        assert_eq!(decoded.is_of_blocks(), sound, "{decoded:?}");
    }
}

#[test]
fn a_volume_that_cannot_be_is_not_read_from_its_record() {
    let spec = crate::testing::spec("a", "2+1", 1 << 20);
    let check = |change: &dyn Fn(&mut crate::model::VolumeSpec), sound: bool| {
        let mut spec = spec.clone();
        change(&mut spec);
        let record = Record::VolumeCreate { volume: VolumeId(1), spec };
        let mut bytes = vec![0; record.encoded()];
        record.encode(&mut bytes);
        assert_eq!(Record::decode(&mut Shared::from(bytes)).is_some(), sound, "{record:?}");
    };
    check(&|_| (), true);
    check(&|spec| spec.strip = Bytes(0), false);
    check(&|spec| spec.strip = Bytes(24 << 10), false);
    check(&|spec| spec.size = Bytes(0), false);
    check(&|spec| spec.block = Bytes(1), false);
    check(&|spec| spec.name = String::new(), false);
}

#[test]
fn words_of_pages_come_back_as_they_were_and_none_lies_outside_its_page() {
    let check = |at: u16, sound: bool| {
        let page = |index: u32, words: Vec<(u16, u32)>| PagePatch { id: PageId { table: 7, index }, words };
        let record = Record::Patches { pages: vec![page(3, vec![(0, 1), (at, 2)]), page(4, Vec::new())] };
        let mut bytes = vec![0; record.encoded()];
        record.encode(&mut bytes);
        let decoded = Record::decode(&mut Shared::from(bytes));
        assert_eq!(decoded, sound.then_some(record), "a word at {at}");
    };
    check(8, true);
    check(16380, true);
    check(16384, false);
    check(10, false);
}

/// At least one of each kind, with all of their forms.
fn samples() -> Vec<Record> {
    let (volume, stripe, generation) = (VolumeId(0x0102_0304), 0x1112_1314_1516_1718, 0x2122_2324_2526_2728);
    let slot = SlotId { row: RowId(0x31), index: 0x32 };
    let cell = StripCell { drive: DriveNumber(0x41), unit: 0x4243_4445 };
    let (row, covers) = (RowId(0x51), Lsn(0x61));
    let data = |blocks: usize, byte: u8| Shared::from(vec![byte; blocks * BLOCK]);
    let code = crate::testing::spec("a", "2+1", 1 << 20).code;
    let class = RowClass { kind: RowKind::Data, code, strip: Bytes(65536), unit: Bytes(4096) };
    let member =
        |drive: u16, replacement| Member { cell: StripCell { drive: DriveNumber(drive), unit: 7 }, replacement };
    let made = Row { id: row, class, members: vec![member(1, None), member(2, Some(cell)), member(3, None)] };
    let mut owned = crate::testing::spec("volume", "2+1", 1 << 20);
    owned.owner = Some("archive".to_owned());
    let images = vec![
        RedoImage { strip: 1, block: 2, source: Image::Inline(data(1, 3)) },
        RedoImage { strip: 4, block: 5, source: Image::Logged { blocks: 6 } },
    ];
    let digests = vec![NewDigest { strip: 1, unit: 2, digest: 3 }, NewDigest { strip: 4, unit: 5, digest: 6 }];
    let pages = vec![PagePatch { id: PageId { table: 7, index: 8 }, words: vec![(0, 9), (16380, 10)] }];
    let layer = |reason, name: &str| NewLayer {
        reason,
        layer: VolumeId(9),
        base: VolumeId(7),
        former: VolumeId(8),
        made: 1_700_000_000,
        name: name.to_owned(),
    };
    let old = [None, Some(SlotId { row: RowId(0x71), index: 0x72 })];
    let map = |old: Option<SlotId>, kind, digests| Record::Map {
        volume,
        stripe,
        slot,
        generation,
        old,
        covers,
        kind,
        digests,
    };
    vec![
        Record::Checkpoint { sequence: 0x81 },
        Record::Write { volume, at: 8192, data: vec![data(2, 1)] },
        Record::Zero { volume, at: 4096, length: 8192, unmap: false },
        Record::Zero { volume, at: 4096, length: 8192, unmap: true },
        map(old[0], DigestKind::Crc32c, vec![1, 2, 3]),
        map(old[1], DigestKind::Xxh3, Vec::new()),
        Record::Unmap { volume, stripe, slot: old[0], generation, zero: true, covers },
        Record::Unmap { volume, stripe, slot: old[1], generation, zero: false, covers },
        Record::Redo { volume, stripe, slot, generation, covers, digests, images },
        Record::Destaged { volume, stripe, covers },
        Record::RowCreate { row: made },
        Record::RowFree { row },
        Record::Replacement { row, member: 3, cell: Some(cell) },
        Record::Replacement { row, member: 3, cell: None },
        Record::Moved { slot, generation, strip: 5, replaced: true },
        Record::VolumeCreate { volume, spec: owned },
        Record::VolumeDelete { volume },
        Record::VolumeResize { volume, size: Bytes(1 << 30) },
        Record::VolumeProtect { volume, retained: true },
        Record::VolumeMode { volume, mode: WriteMode::WriteThrough },
        Record::Lost { volume, stripe, slot, generation, strips: 0b101 },
        Record::DriveState { drive: DriveNumber(3), state: DriveState::Failed },
        Record::MemberChanged { row, member: 3, cell },
        Record::Seal,
        Record::Layer { new: layer(Reason::Snapshot, "monday") },
        Record::Layer { new: layer(Reason::Rollback, "") },
        Record::GivenUp { volume },
        Record::Adopted { from: volume, to: VolumeId(1), stripe, slot: old[1] },
        Record::VolumeReadAhead { volume, stripes: 8 },
        Record::Patches { pages },
    ]
}

/// The bytes of version 0.1.0: a log must stay readable, also by the version before.
#[test]
fn each_record_has_the_bytes_that_it_always_had() {
    let said = samples().into_iter().map(|record| {
        let mut bytes = vec![0xEE; record.encoded()];
        record.encode(&mut bytes);
        assert_eq!(Record::decode(&mut Shared::from(bytes.clone())), Some(record.clone()));
        (bytes.len(), stele_ground::digest::crc32c(&bytes))
    });
    assert_eq!(said.collect::<Vec<_>>(), BYTES);
}

/// Length and CRC-32C of each sample.
const BYTES: [(usize, u32); 30] = [
    (16, 404393254),
    (8216, 1396457254),
    (32, 1416869420),
    (32, 1664106897),
    (80, 708281065),
    (64, 1447011314),
    (56, 3021766587),
    (56, 1337070776),
    (4200, 2617247401),
    (32, 3850852603),
    (96, 1845779251),
    (16, 1007619765),
    (24, 1320314044),
    (24, 4280782430),
    (32, 355274167),
    (56, 167780539),
    (16, 1409800590),
    (24, 202569960),
    (16, 3953253206),
    (16, 3938449572),
    (48, 70938938),
    (16, 794092940),
    (24, 729304858),
    (8, 1549088414),
    (40, 2766849104),
    (40, 4007530679),
    (16, 2430511804),
    (32, 3233257560),
    (16, 1339877003),
    (48, 3488263312),
];

/// FORMAT lists kind, name and fields of each record as the declaration does.
#[test]
fn the_format_lists_each_record_as_it_is_declared() {
    let format = include_str!("../../../../../FORMAT/log.md");
    let listed: Vec<(u8, String, Vec<usize>)> = format.lines().filter_map(listed).collect();
    let sizes = |parts: &[&[usize]]| parts.concat();
    let declared = Record::LAYOUTS.iter().map(|(kind, name, parts)| (*kind, (*name).to_owned(), sizes(parts)));
    assert_eq!(listed, declared.collect::<Vec<_>>());
}

/// A row of the table of records. Its fields end in their size in bytes, apart from what
/// parentheses explain.
fn listed(line: &str) -> Option<(u8, String, Vec<usize>)> {
    let cells: Vec<&str> = line.split('|').map(str::trim).collect();
    let ["", kind, name, _, body, ""] = cells.as_slice() else { return None };
    let mut depth = 0;
    let told: String = body
        .chars()
        .filter(|letter| {
            depth += i32::from(*letter == '(');
            let is_told = depth == 0;
            depth -= i32::from(*letter == ')');
            is_told
        })
        .collect();
    let sizes = told.split(',').filter_map(|field| field.trim().rsplit(' ').next()?.parse().ok());
    Some((kind.parse().ok()?, (*name).to_owned(), sizes.collect()))
}
