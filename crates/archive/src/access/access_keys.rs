//! Access keys: creation, listing, narrowing, revocation, and the lookup by frontends that check
//! signatures.
//!
//! Secrets are stored sealed. A decoded key stays in memory, and counts only while the catalog
//! holds the row that it came from.

use std::sync::Arc;

use bytes::Bytes;
use stele_catalog::{Direction, KeyRange, Transaction};
use zeroize::Zeroizing;

use crate::access::expiry::{KeyLife, quota_in_words};
use crate::audit::Event;
use crate::model::action::Action;
use crate::model::bucket::{Quota, TESTER};
use crate::model::error::{ArchiveError, Result};
use crate::model::principal::{AccessKeyInfo, Actor, Caller, Credentials, NewAccessKey, Rights, Role};
use crate::record::access_key::AccessKeyRow;
use crate::record::content::Place;
use crate::record::settings::OFFICERS;
use crate::record::{ACCESS_KEYS, REVOKED, SETTINGS, decode, encode};
use crate::seal::{Secret, derive, open_note, seal_note, wrong_key};
use crate::state::caches::KnownKey;
use crate::state::key_locks::KeyLock;
use crate::state::owned::owned;
use crate::store::scan::scan;
use crate::store::{Archive, Store};

/// Bytes of a key's description, and of its rights in words.
const DESCRIPTION_MAX: usize = 256;
const RIGHTS_MAX: usize = 2048;
/// Officers whose keys the first set-up makes without approval.
const FIRST_OFFICERS: u64 = 2;

impl Store {
    fn access_keys(&self) -> Result<Vec<AccessKeyInfo>> {
        let (snapshot, now) = (self.snapshot()?, self.key_now());
        let mut keys = Vec::new();
        let mut range = KeyRange::all();
        loop {
            let page = snapshot.range(ACCESS_KEYS, &range, 1000, Direction::Forward)?;
            let Some((last, _)) = page.last() else { return Ok(keys) };
            range = KeyRange::all().after(last.clone());
            for (key, value) in &page {
                let row: AccessKeyRow = decode(ACCESS_KEYS, key, value)?;
                let id = String::from_utf8_lossy(key);
                keys.push(row.info(&id, now, owned(&*snapshot, &id)?));
            }
        }
    }

    /// How many officers' keys were ever valid, and the row that stores that number. Revoked and
    /// narrowed keys count too, so that revoking or narrowing all of them does not begin the set-up
    /// again. Older stores and rebuilt catalogs have no row; there the keys are counted.
    fn officers_ever(&self) -> Result<(u64, Option<Bytes>)> {
        match self.snapshot()?.get(SETTINGS, OFFICERS)? {
            Some(raw) => Ok((decode(SETTINGS, OFFICERS, &raw)?, Some(raw))),
            None => {
                let mut officers = 0;
                scan(self.catalog(), ACCESS_KEYS, |key, value| {
                    officers += u64::from(decode::<AccessKeyRow>(ACCESS_KEYS, key, value)?.was_officer());
                    Ok(())
                })?;
                Ok((officers, None))
            }
        }
    }

    /// Revokes a key that waits for approval, in the transaction that ends its request. False: the
    /// key does not wait, and nothing was done.
    pub(crate) async fn revoke_waiting(
        self: &Arc<Store>,
        id: &str,
        over: Transaction,
        mut event: Event,
    ) -> Result<bool> {
        let lock = self.lock_named::<AccessKeyRow>(id).await?;
        let Some(raw) = self.snapshot()?.get(ACCESS_KEYS, id.as_bytes())? else { return Ok(false) };
        let mut row: AccessKeyRow = decode(ACCESS_KEYS, id.as_bytes(), &raw)?;
        if row.revoked.is_some() || !row.is_pending() {
            return Ok(false);
        }
        row.revoked = Some(self.wall());
        let over = over.equals(ACCESS_KEYS, id.to_string(), raw).put(REVOKED, id.to_string(), Bytes::new());
        event.prefix_detail(format!("access key {id}, which waited for it, is revoked"));
        let answer = self.write_named(id, row, over, Some(event), lock).await?;
        self.compensated(answer).await?;
        Ok(true)
    }

    fn secret_key(&self) -> Secret {
        derive(&self.master().0, "access keys", self.id())
    }
}

