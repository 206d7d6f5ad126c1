//! Commands of destages that wait before the line of a slow drive.
//!
//! A drive with an arm does more, the more commands it chooses among, but not without end; and what
//! hosts ask for waits behind those that it has. So it has a few of destages at once, however many
//! stripes are destaged, and the others wait here.

use stele_ground::Duration;
use stele_media::Request;

use super::{Io, IoState};

/// A drive is slow if the mean of its commands takes longer, each divided by those that were out
/// beside it. Drives with an arm take two to ten times as long, others a tenth.
const SLOW: Duration = Duration::from_millis(1);
/// Commands of destages in the line of a slow drive, or out on it.
pub(super) const DESTAGES_OUT: u32 = 16;

impl Io {
    /// Most drives are slow: as many destages at once as they can order bring more.
    pub fn are_slow(&self) -> bool {
        let drives = self.0.drives.borrow();
        let there = || drives.iter().filter(|state| !state.gone);
        there().filter(|state| state.is_slow()).count() * 2 > there().count()
    }
}

impl IoState {
    fn is_slow(&self) -> bool {
        self.service.pace > SLOW
    }

    /// Gives the command of a destage a place in the line, or keeps it until there is one.
    pub(super) fn admit_destage(&mut self, request: Request) -> Option<Request> {
        if !self.has_place() {
            self.backlog.push_back(request);
            return None;
        }
        self.give_place(&request);
        Some(request)
    }

    fn has_place(&self) -> bool {
        !self.is_slow() || self.destages < DESTAGES_OUT
    }

    fn give_place(&mut self, request: &Request) {
        self.destages += 1;
        self.slots[(request.tag as u32) as usize].is_destage = true;
    }

    /// A command of a destage left its place in the line, or the drive.
    pub(super) fn destage_left(&mut self) {
        assert!(self.destages > 0, "a command of a destage leaves a drive that has none");
        self.destages -= 1;
        while self.has_place()
            && let Some(request) = self.backlog.pop_front()
        {
            if self.drop_unwanted(&request) {
                continue;
            }
            self.give_place(&request);
            self.arrivals += 1;
            self.waiting.insert((request.priority, self.arrivals), request);
        }
    }
}
