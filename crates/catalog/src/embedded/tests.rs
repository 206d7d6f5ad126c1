mod alone;
mod batches;
mod crash;
mod faults;
mod full;
mod growth;
mod port;
mod power;
mod reopen;
mod stuck;

use stele_ground::{Bytes, MIB};
use stele_media::{Handle, MemoryDrive, serve};

use super::*;
use crate::suite::suite;

fn volume(size: u64) -> Handle {
    serve(MemoryDrive::new(Bytes(size))).unwrap()
}

fn fresh(size: u64) -> Handle {
    let handle = volume(size);
    format(&handle, &Format { id: [7; 16], journal: None }).unwrap();
    handle
}

/// So small that checkpoints happen all the time.
fn small() -> Options {
    Options { cache: Bytes(MIB), overlay: Bytes(8 << 10), ..Options::default() }
}

#[test]
fn the_inline_catalog_passes_the_suite() {
    suite(|| InlineCatalog::open(&fresh(64 * MIB), small()).unwrap());
}

#[test]
fn the_inline_catalog_passes_the_suite_with_large_overlays() {
    suite(|| InlineCatalog::open(&fresh(256 * MIB), Options::default()).unwrap());
}

#[test]
fn the_service_passes_the_suite() {
    suite(|| EmbeddedCatalog::open(&fresh(64 * MIB), small()).unwrap());
}
