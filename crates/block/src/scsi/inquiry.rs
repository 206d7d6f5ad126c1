//! INQUIRY: the properties of a unit (SPC-5 6.7 and 7.7, SBC-4 6.6).

use super::cdb::{ATOMIC_UNIT, COMPARE_MAX, SAME_MAX, TRANSFER_MAX, UNMAP_DESCRIPTORS_MAX, UNMAP_MAX};
use super::field::{Page, be16, be32, octet};
use super::{Profile, Reply, Sense, report};

pub const VENDOR: &str = "STELE";
const PRODUCT: &str = "volume";
const REVISION: &str = "0001";

/// SAM-5, SPC-4, SBC-3 and iSCSI, without an edition; SPC-3 for older initiators.
const VERSIONS: [u16; 5] = [0x00a0, 0x0460, 0x04c0, 0x0960, 0x0300];

/// VPD pages, in order.
const PAGES: [u8; 8] = [0x00, 0x80, 0x83, 0x86, 0x87, 0xb0, 0xb1, 0xb2];

/// The relative identifier of the single target port, and of its group.
pub const TARGET_PORT: u16 = 1;
pub const PORT_GROUP: u16 = 1;

pub fn answer(profile: &Profile, page: Option<u8>) -> Result<Vec<u8>, Sense> {
    let body = match page {
        None => return Ok(standard(profile)),
        Some(0x00) => Page::default().bytes(&PAGES),
        Some(0x80) => Page::default().bytes(serial(profile).as_bytes()),
        Some(0x83) => Page::default().bytes(&designators(profile)),
        Some(0x86) => extended(),
        // Mode page policy: all pages and subpages are shared by all nexuses.
        Some(0x87) => Page::default().u8(0x3f).u8(0xff).u8(0).u8(0),
        Some(0xb0) => limits(profile),
        // Not rotating; no form factor; unmapped blocks and WRITE with FUA need nothing special.
        Some(0xb1) => Page::default().u16(1).zeros(58),
        Some(0xb2) => provisioning(),
        Some(_) => return Err(Sense::in_cdb(2)),
    };
    let page = Page::default().u8(0).u8(page.unwrap_or(0)).u16(0).bytes(&body.0);
    Ok(page.length16(2).0)
}

/// The answers of a LUN without a unit: INQUIRY and REPORT LUNS; other commands report that it does
/// not exist.
pub fn absent(cdb: &[u8]) -> Reply {
    match octet(cdb, 0) {
        // No device is there, and none could be.
        0x12 if octet(cdb, 1) & 1 == 0 => {
            let page = Page::default().u8(0x7f).u8(0).u8(0x06).u8(0x02).u8(31).zeros(31);
            Reply::data(page.0, u32::from(be16(cdb, 3)))
        }
        0x03 => Reply::data(Sense::NO_SUCH_UNIT.encode(octet(cdb, 1) & 1 != 0), u32::from(octet(cdb, 4))),
        0xa0 => match report::luns(octet(cdb, 2)) {
            Ok(bytes) => Reply::data(bytes, be32(cdb, 6)),
            Err(sense) => Reply::failed(sense),
        },
        _ => Reply::failed(Sense::NO_SUCH_UNIT),
    }
}

fn standard(profile: &Profile) -> Vec<u8> {
    let mut page = Page::default()
        .u8(0)
        .u8(if profile.removable { 0x80 } else { 0 })
        // SPC-4.
        .u8(0x06)
        // HISUP, response data format 2.
        .u8(0x12)
        .u8(0)
        // Implicit asymmetric access; third-party copy.
        .u8(0x10 | 0x08)
        .u8(0)
        // Command queuing.
        .u8(0x02)
        .text(VENDOR, 8)
        .text(PRODUCT, 16)
        .text(REVISION, 4)
        .zeros(22);
    for version in VERSIONS {
        page = page.u16(version);
    }
    let missing = 96usize.saturating_sub(page.0.len());
    page.zeros(missing).length8(4).0
}

