//! A store in memory, with faults: the simple twin of every other store, for tests.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{Folder, Listed, Name, Store};
use crate::error::{BackupError, Result};

#[derive(Default, Debug)]
struct State {
    /// Each object with the time when it was stored.
    objects: BTreeMap<Name, (Vec<u8>, u64)>,
    now: u64,
    /// Changes that still succeed. None: all do.
    changes_left: Option<u64>,
    /// Whether objects may be removed.
    append_only: bool,
    /// Whether there is no room for any object.
    full: bool,
    full_for: Option<Folder>,
    /// The locks of objects: until when. They outlast the objects' replacement, as they do in a
    /// bucket with versions.
    locks: BTreeMap<Name, u64>,
    /// Parts of objects that the drive cannot read.
    unreadable: Vec<(Name, Range<u64>)>,
    /// An object at whose reading the store goes away.
    failing: Option<Name>,
    /// An object at whose reading no connection can be made.
    unreachable: Option<Name>,
    /// When the next object of this folder is stored, the clock jumps to this time.
    jump: Option<(Folder, u64)>,
    /// When an object of this folder is read as a whole, the clock jumps to this time.
    reading_jump: Option<(Folder, u64)>,
    /// Behind the next object that is stored in the folder of this one, another writer stores this
    /// one.
    follower: Option<(Folder, Name, Vec<u8>)>,
    /// When the first object is read next, it has gone, and the other one is there.
    exchange: Option<(Name, Name, Vec<u8>)>,
    /// When the first object is removed, the other one has gone too.
    gone_along: Option<(Name, Name)>,
}

/// Requests that wait for one another.
#[derive(Default, Debug)]
struct Meeting {
    folder: Option<Folder>,
    number: usize,
    under_way: usize,
    most: usize,
}

/// Requests of a test that never become so many at once fail it after this time.
const MEETING: Duration = Duration::from_secs(10);

#[derive(Default, Debug)]
pub struct Memory {
    state: Mutex<State>,
    meeting: Mutex<Meeting>,
    met: Condvar,
}

impl Memory {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on objects of the folder are stored when so many requests for it are under way at
    /// once.
    pub fn meet(&self, folder: Folder, number: usize) {
        let meeting = Meeting { folder: Some(folder), number, ..Meeting::default() };
        *self.meeting.lock().unwrap_or_else(PoisonError::into_inner) = meeting;
    }

    /// The most that were under way at once since then.
    pub fn met(&self) -> usize {
        self.meeting.lock().unwrap_or_else(PoisonError::into_inner).most
    }

    fn join_meeting(&self, name: &Name) {
        let mut meeting = self.meeting.lock().unwrap_or_else(PoisonError::into_inner);
        if !meeting.folder.is_some_and(|folder| name.is_in(folder)) {
            return;
        }
        meeting.under_way += 1;
        meeting.most = meeting.most.max(meeting.under_way);
        self.met.notify_all();
        let waited = self.met.wait_timeout_while(meeting, MEETING, |meeting| meeting.most < meeting.number);
        waited.unwrap_or_else(PoisonError::into_inner).0.under_way -= 1;
    }

    pub fn set_now(&self, now: u64) {
        self.state().now = now;
    }

    /// From now on only this many changes succeed, as if the agent were killed behind them.
    pub fn fail_after(&self, changes: Option<u64>) {
        self.state().changes_left = changes;
    }

    /// The locks that lie ahead.
    pub fn locks(&self) -> BTreeMap<Name, u64> {
        let state = self.state();
        state
            .locks
            .iter()
            .filter(|(_, until)| **until > state.now)
            .map(|(name, until)| (name.clone(), *until))
            .collect()
    }

    pub fn set_full(&self, full: bool) {
        self.state().full = full;
    }

    /// From now on there is no room for objects of this folder.
    pub fn set_full_for(&self, folder: Folder) {
        self.state().full_for = Some(folder);
    }

    pub fn set_append_only(&self, append_only: bool) {
        self.state().append_only = append_only;
    }

