//! What no record of ours says is not believed.

use stele_ground::VolumeId;
use stele_media::Shared;

use super::*;
use crate::model::place::PageId;

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
