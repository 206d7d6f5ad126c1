//! Sessions: temporary credentials by which an access key lends its rights, or a part of them.
//!
//! A session is not stored. Its token carries everything about it, sealed under a key that only the
//! server has, and bound to the temporary access key. This has four reasons. Sessions take one
//! audit record each, and no row that would have to be removed at their end. They survive restarts.
//! A token cannot be changed, since the seal authenticates it. Each request reads the lending key
//! again, so its revocation, narrowing or end binds every session at once. The price is that one
//! session alone cannot be ended early; revoking its key ends all of them.
//!
//! A session never has more rights than its key has at that moment. Its policy only takes rights
//! away. A session cannot make another session, so none prolongs itself.
//!
//! Failure model: everything that a client sends may be invented. A token that does not open,
//! belongs to another temporary key, or was made by another store is refused without a difference.
//! The temporary secret is in the token, so the seal must also hide it.

use std::sync::Arc;

use minicbor::{Decode, Encode};
use zeroize::Zeroizing;

use crate::audit::Event;
use crate::model::action::Action;
use crate::model::checksum::{from_base64, to_base64};
use crate::model::error::{ArchiveError, Result};
use crate::model::policy::Policy;
use crate::model::principal::{Actor, Caller, Credentials, Session};
use crate::model::time::{SECOND, Timestamp};
use crate::record::encode;
use crate::seal::{Secret, derive, open_note, seal_note};
use crate::state::sessions::SESSIONS;
use crate::store::{Archive, Store};

/// The life of a session, in seconds, as AWS limits it.
pub const SESSION_SECONDS: std::ops::RangeInclusive<u64> = 900..=12 * 3600;
/// The life of a session whose request names none.
pub const SESSION_SECONDS_DEFAULT: u64 = 3600;
/// Bytes of the policy of a session.
pub const SESSION_POLICY_BYTES_MAX: usize = 2048;
/// Bytes of a session's name.
const NAME_BYTES: std::ops::RangeInclusive<usize> = 2..=64;
/// Characters of a token: the longest policy and name, the secret, and the seal, in base64.
const TOKEN_CHARS_MAX: usize = 4096;
/// Milliseconds by which the clock may go back after a session was made.
const CLOCK_TOLERANCE: u64 = 15 * 60 * SECOND;
/// How the ids of temporary keys begin. Those of access keys begin with `STELE`.
const PREFIX: &str = "STEMP";

/// A request for a session.
#[derive(Clone, Debug, Default)]
pub struct SessionRequest {
    pub name: String,
    pub seconds: u64,
    /// The document of its policy.
    pub policy: Option<String>,
}

/// Temporary credentials. They are shown only here.
pub struct NewSession {
    pub id: String,
    pub secret: Zeroizing<String>,
    pub token: Zeroizing<String>,
    /// The end by the system clock, for the client.
    pub expires: Timestamp,
    /// The access key that lends its rights.
    pub key: String,
}

/// What a token says.
#[derive(Encode, Decode)]
struct Token {
    /// The access key that lends its rights.
    #[n(0)]
    key: String,
    #[n(1)]
    name: String,
    /// By [`Store::key_now`].
    #[n(2)]
    expires: Timestamp,
    #[n(3)]
    secret: String,
    #[n(4)]
    policy: Option<String>,
    /// When it was made, by the same clock.
    #[n(5)]
    made: Timestamp,
}

impl Drop for Token {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.secret);
    }
}

impl Store {
    fn token_key(&self) -> Secret {
        derive(&self.master().0, "session tokens", self.id())
    }
}

impl Archive {
    /// Makes temporary credentials of the caller's access key.
    pub async fn create_session(&self, caller: &Caller, request: SessionRequest) -> Result<NewSession> {
        let made = self.try_session(caller, request).await;
        self.store().audited(made, || Event::new(caller, Action::CreateAccessKey).detail("a session".into())).await
    }

