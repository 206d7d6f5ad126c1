use stele_ground::{Bytes, Dice};
use stele_media::{MemoryDrive, serve};

use super::*;
use crate::embedded::layout::Format;

/// Compares with a plain vector, with syncs, growth and shrinking in between, and reads back
/// through a second area as well.
#[test]
fn the_area_reads_what_was_written() {
    let mut dice = Dice::new(1);
    let handle = serve(MemoryDrive::new(Bytes(64 * MIB))).unwrap();
    let layout = super::super::layout::prepare(&handle, &Format { id: [1; 16], journal: None }).unwrap();
    let area = Area::new(&handle, &layout, false, |work| work());
    let mut twin: Vec<u8> = Vec::new();
    for step in 0..3000 {
        let pages = twin.len() as u64 / BLOCK;
        match dice.below(12) {
            0 => {
                let length = dice.below(64) * BLOCK;
                area.set_length(length).unwrap();
                // Content beyond the length is gone; after growth that space is written before it
                // is read.
                let known = twin.len().min(length as usize);
                twin.resize(length as usize, 0);
                for page in known / BLOCK as usize..length as usize / BLOCK as usize {
                    area.write(page as u64 * BLOCK, &[0; BLOCK as usize]).unwrap();
                }
            }
            1 => area.sync().unwrap(),
            2 if pages > 0 => {
                // The header of redb.
                let mut header = [0; 320];
                dice.fill(&mut header);
                area.write(0, &header).unwrap();
                twin[..320].copy_from_slice(&header);
            }
            3..=7 if pages > 0 => {
                let at = dice.below(pages);
                let count = 1 + dice.below((pages - at).min(8));
                let mut data = vec![0; (count * BLOCK) as usize];
                dice.fill(&mut data);
                area.write(at * BLOCK, &data).unwrap();
                twin[(at * BLOCK) as usize..][..data.len()].copy_from_slice(&data);
            }
            _ if pages > 0 => {
                let at = dice.below(twin.len() as u64) as usize;
                let mut out = vec![0; 1 + dice.below((twin.len() - at).min(20_000) as u64) as usize];
                area.read(at as u64, &mut out).unwrap();
                assert!(out == twin[at..at + out.len()], "step {step}, {} bytes at {at}", out.len());
            }
            _ => {}
        }
        assert_eq!(area.length(), twin.len() as u64);
    }
    area.sync().unwrap();
    let other = Area::new(&handle, &Layout { length: twin.len() as u64, ..layout }, false, |work| work());
    let mut out = vec![0; twin.len()];
    other.read(0, &mut out).unwrap();
    assert!(out == twin);
    other.close();
    assert!(other.read(0, &mut out).is_err() && other.write(0, &out).is_err() && other.sync().is_err());
}

#[test]
fn nothing_beyond_the_area_is_written() {
    let handle = serve(MemoryDrive::new(Bytes(64 * MIB))).unwrap();
    let layout = super::super::layout::prepare(&handle, &Format { id: [1; 16], journal: None }).unwrap();
    let area = Area::new(&handle, &layout, false, |work| work());
    area.set_length(area.capacity() + 8 * MIB).unwrap();
    assert!(area.overgrown());
    area.write(area.capacity(), &[7; BLOCK as usize]).unwrap();
    assert!(area.sync().is_err(), "a page that has no place cannot be made durable");
    area.set_length(area.capacity()).unwrap();
    assert!(!area.overgrown() && area.sync().is_ok());
    let behind = handle.read_blocking(layout.area_at + layout.area, BLOCK as usize).unwrap();
    assert!(behind.iter().all(|byte| *byte == 0));
}
