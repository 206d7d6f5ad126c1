//! The drives of one reactor: files on its ring, and any other drives beside it.

use std::sync::Arc;

use stele_ground::{Bytes, Instant};
use stele_media::system::EventFd;
use stele_media::{Completion, Drive, DriveFile, Engine, FileDrive, MediaError, MediaFault, Request, Ring};

use crate::model::Attached;

/// A drive on its way to a reactor.
pub struct Source {
    kind: SourceDrive,
    name: String,
    enclosure: u32,
}

enum SourceDrive {
    File(DriveFile),
    Other(Box<dyn Drive + Send>),
}

impl Source {
    /// A file or device, known by its path.
    pub fn file(file: DriveFile, enclosure: u32) -> Source {
        Source { name: file.path().display().to_string(), kind: SourceDrive::File(file), enclosure }
    }

    pub fn as_file(&self) -> Option<&DriveFile> {
        match &self.kind {
            SourceDrive::File(file) => Some(file),
            SourceDrive::Other(_) => None,
        }
    }

    /// Parts of a file or device, given by start and length, each a drive of the same name.
    pub fn divide(self, parts: &[(u64, Bytes)]) -> Result<Vec<Source>, MediaError> {
        let Source { kind, name, enclosure } = self;
        match kind {
            SourceDrive::File(file) => {
                let part = |file| Source { kind: SourceDrive::File(file), name: name.clone(), enclosure };
                Ok(file.divide(parts)?.into_iter().map(part).collect())
            }
            SourceDrive::Other(_) => {
                let message = format!("{name} is no file or device, and cannot be divided among shards");
                Err(MediaError::new(MediaFault::Invalid, message))
            }
        }
    }

    /// Any other drive: of memory, simulated, or another array's volume.
    pub fn other(drive: impl Drive + Send + 'static, name: impl Into<String>, enclosure: u32) -> Source {
        Source { kind: SourceDrive::Other(Box::new(drive)), name: name.into(), enclosure }
    }
}

struct DriveSlot {
    place: Attachment,
    /// Handed to the drive and not yet reaped.
    outstanding: usize,
}

enum Attachment {
    OnRing(FileDrive),
    Beside(Box<dyn Drive + Send>),
    /// Pulled, but with operations under way: kept until they are back.
    Leaving(Box<Attachment>),
    Gone,
}

/// Drives by the index under which the pool knows them.
pub struct DriveSet {
    ring: Ring,
    members: Vec<DriveSlot>,
    /// The index of the drive in each slot of the ring.
    by_slot: Vec<usize>,
    /// Drives beside the ring that have operations under way.
    beside_outstanding: usize,
    has_beside: bool,
    refused: Vec<(usize, Completion)>,
    reaped: Vec<(usize, Completion)>,
    finished: Vec<Completion>,
    unkicked: bool,
}

impl DriveSet {
    pub fn new(bell: &Arc<EventFd>, engine: Engine) -> DriveSet {
        DriveSet {
            ring: Ring::new(Arc::clone(bell), engine),
            members: Vec::new(),
            by_slot: Vec::new(),
            beside_outstanding: 0,
            has_beside: false,
            refused: Vec::new(),
            reaped: Vec::new(),
            finished: Vec::new(),
            unkicked: false,
        }
    }