    async fn try_session(&self, caller: &Caller, request: SessionRequest) -> Result<NewSession> {
        let store = &self.store();
        store.writable()?;
        let Actor::Key(key) = &caller.actor else {
            return Err(ArchiveError::Denied(format!("{} has no access key whose rights to lend", caller.actor)));
        };
        if caller.session.is_some() {
            return Err(ArchiveError::Denied("a session cannot make another session; sign with an access key".into()));
        }
        check(&request)?;
        if !store.sessions().admit(key, store.surroundings().now()) {
            return Err(ArchiveError::Busy(format!(
                "access key {key} made {} sessions, and gets one more every {} seconds; use a session until it ends",
                SESSIONS.burst,
                SESSIONS.every / SECOND
            )));
        }
        let now = store.key_now();
        let end = Timestamp(now.0.saturating_add(request.seconds.saturating_mul(SECOND)));
        let own = self.credentials(key).await?.expires;
        let end = own.map_or(end, |own| end.min(own));
        let id = format!("{PREFIX}{}", *store.random_text(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", 15));
        let secret = store.random_text(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", 40);
        let token = Token {
            key: key.clone(),
            name: request.name,
            expires: end,
            secret: secret.to_string(),
            policy: request.policy,
            made: now,
        };
        let plain = Zeroizing::new(encode(&token).to_vec());
        let sealed = seal_note(store.surroundings(), &store.token_key(), id.as_bytes(), &plain);
        // The client compares the end with its own clock, which is rather the system's than the
        // compliance clock.
        let expires = Timestamp(store.wall().0.saturating_add(end.0.saturating_sub(now.0)));
        let limits = if token.policy.is_some() { ", limited by a policy" } else { "" };
        let detail = format!("session {id} ({}) of {key}; expires {end}{limits}", token.name);
        let event = Event::new(caller, Action::CreateAccessKey).detail(detail);
        store.record(stele_catalog::Transaction::new(), event).await?;
        Ok(NewSession { id, secret, token: Zeroizing::new(to_base64(&sealed)), expires, key: key.clone() })
    }

    /// The temporary secret of a session, and the caller that it stands for once the signature is
    /// verified.
    pub async fn session_credentials(&self, id: &str, token: &str) -> Result<Credentials> {
        let store = &self.store();
        let invalid = || ArchiveError::InvalidToken("the session token is malformed or of another session".into());
        if token.len() > TOKEN_CHARS_MAX || !id.starts_with(PREFIX) {
            return Err(invalid());
        }
        let sealed = from_base64(token).ok_or_else(invalid)?;
        let plain = open_note(&store.token_key(), id.as_bytes(), &sealed).map_err(|_| invalid())?;
        let plain = Zeroizing::new(plain);
        let token: Token = minicbor::decode(&plain).map_err(|_| invalid())?;
        let ended = || ArchiveError::ExpiredAccessKey(id.into());
        // One of the future was made while the clock was wrong, and would last until then.
        let now = store.key_now();
        if token.expires <= now || token.made.0 > now.0.saturating_add(CLOCK_TOLERANCE) {
            return Err(ended());
        }
        let lender = self.credentials(&token.key).await.map_err(|error| match error {
            ArchiveError::NoSuchAccessKey(_) | ArchiveError::ExpiredAccessKey(_) => ended(),
            other => other,
        })?;
        let policy = match &token.policy {
            Some(document) => Some(Policy::parse_session(document).map_err(|_| invalid())?),
            None => None,
        };
        let session = Session { id: id.into(), name: token.name.clone(), policy };
        let caller = Caller { session: Some(Arc::new(session)), ..lender.caller };
        Ok(Credentials { secret: Zeroizing::new(token.secret.clone()), caller, expires: Some(token.expires) })
    }
}

fn check(request: &SessionRequest) -> Result<()> {
    let refuse = |message: String| Err(ArchiveError::InvalidArgument(message));
    if !SESSION_SECONDS.contains(&request.seconds) {
        return refuse(format!(
            "a session lasts {} to {} seconds, not {}",
            SESSION_SECONDS.start(),
            SESSION_SECONDS.end(),
            request.seconds
        ));
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"+=,.@_-".contains(&byte);
    if !NAME_BYTES.contains(&request.name.len()) || !request.name.bytes().all(plain) {
        return refuse("the name of a session has 2 to 64 letters, digits or characters of `+=,.@_-`".into());
    }
    if let Some(document) = &request.policy {
        if document.len() > SESSION_POLICY_BYTES_MAX {
            return refuse(format!("the policy of a session has at most {SESSION_POLICY_BYTES_MAX} bytes"));
        }
        Policy::parse_session(document).map_err(ArchiveError::InvalidArgument)?;
    }
    Ok(())
}
