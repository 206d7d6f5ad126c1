//! Lists of files: an array of names (version 1), or of names and sizes (version 2).
//!
//! The answer streams page by page, so that its memory does not grow with the repository. An error
//! behind the first page cuts the answer short, which leaves its last chunk away: no client takes
//! it for a whole list.

use super::Rest;
use super::address::{Address, Kind};
use crate::call::Call;
use crate::refusal::translated;
use bytes::Bytes;
use futures_util::StreamExt;
use http_body_util::StreamBody;
use hyper::body::Frame;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use hyper::{HeaderMap, Response};
use s3s::{Body, S3Result};
use std::fmt::Write;
use std::sync::Arc;
use stele_archive::{Archive, ListPage, ListRequest, Result};

const FIRST: &str = "application/vnd.x.restic.rest.v1";
const SECOND: &str = "application/vnd.x.restic.rest.v2";

/// Objects of one page.
const PAGE: usize = 1000;

/// A list under way.
struct List {
    archive: Archive,
    call: Arc<Call>,
    bucket: String,
    prefix: String,
    kind: Kind,
    sizes: bool,
    token: Option<String>,
    /// The array is open; and it has an element.
    opened: bool,
    begun: bool,
    ended: bool,
}

impl Rest {
    pub(super) async fn list(
        &self,
        call: Arc<Call>,
        address: &Address,
        kind: Kind,
        headers: &HeaderMap,
    ) -> S3Result<Response<Body>> {
        let sizes = headers.get_all(ACCEPT).iter().any(|value| value.to_str().is_ok_and(|text| text.contains(SECOND)));
        let mut list = List {
            archive: self.archive().clone(),
            call,
            bucket: address.bucket.clone(),
            prefix: address.folder(kind),
            kind,
            sizes,
            token: None,
            opened: false,
            begun: false,
            ended: false,
        };
        let first = list.next().await.map_err(translated)?;
        let body = match list.ended {
            true => Body::from(first),
            false => {
                let rest = futures_util::stream::unfold(Some(list), |state| async move {
                    let mut list = state.filter(|list| !list.ended)?;
                    match list.next().await {
                        Ok(piece) => Some((Ok(Frame::data(piece)), Some(list))),
                        Err(error) => {
                            list.call.metrics.response_broken();
                            tracing::error!(request = %list.call.id, %error, "a list was cut short");
                            Some((Err(std::io::Error::other(error)), None))
                        }
                    }
                });
                let first = futures_util::stream::once(async { Ok::<_, std::io::Error>(Frame::data(first)) });
                Body::http_body_unsync(StreamBody::new(first.chain(rest).boxed()))
            }
        };
        let mut response = Response::new(body);
        let version = HeaderValue::from_static(if sizes { SECOND } else { FIRST });
        response.headers_mut().insert(CONTENT_TYPE, version);
        Ok(response)
    }
}

impl List {
    async fn next(&mut self) -> Result<Bytes> {
        let request = ListRequest {
            bucket: self.bucket.clone(),
            prefix: self.prefix.clone(),
            token: self.token.take(),
            limit: PAGE,
            ..ListRequest::default()
        };
        let page = self.archive.list(&self.call.caller, request).await?;
        let text = self.text(&page);
        self.token = page.next_token;
        self.ended = self.token.is_none();
        Ok(Bytes::from(if self.ended { text + "]\n" } else { text }))
    }

    fn text(&mut self, page: &ListPage) -> String {
        let mut text = String::with_capacity(page.objects.len() * 96 + 8);
        if !std::mem::replace(&mut self.opened, true) {
            text.push('[');
        }
        for object in &page.objects {
            let below = object.key.get(self.prefix.len()..).unwrap_or_default();
            let Some(name) = Address::name_in(self.kind, below) else { continue };
            if self.begun {
                text.push(',');
            }
            self.begun = true;
            let _ = match self.sizes {
                true => write!(text, "{{\"name\":\"{name}\",\"size\":{}}}", object.size),
                false => write!(text, "\"{name}\""),
            };
        }
        text
    }
}