    /// From now on the drive cannot read this part of the object.
    pub fn set_unreadable(&self, name: &Name, range: Range<u64>) {
        self.state().unreadable.push((name.clone(), range));
    }

    /// From now on the store goes away when the object is read.
    pub fn fail_reading(&self, name: &Name) {
        self.state().failing = Some(name.clone());
    }

    /// From now on no connection can be made when the object is read. None: there is one again.
    pub fn cut_off(&self, name: Option<&Name>) {
        self.state().unreachable = name.cloned();
    }

    /// The clock jumps to `now` behind the next object that is stored in the folder, as if the
    /// agent's machine slept.
    pub fn jump_behind(&self, folder: Folder, now: u64) {
        self.state().jump = Some((folder, now));
    }

    /// The clock jumps to `now` when a whole object of the folder is read next.
    pub fn jump_at_reading(&self, folder: Folder, now: u64) {
        self.state().reading_jump = Some((folder, now));
    }

    /// Another writer stores this object directly behind the next one of the folder.
    pub fn store_behind(&self, folder: Folder, name: Name, bytes: Vec<u8>) {
        self.state().follower = Some((folder, name, bytes));
    }

    /// When `gone` is read next, another writer has removed it and stored `name`.
    pub fn exchange_at_reading(&self, gone: Name, name: Name, bytes: Vec<u8>) {
        self.state().exchange = Some((gone, name, bytes));
    }

    /// When the first object is removed, another writer removes the other one.
    pub fn remove_behind(&self, removed: &Name, gone: &Name) {
        self.state().gone_along = Some((removed.clone(), gone.clone()));
    }

    /// Changes the bytes of an object behind the back of its reader. Whether it was there.
    pub fn damage(&self, name: &Name, change: impl FnOnce(&mut Vec<u8>)) -> bool {
        self.state().objects.get_mut(name).map(|(bytes, _)| change(bytes)).is_some()
    }

    pub fn names(&self, folder: Folder) -> Vec<Name> {
        let state = self.state();
        state.objects.keys().filter(|name| Name::parse(folder, name.text()).is_some()).cloned().collect()
    }

    pub fn bytes(&self) -> u64 {
        self.state().objects.values().map(|(bytes, _)| bytes.len() as u64).sum()
    }
}

