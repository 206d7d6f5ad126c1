//! Temporary credentials: the part of AWS's Security Token Service that lends an access key's own
//! rights.
//!
//! Clients send `POST /` with a form, signed for the service `sts`. The actions are AssumeRole and
//! GetCallerIdentity. There are no roles to assume: a session always is the caller's own access
//! key, limited by the session policy. The role that a client must name is not looked up. A
//! parameter that would change what the session may do, and that is not carried out, is refused.
//!
//! Failure model: as for the rest of the frontend. The document is read before its signature can be
//! verified, so it is small, and read only for an access key that exists.

use super::Frontend;
use super::prepare::from_peer;
use crate::operation::Operation;
use crate::payload::{Payload, Source};
use crate::query::Query;
use crate::refusal::{refuse, translated};
use crate::serve::Peer;
use crate::sigv4::{Claim, Parts};
use hyper::body::Incoming;
use hyper::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HeaderValue};
use hyper::http::request::Parts as Head;
use hyper::{Method, Request, Response, StatusCode};
use quick_xml::escape::escape;
use s3s::{Body, S3Error, S3ErrorCode, S3Result};
use stele_archive::{Actor, Caller, NewSession, SESSION_SECONDS_DEFAULT, SessionRequest};
use tokio::time::timeout;

/// Bytes of a document: a session policy, every byte of it encoded, and the other parameters.
const DOCUMENT_BYTES_MAX: u64 = 16 * 1024;
const NAMESPACE: &str = "https://sts.amazonaws.com/doc/2011-06-15/";
/// There are no accounts.
const ACCOUNT: &str = "000000000000";
const VERSION: &str = "2011-06-15";
/// The parameters of AssumeRole. `ExternalId` is a condition of roles, which a session of one's own
/// key does not have.
const OF_ASSUME_ROLE: [&str; 7] =
    ["Action", "Version", "RoleArn", "RoleSessionName", "DurationSeconds", "Policy", "ExternalId"];

impl Frontend {
    /// Whether a request is one to the service `sts`. S3 has no POST on the root.
    pub(super) fn is_sts<B>(&self, request: &Request<B>) -> bool {
        *request.method() == Method::POST
            && request.uri().path() == "/"
            && self.bucket_of_host(request.headers()).is_none()
            && !super::posting::is_form(request.method(), request.headers())
    }

    /// Answers a request to the service `sts`.
    pub(super) async fn sts(&self, request: Request<Incoming>, peer: &Peer, id: &str) -> (Response<Body>, Operation) {
        let (head, incoming) = request.into_parts();
        let invited = head.headers.contains_key(EXPECT);
        let mut payload = Payload::new(Source::Wire(incoming), 0, self.settings.pace).invited(invited);
        let mut operation = Operation::Unknown;
        let answer = self.sts_answer(&head, &mut payload, peer, id, &mut operation).await;
        let (status, document) = match answer {
            Ok(document) => (StatusCode::OK, document),
            Err(error) => refused(&error, id),
        };
        let mut response = Response::new(Body::from(document));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/xml"));
        // The document holds secrets.
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        super::answer::read_away(&mut response, Some(payload)).await;
        (response, operation)
    }

    async fn sts_answer(
        &self,
        head: &Head,
        payload: &mut Payload,
        peer: &Peer,
        id: &str,
        operation: &mut Operation,
    ) -> S3Result<String> {
        let (caller, fields) = match self.sts_admit(head, payload).await {
            Ok(admitted) => admitted,
            Err(error) => {
                self.audit_path(&error, &head.method, "/ (sts)", peer, id).await;
                return Err(error);
            }
        };
        let _turn = self.turn(&caller.actor).await?;
        let caller = from_peer(caller, peer, id);
        once_each(&fields)?;
        if fields.get("Version").is_some_and(|version| version != VERSION) {
            return Err(invalid(format!("Version is {VERSION}.")));
        }
        match fields.get("Action") {
            Some("AssumeRole") => {
                *operation = Operation::AssumeRole;
                if !peer.is_private() {
                    return Err(refuse(
                        S3ErrorCode::AccessDenied,
                        "Access Denied: the answer holds a secret; ask for temporary credentials over TLS.",
                    ));
                }
                let made = self.archive.create_session(&caller, session_of(&fields)?).await;
                made.map(|session| assumed(&session, &fields, id)).map_err(|error| match error {
                    stele_archive::ArchiveError::InvalidArgument(message) => invalid(message),
                    other => translated(other),
                })
            }
            Some("GetCallerIdentity") => {
                *operation = Operation::GetCallerIdentity;
                Ok(identity(&caller, id))
            }
            _ => {
                let mut error = S3Error::with_message(
                    S3ErrorCode::Custom("InvalidAction".into()),
                    "The actions here are AssumeRole and GetCallerIdentity.",
                );
                error.set_status_code(StatusCode::BAD_REQUEST);
                Err(error)
            }
        }
    }

