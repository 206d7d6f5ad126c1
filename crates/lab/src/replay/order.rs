//! Records of one trace in the order of their times, from several files whose own order is nearly
//! that.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io::BufRead;

use super::Record;
use super::formats::{Devices, Reader, TraceItem};
use crate::error::LabError;

/// Records that are held back, to be put in order: processors write what they see in blocks.
const WINDOW: usize = 4096;

#[derive(Debug)]
pub struct Ordered<R> {
    readers: Vec<Reader<R>>,
    /// The next record of each reader.
    heads: Vec<Option<Record>>,
    pub devices: Devices,
    /// By their times and by their turn.
    window: BinaryHeap<Reverse<(u64, u64, Record)>>,
    turn: u64,
    last: u64,
    began: bool,
    /// What was left out, by its name.
    pub left_out: BTreeMap<&'static str, u64>,
    /// Records that came too late to be put in order.
    pub disordered: u64,
}

impl<R: BufRead> Ordered<R> {
    pub fn of(readers: Vec<Reader<R>>) -> Ordered<R> {
        Ordered {
            heads: readers.iter().map(|_| None).collect(),
            readers,
            devices: Devices::default(),
            window: BinaryHeap::new(),
            turn: 0,
            last: 0,
            began: false,
            left_out: BTreeMap::new(),
            disordered: 0,
        }
    }

    /// None behind the last one.
    pub fn take(&mut self) -> Result<Option<Record>, LabError> {
        if !self.began {
            self.began = true;
            for number in 0..self.readers.len() {
                self.advance(number)?;
            }
        }
        while self.window.len() < WINDOW {
            let first = self.heads.iter().enumerate().filter_map(|(number, head)| Some(((*head)?, number))).min();
            let Some((record, number)) = first else { break };
            self.window.push(Reverse((record.at, self.turn, record)));
            self.turn += 1;
            self.advance(number)?;
        }
        let Some(Reverse((at, _, record))) = self.window.pop() else { return Ok(None) };
        self.disordered += u64::from(at < self.last);
        self.last = self.last.max(at);
        Ok(Some(Record { at: self.last, ..record }))
    }

    /// Reads on to the reader's next access.
    fn advance(&mut self, number: usize) -> Result<(), LabError> {
        let (Some(reader), Some(head)) = (self.readers.get_mut(number), self.heads.get_mut(number)) else {
            return Ok(());
        };
        *head = loop {
            match reader.next(&mut self.devices)? {
                TraceItem::Access(record) => break Some(record),
                TraceItem::LeftOut(what) => *self.left_out.entry(what).or_default() += 1,
                TraceItem::End => break None,
            }
        };
        Ok(())
    }
}