impl State {
    fn change(&mut self) -> Result<()> {
        match &mut self.changes_left {
            Some(0) => Err(BackupError::Failed("the store went away".to_owned())),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn has_room(&self, name: &Name) -> Result<()> {
        let full = self.full || self.full_for.is_some_and(|folder| name.is_in(folder));
        if full { Err(BackupError::Full("the quota is used up".to_owned())) } else { Ok(()) }
    }

    /// Whether the store is still there when the object is read.
    fn is_there(&self, name: &Name) -> Result<()> {
        if self.unreachable.as_ref() == Some(name) {
            return Err(BackupError::Unreachable("cannot reach the store".to_owned()));
        }
        match self.failing.as_ref() == Some(name) {
            true => Err(BackupError::Failed("the store went away".to_owned())),
            false => Ok(()),
        }
    }

    /// Whether the drive can read the part.
    fn readable(&self, name: &Name, range: &Range<u64>) -> Result<()> {
        let broken = |(of, part): &(Name, Range<u64>)| of == name && part.start < range.end && range.start < part.end;
        match self.unreadable.iter().any(broken) {
            true => Err(BackupError::Damaged(format!("cannot read {}: a sector is broken", name.text()))),
            false => Ok(()),
        }
    }

    fn find(&self, name: &Name) -> Result<&[u8]> {
        let found = self.objects.get(name).map(|(bytes, _)| bytes.as_slice());
        found.ok_or_else(|| BackupError::Missing(format!("{} is not in the store", name.text())))
    }
}

impl Store for Memory {
    fn place(&self) -> String {
        "memory".to_owned()
    }

    fn create(&self, name: &Name, bytes: &[u8]) -> Result<()> {
        self.join_meeting(name);
        let mut state = self.state();
        if state.objects.contains_key(name) {
            return Err(BackupError::Exists(format!("{} exists already", name.text())));
        }
        state.has_room(name)?;
        state.change()?;
        let now = state.now;
        state.objects.insert(name.clone(), (bytes.to_vec(), now));
        if let Some((_, now)) = state.jump.take_if(|(folder, _)| Name::parse(*folder, name.text()).is_some()) {
            state.now = now;
        }
        if let Some((_, name, bytes)) = state.follower.take_if(|(folder, ..)| name.is_in(*folder)) {
            state.objects.insert(name, (bytes, now));
        }
        Ok(())
    }

    fn replace(&self, name: &Name, bytes: &[u8]) -> Result<()> {
        let mut state = self.state();
        state.has_room(name)?;
        state.change()?;
        let now = state.now;
        state.objects.insert(name.clone(), (bytes.to_vec(), now));
        Ok(())
    }

    fn get(&self, name: &Name, max: u64) -> Result<Vec<u8>> {
        let mut state = self.state();
        if let Some((_, now)) = state.reading_jump.take_if(|(folder, _)| name.is_in(*folder)) {
            state.now = now;
        }
        if let Some((gone, name, bytes)) = state.exchange.take_if(|(gone, ..)| gone == name) {
            state.objects.remove(&gone);
            let now = state.now;
            state.objects.insert(name, (bytes, now));
        }
        state.is_there(name)?;
        let bytes = state.find(name)?.to_vec();
        state.readable(name, &(0..u64::MAX))?;
        if bytes.len() as u64 > max {
            return Err(BackupError::Damaged(format!("{} is longer than {max} bytes", name.text())));
        }
        Ok(bytes)
    }

    fn get_range(&self, name: &Name, range: Range<u64>) -> Result<Vec<u8>> {
        let state = self.state();
        state.is_there(name)?;
        state.readable(name, &range)?;
        let part = state.find(name)?.get(range.start as usize..range.end as usize);
        part.map(<[u8]>::to_vec).ok_or_else(|| BackupError::Damaged(format!("{} is too short", name.text())))
    }

    fn list(&self, folder: Folder, each: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
        let listed: Vec<Listed> = {
            let state = self.state();
            let in_folder = state.objects.iter().filter(|(name, _)| Name::parse(folder, name.text()).is_some());
            in_folder
                .map(|(name, (bytes, stored))| Listed { name: name.clone(), size: bytes.len() as u64, stored: *stored })
                .collect()
        };
        listed.into_iter().try_for_each(each)
    }

    fn remove(&self, name: &Name) -> Result<()> {
        let mut state = self.state();
        if state.append_only {
            return Err(BackupError::Refused(format!("{}: these credentials only append", name.text())));
        }
        if state.locks.get(name).is_some_and(|until| *until > state.now) {
            return Err(BackupError::Refused(format!("{} is locked", name.text())));
        }
        state.change()?;
        if let Some((_, along)) = state.gone_along.take_if(|(removed, _)| removed == name) {
            state.objects.remove(&along);
        }
        let gone = state.objects.remove(name);
        gone.map(drop).ok_or_else(|| BackupError::Missing(format!("{} is not in the store", name.text())))
    }

    fn lock(&self, name: &Name, until: u64) -> Result<()> {
        let mut state = self.state();
        state.find(name)?;
        state.change()?;
        let lock = state.locks.entry(name.clone()).or_default();
        *lock = until.max(*lock);
        Ok(())
    }

    fn has_locks(&self) -> Result<bool> {
        Ok(true)
    }

    fn create_locked(&self, name: &Name, bytes: &[u8], until: u64) -> Result<()> {
        self.create(name, bytes)?;
        self.state().locks.insert(name.clone(), until);
        Ok(())
    }

    fn locked_until(&self, name: &Name) -> Result<Option<u64>> {
        Ok(self.locks().get(name).copied())
    }

    fn now(&self) -> Result<u64> {
        Ok(self.state().now)
    }

    fn is_local(&self) -> bool {
        true
    }
}
