//! The passwords of a repository. Each has a key object of its own.
//!
//! A damaged key keeps no other one from opening. It is found by its form, and a newer one by its
//! name, which is the beginning of its hash. Older ones have random names: there a changed salt or
//! a changed secret shows only when the password opens nothing. So the removal of a key takes a
//! password that opens another one.
//!
//! Two removals at the same time could each take the key that the other one relies on. So behind
//! its removal each looks whether its key that stays is still there. Of several, the last one to
//! remove finds that it is not, and stores again what it removed.

use std::sync::Arc;

use super::{Closed, KEYS_MAX, Repository};
use crate::crypt::{Keys, Secret, check_value, hex};
use crate::error::{BackupError, Result};
use crate::keyring::{self, Cost, KEY_BYTES_MAX, NAME_BYTES, WrappedKey, digest};
use crate::newer;
use crate::store::{Folder, Name};

/// A key in the list of a repository.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedKey {
    pub name: String,
    /// Empty if the key is damaged, or of a later version.
    pub label: String,
    /// Why no password opens the key. None: its form is right.
    pub damage: Option<String>,
    /// Why this version opens the key with no password: a later one wrote it.
    pub newer: Option<String>,
}

struct Wrapped {
    /// Those that can be read.
    keys: Vec<(Name, WrappedKey)>,
    /// Why the store did not give another one.
    unread: Option<BackupError>,
}

impl Closed {
    /// The objects in the folder of the keys with their sizes, oldest first.
    fn key_objects(&self) -> Result<Vec<(Name, u64)>> {
        let mut found = Vec::new();
        self.store.list(Folder::Keys, &mut |listed| {
            found.push((listed.stored, listed.name, listed.size));
            Ok(())
        })?;
        found.sort();
        Ok(found.into_iter().map(|(_, name, size)| (name, size)).collect())
    }

    fn wrapped_keys(&self) -> Result<Wrapped> {
        let (mut keys, mut unread) = (Vec::new(), None);
        // No key keeps the others from opening, whatever happened to it.
        for name in tried(&self.key_objects()?) {
            match self.store.get(&name, KEY_BYTES_MAX) {
                Ok(bytes) => keys.extend(WrappedKey::decode(&bytes).ok().map(|key| (name, key))),
                Err(BackupError::Damaged(_) | BackupError::Missing(_)) => {}
                Err(error) => unread = unread.or(Some(error)),
            }
        }
        Ok(Wrapped { keys, unread })
    }

    /// All keys that can open the repository and the damaged ones beside them. Reads and checks
    /// each, as far as that goes without its password.
    pub fn keys_listed(&self) -> Result<Vec<ListedKey>> {
        let (mut keys, objects) = (Vec::new(), self.key_objects()?);
        for name in tried(&objects) {
            let read = self.store.get(&name, KEY_BYTES_MAX);
            let (label, damage, newer) = match read.and_then(|bytes| check_key(&name, &bytes)) {
                Ok(label) => (label, None, None),
                // It was removed meanwhile.
                Err(BackupError::Missing(_)) => continue,
                Err(BackupError::Damaged(text)) => (String::new(), Some(text), None),
                Err(BackupError::Newer(text)) => (String::new(), None, Some(text)),
                Err(error) => return Err(error),
            };
            keys.push(ListedKey { name: name.last().to_owned(), label, damage, newer });
        }
        let long = objects.iter().filter(|(_, size)| *size > KEY_BYTES_MAX).take(KEYS_MAX);
        keys.extend(long.map(|(name, size)| ListedKey {
            name: name.last().to_owned(),
            label: String::new(),
            damage: Some(format!("it has {size} bytes, and a key has at most {KEY_BYTES_MAX}")),
            newer: None,
        }));
        Ok(keys)
    }

    /// The first key that the password opens, and the secret.
    fn unwrap(&self, password: &[u8], is_tried: impl Fn(&Name) -> bool) -> Result<(Name, Secret)> {
        let Wrapped { keys, unread } = self.wrapped_keys()?;
        let mut keys = keys.into_iter().filter(|(name, _)| is_tried(name));
        let opened = keys.find_map(|(name, key)| {
            let secret = key.open(password).ok()??;
            (check_value(&secret) == self.header.check).then_some((name, secret))
        });
        // The password may be that of a key that could not be read.
        opened.ok_or(unread.unwrap_or(BackupError::WrongPassword))
    }