    /// The verified caller, and the parameters of its document.
    async fn sts_admit(&self, head: &Head, payload: &mut Payload) -> S3Result<(Caller, Query)> {
        self.check_head(&head.uri, &head.headers)?;
        let target = self.target(&head.uri, &head.headers)?;
        // What is not read must not seem to count: a policy in the query limits nothing.
        if target.query.iter().next().is_some() {
            return Err(invalid("The parameters go into the document, not into the query.".into()));
        }
        let mut claim = Claim::of_sts(&head.headers)?;
        self.check_region(&claim.region)?;
        let credentials = self.credentials(&claim.access_key, claim.token.as_deref()).await?;
        claim.check_time((self.clock)())?;
        let length = head.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let length = length.ok_or_else(|| {
            refuse(S3ErrorCode::MissingContentLength, "You must provide the Content-Length HTTP header.")
        })?;
        payload.expect(length);
        let reading = timeout(self.settings.document_patience, payload.collect(DOCUMENT_BYTES_MAX));
        let document = reading.await.unwrap_or_else(|_| {
            Err(refuse(S3ErrorCode::RequestTimeout, "The document in your request did not arrive in time."))
        })?;
        claim.cover(&document, &head.headers)?;
        let parts = Parts {
            method: head.method.as_str(),
            path: &target.path,
            raw_path: &target.raw_path,
            query: &target.query,
            headers: &head.headers,
        };
        claim.verify(&credentials.secret, &self.keys, &parts)?;
        let fields = std::str::from_utf8(&document).ok().and_then(|text| Query::parse(Some(text)));
        let fields = fields.ok_or_else(|| invalid("The document is not a form in UTF-8.".into()))?;
        Ok((credentials.caller, fields))
    }
}

/// Refuses a parameter that is there twice: which of them counts must not depend on the reader.
fn once_each(fields: &Query) -> S3Result<()> {
    let mut names: Vec<&str> = fields.iter().map(|(name, _)| name).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| matches!(pair, [a, b] if a == b)) {
        Some(_) => Err(invalid("A parameter is there twice.".into())),
        None => Ok(()),
    }
}

fn session_of(fields: &Query) -> S3Result<SessionRequest> {
    if let Some((name, _)) = fields.iter().find(|(name, _)| !OF_ASSUME_ROLE.contains(name)) {
        return Err(invalid(format!("The parameter {name} of AssumeRole is not supported.")));
    }
    let seconds = match fields.get("DurationSeconds") {
        Some(text) => text.parse().map_err(|_| invalid("DurationSeconds is not a number.".into()))?,
        None => SESSION_SECONDS_DEFAULT,
    };
    if fields.get("Policy").is_some_and(str::is_empty) {
        return Err(invalid("Policy is empty. Leave it out for a session without a limit.".into()));
    }
    let named = |name: &str| fields.get(name).filter(|value| !value.is_empty()).map(str::to_owned);
    Ok(SessionRequest {
        name: named("RoleSessionName").ok_or_else(|| invalid("RoleSessionName is missing.".into()))?,
        seconds,
        policy: named("Policy"),
    })
}

fn assumed(session: &NewSession, fields: &Query, id: &str) -> String {
    let name = fields.get("RoleSessionName").unwrap_or_default();
    let expires = stele_ground::calendar::moment(session.expires.seconds());
    format!(
        "<AssumeRoleResponse xmlns=\"{NAMESPACE}\"><AssumeRoleResult><Credentials><AccessKeyId>{}</AccessKeyId>\
         <SecretAccessKey>{}</SecretAccessKey><SessionToken>{}</SessionToken><Expiration>{expires}</Expiration>\
         </Credentials><AssumedRoleUser><AssumedRoleId>{}:{}</AssumedRoleId><Arn>{}</Arn></AssumedRoleUser>\
         </AssumeRoleResult><ResponseMetadata><RequestId>{id}</RequestId></ResponseMetadata></AssumeRoleResponse>",
        session.id,
        session.secret.as_str(),
        session.token.as_str(),
        session.key,
        escape(name),
        arn(&session.key, Some(name)),
    )
}

fn identity(caller: &Caller, id: &str) -> String {
    let key = match &caller.actor {
        Actor::Key(key) => key.as_str(),
        _ => "",
    };
    let name = caller.session.as_ref().map(|session| session.name.as_str());
    let user = name.map_or_else(|| key.to_owned(), |name| format!("{key}:{}", escape(name)));
    format!(
        "<GetCallerIdentityResponse xmlns=\"{NAMESPACE}\"><GetCallerIdentityResult><Arn>{}</Arn><UserId>{user}</UserId>\
         <Account>{ACCOUNT}</Account></GetCallerIdentityResult><ResponseMetadata><RequestId>{id}</RequestId>\
         </ResponseMetadata></GetCallerIdentityResponse>",
        arn(key, name),
    )
}

/// The name of an access key, or of a session of it, as policies and SDKs write names.
fn arn(key: &str, session: Option<&str>) -> String {
    match session {
        Some(name) => format!("arn:aws:sts::{ACCOUNT}:assumed-role/{key}/{}", escape(name)),
        None => format!("arn:aws:iam::{ACCOUNT}:user/{key}"),
    }
}

fn invalid(message: String) -> S3Error {
    let mut error = S3Error::with_message(S3ErrorCode::Custom("ValidationError".into()), message);
    error.set_status_code(StatusCode::BAD_REQUEST);
    error
}

/// A refusal as a document of the service, with the codes that its SDKs know.
fn refused(error: &S3Error, id: &str) -> (StatusCode, String) {
    let status = error.status_code().unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let code = match error.code() {
        S3ErrorCode::InvalidAccessKeyId | S3ErrorCode::InvalidToken => "InvalidClientTokenId",
        S3ErrorCode::AuthorizationHeaderMalformed => "IncompleteSignature",
        S3ErrorCode::RequestTimeTooSkewed => "RequestExpired",
        S3ErrorCode::SlowDown => "Throttling",
        other => other.as_str(),
    };
    let kind = if status.is_server_error() { "Receiver" } else { "Sender" };
    let document = format!(
        "<ErrorResponse xmlns=\"{NAMESPACE}\"><Error><Type>{kind}</Type><Code>{}</Code><Message>{}</Message></Error>\
         <RequestId>{id}</RequestId></ErrorResponse>",
        escape(code),
        escape(error.message().unwrap_or_default()),
    );
    (status, document)
}
