//! What goes with a change of the catalog, in the same steps on the share's state.
//!
//! What clients are shown of a file comes from its row and from what writes changed since. Both
//! must turn in one step: a client that compares two answers would otherwise take other content for
//! the one that it has.

use super::Share;
use super::core::Core;
use super::tree::Numbers;
use super::view::Change;
use crate::files::Changed;
use crate::{Attributes, FileError, Inode, Moment, Result};

/// Looks at the share's state before a change is computed, and once others see it, and once it is
/// answered.
pub trait Around {
    /// In the step that computes the change. An error refuses it.
    fn before(&mut self, _core: &mut Core) -> Result<()> {
        Ok(())
    }

    /// In the same step: rows show the change.
    fn submitted(&mut self, _core: &mut Core) -> Result<()> {
        Ok(())
    }

    /// In the step that settles it.
    fn settled(&mut self, _core: &mut Core, _took_place: bool) {}
}

impl Around for () {}

/// The attributes of a file at both sides of its change.
pub struct Watched {
    inode: u64,
    /// The change time that it must have.
    guard: Option<Moment>,
    before: Option<Attributes>,
    after: Option<Attributes>,
}

impl Watched {
    pub fn new(inode: Inode, guard: Option<Moment>) -> Watched {
        Watched { inode: inode.0, guard, before: None, after: None }
    }

    fn changed(self) -> Result<Changed> {
        match (self.before, self.after) {
            (Some(before), Some(after)) => Ok(Changed { before, after }),
            _ => Err(FileError::Retry("the file was not looked at; try again".into())),
        }
    }
}

impl Around for Watched {
    fn before(&mut self, core: &mut Core) -> Result<()> {
        let before = core.attributes(self.inode)?;
        guarded(self.guard, &before)?;
        self.before = Some(before);
        Ok(())
    }

    fn submitted(&mut self, core: &mut Core) -> Result<()> {
        self.after = Some(core.attributes(self.inode)?);
        Ok(())
    }
}

/// Refuses where the file has not the change time that its client knows.
pub fn guarded(guard: Option<Moment>, now: &Attributes) -> Result<()> {
    match guard.is_some_and(|guard| guard != now.changed) {
        true => Err(FileError::NotSynchronized),
        false => Ok(()),
    }
}

impl Share {
    /// Changes a file, and answers its attributes before and after, as of the moment of the change.
    pub(super) async fn change_watched<T>(
        &self,
        mut watched: Watched,
        act: impl FnMut(&mut Change<'_>, &mut Numbers) -> Result<T>,
    ) -> Result<Changed> {
        self.change_around(&mut watched, act).await?;
        watched.changed()
    }
}
