//! Signed heads in a bucket of another S3 server, as `[archive] heads_bucket` names it.
//!
//! A head is stored once under its own name (`If-None-Match: *`), and never again. With
//! `heads_bucket_days` the bucket locks it, so that neither this host nor anyone else removes it
//! before that.
//!
//! Failure model: the server may be away, hang, or hold objects of other people. The calls block,
//! so only threads that others do not wait for make them. An object that is no head of this store
//! is passed over, as in a directory.

use std::path::PathBuf;
use std::sync::Arc;

use stele_archive::SignedHead;
use stele_backup::BackupError;
use stele_backup::store::s3;
use stele_ground::calendar::moment;
use stele_lab::live::s3::sign::Keys;

use super::{Found, HEAD_BYTES_MAX, HEADS_MAX, Keeper, countersigned_file, in_order, is_same, names, text};
use crate::apart::Apart;
use crate::bucket::{BucketBody, BucketClient, BucketRequest, Result, TEXT_MAX, checksum, encoded, judge};
use crate::config::{Config, Site};
use crate::failure::{Failure, Outcome, io_failure};
use crate::witness::Countersigned;

/// The longest lock of a head: a hundred years.
const DAYS_MAX: u32 = 36_525;
const DAY: u64 = 86_400;
/// Attempts of a request. The next turn asks again, and a stop should not wait for a server that is
/// away.
const ATTEMPTS: u32 = 2;

pub struct HeadBucket {
    bucket: BucketClient,
    /// Where its requests run. They may outlast the server's own runtime: a thread whose request
    /// hangs is left behind.
    _runtime: Apart,
    days: Option<u32>,
}

/// Keys as `stele key create --json` prints them, or as other S3 clients keep them.
fn keys_in(text: &str, region: String) -> Option<Keys> {
    #[derive(serde::Deserialize)]
    struct Printed {
        access_key: String,
        secret_key: String,
    }
    match serde_json::from_str::<Printed>(text.trim()) {
        Ok(Printed { access_key, secret_key }) => {
            Some(Keys { access: access_key, secret: secret_key, token: None, region })
        }
        Err(_) => Keys::parse(text, "default", region),
    }
}

impl HeadBucket {
    /// Reads the configuration. Nothing is sent yet.
    pub fn of(site: &Site, config: &Config) -> Outcome<Option<Arc<HeadBucket>>> {
        let archive = &config.archive;
        let Some(address) = &archive.heads_bucket else {
            return match archive.heads_bucket_key.is_some() || archive.heads_bucket_days.is_some() {
                false => Ok(None),
                true => Err(Failure::usage("[archive] heads_bucket_key or heads_bucket_days, and no heads_bucket")
                    .next("write the place into heads_bucket: s3://HOST[:PORT]/BUCKET[/PREFIX]")),
            };
        };
        if archive.heads_bucket_days.is_some_and(|days| days == 0 || days > DAYS_MAX) {
            return Err(Failure::usage(format!("[archive] heads_bucket_days: not between 1 and {DAYS_MAX}"))
                .next("leave it out, if the bucket should lock no head"));
        }
        let keys = match &archive.heads_bucket_key {
            None => Keys::find().map_err(|error| {
                Failure::usage(format!("[archive] heads_bucket: {error}"))
                    .next("name a file with the keys in [archive] heads_bucket_key")
            })?,
            Some(path) => {
                let path = site.path(path);
                let text = crate::whole::read_text(&path)
                    .map_err(|error| io_failure("read the keys of heads_bucket in", &path, &error))?;
                keys_in(&text, archive.heads_bucket_region.clone()).ok_or_else(|| {
                    Failure::usage(format!("[archive] heads_bucket_key: {} holds no keys", path.display())).next(
                        "write what `stele key create --json` prints there, or a section [default] as in \
                         ~/.aws/credentials",
                    )
                })?
            }
        };
        let runtime = Apart::start("stele-bucket")?;
        let bucket = runtime.within(|| BucketClient::open(address, "place in [archive] heads_bucket", keys))?;
        let bucket = bucket.with_attempts(ATTEMPTS);
        Ok(Some(Arc::new(HeadBucket { bucket, _runtime: runtime, days: archive.heads_bucket_days })))
    }

