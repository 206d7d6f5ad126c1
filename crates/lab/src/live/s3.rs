//! Objects in a bucket, over HTTP with TLS or without: reads are GETs and writes are PUTs of whole
//! objects, as long as the access; a thread and a connection for each one outstanding. With `names`
//! reads are LISTs, and writes put an empty object and delete it in turn. To a run that checks what
//! it reads each object is one place, all of one length.
//!
//! All keys begin with `stele-lab/`, where the first object is a mark; what has that beginning and
//! no mark is not the laboratory's.
//! The objects go when the run ends, unless they are to be kept.

mod http;
mod secure;
pub mod sign;

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use stele_ground::{Bytes, Dice, Duration, counted};

use super::content::Content;
use super::inline::Direct;
use super::stream::{ENDED, decoded, said, with_port};
use super::target::{AccessMethod, Opening, Ready};
use super::versions::Versions;
use crate::error::LabError;
use crate::workload::{Access, AccessSpec};
use http::Connection;
use secure::Trust;
use sign::{Keys, Request, Signer};

const PREFIX: &str = "stele-lab/";
const MARK: &str = "stele-lab/mark";
/// Objects of one length.
const OBJECTS_MAX: u32 = 1_000_000;
/// Connections that put and delete objects before and after a run.
const HELPERS: u32 = 8;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct S3Address {
    /// `HOST:PORT`.
    place: String,
    bucket: String,
    /// With TLS.
    secure: bool,
    /// Certificates of authorities, instead of the system's.
    ca: Option<PathBuf>,
}

const SHAPE: &str = "s3://HOST[:PORT]/BUCKET[?ca=FILE], or s3+http:// without TLS";

impl std::str::FromStr for S3Address {
    type Err = LabError;
    fn from_str(text: &str) -> Result<S3Address, LabError> {
        let bad = || LabError::Usage(format!("target '{text}': say {SHAPE}"));
        let (scheme, rest) = text.split_once("://").ok_or_else(bad)?;
        let (secure, port) = match scheme {
            "s3" | "s3+https" => (true, 443),
            "s3+http" => (false, 80),
            _ => return Err(bad()),
        };
        let (rest, ca) = match rest.split_once("?ca=") {
            Some((_, "")) => return Err(bad()),
            Some((_, _)) if !secure => return Err(bad()),
            Some((rest, path)) => (rest, Some(PathBuf::from(path))),
            None => (rest, None),
        };
        let (host, bucket) = rest.split_once('/').ok_or_else(bad)?;
        let bucket = decoded(bucket.trim_end_matches('/')).ok_or_else(bad)?;
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-".contains(c);
        if bucket.is_empty() || !bucket.chars().all(plain) {
            return Err(bad());
        }
        Ok(S3Address { place: with_port(host, port).ok_or_else(bad)?, bucket, secure, ca })
    }
}

impl fmt::Display for S3Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.secure { "s3" } else { "s3+http" };
        write!(f, "{scheme}://{}/{}", self.place, self.bucket)?;
        self.ca.as_ref().map_or(Ok(()), |path| write!(f, "?ca={}", path.display()))
    }
}

impl S3Address {
    /// With these authorities. None: it is reached without TLS.
    pub fn trusting(self, ca: &Path) -> Option<S3Address> {
        self.secure.then(|| S3Address { ca: Some(ca.to_owned()), ..self })
    }

    /// What requests are sent to, and signed for: the usual port is left out, as other clients do.
    fn authority(&self) -> &str {
        let usual = if self.secure { ":443" } else { ":80" };
        self.place.strip_suffix(usual).unwrap_or(&self.place)
    }

    fn trust(&self) -> Result<Option<Arc<Trust>>, LabError> {
        let host = self.place.rsplit_once(':').map_or(self.place.as_str(), |(host, _)| host);
        self.secure.then(|| Trust::new(host, self.ca.as_deref()).map(Arc::new)).transpose()
    }
}

#[derive(Debug)]
pub struct Bucket {
    address: S3Address,
    keys: Keys,
    trust: Option<Arc<Trust>>,
    objects: u32,
    patience: std::time::Duration,
    /// Lengths of objects, and whether all of them were put.
    lengths: Mutex<BTreeSet<(u64, bool)>>,
    content: Content,
    /// What checks of all objects together need.
    versions: Option<Arc<Versions>>,
}

