//! Whether the one who began something long may still go on with it.
//!
//! A request is judged when it comes. What it begins may outlast the key: a job of a matter, a list
//! of releases, an approved request. Each step of it requires the key's row to be as it was judged.

use stele_catalog::Transaction;

use crate::model::error::{ArchiveError, Result};
use crate::model::principal::{Access, Actor, Caller, Rights, Role};
use crate::record::access_key::AccessKeyRow;
use crate::record::{ACCESS_KEYS, REVOKED, decode};
use crate::state::buckets::Bucket;
use crate::store::Store;

impl Store {
    /// Makes a transaction require that the actor is still a retention officer, or refuses.
    pub(crate) fn while_officer(&self, transaction: Transaction, actor: &Actor) -> Result<Transaction> {
        self.while_valid(transaction, actor, |rights| rights.roles.contains(&Role::RetentionOfficer))
    }

    /// Makes a transaction require that the caller's key is still valid and still has the rights
    /// with which the caller makes a change that takes `access` to an object, or refuses.
    pub(crate) fn while_allowed(
        &self,
        transaction: Transaction,
        caller: &Caller,
        access: Access,
        bucket: &Bucket,
    ) -> Result<Transaction> {
        self.while_valid(transaction, &caller.actor, |rights| caller.acts_within(rights, access, bucket.name()))
    }

    /// Makes a transaction require that the actor's key is still valid and has such rights, or
    /// refuses. A local user needs no key.
    pub(crate) fn while_valid(
        &self,
        transaction: Transaction,
        actor: &Actor,
        has: impl FnOnce(&Rights) -> bool,
    ) -> Result<Transaction> {
        let Actor::Key(id) = actor else { return Ok(transaction) };
        self.revoked(actor)?;
        let transaction = transaction.absent(REVOKED, id.clone());
        // No row of a key ever goes.
        let Some(raw) = self.snapshot()?.get(ACCESS_KEYS, id.as_bytes())? else { return Ok(transaction) };
        let row: AccessKeyRow = decode(ACCESS_KEYS, id.as_bytes(), &raw)?;
        let is_valid = row.revoked.is_none() && !row.is_pending() && !row.is_expired(self.key_now());
        match is_valid && has(&row.rights) {
            true => Ok(transaction.equals(ACCESS_KEYS, id.clone(), raw)),
            false => Err(ArchiveError::Denied(format!(
                "access key {id} has expired, was revoked or has fewer rights now; what it began does not go on"
            ))),
        }
    }
}