    /// A name as people see it.
    pub fn shown(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("{}/{name}", self.bucket.place().trim_end_matches('/')))
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let (path, sum) = (self.bucket.path_of(name), checksum(bytes));
        let until = self.days.map(|days| moment(crate::node::wall_clock() + u64::from(days) * DAY));
        let mut headers = vec![("if-none-match", "*"), ("x-amz-checksum-sha256", sum.as_str())];
        if let Some(until) = &until {
            headers.push(("x-amz-object-lock-mode", "COMPLIANCE"));
            headers.push(("x-amz-object-lock-retain-until-date", until));
        }
        let ask = BucketRequest { method: "PUT", path: &path, query: "", headers: &headers, max: TEXT_MAX };
        judge(self.bucket.place(), ask, self.bucket.send(ask, &BucketBody::copy(bytes))?).map(drop)
    }

    fn put_unless_there(&self, name: &str, bytes: &[u8]) -> Outcome<()> {
        match self.put(name, bytes) {
            Err(BackupError::Exists(_)) => Ok(()),
            put => Ok(put?),
        }
    }

    /// An object's text. None: it is gone, or no text as short as a head.
    fn get(&self, name: &str) -> Result<Option<String>> {
        let path = self.bucket.path_of(name);
        // One byte more than a head may have shows that the object is longer.
        let range = format!("bytes=0-{HEAD_BYTES_MAX}");
        let headers = [("range", range.as_str())];
        let ask = BucketRequest { method: "GET", path: &path, query: "", headers: &headers, max: HEAD_BYTES_MAX + 1 };
        match self.bucket.ask(ask, b"") {
            Ok(answer) if answer.body.len() as u64 > HEAD_BYTES_MAX => Ok(None),
            Ok(answer) => Ok(String::from_utf8(answer.body.to_vec()).ok()),
            // An empty object has no range.
            Err(BackupError::Missing(_) | BackupError::Damaged(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The names of the heads, newest first.
    fn list(&self) -> Result<Vec<String>> {
        let (path, prefix) = (self.bucket.path(), self.bucket.prefix());
        let (mut found, mut token) = (Vec::new(), None::<String>);
        loop {
            let mut query =
                token.as_ref().map(|token| format!("continuation-token={}&", encoded(token))).unwrap_or_default();
            query += &format!("list-type=2&max-keys=1000&prefix={}", encoded(prefix));
            let ask = BucketRequest { method: "GET", path: &path, query: &query, headers: &[], max: TEXT_MAX };
            let answer = self.bucket.ask(ask, b"")?;
            let (entries, next) = s3::entries(&String::from_utf8_lossy(&answer.body), "signed heads")?;
            let inside = entries.iter().filter_map(|entry| entry.key.strip_prefix(prefix));
            found.extend(inside.filter(|name| name.ends_with(".head") && !name.contains('/')).map(PathBuf::from));
            if found.len() > HEADS_MAX {
                let text = format!("{} holds more than {HEADS_MAX} heads; name another prefix", self.bucket.place());
                return Err(BackupError::Failed(text));
            }
            if next.is_none() {
                return Ok(in_order(found).into_iter().filter_map(|path| path.to_str().map(str::to_owned)).collect());
            }
            // A server that repeats a part would be asked for ever.
            if next == token {
                return Err(BackupError::Failed(format!("{}: the listing does not go on", self.bucket.place())));
            }
            token = next;
        }
    }

    /// The heads, newest first. Each is read when it is asked for.
    pub(super) fn found(self: Arc<Self>) -> Outcome<impl Iterator<Item = Outcome<Found>>> {
        let names = self.list()?;
        Ok(names.into_iter().map(move |name| {
            // What other people stored under such a name may hold characters that no request can
            // carry.
            let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c));
            let text = if is_plain { self.get(&name)? } else { None };
            Ok((text.and_then(|text| serde_json::from_str(text.trim()).ok()), self.shown(&name)))
        }))
    }

    /// Which of the head's names holds exactly this head.
    fn name_of(&self, head: &SignedHead) -> Result<Option<String>> {
        let text = text(head);
        for name in names(head) {
            if self.get(&name)?.as_ref() == Some(&text) {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }
}

impl Keeper for HeadBucket {
    fn name(&self) -> String {
        self.bucket.place().to_owned()
    }

    fn write(&self, head: &SignedHead) -> Outcome<()> {
        for name in names(head) {
            match self.put(&name, text(head).as_bytes()) {
                // An answer that was lost, an earlier head of the same log, or an object of other
                // people.
                Err(BackupError::Exists(_)) => {
                    let there = self.get(&name)?.and_then(|text| serde_json::from_str(text.trim()).ok());
                    if there.is_some_and(|there| there == *head || is_same(&there, head)) {
                        return Ok(());
                    }
                }
                put => return Ok(put?),
            }
        }
        Err(Failure::failed(format!("{}: other objects have both names of a head", self.name()))
            .next("look at the bucket; another program writes there"))
    }

    fn write_stamp(&self, head: &SignedHead, reply: &[u8]) -> Outcome<()> {
        // An earlier head of the same log is there, and keeps its own stamp.
        let Some(name) = self.name_of(head)? else { return Ok(()) };
        self.put_unless_there(&name.replace(".head", ".tsr"), reply)
    }

    fn write_countersigned(&self, made: &Countersigned) -> Outcome<()> {
        let (name, text) = countersigned_file(made);
        self.put_unless_there(&name, text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_in_both_forms_and_never_shown() {
        let read = |text: &str| keys_in(text, "here".into());
        let printed = read("{\"access_key\":\"A\",\"secret_key\":\"hidden\",\"more\":1}\n").unwrap();
        let kept = read("[default]\naws_access_key_id = A\naws_secret_access_key = hidden\n").unwrap();
        for keys in [printed, kept] {
            assert_eq!((keys.access.as_str(), keys.secret.as_str(), keys.region.as_str()), ("A", "hidden", "here"));
            assert!(!format!("{keys:?}").contains("hidden"));
        }
        for wrong in ["", "{}", "A hidden", "[other]\naws_access_key_id = A\naws_secret_access_key = hidden\n"] {
            assert!(read(wrong).is_none(), "{wrong}");
        }
    }
}