pub(super) fn open(address: &S3Address, opening: Opening) -> Result<Ready, LabError> {
    open_with(address, Keys::find()?, opening)
}

fn open_with(address: &S3Address, keys: Keys, opening: Opening) -> Result<Ready, LabError> {
    let length = opening.longest;
    let even = length >= 512 && (length.is_multiple_of(4096) || 4096_u64.is_multiple_of(length));
    if opening.content.verify && !(even && opening.step == length) {
        return Err(LabError::Usage(format!(
            "{address}: objects are checked where all are of one length, 512, 1024, 2048 or a multiple of 4096; \
             give one --access, or leave --verify out"
        )));
    }
    if opening.files == 0 || opening.files > OBJECTS_MAX {
        return Err(LabError::Usage(format!("--files: from 1 to {OBJECTS_MAX} objects")));
    }
    let size = Bytes(u64::from(opening.files) * length);
    let bucket = Bucket {
        address: address.clone(),
        keys,
        trust: address.trust()?,
        objects: opening.files,
        patience: std::time::Duration::from_nanos(opening.patience.0),
        lengths: Mutex::default(),
        content: opening.content,
        versions: opening.versions(size)?,
    };
    let mut client = Client::new(&bucket);
    let listed = client.list(&bucket).map_err(|unserved| unserved.at(address))?;
    // Kept objects come before the mark, and a page has no more than a thousand.
    let is_ours = |client: &mut Client| {
        let found = client.list_from(&bucket, MARK, 1).map_err(|unserved| unserved.at(address))?;
        Ok::<bool, LabError>(found.contains(&format!("<Key>{MARK}</Key>")))
    };
    if listed.contains("<Key>") && !opening.destroy && !is_ours(&mut client)? {
        return Err(LabError::Refused(format!(
            "{address}: holds objects below {PREFIX} that the laboratory did not put; name another bucket, or give --destroy"
        )));
    }
    let has_versions = client.has_versions(&bucket);
    if has_versions && !opening.destroy {
        return Err(LabError::Refused(format!(
            "{address}: the bucket keeps each version of an object, so all that a run puts stays there, and under retention it \
             cannot be removed; name a bucket without versioning, or give --destroy"
        )));
    }
    client.ask(&bucket, "PUT", &bucket.path(MARK), "", &[], &mut []).map_err(|unserved| unserved.at(address))?;
    Ok(Ready {
        size,
        // An object is read and written as a whole.
        block: Bytes(if opening.content.verify { length } else { 1 }),
        file: None,
        versions: bucket.versions.clone(),
        patience: opening.patience,
        name: address.to_string(),
        description: format!(
            "S3 bucket {address}, {} of each length, {} TLS{}",
            counted(opening.files.into(), "object"),
            if address.secure { "with" } else { "without" },
            if has_versions { ", with versioning: what is put stays" } else { "" }
        ),
        way: AccessMethod::S3(Arc::new(bucket)),
    })
}

impl Bucket {
    fn path(&self, key: &str) -> String {
        format!("/{}/{key}", self.address.bucket)
    }

    fn object(&self, length: u64, number: u32) -> String {
        self.path(&format!("{PREFIX}{length}/{number:07}"))
    }

    /// Puts what the accesses of a run read, where that was not done before.
    pub fn prepare(&self, spec: &AccessSpec, end: &AtomicBool) -> Result<(), LabError> {
        let reads = spec.read != Some(0);
        for (length, _) in &spec.sizes {
            let mut lengths = self.lengths.lock().unwrap_or_else(PoisonError::into_inner);
            // Entered before anything is put, so that it is removed whatever happens.
            lengths.insert((*length, false));
            if !reads || lengths.contains(&(*length, true)) {
                continue;
            }
            drop(lengths);
            self.each(end, |client, dice, number| {
                let mut data = vec![0; *length as usize];
                let mut source = self.content.source(dice.clone(), self.versions.clone());
                let at = u64::from(number) * length;
                source.make(&mut data, at);
                client.ask(self, "PUT", &self.object(*length, number), "", &data, &mut [])?;
                if let Some(versions) = &self.versions {
                    versions.answered(at, *length);
                }
                Ok(())
            })?;
            self.lengths.lock().unwrap_or_else(PoisonError::into_inner).insert((*length, true));
        }
        Ok(())
    }

