//! Mode pages: the settings that initiators may change, shared by all of them and reset to their
//! defaults by a reset.

use super::command::ScsiCommand;
use super::exec::{Exec, ExecStep};
use super::field::{Page, be16, be24, be32, be64, octet, part};
use super::inquiry::THRESHOLD_EXPONENT;
use super::{Reply, Sense, Unit};

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Modes {
    /// SWP: writes are refused.
    pub software_protected: bool,
    /// D_SENSE: sense in descriptor format.
    pub descriptor_sense: bool,
}

const RECOVERY: u8 = 0x01;
const DISCONNECT: u8 = 0x02;
const CACHING: u8 = 0x08;
const CONTROL: u8 = 0x0a;
const EXCEPTIONS: u8 = 0x1c;
const ALL: u8 = 0x3f;
/// Subpage of the logical block provisioning page.
const PROVISIONING: u8 = 0x02;
const ALL_SUBPAGES: u8 = 0xff;

/// Pages with their subpages, in the order of the standard.
const PAGES: [(u8, u8); 6] =
    [(RECOVERY, 0), (DISCONNECT, 0), (CACHING, 0), (CONTROL, 0), (EXCEPTIONS, 0), (EXCEPTIONS, PROVISIONING)];

/// Bits of the control page that can be set: D_SENSE in byte 2, SWP in byte 4.
const CONTROL_CHANGEABLE: (u8, u8) = (0x04, 0x08);

impl Modes {
    /// The page with its header; `changeable`: ones for bits that can be set, zeros elsewhere.
    fn page(&self, page: u8, subpage: u8, changeable: bool) -> Vec<u8> {
        let length = match (page, subpage) {
            (RECOVERY, _) => 10,
            (DISCONNECT, _) => 14,
            (CACHING, _) => 18,
            (CONTROL, _) | (EXCEPTIONS, 0) => 10,
            _ => 36,
        };
        let head = Page::default();
        let head = match subpage {
            0 => head.u8(page).u8(length),
            _ => head.u8(page | 0x40).u8(subpage).u16(u16::from(length)),
        };
        let body = if changeable { changeable_body(page, subpage) } else { self.body(page, subpage) };
        let missing = usize::from(length).saturating_sub(body.0.len());
        head.bytes(&body.0).zeros(missing).0
    }

    fn body(&self, page: u8, subpage: u8) -> Page {
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        match (page, subpage) {
            // AWRE and ARRE: damaged blocks are rewritten from redundancy.
            (RECOVERY, _) => Page::default().u8(0xc0),
            // WCE: without FUA a write is durable only after SYNCHRONIZE CACHE, even if the volume
            // does more.
            (CACHING, _) => Page::default().u8(0x04),
            (CONTROL, _) => Page::default()
                .u8(flag(self.descriptor_sense, CONTROL_CHANGEABLE.0))
                // Unrestricted reordering.
                .u8(0x10)
                .u8(flag(self.software_protected, CONTROL_CHANGEABLE.1))
                .zeros(3)
                // The busy timeout has no limit.
                .u16(0xffff),
            // One threshold descriptor, which raises an attention: soft, for the pool's free space.
            (EXCEPTIONS, PROVISIONING) => {
                Page::default().zeros(12).u8(0x80).u8(THRESHOLD_EXPONENT).u16(0).u32(0).zeros(16)
            }
            _ => Page::default(),
        }
    }
}

fn changeable_body(page: u8, subpage: u8) -> Page {
    match (page, subpage) {
        (CONTROL, 0) => Page::default().u8(CONTROL_CHANGEABLE.0).u8(0).u8(CONTROL_CHANGEABLE.1),
        _ => Page::default(),
    }
}

fn wanted(asked: u8, asked_subpage: u8, page: u8, subpage: u8) -> bool {
    (asked == ALL || asked == page) && (asked_subpage == ALL_SUBPAGES || asked_subpage == subpage)
}

