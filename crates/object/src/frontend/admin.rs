//! `/health` and `/metrics`. They are unsigned, and therefore served only on the administration
//! listener or on loopback, unless the settings open them.

use super::Frontend;
use crate::metrics::{Health, Metrics, Snapshot};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Response, StatusCode};
use s3s::Body;
use std::sync::Arc;

/// Returns the state of the store. Called for each scrape: it must be quick and must not wait.
pub type SnapshotSource = Arc<dyn Fn() -> Snapshot + Send + Sync>;

impl Frontend {
    /// The answer to `/health` or `/metrics`; `None` for any other request.
    pub fn admin(&self, method: &Method, path: &str) -> Option<Response<Body>> {
        admin(self.metrics(), self.snapshot.as_ref(), method, path)
    }
}

/// The same without a frontend, for a store without S3.
pub fn admin(
    metrics: &Metrics,
    source: Option<&SnapshotSource>,
    method: &Method,
    path: &str,
) -> Option<Response<Body>> {
    if method != Method::GET && method != Method::HEAD {
        return None;
    }
    let snapshot = || source.map(|source| source());
    match path {
        "/metrics" => {
            let text = metrics.render(snapshot().as_ref());
            Some(plain(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text))
        }
        "/health" => {
            let snapshot = snapshot().unwrap_or_default();
            let status = match snapshot.health {
                Health::Healthy | Health::Degraded => StatusCode::OK,
                // Reads of lost data return the same status.
                Health::DataUnreadable => StatusCode::INTERNAL_SERVER_ERROR,
                Health::ReadOnly | Health::Down => StatusCode::SERVICE_UNAVAILABLE,
            };
            Some(plain(status, "application/json", snapshot.health_json()))
        }
        _ => None,
    }
}

fn plain(status: StatusCode, kind: &'static str, text: String) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
