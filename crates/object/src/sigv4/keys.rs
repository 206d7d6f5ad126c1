//! Signing keys, derived once for a secret, day, region and service, and cached.
//!
//! Limit: 1,024 scopes. At the limit the table is cleared, and keys are derived again at five HMACs
//! a scope. Unidentified senders cannot fill the table, since only known access keys are looked up.

use aws_lc_rs::hmac;
use std::collections::HashMap;
use std::sync::Mutex;
use zeroize::Zeroizing;

const SCOPES_MAX: usize = 1024;

#[derive(PartialEq, Eq, Hash)]
struct Scope {
    access_key: Box<str>,
    date: Box<str>,
    region: Box<str>,
    service: Box<str>,
}

struct Derived {
    // A rotated secret must not keep verifying: the entry is used only for the secret that it came
    // from.
    secret: Zeroizing<String>,
    key: hmac::Key,
}

/// The table of derived signing keys.
#[derive(Default)]
pub struct SigningKeys {
    derived: Mutex<HashMap<Scope, Derived>>,
}

impl SigningKeys {
    /// The signing key of a scope.
    pub fn key(&self, access_key: &str, secret: &str, date: &str, region: &str, service: &str) -> hmac::Key {
        let scope =
            Scope { access_key: access_key.into(), date: date.into(), region: region.into(), service: service.into() };
        let mut derived = self.derived.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(found) = derived.get(&scope)
            && found.secret.as_str() == secret
        {
            return found.key.clone();
        }
        let key = derive(secret, date, region, service);
        if derived.len() >= SCOPES_MAX {
            derived.clear();
        }
        let secret = Zeroizing::new(secret.to_owned());
        derived.insert(scope, Derived { secret, key: key.clone() });
        key
    }
}

/// The derivation as AWS specifies it.
pub fn derive(secret: &str, date: &str, region: &str, service: &str) -> hmac::Key {
    let sign = |key: &[u8], text: &str| hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes());
    let root = Zeroizing::new(format!("AWS4{secret}"));
    let dated = sign(root.as_bytes(), date);
    let regional = sign(dated.as_ref(), region);
    let serving = sign(regional.as_ref(), service);
    let signing = sign(serving.as_ref(), "aws4_request");
    hmac::Key::new(hmac::HMAC_SHA256, signing.as_ref())
}