impl Unit {
    pub(super) fn mode_sense(&self, command: &ScsiCommand) -> ExecStep {
        let ScsiCommand::ModeSense { long, no_descriptor, long_lba, control, page, subpage, allocated } = *command
        else {
            return ExecStep::done(Sense::INTERNAL);
        };
        if control == 3 {
            return ExecStep::done(Sense::NOT_SAVED);
        }
        let modes = if control == 2 { Modes::default() } else { self.modes };
        let mut pages = Vec::new();
        for (have, sub) in PAGES {
            if wanted(page, subpage, have, sub) {
                pages.extend(modes.page(have, sub, control == 1));
            }
        }
        if pages.is_empty() {
            return ExecStep::done(Sense::in_cdb(if PAGES.iter().any(|(have, _)| *have == page) { 3 } else { 2 }));
        }
        let descriptor = if no_descriptor { Page::default() } else { self.descriptor(long_lba) };
        let length = descriptor.0.len();
        // Write protection, and support of FUA and DPO.
        let specific = if self.protected().is_some() { 0x90 } else { 0x10 };
        let head = if long {
            Page::default().u16(0).u8(0).u8(specific).u8(u8::from(long_lba)).u8(0).u16(length as u16)
        } else {
            Page::default().u8(0).u8(0).u8(specific).u8(length as u8)
        };
        let page = head.bytes(&descriptor.0).bytes(&pages);
        let page = if long { page.length16(0) } else { page.length8(0) };
        ExecStep::Done(Reply::data(page.0, allocated))
    }

    fn descriptor(&self, long_lba: bool) -> Page {
        let blocks = self.profile.blocks;
        if long_lba {
            return Page::default().u64(blocks).u32(0).u32(self.profile.block_bytes);
        }
        Page::default().u32(u32::try_from(blocks).unwrap_or(u32::MAX)).u32(self.profile.block_bytes & 0x00ff_ffff)
    }

    pub(super) fn mode_select(&mut self, exec: &Exec, long: bool) -> ExecStep {
        let list = exec.whole();
        if list.is_empty() {
            return ExecStep::good();
        }
        match self.selected(&list, long) {
            Ok(modes) => {
                if modes != self.modes {
                    let begins = modes.software_protected && !self.modes.software_protected;
                    self.modes = modes;
                    if begins {
                        self.protected_by = self.nexuses.get(&exec.nexus).cloned();
                    }
                    self.tell_all(Sense::MODE_CHANGED, Some(exec.nexus));
                }
                ExecStep::good()
            }
            Err(sense) => ExecStep::done(sense),
        }
    }

    fn selected(&self, list: &[u8], long: bool) -> Result<Modes, Sense> {
        let (head, descriptors) = if long { (8, usize::from(be16(list, 6))) } else { (4, usize::from(octet(list, 3))) };
        if list.len() < head + descriptors {
            return Err(Sense::LIST_LENGTH);
        }
        let long_lba = long && octet(list, 4) & 1 != 0;
        if !self.is_as_it_is(part(list, head, descriptors), long_lba) {
            return Err(Sense::in_list(head as u16));
        }
        let mut modes = self.modes;
        let mut at = head + descriptors;
        while at < list.len() {
            let (page, long_page) = (octet(list, at) & 0x3f, octet(list, at) & 0x40 != 0);
            let (subpage, header) = if long_page { (octet(list, at + 1), 4) } else { (0, 2) };
            let length = if long_page { usize::from(be16(list, at + 2)) } else { usize::from(octet(list, at + 1)) };
            if !PAGES.contains(&(page, subpage)) {
                return Err(Sense::in_list(at as u16));
            }
            let current = self.modes.page(page, subpage, false);
            let changeable = self.modes.page(page, subpage, true);
            if current.len() != header + length || list.len() < at + header + length {
                return Err(Sense::LIST_LENGTH);
            }
            let sent = part(list, at + header, length);
            for (offset, byte) in sent.iter().enumerate() {
                let changed = byte ^ octet(&current, header + offset);
                if changed & !octet(&changeable, header + offset) != 0 {
                    return Err(Sense::in_list((at + header + offset) as u16));
                }
            }
            if page == CONTROL {
                modes.descriptor_sense = octet(sent, 0) & CONTROL_CHANGEABLE.0 != 0;
                modes.software_protected = octet(sent, 2) & CONTROL_CHANGEABLE.1 != 0;
            }
            at += header + length;
        }
        Ok(modes)
    }

    /// Whether block descriptors ask for the size and the blocks that the unit has. No initiator
    /// can change these. Zero blocks, or as many as possible, mean the present size.
    fn is_as_it_is(&self, descriptors: &[u8], long_lba: bool) -> bool {
        let (count, largest, bytes) = match (descriptors.len(), long_lba) {
            (0, _) => return true,
            (8, false) => (u64::from(be32(descriptors, 0)), u64::from(u32::MAX), be24(descriptors, 5)),
            (16, true) => (be64(descriptors, 0), u64::MAX, be32(descriptors, 12)),
            _ => return false,
        };
        let is_size = count == 0 || count == largest || count == self.profile.blocks;
        is_size && (bytes == 0 || bytes == self.profile.block_bytes)
    }

    /// Whether sense is sent in descriptor format.
    pub fn descriptor_sense(&self) -> bool {
        self.modes.descriptor_sense
    }
}