impl Archive {
    /// The secret of an access key, and the caller that it stands for once the signature is
    /// verified.
    pub async fn credentials(&self, id: &str) -> Result<Credentials> {
        self.credentials_of(id, false).await
    }

    /// As [`Archive::credentials`], also for a key that the matter `rebuild` suspends, in order to
    /// decide about the matter.
    pub async fn officer_credentials(&self, id: &str) -> Result<Credentials> {
        self.credentials_of(id, true).await
    }

    async fn credentials_of(&self, id: &str, even_suspended: bool) -> Result<Credentials> {
        let store = &self.store();
        let missing = || ArchiveError::NoSuchAccessKey(id.into());
        if let Some(secret) = store.upkeep().tester_secret(id) {
            return Ok(Credentials { secret, caller: Caller::system(TESTER), expires: None });
        }
        if !even_suspended && store.suspends(id) {
            return Err(missing());
        }
        // Read from the catalog each time: a key is void from the moment its revocation is
        // committed.
        let raw = store.snapshot()?.get(ACCESS_KEYS, id.as_bytes())?.ok_or_else(missing)?;
        let known = store.caches().access_key(id).filter(|known| known.raw == raw);
        let known = match known {
            Some(known) => known,
            None => {
                let row: AccessKeyRow = decode(ACCESS_KEYS, id.as_bytes(), &raw)?;
                if row.revoked.is_some() || row.is_pending() {
                    return Err(missing());
                }
                let secret = open_note(&store.secret_key(), id.as_bytes(), &row.secret)
                    .map_err(|_| wrong_key(&format!("the secret of access key {id}")))?;
                let secret = String::from_utf8(secret)
                    .map_err(|_| ArchiveError::damaged(format!("access key {id}"), "its secret is not text"))?;
                let (secret, rights) = (Zeroizing::new(secret), Arc::new(row.rights));
                let known = Arc::new(KnownKey { secret, rights, expires: row.expires, raw });
                store.caches().keep_access_key(id, Arc::clone(&known));
                known
            }
        };
        if known.expires.is_some_and(|expires| expires <= store.key_now()) {
            return Err(ArchiveError::ExpiredAccessKey(id.into()));
        }
        let caller = Caller {
            actor: Actor::Key(id.into()),
            rights: Arc::clone(&known.rights),
            origin: None,
            peer: None,
            gateway: false,
            path: None,
            session: None,
        };
        Ok(Credentials { secret: known.secret.clone(), caller, expires: known.expires })
    }

    /// Creates an access key. Once there have been two officers, a further officer's key is void
    /// until another officer approves it.
    pub async fn create_access_key(&self, caller: &Caller, description: &str, rights: Rights) -> Result<NewAccessKey> {
        self.make_access_key(caller, description, rights, None, Quota::default(), false).await
    }

    /// As [`Archive::create_access_key`], for a key that ends by itself.
    pub async fn create_expiring_access_key(
        &self,
        caller: &Caller,
        description: &str,
        rights: Rights,
        life: KeyLife,
    ) -> Result<NewAccessKey> {
        self.make_access_key(caller, description, rights, Some(life), Quota::default(), false).await
    }

    /// As [`Archive::create_expiring_access_key`], for a key that may own only so much.
    pub async fn create_limited_access_key(
        &self,
        caller: &Caller,
        description: &str,
        rights: Rights,
        life: KeyLife,
        quota: Quota,
    ) -> Result<NewAccessKey> {
        self.make_access_key(caller, description, rights, Some(life), quota, false).await
    }

    /// Creates a new officer's key after all officers were lost. It becomes valid after a month
    /// unless an officer refuses it. An alarm stands through that month.
    pub async fn create_officer_after_loss(&self, caller: &Caller, description: &str) -> Result<NewAccessKey> {
        self.make_access_key(caller, description, Rights::officer(), None, Quota::default(), true).await
    }