    /// Does something with each object, several at a time.
    fn each(
        &self,
        end: &AtomicBool,
        act: impl Fn(&mut Client, &mut Dice, u32) -> Result<(), String> + Sync,
    ) -> Result<(), LabError> {
        let next = AtomicU32::new(0);
        let work = |helper: u32| {
            let (mut client, mut dice) = (Client::new(self), Dice::new(self.content.seed ^ u64::from(helper) << 32));
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                match number < self.objects && !end.load(Ordering::Relaxed) {
                    true => act(&mut client, &mut dice, number)?,
                    false => return Ok(()),
                }
            }
        };
        let done: Result<(), String> = std::thread::scope(|scope| {
            let helpers: Vec<_> =
                (0..HELPERS.min(self.objects)).map(|helper| scope.spawn(move || work(helper))).collect();
            helpers.into_iter().try_for_each(|helper| helper.join().unwrap_or_else(|_| Err("a helper panicked".into())))
        });
        done.map_err(|error| LabError::of_access(format!("{}: {error}", self.address)))
    }

    /// Deletes what was put.
    pub fn remove(&self) -> Result<(), LabError> {
        let lengths = self.lengths.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let lengths: BTreeSet<u64> = lengths.into_iter().map(|(length, _)| length).collect();
        let delete = |client: &mut Client, path: &str| {
            client.ask(self, "DELETE", path, "", &[], &mut []).map(drop).map_err(String::from)
        };
        for length in lengths {
            self.each(&AtomicBool::new(false), |client, _, number| delete(client, &self.object(length, number)))?;
        }
        let failed = |error: String| LabError::Failed(format!("{}: {error}", self.address));
        let mut client = Client::new(self);
        if has_kept(&client.list(self).map_err(|unserved| failed(unserved.into()))?) {
            return Ok(());
        }
        delete(&mut client, &self.path(MARK)).map_err(failed)
    }
}

/// Beside the mark there are only objects of the laboratory, by their names: an earlier run kept
/// them. They need the mark, or a later run would not take them for its own.
fn has_kept(listed: &str) -> bool {
    let keys = || listed.split("<Key>").skip(1).filter_map(|rest| rest.split("</Key>").next());
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_own = |key: &str| {
        let parts = key.strip_prefix(PREFIX).and_then(|rest| rest.split_once('/'));
        parts.is_some_and(|(length, number)| digits(length) && digits(number))
    };
    let mut others = keys().filter(|key| *key != MARK).peekable();
    others.peek().is_some() && others.all(is_own)
}

/// How often a request is sent that the server wants to be tried again (409, 503), all in the time
/// of one access.
const ASKED_MAX: u32 = 5;

/// Why a request was not served.
enum Unserved {
    /// No answer came.
    Broken(std::io::Error, String),
    /// The status of the answer, and what it says.
    Answered(u16, String),
}

impl Unserved {
    /// As the end of an opening.
    fn at(self, address: &S3Address) -> LabError {
        match self {
            Unserved::Broken(error, text) => {
                let with_tls = if text == ENDED && !address.secure { "; one with TLS is reached by s3://" } else { "" };
                LabError::reaching(&error, format!("{address}: {text}{with_tls}"))
            }
            Unserved::Answered(401 | 403, text) => LabError::Refused(format!("{address}: {text}")),
            Unserved::Answered(507, text) => LabError::Full(format!("{address}: {text}")),
            Unserved::Answered(404, text) => LabError::Missing(format!("{address}: {text}")),
            Unserved::Answered(_, text) => LabError::Failed(format!("{address}: {text}")),
        }
    }
}

impl From<Unserved> for String {
    fn from(unserved: Unserved) -> String {
        match unserved {
            Unserved::Broken(_, text) | Unserved::Answered(_, text) => text,
        }
    }
}

struct Client {
    connection: Connection,
    signer: Signer,
}

impl Client {
    fn new(bucket: &Bucket) -> Client {
        let connection = Connection::new(&bucket.address.place, bucket.patience, bucket.trust.clone());
        Client { connection, signer: Signer::new(bucket.keys.clone()) }
    }

