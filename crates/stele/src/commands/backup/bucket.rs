//! A repository in a bucket, over S3: each object of the repository is an object of the bucket.
//!
//! `create` is a conditional PUT (`If-None-Match: *`), so two writers of one name are one and a
//! refusal. If the answer to one was lost, its repetition says that the object exists; it is then
//! compared with what was sent. The times of objects and the clock are the server's.
//!
//! A server that answers nothing any more, or every request with a failure, is an outage, and not
//! the loss of what was asked for. So where all attempts of a request failed, one small request
//! shows which of both it is.
//!
//! Locks are retention in COMPLIANCE mode. A removal removes the version for good, so that space
//! comes back where the bucket keeps versions; what retention keeps stays visible. Only sessions,
//! epochs and lists of damaged chunks, which no snapshot needs, then disappear behind a delete
//! marker.

use std::ops::Range;

use stele_backup::BackupError;
use stele_backup::store::s3::{self, Page, tag};
use stele_backup::store::{Folder, Listed, Name, Store};
use stele_ground::calendar::{LATEST, moment};
use stele_lab::live::s3::sign::Keys;
use stele_server::bucket::{
    BucketBody, BucketClient, BucketRequest, BucketResponse, Result, TEXT_MAX, checksum, encoded, judge,
};
use stele_server::failure::Outcome;

use super::waiting::Waiting;

/// What a text names, in the error of a text that does not.
const WHAT: &str = "place of a repository";
/// The first status that tells of a fault of the server.
const FAULTS_OF_SERVER: u16 = 500;
/// Objects that prune hides if it cannot remove them.
const HIDDEN: [Folder; 3] = [Folder::Sessions, Folder::Epochs, Folder::Damaged];
/// Versions of one object that a removal takes away.
const VERSIONS_MAX: usize = 10_000;

/// A repository in a bucket.
pub struct Repository {
    client: BucketClient,
    /// Asks once, whether the server answers at all.
    probe: BucketClient,
}

/// A version of an object, as HEAD shows it.
struct Shown {
    version: Option<String>,
    governance: bool,
    kept: Option<Kept>,
    held: bool,
}

impl Shown {
    fn kept_until(&self) -> Option<u64> {
        // A hold has no end.
        if self.held { Some(LATEST) } else { self.kept.map(|kept| kept.until) }
    }
}

/// The end of a retention, in whole seconds downwards, and whether it lies within a second.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Kept {
    until: u64,
    within: bool,
}

impl Kept {
    fn parse(text: &str) -> Option<Kept> {
        let fraction = text.split_once('.').map_or("", |(_, fraction)| fraction);
        let within = fraction.bytes().take_while(u8::is_ascii_digit).any(|digit| digit != b'0');
        Some(Kept { until: s3::seconds(text)?, within })
    }

    /// The first whole second that is not before the end.
    fn covering(self) -> u64 {
        self.until + u64::from(self.within)
    }
}

/// Whether the text names a bucket and not a directory.
pub fn is_address(text: &str) -> bool {
    text.starts_with("s3://") || text.starts_with("s3+http://")
}

impl Repository {
    /// Keys come from where other S3 clients find them.
    pub fn open(text: &str) -> Outcome<Repository> {
        Repository::with_keys(text, Keys::find()?, s3::ATTEMPTS)
    }

    fn with_keys(text: &str, keys: Keys, attempts: u32) -> Outcome<Repository> {
        let open = || BucketClient::open(text, WHAT, keys.clone());
        Ok(Repository { client: open()?.with_attempts(attempts), probe: open()?.with_attempts(1) })
    }

    /// Says on standard error what is waited for, if the server is silent.
    fn waiting(&self, ask: BucketRequest<'_>, bytes: u64) -> Waiting {
        Waiting::begin(self.client.place(), ask.method, bytes)
    }

