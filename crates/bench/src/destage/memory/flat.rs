//! Dirty blocks in arrays: a chain for each stripe, in slots that are used again.

use super::Written;

const END: u32 = u32::MAX;

struct Slot {
    block: u64,
    written: Option<Written>,
    next: u32,
}

/// Dirty blocks by stripe. It takes four bytes for each stripe of the volume.
pub struct Flat {
    heads: Vec<u32>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    count: usize,
    /// Blocks of a stripe.
    stripe: u64,
    /// Where the elevator goes on.
    from: usize,
}

impl Flat {
    pub fn new(blocks: u64, stripe: u64) -> Flat {
        let heads = vec![END; blocks.div_ceil(stripe) as usize];
        Flat { heads, slots: Vec::new(), free: Vec::new(), count: 0, stripe, from: 0 }
    }

    pub fn len(&self) -> usize {
        self.count
    }

    pub fn put(&mut self, block: u64, written: Written) {
        let head = &mut self.heads[(block / self.stripe) as usize];
        let mut at = *head;
        while at != END {
            let slot = &mut self.slots[at as usize];
            if slot.block == block {
                slot.written = Some(written);
                return;
            }
            at = slot.next;
        }
        let slot = Slot { block, written: Some(written), next: *head };
        *head = match self.free.pop() {
            Some(free) => {
                self.slots[free as usize] = slot;
                free
            }
            None => {
                self.slots.push(slot);
                self.slots.len() as u32 - 1
            }
        };
        self.count += 1;
    }

    /// Takes the dirty blocks of the next stripes, in order, until there are `most` stripes or at
    /// least `enough` blocks.
    pub fn take(&mut self, most: usize, enough: usize, into: &mut Vec<(u64, Written)>) {
        let mut stripes = 0;
        for _ in 0..self.heads.len() {
            if stripes == most || into.len() >= enough {
                return;
            }
            let begun = into.len();
            let mut at = std::mem::replace(&mut self.heads[self.from], END);
            stripes += usize::from(at != END);
            while at != END {
                let slot = &mut self.slots[at as usize];
                into.extend(slot.written.take().map(|written| (slot.block, written)));
                self.free.push(at);
                at = slot.next;
                self.count -= 1;
            }
            into[begun..].sort_unstable_by_key(|(block, _)| *block);
            self.from = (self.from + 1) % self.heads.len();
        }
    }
}