    /// As `create_access_key`. `lost`: no officer is left to approve, so the key takes a waiting
    /// time instead.
    async fn make_access_key(
        &self,
        caller: &Caller,
        description: &str,
        rights: Rights,
        life: Option<KeyLife>,
        quota: Quota,
        lost: bool,
    ) -> Result<NewAccessKey> {
        self.store().writable()?;
        let allowed = caller.require_role(&[Role::StorageAdministrator], Action::CreateAccessKey);
        self.store().audited(allowed, || Event::new(caller, Action::CreateAccessKey)).await?;
        let said = rights.to_string();
        if description.len() > DESCRIPTION_MAX || said.len() > RIGHTS_MAX {
            // The audit record holds both in full.
            return Err(ArchiveError::InvalidArgument(format!(
                "an access key's name has at most {DESCRIPTION_MAX} bytes and its rights, in words, {RIGHTS_MAX}; make several keys"
            )));
        }
        let expires = life.map(|life| self.store().end_of(life)).transpose()?.flatten();
        let (id, secret) = self.store().random_credentials();
        let mut transaction = Transaction::new().absent(ACCESS_KEYS, id.clone());
        let mut pending = false;
        if rights.approves() {
            let (officers, counted) = self.store().officers_ever()?;
            // Under the matter `rebuild`, officers' keys may be among the losses. It is then no
            // first set-up.
            pending = officers >= FIRST_OFFICERS || self.store().doubt().is_some();
            if lost && !pending {
                // The option is for a wait under an alarm, and would make a valid key at once.
                return Err(ArchiveError::InvalidState(format!(
                    "no officer is lost: a new officer needs no approval before {FIRST_OFFICERS} were made; create this one as the first ones are"
                )));
            }
            if !pending {
                // Of two keys that are made at once, only one can be the last of the set-up.
                transaction = match counted {
                    Some(raw) => transaction.equals(SETTINGS, OFFICERS, raw),
                    None => transaction.absent(SETTINGS, OFFICERS),
                };
                transaction = transaction.put(SETTINGS, OFFICERS, encode(&(officers + 1)));
            }
        }
        let officer = (rights.approves() && !pending).then_some(true);
        let row = AccessKeyRow {
            description: description.into(),
            rights,
            created: self.store().wall(),
            revoked: None,
            secret: seal_note(
                self.store().surroundings(),
                &self.store().secret_key(),
                id.as_bytes(),
                secret.as_bytes(),
            ),
            change: 0,
            note: Place::default(),
            pending: pending.then_some(true),
            officer,
            expires,
            quota: (quota != Quota::default()).then_some(quota),
        };
        let mut detail = format!("{id} ({description}): {said}");
        if let Some(expires) = expires {
            detail = format!("{detail}; expires {expires}");
            self.store().raise_for_expiry().await?;
        }
        if row.quota.is_some() {
            detail = format!("{detail}; {}", quota_in_words(quota));
        }
        let mut awaits = None;
        if pending {
            let asked = self.store().ask_for_officer(transaction, caller, (&id, description, expires), lost);
            let asked = self.store().audited(asked, || Event::new(caller, Action::CreateAccessKey)).await;
            let (request, says, with_request) = asked?;
            transaction = with_request;
            detail = format!("{detail}; void until request {request} is approved: {says}");
            awaits = Some(request);
        }
        let event = Event::new(caller, Action::CreateAccessKey).detail(detail);
        let lock = self.store().lock_named::<AccessKeyRow>(&id).await?;
        self.write_access_key(&id, row, transaction, event, lock).await?;
        Ok(NewAccessKey { id, secret, awaits })
    }

    pub(super) async fn write_access_key(
        &self,
        id: &str,
        row: AccessKeyRow,
        transaction: Transaction,
        event: Event,
        lock: KeyLock,
    ) -> Result<()> {
        let answer = self.store().write_named(id, row, transaction, Some(event), lock).await?;
        self.store().compensated(answer).await
    }

    pub async fn list_access_keys(&self, caller: &Caller) -> Result<Vec<AccessKeyInfo>> {
        let allowed = caller.require_role(&[Role::StorageAdministrator, Role::Auditor], Action::Read);
        self.store().audited(allowed, || Event::new(caller, Action::Read)).await?;
        self.store().access_keys()
    }

