//! The content of one regular file: pages of 4 KiB, and what a crash would restore.
//!
//! A page that is absent is a hole and reads as zeros. Bytes of the last page beyond the size are
//! zero.

use std::collections::{BTreeMap, VecDeque};

use bytes::{BufMut, Bytes, BytesMut};

use crate::Data;

pub(super) const PAGE: u64 = 4096;
static ZEROS: [u8; PAGE as usize] = [0; PAGE as usize];

#[derive(Default)]
pub(super) struct Content {
    pages: BTreeMap<u64, Bytes>,
    size: u64,
    /// Present while unstable writes are not committed.
    durable: Option<Durable>,
}

/// The state before the first unstable write since the last commit.
struct Durable {
    size: u64,
    /// Every page that has changed since, as it was.
    pages: BTreeMap<u64, Option<Bytes>>,
}

impl Content {
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Bytes that are stored, holes left out.
    pub(super) fn used(&self) -> u64 {
        self.pages.len() as u64 * PAGE
    }

    pub(super) fn read(&self, offset: u64, length: u32) -> Data {
        let end = offset.saturating_add(u64::from(length)).min(self.size);
        let mut pieces = Vec::with_capacity((end.saturating_sub(offset) / PAGE + 1) as usize);
        let mut at = offset;
        while at < end {
            let (index, from, to) = within_page(at, end);
            let page = self.pages.get(&index).cloned().unwrap_or_else(|| Bytes::from_static(&ZEROS));
            pieces.push(page.slice(from..to));
            at += (to - from) as u64;
        }
        Data { pieces, end: offset.saturating_add(u64::from(length)) >= self.size }
    }

    /// Bytes of new pages that a write would need.
    pub(super) fn growth(&self, offset: u64, length: u64) -> u64 {
        if length == 0 {
            return 0;
        }
        let (first, last) = (offset / PAGE, (offset + length - 1) / PAGE);
        (last - first + 1 - self.pages.range(first..=last).count() as u64) * PAGE
    }

    pub(super) fn write(&mut self, offset: u64, data: Vec<Bytes>, durable: bool) {
        match durable {
            true => self.commit(),
            false => {
                self.durable.get_or_insert_with(|| Durable { size: self.size, pages: BTreeMap::new() });
            }
        }
        let end = offset + data.iter().map(|piece| piece.len() as u64).sum::<u64>();
        let mut source = Source(data.into());
        let mut at = offset;
        while at < end {
            let (index, from, to) = within_page(at, end);
            let page = match source.whole_page(to - from) {
                Some(page) => page,
                None => {
                    let old = self.pages.get(&index).cloned().unwrap_or_else(|| Bytes::from_static(&ZEROS));
                    let mut page = BytesMut::with_capacity(PAGE as usize);
                    page.put(old.slice(..from));
                    source.copy(to - from, &mut page);
                    page.put(old.slice(to..));
                    page.freeze()
                }
            };
            self.put(index, Some(page));
            at += (to - from) as u64;
        }
        self.size = self.size.max(end);
    }

    /// Cuts, or extends with a hole. Durable, together with all that was written before.
    pub(super) fn resize(&mut self, size: u64) {
        self.commit();
        self.pages.split_off(&size.div_ceil(PAGE));
        let tail = (size % PAGE) as usize;
        if let Some(page) = self.pages.get_mut(&(size / PAGE)) {
            let mut cut = BytesMut::with_capacity(PAGE as usize);
            cut.put(page.slice(..tail));
            cut.put_bytes(0, PAGE as usize - tail);
            *page = cut.freeze();
        }
        self.size = size;
    }

    pub(super) fn commit(&mut self) {
        self.durable = None;
    }

    /// Forgets what was not committed. Answers whether there was anything.
    pub(super) fn crash(&mut self) -> bool {
        let Some(durable) = self.durable.take() else { return false };
        for (index, page) in durable.pages {
            self.put(index, page);
        }
        self.size = durable.size;
        true
    }

    fn put(&mut self, index: u64, page: Option<Bytes>) {
        let old = match page {
            Some(page) => self.pages.insert(index, page),
            None => self.pages.remove(&index),
        };
        if let Some(durable) = &mut self.durable {
            durable.pages.entry(index).or_insert(old);
        }
    }
}

/// The page at a byte, and the part of it that lies in a range which ends at `end`.
fn within_page(at: u64, end: u64) -> (u64, usize, usize) {
    let index = at / PAGE;
    let start = index * PAGE;
    (index, (at - start) as usize, (end - start).min(PAGE) as usize)
}

/// Pieces that are consumed from the front.
struct Source(VecDeque<Bytes>);

impl Source {
    /// The next page, if it is wanted whole and lies in one piece. It is a copy: a slice would keep
    /// all of the buffer that a protocol received it in, which is hundreds of times as large.
    fn whole_page(&mut self, wanted: usize) -> Option<Bytes> {
        while self.0.front().is_some_and(Bytes::is_empty) {
            self.0.pop_front();
        }
        let front = self.0.front_mut()?;
        (wanted == PAGE as usize && front.len() >= wanted).then(|| Bytes::copy_from_slice(&front.split_to(wanted)))
    }

    fn copy(&mut self, mut length: usize, into: &mut BytesMut) {
        while length > 0 {
            let Some(front) = self.0.front_mut() else { return };
            let part = front.split_to(length.min(front.len()));
            if front.is_empty() {
                self.0.pop_front();
            }
            length -= part.len();
            into.put(part);
        }
    }
}