    fn ask(
        &mut self,
        bucket: &Bucket,
        method: &str,
        path: &str,
        query: &str,
        body: &[u8],
        into: &mut [u8],
    ) -> Result<http::HttpResponse, Unserved> {
        let (host, hash) = (bucket.address.authority(), &sign::hash(body));
        let signed = self.signer.headers(&Request { method, host, path, query, hash });
        let mark = if query.is_empty() { "" } else { "?" };
        let head = format!("{method} {path}{mark}{query} HTTP/1.1\r\n{signed}content-length: {}\r\n\r\n", body.len());
        let mut asked = 0;
        let answer = loop {
            let answer = self.connection.ask(&head, body, into).map_err(|error| {
                let text = match error.kind() {
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut => {
                        format!("no answer for {}", Duration(bucket.patience.as_nanos() as u64))
                    }
                    _ => secure::said(&error).unwrap_or_else(|| said(&error)),
                };
                Unserved::Broken(error, text)
            })?;
            asked += 1;
            if !matches!(answer.status, 409 | 503) || asked == ASKED_MAX {
                break answer;
            }
        };
        match answer.status {
            200..300 => Ok(answer),
            status => {
                let part = |name: &str| {
                    let (_, rest) = answer.text.split_once(&format!("<{name}>"))?;
                    rest.split_once("</").map(|(text, _)| text.to_owned())
                };
                let why = part("Code").map(|code| format!(" {code}: {}", part("Message").unwrap_or_default()));
                Err(Unserved::Answered(status, format!("the server answers {status}{}", why.unwrap_or_default())))
            }
        }
    }

    /// A put adds a version, and a delete removes none. A server that does not say is taken for one
    /// without versioning.
    fn has_versions(&mut self, bucket: &Bucket) -> bool {
        let path = format!("/{}", bucket.address.bucket);
        let said = self.ask(bucket, "GET", &path, "versioning=", &[], &mut []);
        said.is_ok_and(|answer| answer.text.contains("<Status>Enabled</Status>"))
    }

    /// The first page of what the laboratory has there.
    fn list(&mut self, bucket: &Bucket) -> Result<String, Unserved> {
        self.list_from(bucket, PREFIX, 1000)
    }

    /// The first so many keys that begin so.
    fn list_from(&mut self, bucket: &Bucket, prefix: &str, most: u32) -> Result<String, Unserved> {
        let query = format!("list-type=2&max-keys={most}&prefix={}", prefix.replace('/', "%2F"));
        self.ask(bucket, "GET", &format!("/{}", bucket.address.bucket), &query, &[], &mut []).map(|answer| answer.text)
    }
}

/// A worker's way to the objects, or to their names.
pub struct S3Engine {
    bucket: Arc<Bucket>,
    client: Client,
    /// The key that is put and deleted in turn, and whether it is there.
    name: Option<(String, bool)>,
}

impl S3Engine {
    /// `worker` tells it from those beside it.
    pub fn new(bucket: &Arc<Bucket>, names: bool, worker: u32) -> S3Engine {
        let name = names.then(|| (bucket.path(&format!("{PREFIX}name-{worker:06}")), false));
        S3Engine { client: Client::new(bucket), bucket: Arc::clone(bucket), name }
    }
}

impl Direct for S3Engine {
    fn carry_out(&mut self, access: &Access, buffer: &mut [u8]) -> Result<(), String> {
        let (bucket, client) = (&*self.bucket, &mut self.client);
        match &mut self.name {
            Some(_) if !access.write => return Ok(client.list(bucket).map(drop)?),
            Some((path, there)) => {
                let method = if *there { "DELETE" } else { "PUT" };
                *there = !*there;
                return Ok(client.ask(bucket, method, path, "", &[], &mut []).map(drop)?);
            }
            None => {}
        }
        let number = (access.at / access.length) % u64::from(bucket.objects);
        let path = bucket.object(access.length, number as u32);
        if access.write {
            return Ok(client.ask(bucket, "PUT", &path, "", buffer, &mut []).map(drop)?);
        }
        let answer = client.ask(bucket, "GET", &path, "", &[], buffer)?;
        match answer.length == access.length {
            true => Ok(()),
            false => Err(format!("only {} of {} bytes were sent", answer.length, access.length)),
        }
    }
}

impl Drop for S3Engine {
    fn drop(&mut self) {
        if let Some((path, true)) = &self.name {
            let _ = self.client.ask(&self.bucket, "DELETE", path, "", &[], &mut []);
        }
    }
}

#[cfg(test)]
mod tests;
