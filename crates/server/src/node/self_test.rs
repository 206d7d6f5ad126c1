//! The self-test through the server's own interfaces: S3, as signed requests, and the
//! administration socket, both on connections in memory, and of shares NFS and a mount. They are
//! the code that serves clients, from the first byte on. No client takes the place of a test: where
//! commands have all connections of the socket, a call there would prove nothing.
//!
//! Restic's REST protocol and block devices are left out: neither can name a canary. Samba itself
//! is not asked, but the mount that it serves.

mod files;

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use futures_util::future::BoxFuture;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use stele_archive::{Attempt, Caller, Canary, Interfaces, SelfTest, ShareObjects, Shares};
use stele_backup::store::s3::tag;
use stele_ground::calendar::moment;
use stele_lab::live::s3::sign::{Keys, Request, Signer, hash};
use stele_object::{Endpoint, Frontend, Metrics, Peer, serve_connection};

use crate::api::Call;
use crate::api::acts::DeleteRequest;
use crate::api::approval::Officer;
use crate::api::archive::SetBucket;
use crate::connection;
use crate::failure::{Failure, Kind, Outcome};
use crate::node::shares::S3View;
use crate::node::{Node, own_uid};
use crate::serving::admin;

/// Bytes of an answer.
const ANSWER_MAX: usize = 1 << 20;
/// Bytes on their way on the connection in memory.
const PIPE: usize = 64 << 10;
/// A busy server is asked again: so often, and after so long.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_secs(1);
/// Refusals by the rules. Any other error proves nothing.
const REFUSALS: [&str; 3] = ["AccessDenied", "BucketNotEmpty", "InvalidBucketState"];

/// What serves the node while a server runs.
pub struct RunningInterfaces {
    /// Closing the node waits for no frontend.
    frontend: Weak<Frontend>,
    node: Weak<Node>,
    socket: PathBuf,
    region: String,
}

impl Node {
    /// The archive's self-test, through the interfaces too if a server runs.
    pub async fn self_test(&self, caller: &Caller, bucket: Option<&str>) -> Outcome<Vec<SelfTest>> {
        let interfaces = self.running.get().map(|running| running as &dyn Interfaces);
        Ok(self.archive()?.self_test(caller, bucket, interfaces).await?)
    }
}

impl Interfaces for RunningInterfaces {
    fn share(&self, bucket: &str) -> Option<Arc<dyn ShareObjects>> {
        S3View(Weak::clone(&self.node)).objects(bucket)
    }

    fn attempt<'a>(&'a self, canary: &'a Canary) -> BoxFuture<'a, Vec<Attempt>> {
        Box::pin(async move {
            let mut attempts = self.over_s3(canary).await;
            attempts.extend(self.over_the_socket(canary).await);
            let share = self.node.upgrade().and_then(|node| node.shares.get(&canary.bucket));
            if let Some(share) = share {
                attempts.extend(files::attempt(&share, canary).await);
            }
            attempts
        })
    }
}

/// One request of S3.
struct Ask {
    what: String,
    method: &'static str,
    /// On the canary, or else on its bucket.
    on_canary: bool,
    query: String,
    bypass: bool,
    body: String,
}

