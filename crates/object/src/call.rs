//! One request while it is served: its caller, its payload, and its operation.

use crate::frontend::KeyedPermit;
use crate::metrics::Metrics;
use crate::operation::Operation;
use crate::payload::Payload;
use crate::refusal::refuse;
use bytes::Bytes;
use s3s::{S3ErrorCode, S3Request, S3Result};
use std::sync::{Arc, Mutex, OnceLock};
use stele_archive::{Caller, IfRange, RequestFacts};

/// A request being served. The wire layer carries it as an extension from the connection to the
/// operation.
pub struct Call {
    /// The request's id, as the answer names it.
    pub id: String,
    /// The caller, once the signature has been verified.
    pub caller: Caller,
    /// Whether eavesdropping is impossible: the connection is encrypted, or the peer is on this
    /// machine.
    pub private: bool,
    /// The counters.
    pub metrics: Arc<Metrics>,
    /// `If-Match` of a read as sent: a list, which the wire crate does not accept.
    pub if_match: Option<String>,
    /// `If-None-Match` of a read as sent.
    pub if_none_match: Option<String>,
    /// `If-Range` of a read, which the wire crate does not know.
    pub if_range: Option<IfRange>,
    /// The request's document, if it has one: the wire crate ignores elements that it does not
    /// know.
    pub document: Bytes,
    /// The facts by which policies judge each key of a batch, and whether the caller may know of a
    /// missing key. None: no policy judges the request.
    pub facts: Option<Arc<RequestFacts>>,
    /// The copy takes no tags of its source: it had none when policies judged the request.
    pub untagged: bool,
    /// The object comes in a form of a page.
    pub form: bool,
    /// The part before `/KEY` in the URL of an object in the requested bucket.
    pub bucket_url: String,
    payload: Mutex<Option<Payload>>,
    operation: OnceLock<Operation>,
    // Held until the last byte of the answer has been handed over.
    turn: Mutex<Option<KeyedPermit>>,
}

impl Call {
    /// A call whose payload, if it streams, has not been read.
    pub fn new(
        id: String,
        caller: Caller,
        private: bool,
        metrics: Arc<Metrics>,
        payload: Option<Payload>,
        turn: KeyedPermit,
    ) -> Call {
        Call {
            id,
            caller,
            private,
            metrics,
            if_match: None,
            if_none_match: None,
            if_range: None,
            document: Bytes::new(),
            facts: None,
            untagged: false,
            form: false,
            bucket_url: String::new(),
            payload: Mutex::new(payload),
            operation: OnceLock::new(),
            turn: Mutex::new(Some(turn)),
        }
    }

    /// The call of a request in the wire layer; records its operation.
    pub fn of<T>(request: &mut S3Request<T>, operation: Operation) -> S3Result<Arc<Call>> {
        let call = request.extensions.remove::<Arc<Call>>();
        let call = call
            .ok_or_else(|| refuse(S3ErrorCode::InternalError, "The request arrived without an identified caller."))?;
        // Set once: each request enters one operation.
        let _ = call.operation.set(operation);
        Ok(call)
    }

    /// The request's operation.
    pub fn operation(&self) -> Operation {
        self.operation.get().copied().unwrap_or(Operation::Unknown)
    }

    /// Takes the payload to read it.
    pub fn take_payload(&self) -> Option<Payload> {
        self.payload.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take()
    }

    /// Admits the next request before the client has taken this one's answer.
    pub fn give_up_turn(&self) {
        drop(self.turn.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take());
    }

    /// Returns a payload that was not read to its end, so that its rest can be drained.
    pub fn return_payload(&self, payload: Payload) {
        *self.payload.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(payload);
    }
}