    /// Says of a wrong password that it may be that of a key of a later version.
    fn unopened(&self, error: BackupError) -> BackupError {
        if error != BackupError::WrongPassword {
            return error;
        }
        let keys = self.keys_listed().unwrap_or_default();
        match keys.into_iter().find_map(|key| Some((key.name, key.newer?))) {
            Some((name, text)) => BackupError::Newer(format!(
                "the password opens no key that this program reads; it may be that of key {name}: {text}, or give \
                 another password"
            )),
            None => error,
        }
    }

    pub(super) fn open_by_password(self, password: &[u8]) -> Result<Repository> {
        let (_, secret) = self.unwrap(password, |_| true).map_err(|error| self.unopened(error))?;
        Ok(Repository { closed: self, keys: Arc::new(Keys::new(secret)) })
    }

    /// Removes a key, also a damaged one. The password must open another key, so that no damaged
    /// key is the last one.
    pub fn remove_key(&self, key: &str, staying: &[u8]) -> Result<()> {
        let objects = self.key_objects()?;
        let found = objects.iter().map(|(name, _)| name).find(|name| name.last() == key);
        let found = found.ok_or_else(|| BackupError::Missing(format!("the repository has no key {key}")))?;
        match self.unwrap(staying, |name| name != found) {
            Ok((stays, _)) => self.remove_beside(found, &stays),
            Err(BackupError::WrongPassword) if objects.len() == 1 => {
                Err(BackupError::Refused("this is the last key; add another one first".to_owned()))
            }
            Err(BackupError::WrongPassword) => Err(BackupError::Refused(format!(
                "the password opens no key but {key}, so all others may be damaged: give the password of a key that \
                 stays, or add one first"
            ))),
            Err(error) => Err(error),
        }
    }

    /// Removes a key, and takes that back if the key that stays has gone meanwhile.
    fn remove_beside(&self, key: &Name, stays: &Name) -> Result<()> {
        // A key that cannot be read opens nothing: no other removal relies on it.
        let bytes = self.store.get(key, KEY_BYTES_MAX).ok();
        self.store.remove(key)?;
        match self.store.get_range(stays, 0..1) {
            Err(BackupError::Missing(_)) => {}
            // It is there. Damage of this moment is no matter of the removal.
            Ok(_) | Err(BackupError::Damaged(_)) => return Ok(()),
            Err(error) => return Err(error),
        }
        match bytes.map(|bytes| self.store.create(key, &bytes)) {
            None | Some(Ok(()) | Err(BackupError::Exists(_))) => {}
            Some(Err(error)) => return Err(error),
        }
        Err(BackupError::Locked(format!(
            "another command removed key {}, which was to stay, at the same time: key {} was not removed; look at the \
             list of the keys, and repeat the command",
            stays.last(),
            key.last()
        )))
    }
}

/// The names of the oldest keys, no more than a repository may have: keys that an intruder planted
/// neither keep the others from opening nor cost attempts. A longer object is no key, and each
/// would cost a request.
fn tried(objects: &[(Name, u64)]) -> Vec<Name> {
    objects.iter().filter(|(_, size)| *size <= KEY_BYTES_MAX).take(KEYS_MAX).map(|(name, _)| name.clone()).collect()
}

/// The label of a key whose form is right, and whose name if that is the beginning of its hash. A
/// key of a later version is told from a damaged one by its name alone.
fn check_key(name: &Name, bytes: &[u8]) -> Result<String> {
    if let Some(error) = newer::refusal("the key", bytes, &keyring::MAGIC)
        && name.id() == Some(digest(bytes))
    {
        return Err(error);
    }
    let key = WrappedKey::decode(bytes)?;
    key.check()?;
    match name.id::<NAME_BYTES>() {
        Some(expected) if expected != digest(bytes) => Err(BackupError::damaged("its hash differs")),
        _ => Ok(key.label),
    }
}

impl Repository {
    /// Adds a password, and returns the name of its key.
    pub fn add_key(&self, password: &[u8], label: &str, cost: Cost) -> Result<String> {
        if tried(&self.key_objects()?).len() >= KEYS_MAX {
            return Err(BackupError::Full(format!("the repository has {KEYS_MAX} keys, the most that it may have")));
        }
        let bytes = WrappedKey::new(self.keys.secret(), password, label, cost, self.salt())?.encode();
        let id = digest(&bytes);
        self.store.create(&Name::of(Folder::Keys, &id), &bytes)?;
        Ok(hex(&id))
    }
}

#[cfg(test)]
mod tests;
