//! Records of the table's pages from untrusted bytes: for fuzzing. What decodes must survive
//! encoding and decoding again, and the arithmetic that trusts it must not panic; both are asserted
//! here.

use stele_codes::Code;
use stele_ground::VolumeId;
use stele_media::Shared;

use crate::destage::checkpoint::{Root, read_lost};
use crate::durable::records::spec;
use crate::engine::apply::{read_row, write_row};
use crate::formats::codec::{Reader, Writer};
use crate::formats::shape::Shape;
use crate::formats::tables::ROW_ENTRY;
use crate::formats::{entry, map};
use crate::model::place::PAGE;
use crate::volumes::Volume;

const ORDINARY: Code = match Code::parity(8, 2) {
    Some(code) => code,
    None => panic!("8+2 is a code"),
};

/// The root that the anchor keeps.
pub fn root(bytes: &[u8]) -> bool {
    let Some(root) = Root::decode(bytes) else { return false };
    assert_eq!(Root::decode(&root.encode()), Some(root));
    true
}

/// A description of a volume, alone and as a volume's page.
pub fn volume(bytes: &[u8]) -> bool {
    let mut page = bytes.to_vec();
    page.resize(PAGE, 0);
    let _ = Volume::decode(VolumeId(1), &page);
    let Some(read) = spec::decode(&mut Reader::new(Shared::copy_from_slice(bytes))) else { return false };
    let shape = Shape::of(&read);
    assert!(shape.units > 0 && shape.data() > 0 && entry::size(&shape) <= PAGE);
    let mut again = vec![0; spec::encoded(&read)];
    spec::encode(&read, &mut Writer::new(&mut again));
    assert_eq!(spec::decode(&mut Reader::new(again.into())), Some(read));
    true
}

/// A row as the row table has it, and an entry of its slots in a page of the same bytes.
pub fn row(bytes: &[u8]) -> bool {
    let mut record = bytes.to_vec();
    record.resize(ROW_ENTRY, 0);
    let Ok(Some((row, used))) = read_row(&record) else { return false };
    let mut again = vec![0; ROW_ENTRY];
    write_row(&mut again, &row, used);
    assert_eq!(read_row(&again).ok().flatten(), Some((row, used)));
    true
}

/// A page of slot entries of some shape, of a map, and of the list of lost stripes.
pub fn pages(bytes: &[u8], shape: &Shape, index: u32) {
    let mut page = bytes.to_vec();
    page.resize(PAGE, 0);
    let (_, at) = entry::locate(shape, index);
    let head = entry::head(&page, at);
    let digests: Vec<u32> = (0..shape.digests()).map(|digest| entry::digest(&page, at, digest)).collect();
    let mut again = page.clone();
    entry::set_head(&mut again, at, &head);
    digests.iter().enumerate().for_each(|(number, digest)| entry::set_digest(&mut again, at, number, *digest));
    assert_eq!(again, page, "an entry is written as it was read");
    for stripe in 0..map::PER_PAGE {
        let (_, at) = map::locate(stripe);
        let home = map::get(&page, at);
        map::set(&mut again, at, home);
        assert_eq!(map::get(&again, at), home);
    }
    let _ = read_lost(&page);
}

/// The shape of the volume that these bytes describe, or of an ordinary one.
pub fn shape_of(bytes: &[u8]) -> Shape {
    let read = spec::decode(&mut Reader::new(Shared::copy_from_slice(bytes)));
    read.map_or_else(|| Shape::new(ORDINARY, 64 << 10, crate::model::DigestUnit::Block), |spec| Shape::of(&spec))
}

#[cfg(test)]
mod tests;
