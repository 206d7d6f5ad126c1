//! The key that signs the audit log.

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};

use crate::model::error::Result;
use crate::seal::{derive, open_note, seal_note, wrong_key};
use crate::store::foundation::Foundation;

/// The key that signs heads of the audit log.
pub(crate) struct Signing(Ed25519KeyPair);

impl Signing {
    /// A new key, sealed for the identity record.
    pub fn generate(foundation: &Foundation, store: &[u8; 16]) -> Vec<u8> {
        let seed = crate::seal::random_secret(&*foundation.surroundings);
        let key = derive(&foundation.master.0, "signing", store);
        seal_note(&*foundation.surroundings, &key, store, seed.as_ref())
    }

    pub fn open(foundation: &Foundation, store: &[u8; 16], sealed: &[u8]) -> Result<Signing> {
        let key = derive(&foundation.master.0, "signing", store);
        let seed = open_note(&key, store, sealed).map_err(|_| wrong_key("the signing key"))?;
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| wrong_key("the signing key"))?;
        Ok(Signing(pair))
    }

    pub fn public(&self) -> &[u8] {
        self.0.public_key().as_ref()
    }

    pub fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.0.sign(message).as_ref().to_vec()
    }
}