    fn ask(&self, ask: BucketRequest<'_>, body: &[u8]) -> Result<BucketResponse> {
        let _waiting = self.waiting(ask, body.len() as u64);
        self.client.ask(ask, body).map_err(|error| match error {
            BackupError::Failed(text) if self.is_out() => BackupError::Unreachable(text),
            other => other,
        })
    }

    /// Whether the server answers no other request either.
    fn is_out(&self) -> bool {
        let (path, query) = (self.client.path(), self.first_name());
        let ask = BucketRequest { method: "GET", path: &path, query: &query, headers: &[], max: TEXT_MAX };
        // A refusal is an answer too.
        self.probe.send(ask, &BucketBody::copy(b"")).map_or(true, |answer| answer.status >= FAULTS_OF_SERVER)
    }

    /// The query of the shortest listing.
    fn first_name(&self) -> String {
        format!("list-type=2&max-keys=1&prefix={}", encoded(self.client.prefix()))
    }

    fn send(&self, ask: BucketRequest<'_>, body: &BucketBody) -> Result<BucketResponse> {
        let _waiting = self.waiting(ask, body.bytes.len() as u64);
        self.client.send(ask, body)
    }

    fn path(&self, name: &Name) -> String {
        self.client.path_of(name.text())
    }

    /// A refused lock, with what to do.
    fn explained(&self, error: BackupError) -> BackupError {
        match error {
            BackupError::Refused(text) => BackupError::Refused(format!(
                "{text}; a locked snapshot takes a key that may set retention (`stele key create --access \
                 read,write,list,retain`)"
            )),
            BackupError::Failed(text) if text.contains("InvalidRequest") => {
                BackupError::Invalid(format!("{text}; a locked snapshot takes a bucket with Object Lock"))
            }
            other => other,
        }
    }

    fn put(&self, name: &Name, body: &BucketBody, headers: &[(&str, &str)]) -> Result<()> {
        let path = self.path(name);
        let ask = BucketRequest { method: "PUT", path: &path, query: "", headers, max: TEXT_MAX };
        let answer = self.send(ask, body)?;
        let repeated = answer.repeated;
        match judge(self.client.place(), ask, answer) {
            // The number of an epoch belongs to one prune: of two that store the same, one must not
            // go on.
            Err(BackupError::Exists(text)) if repeated && !name.is_in(Folder::Epochs) => {
                let stored = self.get(name, body.bytes.len() as u64);
                if stored.is_ok_and(|stored| stored == body.bytes) { Ok(()) } else { Err(BackupError::Exists(text)) }
            }
            other => other.map(drop),
        }
    }

    fn read(&self, name: &Name, range: Option<&str>, max: u64) -> Result<Vec<u8>> {
        let path = self.path(name);
        let range = range.map(|range| ("range", range));
        let answer =
            self.ask(BucketRequest { method: "GET", path: &path, query: "", headers: range.as_slice(), max }, b"")?;
        Ok(answer.body)
    }

    fn show(&self, name: &Name) -> Result<Shown> {
        let path = self.path(name);
        let ask = BucketRequest { method: "HEAD", path: &path, query: "", headers: &[], max: TEXT_MAX };
        let answer = self.ask(ask, b"")?;
        Ok(Shown {
            version: answer.header("x-amz-version-id").map(str::to_owned),
            governance: answer.header("x-amz-object-lock-mode") == Some("GOVERNANCE"),
            kept: answer.header("x-amz-object-lock-retain-until-date").and_then(Kept::parse),
            held: answer.header("x-amz-object-lock-legal-hold") == Some("ON"),
        })
    }

    fn delete(&self, name: &Name, query: &str) -> Result<()> {
        let path = self.path(name);
        self.ask(BucketRequest { method: "DELETE", path: &path, query, headers: &[], max: TEXT_MAX }, b"").map(drop)
    }
}

impl Store for Repository {
    fn place(&self) -> String {
        self.client.place().to_owned()
    }