    /// Takes the drive in and returns what the pool is told. Its index is the number of drives
    /// before.
    pub fn attach(&mut self, source: Source) -> Attached {
        let Source { kind, name, enclosure } = source;
        let index = self.members.len();
        let (place, geometry) = match kind {
            SourceDrive::File(file) => {
                let drive = self.ring.attach(file);
                if self.by_slot.len() <= drive.slot() {
                    self.by_slot.resize(drive.slot() + 1, usize::MAX);
                }
                self.by_slot[drive.slot()] = index;
                let geometry = drive.geometry();
                (Attachment::OnRing(drive), geometry)
            }
            SourceDrive::Other(drive) => {
                self.has_beside = true;
                let geometry = drive.geometry();
                (Attachment::Beside(drive), geometry)
            }
        };
        self.members.push(DriveSlot { place, outstanding: 0 });
        Attached { geometry, name, enclosure }
    }

    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// From now on the drive answers `Gone`; what is under way comes back first.
    pub fn detach(&mut self, index: usize) {
        let Some(member) = self.members.get_mut(index) else { return };
        // One that is leaving may answer so, too: what is under way on it is still waited for.
        if matches!(member.place, Attachment::Leaving(_) | Attachment::Gone) {
            return;
        }
        let place = std::mem::replace(&mut member.place, Attachment::Gone);
        if member.outstanding > 0 {
            member.place = Attachment::Leaving(Box::new(place));
        }
    }

    pub fn submit(&mut self, index: usize, request: Request) {
        let member = self.members.get_mut(index);
        let drive: &mut dyn Drive = match member.map(|member| (&mut member.outstanding, &mut member.place)) {
            Some((outstanding, Attachment::OnRing(drive))) => {
                *outstanding += 1;
                self.unkicked = true;
                drive
            }
            Some((outstanding, Attachment::Beside(drive))) => {
                *outstanding += 1;
                self.beside_outstanding += 1;
                self.unkicked = true;
                &mut **drive
            }
            _ => {
                let error = MediaError::new(MediaFault::Gone, format!("drive {index} is detached"));
                let Request { tag, op, .. } = request;
                self.refused.push((index, Completion { tag, op, result: Err(error) }));
                return;
            }
        };
        drive.submit(request);
    }

    /// Starts what was submitted: one call for all files.
    pub fn kick(&mut self) {
        if !std::mem::take(&mut self.unkicked) {
            return;
        }
        self.ring.kick();
        if self.beside_outstanding > 0 {
            for member in self.members.iter_mut().filter(|member| member.outstanding > 0) {
                if let Attachment::Beside(drive) = &mut member.place {
                    drive.kick();
                }
            }
        }
    }

    /// Moves out finished operations with the index of their drive. Never waits.
    pub fn reap(&mut self, now: Instant, into: &mut Vec<(usize, Completion)>) {
        into.append(&mut self.refused);
        self.ring.reap(&mut self.reaped);
        for (slot, completion) in self.reaped.drain(..) {
            let index = self.by_slot[slot];
            let member = &mut self.members[index];
            member.outstanding -= 1;
            if member.outstanding == 0 && matches!(member.place, Attachment::Leaving(_)) {
                member.place = Attachment::Gone;
            }
            into.push((index, completion));
        }
        if self.beside_outstanding == 0 {
            return;
        }
        for (index, member) in self.members.iter_mut().enumerate().filter(|(_, member)| member.outstanding > 0) {
            let (leaving, place) = match &mut member.place {
                Attachment::Leaving(place) => (true, &mut **place),
                place => (false, place),
            };
            let Attachment::Beside(drive) = place else { continue };
            drive.reap(now, &mut self.finished);
            member.outstanding -= self.finished.len();
            self.beside_outstanding -= self.finished.len();
            into.extend(self.finished.drain(..).map(|completion| (index, completion)));
            if leaving && member.outstanding == 0 {
                member.place = Attachment::Gone;
            }
        }
    }

    /// When a drive beside the ring has something, where it knows.
    pub fn next_event(&self) -> Option<Instant> {
        if self.beside_outstanding == 0 {
            return None;
        }
        let known = self.members.iter().filter(|member| member.outstanding > 0);
        known
            .filter_map(|member| if let Attachment::Beside(drive) = &member.place { drive.next_event() } else { None })
            .min()
    }

    /// True while a drive beside the ring works that cannot wake the reactor: then it must poll.
    pub fn must_poll(&self) -> bool {
        self.beside_outstanding > 0 && self.next_event().is_none()
    }

    pub fn ring(&self) -> &Ring {
        &self.ring
    }
}
