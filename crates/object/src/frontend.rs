//! The S3 frontend: one request in, one answer out, with all steps around the operation itself.
//!
//! The steps in order:
//! 1. Identify the sender and verify the signature.
//! 2. Wait for a turn (bounded), and apply the limits of the body.
//! 3. Let the wire crate route and the archive act.
//! 4. Add the ids to the answer, and drain the rest of the client's data.
//!
//! An unidentified sender holds no shared resource: it gets neither a turn nor memory for a
//! document. Nothing panics on a client's data. A refusal at any step is an S3 error document.

mod access_log;
mod admin;
pub(crate) mod answer;
mod answers;
mod conditions;
mod cors;
mod document;
mod keyed;
mod policing;
mod posting;
mod prepare;
mod presigned;
pub(crate) mod range;
mod schema;
mod sts;
mod subresource;
mod turns;

pub use admin::{SnapshotSource, admin};
pub(crate) use keyed::KeyedPermit;
use keyed::KeyedSemaphore;

use crate::metrics::Metrics;
use crate::objects::Objects;
use crate::refusal::refuse;
use crate::serve::{Connections, Endpoint, Peer};
use crate::settings::Settings;
use crate::sigv4::SigningKeys;
use crate::wire::Wire;
use aws_lc_rs::rand;
use futures_util::future::BoxFuture;
use hyper::body::{Body as _, Incoming};
use hyper::header::EXPECT;
use hyper::{Method, Request, Response};
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s::{Body, S3ErrorCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};
use stele_archive::{Actor, Archive, Shares};

/// The frontend's source of the time of day.
pub type Clock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// Largest number of refusals before the archive that the audit log records in a second. Further
/// ones are only counted, so that unidentified senders cannot fill the log.
const AUDITED_PER_SECOND: u64 = 20;

/// A request that was served.
struct Served {
    response: Response<Body>,
    operation: crate::operation::Operation,
    /// The caller, as access logs name it.
    requester: String,
    /// Memory for the answer's document.
    room: Option<KeyedPermit>,
}

/// The S3 frontend of one archive.
pub struct Frontend {
    pub(crate) archive: Archive,
    objects: Objects,
    settings: Arc<Settings>,
    metrics: Arc<Metrics>,
    connections: Connections,
    keys: SigningKeys,
    service: S3Service,
    turns: KeyedSemaphore,
    /// Memory for documents, in units.
    documents: KeyedSemaphore,
    /// The same for the documents of answers.
    answers: KeyedSemaphore,
    clock: Clock,
    snapshot: Option<SnapshotSource>,
    boot: u64,
    counter: AtomicU64,
    audited: AtomicU64,
    access_logs: access_log::AccessLogs,
}

impl Frontend {
    /// A frontend on an archive. `snapshot` returns the state of the store for `/health` and
    /// `/metrics`.
    pub fn new(archive: Archive, settings: Settings, clock: Clock, snapshot: Option<SnapshotSource>) -> Arc<Frontend> {
        Frontend::with_shares(archive, None, settings, clock, snapshot)
    }