    fn create(&self, name: &Name, bytes: &[u8]) -> Result<()> {
        self.put(name, &BucketBody::copy(bytes), &[("if-none-match", "*")])
    }

    fn create_from(&self, name: &Name, bytes: Vec<u8>) -> Result<Vec<u8>> {
        let body = BucketBody { bytes: bytes.into(), blake3: name.content_hash() };
        self.put(name, &body, &[("if-none-match", "*")])?;
        // Without a copy: the request is over, and this is the only owner.
        Ok(body.bytes.into())
    }

    fn replace(&self, name: &Name, bytes: &[u8]) -> Result<()> {
        self.put(name, &BucketBody::copy(bytes), &[])
    }

    fn lock(&self, name: &Name, until: u64) -> Result<()> {
        let is = self.show(name)?;
        if is.kept.is_some_and(|kept| until <= kept.until) && !is.governance {
            return Ok(());
        }
        // The end that it has may lie within a second, and no end may come before it.
        let longest = is.kept.map_or(0, Kept::covering).max(until);
        let document = format!(
            "<Retention xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Mode>COMPLIANCE</Mode>\
             <RetainUntilDate>{}</RetainUntilDate></Retention>",
            moment(longest)
        );
        let (path, sum) = (self.path(name), checksum(document.as_bytes()));
        // By its version: an object that another writer puts there meanwhile is not the one that
        // was meant.
        let version = is.version.map(|version| format!("&versionId={}", encoded(&version))).unwrap_or_default();
        let query = format!("retention={version}");
        let headers = [("x-amz-checksum-sha256", sum.as_str())];
        let ask = BucketRequest { method: "PUT", path: &path, query: &query, headers: &headers, max: TEXT_MAX };
        self.ask(ask, document.as_bytes()).map(drop).map_err(|error| self.explained(error))
    }