fn asks(canary: &Canary) -> Vec<Ask> {
    let version = &canary.version;
    let ask = |what: &str, method, query: String| {
        let what = what.to_owned();
        Ask { what, method, on_canary: true, query, bypass: false, body: String::new() }
    };
    let (object, of_it, listed) = match canary.is_file {
        false => ("version", format!("versionId={version}"), format!("<VersionId>{version}</VersionId>")),
        true => ("file", String::new(), String::new()),
    };
    let delete = |more: &str, method, query| ask(&format!("delete the {object}{more}"), method, query);
    let retain = |what, mode: &str, until: String| Ask {
        bypass: true,
        body: format!("<Retention><Mode>{mode}</Mode><RetainUntilDate>{until}</RetainUntilDate></Retention>"),
        ..ask(what, "PUT", format!("retention=&versionId={version}"))
    };
    let (until, sooner) = (canary.until.to_string(), sooner(canary));
    let listed = format!("<Delete><Object><Key>{}</Key>{listed}</Object></Delete>", canary.key);
    let suspended = "<VersioningConfiguration><Status>Suspended</Status></VersioningConfiguration>";
    vec![
        delete("", "DELETE", of_it.clone()),
        Ask { bypass: true, ..delete(" and bypass GOVERNANCE", "DELETE", of_it) },
        Ask { on_canary: false, bypass: true, body: listed, ..delete(" with others", "POST", "delete=".into()) },
        retain("shorten the retention by an hour", "COMPLIANCE", sooner),
        retain("change the mode to GOVERNANCE", "GOVERNANCE", until),
        Ask {
            bypass: true,
            body: "<Retention></Retention>".into(),
            ..ask("remove the retention", "PUT", format!("retention=&versionId={version}"))
        },
        Ask { on_canary: false, body: suspended.into(), ..ask("suspend versioning", "PUT", "versioning=".into()) },
        Ask { on_canary: false, ..ask("delete the bucket", "DELETE", String::new()) },
    ]
}

/// An hour before the end of the canary's retention.
fn sooner(canary: &Canary) -> String {
    moment((canary.until.0 / 1000).saturating_sub(3600))
}

impl RunningInterfaces {
    pub fn new(frontend: &Arc<Frontend>, node: &Arc<Node>, socket: PathBuf) -> RunningInterfaces {
        let region = frontend.settings().region.clone();
        RunningInterfaces { frontend: Arc::downgrade(frontend), node: Arc::downgrade(node), socket, region }
    }

    /// The counters of S3.
    pub fn metrics(&self) -> Option<Arc<Metrics>> {
        self.frontend.upgrade().map(|frontend| frontend.shared_metrics())
    }

    async fn over_s3(&self, canary: &Canary) -> Vec<Attempt> {
        let keys = Keys {
            access: canary.access_key.clone(),
            secret: canary.secret.to_string(),
            token: None,
            region: self.region.clone(),
        };
        let mut signer = Signer::new(keys);
        let mut attempts = Vec::new();
        for ask in asks(canary) {
            let (refused, answer) = self.ask(&mut signer, canary, &ask).await;
            attempts.push(Attempt { what: ask.what.clone(), through: "S3".into(), refused, answer });
        }
        attempts
    }