    /// As `new`, with the S3 view of shares. Without it, shares refuse every operation on their
    /// objects.
    pub fn with_shares(
        archive: Archive,
        shares: Option<Arc<dyn Shares>>,
        settings: Settings,
        clock: Clock,
        snapshot: Option<SnapshotSource>,
    ) -> Arc<Frontend> {
        let settings = Arc::new(settings);
        let objects = Objects::new(archive.clone(), shares);
        let wire = Wire { archive: archive.clone(), objects: objects.clone(), settings: settings.clone() };
        let mut boot = [0; 8];
        // Ids need not be secret. Without entropy they only repeat after each start.
        let _ = rand::fill(&mut boot);
        Arc::new(Frontend {
            archive,
            objects,
            metrics: Arc::default(),
            connections: Connections::new(&settings),
            keys: SigningKeys::default(),
            service: S3ServiceBuilder::new(wire).build(),
            turns: turns::turns(&settings),
            documents: turns::document_memory(&settings),
            answers: answers::answer_memory(&settings),
            settings,
            clock,
            snapshot,
            boot: u64::from_le_bytes(boot),
            counter: AtomicU64::new(0),
            audited: AtomicU64::new(0),
            access_logs: access_log::AccessLogs::default(),
        })
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The counters.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The counters, for a listener that serves `/metrics` alone.
    pub fn shared_metrics(&self) -> Arc<Metrics> {
        self.metrics.clone()
    }

    /// The connections, so that a caller can close them.
    pub fn connections(&self) -> &Connections {
        &self.connections
    }

    /// Answers one request.
    async fn answer_one(self: &Arc<Self>, request: Request<Incoming>, peer: &Peer) -> Response<Body> {
        let started = Instant::now();
        let id = self.next_id();
        // A bucket may be called `metrics`; a request for it is signed, presigned or has a query.
        if self.settings.open_metrics
            && request.uri().query().is_none()
            && !request.headers().contains_key(hyper::header::AUTHORIZATION)
            && let Some(answer) = self.admin(request.method(), request.uri().path())
        {
            return answer;
        }
        let under_way = self.metrics.request();
        if *request.method() == Method::OPTIONS {
            let mut response = self.preflight(request.uri(), request.headers());
            self.finish(&mut response, &id, request.uri().path(), false);
            drop(under_way);
            let operation = crate::operation::Operation::Unknown;
            self.metrics.answered(operation, response.status().as_u16(), started.elapsed());
            return response;
        }
        let crossing = self.crossing(request.method().as_str(), request.uri(), request.headers());
        let logged = self.begin_line(&request, peer);
        let head = *request.method() == Method::HEAD;
        let resource = request.uri().path().to_owned();
        let condition = answer::condition_of(request.method(), request.headers());
        // No client is invited to send an empty body.
        let uninvited = request.headers().contains_key(EXPECT) && request.body().is_end_stream();
        let Served { mut response, operation, requester, room } = match self.is_sts(&request) {
            true => {
                let (response, operation) = self.sts(request, peer, &id).await;
                Served { response, operation, requester: String::new(), room: None }
            }
            false => self.serve(request, peer, &id).await,
        };
        answer::refer_to_controls(operation, &mut response);
        answer::name_condition(condition, &mut response);
        if uninvited {
            answer::end_connection(&mut response);
        }
        if let Some(crossing) = crossing {
            self.cross(&crossing, &mut response);
        }
        if let Some(logged) = logged {
            self.end_line(&logged, &requester, &response, &id, started.elapsed());
        }
        self.finish(&mut response, &id, &resource, head);
        // The steps above replace documents.
        answers::account(&mut response, room);
        drop(under_way);
        self.metrics.answered(operation, response.status().as_u16(), started.elapsed());
        response
    }

    async fn serve(self: &Arc<Self>, request: Request<Incoming>, peer: &Peer, id: &str) -> Served {
        let prepared = match self.prepare(request, peer, id).await {
            Ok(prepared) => prepared,
            Err(mut unfit) => {
                let mut response = answer::refusal(unfit.error);
                answer::read_away(&mut response, unfit.payload.take()).await;
                let operation = crate::operation::Operation::Unknown;
                return Served { response, operation, requester: String::new(), room: None };
            }
        };
        let call = prepared.call;
        let mut response = match self.service.call(prepared.request).await {
            Ok(response) => response,
            Err(error) => {
                let source: s3s::StdError = error.into();
                tracing::error!(request = id, %source, "the wire layer failed");
                answer::refusal(refuse(S3ErrorCode::InternalError, "We encountered an internal error."))
            }
        };
        answer::correct(call.operation(), &mut response);
        if let Some(form) = prepared.form {
            form.finish(&mut response);
        }
        let rest = call.take_payload();
        if rest.is_some() {
            // The request was refused before its end: the sender may take its time, but must not
            // hold a turn.
            call.give_up_turn();
        }
        answer::read_away(&mut response, rest).await;
        let requester = match &call.caller.actor {
            Actor::Anonymous => String::new(),
            actor => actor.to_string(),
        };
        Served { response, operation: call.operation(), requester, room: prepared.room }
    }

    pub(crate) fn next_id(&self) -> String {
        // The counter makes ids distinct within a run, the starting point between runs.
        let number = self.boot.wrapping_add(self.counter.fetch_add(1, Relaxed));
        format!("{:016X}", number.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    /// Whether the audit log may record one more refusal in this second.
    fn audit_allowed(&self) -> bool {
        let now = (self.clock)().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
        // The second is in the upper bits, the count in the lower.
        let step = |state: u64| {
            let count = if state >> 16 == now & 0xFFFF_FFFF_FFFF { state & 0xFFFF } else { 0 };
            (count < AUDITED_PER_SECOND).then_some((now & 0xFFFF_FFFF_FFFF) << 16 | (count + 1))
        };
        self.audited.fetch_update(Relaxed, Relaxed, step).is_ok()
    }
}

impl Endpoint for Frontend {
    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    fn connections(&self) -> &Connections {
        &self.connections
    }

    fn answer(self: Arc<Self>, request: Request<Incoming>, peer: Peer) -> BoxFuture<'static, Response<Body>> {
        Box::pin(async move { self.answer_one(request, &peer).await })
    }
}