    fn has_locks(&self) -> Result<bool> {
        let path = self.client.path();
        let ask = BucketRequest { method: "GET", path: &path, query: "object-lock=", headers: &[], max: TEXT_MAX };
        match self.ask(ask, b"") {
            Ok(_) => Ok(true),
            Err(BackupError::Missing(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn locks_all(&self) -> Result<Option<String>> {
        let path = self.client.path();
        let ask = BucketRequest { method: "GET", path: &path, query: "object-lock=", headers: &[], max: TEXT_MAX };
        match self.ask(ask, b"") {
            Ok(answer) => Ok(default_retention(&String::from_utf8_lossy(&answer.body))
                .map(|retention| format!("bucket '{}' locks every new object ({retention})", self.client.name()))),
            // A key without the right to ask may use the bucket all the same.
            Err(BackupError::Missing(_) | BackupError::Refused(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn create_locked(&self, name: &Name, bytes: &[u8], until: u64) -> Result<()> {
        let (sum, until) = (checksum(bytes), moment(until));
        let headers = [
            ("if-none-match", "*"),
            ("x-amz-checksum-sha256", sum.as_str()),
            ("x-amz-object-lock-mode", "COMPLIANCE"),
            ("x-amz-object-lock-retain-until-date", until.as_str()),
        ];
        self.put(name, &BucketBody::copy(bytes), &headers).map_err(|error| self.explained(error))
    }

    fn kept_until(&self, name: &Name) -> Result<Option<u64>> {
        let (is, now) = (self.show(name)?, self.now()?);
        Ok(is.kept_until().filter(|until| *until > now))
    }

    fn locked_until(&self, name: &Name) -> Result<Option<u64>> {
        let (is, now) = (self.show(name)?, self.now()?);
        // What a privileged caller may remove is no lock.
        Ok(is.kept_until().filter(|until| *until > now && (is.held || !is.governance)))
    }

    fn get(&self, name: &Name, max: u64) -> Result<Vec<u8>> {
        self.read(name, None, max)
    }

    fn get_range(&self, name: &Name, range: Range<u64>) -> Result<Vec<u8>> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let length = range.end - range.start;
        let bytes = self.read(name, Some(&format!("bytes={}-{}", range.start, range.end - 1)), length)?;
        if bytes.len() as u64 != length {
            return Err(BackupError::Damaged(format!("{} is too short", name.text())));
        }
        Ok(bytes)
    }

    fn get_range_into(&self, name: &Name, range: Range<u64>, into: &mut Vec<u8>) -> Result<()> {
        self.client.give_back(std::mem::take(into));
        *into = self.get_range(name, range)?;
        Ok(())
    }

    fn list(&self, folder: Folder, each: &mut dyn FnMut(Listed) -> Result<()>) -> Result<()> {
        let (path, prefix) = (self.client.path(), format!("{}{}/", self.client.prefix(), folder.name()));
        let mut token: Option<String> = None;
        loop {
            let mut query =
                token.as_ref().map(|token| format!("continuation-token={}&", encoded(token))).unwrap_or_default();
            query += &format!("list-type=2&max-keys=1000&prefix={}", encoded(&prefix));
            let ask = BucketRequest { method: "GET", path: &path, query: &query, headers: &[], max: TEXT_MAX };
            let answer = self.ask(ask, b"")?;
            let page = Page::parse(&String::from_utf8_lossy(&answer.body), folder, self.client.prefix())?;
            page.listed.into_iter().try_for_each(&mut *each)?;
            if page.next.is_none() {
                return Ok(());
            }
            // A server that repeats a part would be asked for ever.
            if page.next == token {
                return Err(BackupError::Failed(format!("{}: the listing does not go on", self.client.place())));
            }
            token = page.next;
        }
    }

    fn remove(&self, name: &Name) -> Result<()> {
        let mut shown = self.show(name)?;
        for _ in 0..VERSIONS_MAX {
            let Some(version) = shown.version.filter(|version| version != "null") else { return self.delete(name, "") };
            match self.delete(name, &format!("versionId={}", encoded(&version))) {
                Err(BackupError::Refused(_)) if HIDDEN.iter().any(|folder| name.is_in(*folder)) => {
                    return self.delete(name, "");
                }
                other => other?,
            }
            // An earlier version is the object now: a session that had ended would live again.
            shown = match self.show(name) {
                Err(BackupError::Missing(_)) => return Ok(()),
                shown => shown?,
            };
        }
        Err(BackupError::Failed(format!(
            "{} has more than {VERSIONS_MAX} versions in {}",
            name.text(),
            self.client.place()
        )))
    }

    fn now(&self) -> Result<u64> {
        let (path, query) = (self.client.path(), self.first_name());
        let answer =
            self.ask(BucketRequest { method: "GET", path: &path, query: &query, headers: &[], max: TEXT_MAX }, b"")?;
        let date = answer.header("date").and_then(|date| httpdate::parse_http_date(date).ok());
        let since = date.and_then(|date| date.duration_since(std::time::UNIX_EPOCH).ok());
        since
            .map(|since| since.as_secs())
            .ok_or_else(|| BackupError::Failed(format!("{} tells no time", self.client.place())))
    }

    fn is_local(&self) -> bool {
        false
    }

    fn advice(&self) -> Option<String> {
        let path = self.client.path();
        let ask = BucketRequest { method: "GET", path: &path, query: "versioning=", headers: &[], max: TEXT_MAX };
        // A server that does not say, or says it to others alone, is no reason to make no
        // repository.
        let answer = self.ask(ask, b"").ok()?;
        let enabled = tag(&String::from_utf8_lossy(&answer.body), "Status").as_deref() == Some("Enabled");
        let text =
            "keeps no versions: a key that may only write can destroy every backup in it by storing other objects";
        (!enabled).then(|| format!("bucket '{}' {text} under the same names; turn versions on", self.client.name()))
    }
}

/// The default retention in the answer to GetObjectLockConfiguration, in words.
fn default_retention(text: &str) -> Option<String> {
    let (mode, days, years) = (tag(text, "Mode")?, tag(text, "Days"), tag(text, "Years"));
    let period = days.map(|days| format!("{days} days")).or_else(|| years.map(|years| format!("{years} years")));
    Some(format!("{mode} for {}", period.as_deref().unwrap_or("an unknown time")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_that_locks_every_object_says_so() {
        let rule = |inside: &str| format!("<ObjectLockEnabled>Enabled</ObjectLockEnabled>{inside}");
        let default = "<Rule><DefaultRetention><Mode>GOVERNANCE</Mode><Days>3</Days></DefaultRetention></Rule>";
        assert_eq!(default_retention(&rule(default)).as_deref(), Some("GOVERNANCE for 3 days"));
        let default = "<Rule><DefaultRetention><Mode>COMPLIANCE</Mode><Years>7</Years></DefaultRetention></Rule>";
        assert_eq!(default_retention(&rule(default)).as_deref(), Some("COMPLIANCE for 7 years"));
        assert_eq!(default_retention(&rule("")), None);
    }

    /// A repository on a server that gives each request the answer of its first line.
    fn served(answer: impl Fn(&str) -> &'static str + Send + 'static) -> (Repository, tokio::runtime::Runtime) {
        use std::io::{BufRead, BufReader, Write};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let place = format!("s3+http://{}/bucket/laptop", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let mut reader = BufReader::new(connection.unwrap());
                let mut line = String::new();
                let _ = reader.read_line(&mut line);
                let mut header = String::new();
                while reader.read_line(&mut header).is_ok_and(|length| length > 2) {
                    header.clear();
                }
                let _ = reader.get_mut().write_all(answer(&line).as_bytes());
            }
        });
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let _entered = runtime.enter();
        let text = || "text".to_owned();
        let keys = Keys { access: text(), secret: text(), token: None, region: text() };
        let Ok(repository) = Repository::with_keys(&place, keys, 1) else { panic!("{place}") };
        drop(_entered);
        (repository, runtime)
    }

    #[test]
    fn a_server_that_answers_nothing_else_either_is_out() {
        const BUSY: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        const GOOD: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        const DENIED: &str = "HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        let name = Name::epoch(1);
        let check = |listing: &'static str, object: &'static str, is_out: bool| {
            let (repository, runtime) = served(move |line| if line.contains("list-type") { listing } else { object });
            let error = repository.get_range(&name, 0..8).unwrap_err();
            assert_eq!(matches!(error, BackupError::Unreachable(_)), is_out, "{listing:?} {object:?}: {error:?}");
            assert_eq!(matches!(error, BackupError::Failed(_)), !is_out, "{listing:?} {object:?}: {error:?}");
            drop(runtime);
        };
        // What the server refuses to all is no outage.
        let wrong = "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        check(wrong, wrong, false);
        // The connection ends without an answer, in the head or in the body.
        for broken in ["", "HTTP/1.1 200", "HTTP/1.1 206 Partial\r\ncontent-length: 8\r\n\r\nhalf", BUSY] {
            check(BUSY, broken, true);
            check("", broken, true);
            // One object that the server cannot give is no outage.
            check(GOOD, broken, false);
            check(DENIED, broken, false);
        }
    }

    /// A lock that asks for an end a moment before the one there is would be a shortening.
    #[test]
    fn the_end_of_a_retention_is_covered_to_the_second() {
        let covering = |text: &str| Kept::parse(text).map(|kept| kept.covering() - kept.until);
        assert_eq!(covering("2026-11-28T10:00:00.934Z"), Some(1));
        assert_eq!(covering("2026-11-28T10:00:00.000Z"), Some(0));
        assert_eq!(covering("2026-11-28T10:00:00Z"), Some(0));
        assert_eq!(covering("tomorrow"), None);
    }
}