    async fn ask(&self, signer: &mut Signer, canary: &Canary, ask: &Ask) -> (bool, String) {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.send(signer, canary, ask).await {
                Ok((500.., _)) | Err(_) if tries < TRIES => tokio::time::sleep(PAUSE).await,
                Ok((status, text)) => return judge(status, &text),
                Err(failure) => return (false, failure.to_string()),
            }
        }
    }

    /// Sends a request on a connection of its own, and returns the status and the text of the
    /// answer.
    async fn send(&self, signer: &mut Signer, canary: &Canary, ask: &Ask) -> Outcome<(u16, String)> {
        let broken = |error: &dyn std::fmt::Display| Failure::failed(format!("S3 did not answer: {error}"));
        let frontend = self.frontend.upgrade().ok_or_else(|| broken(&"the server stops"))?;
        let (ours, theirs) = tokio::io::duplex(PIPE);
        let peer = Peer { address: None, secure: true, tls: "-" };
        let serving = tokio::spawn(serve_connection(theirs, peer, frontend as Arc<dyn Endpoint>));
        let (mut sender, connection): (SendRequest<Full<Bytes>>, _) =
            handshake(TokioIo::new(ours)).await.map_err(|error| broken(&error))?;
        let connection = tokio::spawn(connection);
        let path = match ask.on_canary {
            true => format!("/{}/{}", canary.bucket, canary.key),
            false => format!("/{}", canary.bucket),
        };
        let (digest_of, body) = (hash(ask.body.as_bytes()), Bytes::from(ask.body.clone()));
        let checksum = base64_simd::STANDARD.encode_to_string(digest(&SHA256, &body));
        let mut own = Vec::new();
        if ask.bypass {
            own.push(("x-amz-bypass-governance-retention", "true"));
        }
        if !body.is_empty() {
            own.push(("x-amz-checksum-sha256", checksum.as_str()));
        }
        let signed =
            Request { method: ask.method, host: "self-test", path: &path, query: &ask.query, hash: &digest_of };
        let signed = signer.headers_with(&signed, &own);
        let target = if ask.query.is_empty() { path } else { format!("{path}?{}", ask.query) };
        let mut request = hyper::Request::builder().method(ask.method).uri(target);
        for (name, value) in signed.lines().filter_map(|line| line.split_once(": ")) {
            request = request.header(name.trim(), value.trim());
        }
        let request = request.body(Full::new(body)).map_err(|error| broken(&error))?;
        let response = sender.send_request(request).await.map_err(|error| broken(&error))?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), ANSWER_MAX).collect().await.map_err(|error| broken(&error))?;
        drop(sender);
        let _ = tokio::join!(connection, serving);
        Ok((status, String::from_utf8_lossy(&body.to_bytes()).into_owned()))
    }

    /// What an administrator could ask, and an officer alone.
    async fn over_the_socket(&self, canary: &Canary) -> Vec<Attempt> {
        let officer = Officer { access_key: canary.access_key.clone(), secret_key: canary.secret.to_string() };
        let (bucket, key, version) = (canary.bucket.clone(), canary.key.to_owned(), canary.version.clone());
        let delete = DeleteRequest { bucket, key, version, reason: "self-test".into(), officer };
        let mut attempts = vec![self.call("ask two officers to delete the version", &delete).await];
        if canary.is_raised {
            let name = canary.bucket.clone();
            let lower = SetBucket { name, protection: Some("basic".into()), ..SetBucket::default() };
            attempts.push(self.call("lower the protection level", &lower).await);
        }
        attempts
    }

    async fn call<C: Call>(&self, what: &str, call: &C) -> Attempt {
        let called = async || {
            let stops = || Failure::new(Kind::Busy, "the server stops");
            let node = self.node.upgrade().ok_or_else(stops)?;
            let (ours, theirs) = tokio::io::duplex(PIPE);
            let serving = tokio::spawn(admin::serve_in_memory(theirs, node, own_uid()));
            let mut sender = connection::connect_over(ours, &self.socket).await?;
            let answer = connection::call_on(&self.socket, &mut sender, call).await;
            drop(sender);
            let _ = serving.await;
            answer
        };
        let mut tries = 0;
        let (refused, answer) = loop {
            tries += 1;
            match called().await {
                Err(failure) if failure.kind == Kind::Busy && tries < TRIES => tokio::time::sleep(PAUSE).await,
                Err(failure) => break answered(&failure),
                Ok(_) => break (false, "it was allowed".to_owned()),
            }
        };
        Attempt { what: what.into(), through: "administration socket".into(), refused, answer }
    }
}

/// Whether a failure of a call is a refusal by the rules, and what it says. A call without an
/// answer, as where other commands have all connections, proves nothing.
fn answered(failure: &Failure) -> (bool, String) {
    match failure.kind {
        Kind::Busy => (false, format!("it was not answered: {}", failure.on_one_line())),
        kind => (kind == Kind::Refused, failure.to_string()),
    }
}

/// Whether the answer is a refusal by the rules, and what it says. A list of deletions has its
/// refusal within a success.
fn judge(status: u16, text: &str) -> (bool, String) {
    let code = tag(text, "Code").unwrap_or_default();
    let message = tag(text, "Message").unwrap_or_default();
    let deleted = text.contains("<Deleted>");
    let refused = REFUSALS.contains(&code.as_str()) && !deleted && (status >= 400 || text.contains("<Error>"));
    let answer = if code.is_empty() { format!("status {status}") } else { format!("{code}: {message}") };
    (refused, answer)
}

#[cfg(test)]
mod tests;