    /// Revokes a key for good. Its row stays, so that audit records keep their meaning.
    pub async fn revoke_access_key(&self, caller: &Caller, id: &str) -> Result<()> {
        let store = &self.store();
        store.writable()?;
        let allowed = caller.require_role(&[Role::StorageAdministrator], Action::RevokeAccessKey);
        store.audited(allowed, || Event::new(caller, Action::RevokeAccessKey).detail(id.into())).await?;
        let lock = store.lock_named::<AccessKeyRow>(id).await?;
        let snapshot = store.snapshot()?;
        let raw = snapshot.get(ACCESS_KEYS, id.as_bytes())?.ok_or_else(|| ArchiveError::NoSuchAccessKey(id.into()))?;
        let mut row: AccessKeyRow = decode(ACCESS_KEYS, id.as_bytes(), &raw)?;
        if row.revoked.is_some() {
            return Err(ArchiveError::NoSuchAccessKey(id.into()));
        }
        row.revoked = Some(store.wall());
        // Changes that the key has under way require that this row is absent, so none of them is
        // committed any more.
        let unchanged = Transaction::new().with_reserve().equals(ACCESS_KEYS, id.to_string(), raw).put(
            REVOKED,
            id.to_string(),
            Bytes::new(),
        );
        let event = Event::new(caller, Action::RevokeAccessKey).detail(id.into());
        self.write_access_key(id, row, unchanged, event, lock).await
    }

    /// Reduces the rights of a key to these, which must be within its present rights. The rights of
    /// a key never grow; a caller that needs more rights needs another key.
    pub async fn narrow_access_key(&self, caller: &Caller, id: &str, rights: Rights) -> Result<AccessKeyInfo> {
        let said = rights.to_string();
        let result = self.try_narrow(caller, id, rights, &said).await;
        let event = || Event::new(caller, Action::NarrowAccessKey).detail(format!("{id}: {said}"));
        self.store().audited(result, event).await
    }

    async fn try_narrow(&self, caller: &Caller, id: &str, rights: Rights, said: &str) -> Result<AccessKeyInfo> {
        let store = &self.store();
        store.writable()?;
        caller.require_role(&[Role::StorageAdministrator], Action::NarrowAccessKey)?;
        let lock = store.lock_named::<AccessKeyRow>(id).await?;
        let missing = || ArchiveError::NoSuchAccessKey(id.into());
        let raw = store.snapshot()?.get(ACCESS_KEYS, id.as_bytes())?.ok_or_else(missing)?;
        let mut row: AccessKeyRow = decode(ACCESS_KEYS, id.as_bytes(), &raw)?;
        if row.revoked.is_some() {
            return Err(missing());
        }
        if row.is_pending() {
            return Err(ArchiveError::InvalidState(format!(
                "access key {id} waits for approval; revoke it and create another"
            )));
        }
        if !rights.is_within(&row.rights) {
            return Err(ArchiveError::Denied(format!(
                "access key {id} has fewer rights than that: {}; create another key for more",
                row.rights
            )));
        }
        if rights.approves() && !row.rights.approves() {
            return Err(ArchiveError::Denied(format!(
                "access key {id} is a storage administrator's; without that role it would be a retention officer's, \
                 and those are made new and approved; create an officer's key, and narrow this one to other roles or \
                 revoke it"
            )));
        }
        // It stays known that the key was an officer's: a catalog that is rebuilt has only the
        // keys' notes.
        row.officer = row.was_officer().then_some(true);
        row.rights = rights;
        let info = row.info(id, store.key_now(), owned(&*store.snapshot()?, id)?);
        let unchanged = Transaction::new().with_reserve().equals(ACCESS_KEYS, id.to_string(), raw);
        let event = Event::new(caller, Action::NarrowAccessKey).detail(format!("{id}: {said}"));
        self.write_access_key(id, row, unchanged, event, lock).await?;
        Ok(info)
    }

    /// Records a refusal that a frontend made before the request reached the archive: wrong
    /// signature, expired, unknown key.
    pub async fn audit_refusal(&self, caller: &Caller, action: &str, place: &str, reason: &str) -> Result<()> {
        let event = Event::new(caller, Action::Frontend).detail(format!("{action} {place}")).refused(reason.into());
        self.store().record_refusal(event).await
    }

    /// Records an operator's action below the archive, or its refusal: a volume created, a drive
    /// replaced, a quorum overridden.
    pub async fn audit_administration(&self, caller: &Caller, detail: &str, refused: Option<&str>) -> Result<()> {
        let event = Event::new(caller, Action::Administer).detail(detail.into());
        if let Some(refused) = refused {
            return self.store().record_refusal(event.refused(refused.into())).await;
        }
        self.store().record(Transaction::new().with_reserve(), event).await.map(drop)
    }
}