pub fn serial(profile: &Profile) -> String {
    profile.id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The unique name of the unit, a 64-bit locally assigned identifier: 60 bits of the volume's id
/// after the format's 3.
pub fn naa(profile: &Profile) -> [u8; 8] {
    let id = u128::from_be_bytes(profile.id);
    // Folded, so that ids with the same leading timestamp still differ.
    let folded = (id as u64) ^ ((id >> 64) as u64).rotate_left(23);
    ((folded & 0x0fff_ffff_ffff_ffff) | 0x3000_0000_0000_0000).to_be_bytes()
}

/// Whether it is the identification descriptor that EXTENDED COPY compares: NAA, of the unit.
pub fn is_named(profile: &Profile, kind: u8, designator: &[u8]) -> bool {
    match kind {
        3 => designator == naa(profile),
        1 => designator == vendor_id(profile).as_slice(),
        _ => false,
    }
}

fn vendor_id(profile: &Profile) -> Vec<u8> {
    Page::default().text(VENDOR, 8).bytes(serial(profile).as_bytes()).0
}

fn designators(profile: &Profile) -> Vec<u8> {
    let mut page = Page::default();
    // Protocol iSCSI for a port or a device; code set 1 is binary, 2 ASCII, 3 UTF-8.
    let mut add = |code_set: u8, association: u8, kind: u8, bytes: &[u8]| {
        let head = if association == 0 { [code_set, kind] } else { [0x50 | code_set, 0x80 | association << 4 | kind] };
        page = std::mem::take(&mut page).bytes(&head).u8(0).u8(bytes.len() as u8).bytes(bytes);
    };
    let name = |text: String| {
        let mut bytes = text.into_bytes();
        bytes.push(0);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    };
    add(1, 0, 3, &naa(profile));
    add(2, 0, 1, &vendor_id(profile));
    add(1, 1, 4, &[0, 0, 0, TARGET_PORT as u8]);
    add(1, 1, 5, &[0, 0, 0, PORT_GROUP as u8]);
    add(3, 1, 8, &name(format!("{},t,0x{TARGET_PORT:04x}", profile.target)));
    add(3, 2, 8, &name(profile.target.clone()));
    page.0
}

/// Extended INQUIRY: all task attributes; nexus losses are reported; there is no long self-test.
fn extended() -> Page {
    Page::default().u8(0).u8(0x07).u8(0).u8(0x01).zeros(56)
}

fn limits(profile: &Profile) -> Page {
    let blocks = |bytes: u64| u32::try_from(bytes / profile.block()).unwrap_or(u32::MAX);
    let unit = if profile.whole_max > 0 { ATOMIC_UNIT } else { 0 };
    Page::default()
        // WSNZ: WRITE SAME of no blocks is refused.
        .u8(0x01)
        .u8(COMPARE_MAX as u8)
        .u16(u16::try_from(4096 / profile.block()).unwrap_or(1))
        .u32(blocks(TRANSFER_MAX))
        .u32(blocks(256 << 10))
        .u32(0)
        .u32(blocks(UNMAP_MAX))
        .u32(UNMAP_DESCRIPTORS_MAX)
        .u32(profile.unmap_granularity)
        // Ranges to unmap are aligned to 0, if a granularity is reported.
        .u32(if profile.unmap_granularity > 0 { 0x8000_0000 } else { 0 })
        .u64(u64::from(blocks(SAME_MAX)))
        // Atomic writes: the longest, their alignment, and their granularity; there are no further
        // boundaries.
        .u32(blocks(profile.whole_max))
        .u32(blocks(unit))
        .u32(blocks(unit))
        .zeros(8)
}

/// Thin, with UNMAP and WRITE SAME(16) and (10); unmapped blocks read as zeros.
fn provisioning() -> Page {
    Page::default().u8(THRESHOLD_EXPONENT).u8(0xe4).u8(0x02).u8(0)
}

/// A threshold set has 2^11 blocks.
pub const THRESHOLD_EXPONENT: u8 = 11;
