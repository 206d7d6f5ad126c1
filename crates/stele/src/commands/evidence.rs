//! Runs `stele receipt` and `stele proof`. What verifies reads files only: no server, no pool, no
//! configuration.

mod beyond;
mod content;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use stele_archive::{
    BundleFiles, ContentHasher, DisposalCertificate, Finding, Manifest, ProofSelection, ProvenVersion, Receipt,
    SignedHead, later_format, verify_bundle_with,
};
use stele_ground::{Shown, counted};
use stele_server::api::evidence as calls;
use stele_server::config::Site;
use stele_server::connection::Connection;
use stele_server::evidence::{public_key, read_text};
use stele_server::failure::{Failure, Kind, Outcome, io_failure};
use stele_server::files;
use stele_server::said::json_line;

use crate::cli::evidence::{Beyond, Proof, Receipt as ReceiptCommand};
use crate::commands::archive::anchor;
use crate::commands::names::object_named;
use crate::commands::print_json;

/// Bytes of a manifest that are read for its format.
const MANIFEST_MAX: u64 = 1 << 20;

pub async fn receipt(site: &Site, json: bool, command: ReceiptCommand) -> Outcome<()> {
    match command {
        ReceiptCommand::Get { object, record, to } => {
            let (bucket, key, version) = object_named(&object)?;
            let receipt = exact(site, calls::ReceiptGet { bucket, key, version, record }).await?;
            write_new(&to, &line(&receipt)?)
        }
        ReceiptCommand::Verify { file, key, content, beyond } => {
            let public = public_key(&key)?;
            let statement = read_statement(&file)?;
            let holds = |checked: Result<(), Finding>, path: &Path| checked.map_err(|finding| wrong(path, &finding));
            holds(statement.verify(&public), &file)?;
            if let Some(path) = &content {
                holds(statement.check_content(path)?, path)?;
            }
            let (record, head) = statement.place();
            let reached = beyond::check(&beyond, &file, head, &public)?;
            if json {
                return print_json(&serde_json::json!({
                    "store": head.store,
                    "record": record,
                    "head_records": head.records,
                    "content_compared": content.is_some(),
                    "later_records": reached.later.map(|head| head.records),
                    "countersigned": reached.countersigned,
                }));
            }
            match &statement {
                Statement::Receipt(receipt) => show(receipt),
                Statement::Disposal(made) => crate::commands::disposal::show(made),
            }
            if let Some(path) = content {
                println!("{} is its content.", path.display());
            }
            reached.show();
            Ok(())
        }
    }
}

/// A signed statement in a file.
enum Statement {
    Receipt(Box<Receipt>),
    Disposal(Box<DisposalCertificate>),
}

impl Statement {
    fn verify(&self, public: &[u8]) -> Result<(), Finding> {
        match self {
            Statement::Receipt(receipt) => receipt.verify(public),
            Statement::Disposal(made) => made.verify(public),
        }
    }

    /// The number of its record, and the head over it.
    fn place(&self) -> (u64, &SignedHead) {
        match self {
            Statement::Receipt(receipt) => (receipt.entry.record, &receipt.head),
            Statement::Disposal(made) => (made.record, &made.head),
        }
    }

    fn check_content(&self, path: &Path) -> Outcome<Result<(), Finding>> {
        Ok(match self {
            Statement::Receipt(receipt) => receipt.check_content(&digests(path, receipt.parts.as_deref())?),
            Statement::Disposal(made) => made.check_content(&digests(path, None)?),
        })
    }
}

fn show(receipt: &Receipt) {
    let version = receipt.version.as_deref().map(|version| format!("@{version}")).unwrap_or_default();
    println!("{}/{}{}", Shown(&receipt.bucket), Shown(&receipt.key), Shown(&version));
    let mut lines: Vec<(&str, Option<String>)> = vec![
        ("act", Some(format!("{} by {} at {}", receipt.action, receipt.actor, receipt.time))),
        ("size", receipt.size_bytes.map(|size| counted(size, "byte"))),
        ("BLAKE3", receipt.blake3.clone()),
        ("SHA-256", receipt.sha256.clone()),
    ];
    let until = receipt.keep_until.as_deref().unwrap_or_default();
    lines.push(("retention", receipt.retention_mode.as_ref().map(|mode| format!("{mode} until {until}"))));
    lines.push(("legal hold", receipt.legal_hold.map(|hold| if hold { "on" } else { "off" }.to_owned())));
    lines.push(("matters", (!receipt.matters.is_empty()).then(|| receipt.matters.join(", "))));
    lines.push(("class", receipt.class.clone()));
    let (record, head) = (receipt.entry.record, &receipt.head);
    lines.push(("audit log", Some(format!("record {record}, under the head of {}", counted(head.records, "record")))));
    lines.push(("signed", Some(format!("{} by store {}", receipt.signed, receipt.store))));
    for (name, value) in lines {
        if let Some(value) = value {
            println!("  {name:<11}{}", Shown(&value));
        }
    }
    println!("The receipt holds.");
}

pub async fn proof(site: &Site, json: bool, command: Proof) -> Outcome<()> {
    match command {
        Proof::Export { bucket, prefix, matter, to } => {
            // What can be known before the server records the export.
            vacant(&to)?;
            let connection = Connection::find(site).await?;
            let exported = export(&connection, ProofSelection { bucket, prefix, matter }, &to).await;
            connection.leave().await?;
            exported?;
            verify(json, &to, None, None, &Beyond { later: None, anchor: None, witness: None })
        }
        Proof::Verify { dir, key, content, beyond } => verify(json, &dir, key.as_deref(), content.as_deref(), &beyond),
    }
}

/// Refuses a path at which no directory can be made.
fn vacant(to: &Path) -> Outcome<()> {
    let parent = to.parent().filter(|parent| !parent.as_os_str().is_empty());
    let why: std::io::Error = match (fs::symlink_metadata(to), parent.map(fs::metadata)) {
        (Ok(_), _) => Errno::EXIST.into(),
        (Err(error), _) if error.kind() != ErrorKind::NotFound => error,
        (_, Some(Err(error))) => error,
        (_, Some(Ok(parent))) if !parent.is_dir() => Errno::NOTDIR.into(),
        _ => return Ok(()),
    };
    Err(io_failure("make", to, &why))
}

/// Writes an export into a new directory, which is made once the server has found the bucket and
/// the matter.
async fn export(connection: &Connection, selection: ProofSelection, to: &Path) -> Outcome<()> {
    let begun = connection.exact(calls::ProofBegin { selection }).await?;
    fs::create_dir(to).map_err(|error| io_failure("make", to, &error))?;
    // A directory without a file is taken back.
    write_pieces(connection, begun.export, to).await.map_err(|failure| match fs::remove_dir(to) {
        Ok(()) => failure,
        Err(_) => {
            let next = format!("{} is not complete; remove it. {}", to.display(), failure.next);
            failure.next(next.trim_end().to_owned())
        }
    })
}

async fn write_pieces(connection: &Connection, export: u64, to: &Path) -> Outcome<()> {
    let mut files: BTreeMap<PathBuf, File> = BTreeMap::new();
    let mut signed = false;
    while !signed && let Some(piece) = connection.exact(calls::ProofNext { export }).await? {
        let path = to.join(Path::new(&piece.file).file_name().unwrap_or_default());
        let file = match files.entry(path.clone()) {
            std::collections::btree_map::Entry::Occupied(open) => open.into_mut(),
            std::collections::btree_map::Entry::Vacant(new) => {
                new.insert(File::create_new(&path).map_err(|error| io_failure("write", &path, &error))?)
            }
        };
        file.write_all(piece.text.as_bytes()).map_err(|error| io_failure("write", &path, &error))?;
        if let Some(signature) = piece.signature {
            let (path, bytes) = (path.with_extension("sig"), hex(&signature).unwrap_or_default());
            let written = File::create_new(&path).and_then(|mut file| file.write_all(&bytes).and(file.sync_all()));
            written.map_err(|error| io_failure("write", &path, &error))?;
            signed = true;
        }
    }
    for (path, file) in &files {
        file.sync_all().map_err(|error| io_failure("write", path, &error))?;
    }
    Ok(())
}

fn verify(json: bool, dir: &Path, key: Option<&Path>, content: Option<&Path>, beyond: &Beyond) -> Outcome<()> {
    let public = key.map(public_key).transpose()?;
    // A path that is wrong says nothing about the proof.
    fs::read_dir(dir).map_err(|error| {
        let next = "name the directory that `stele proof export` wrote, the one with manifest.json";
        io_failure("read the proof in", dir, &error).next(next)
    })?;
    if !["manifest.json", "manifest.sig"].iter().any(|name| dir.join(name).exists()) {
        return Err(Failure::missing(format!("{} is no retention proof: it has no manifest.json", dir.display()))
            .next("name the directory that `stele proof export` wrote"));
    }
    // A later version may write other files, and sign them otherwise.
    let manifest = Directory(dir).manifest();
    refuse_later(dir, &manifest)?;
    if let Some(Err(error)) = content.map(fs::read_dir) {
        let copies = content.unwrap_or(dir).display();
        return Err(Failure::missing(format!("cannot read the copies in --content {copies}: {error}"))
            .next("name the directory with the copies; the proof itself was not verified"));
    }
    let mut copies = content.map(|content| (content::Copies::new(content), Apart::new(content)));
    let each = &mut |version: &ProvenVersion| match &mut copies {
        Some((copies, apart)) => match apart.leaves(version)? {
            true => Ok(()),
            false => copies.compare(version),
        },
        None => Ok(()),
    };
    let verdict = verify_bundle_with(&Directory(dir), public.as_ref().map(|key| key.as_slice()), each)
        .and_then(|verdict| copies.as_mut().map_or(Ok(()), |(_, apart)| apart.end()).map(|()| verdict))
        .map_err(|finding| wrong(dir, &finding))?;
    let compared = copies.as_ref().map(|(copies, _)| copies.compared());
    let left = copies.as_ref().map(|(copies, apart)| copies.left() + apart.left);
    let signer = hex(&verdict.public_key).unwrap_or_default();
    let reached = beyond::check(beyond, dir, &verdict.head, &signer)?;
    if json {
        return print_json(&ProofView {
            verdict: &verdict,
            content_compared: compared,
            content_left: left,
            later_records: reached.later.map(|head| head.records),
            countersigned: reached.countersigned,
        });
    }
    let matter = verdict.matter.as_deref().map(|matter| format!(" under the matter {matter}")).unwrap_or_default();
    println!(
        "{}/{}{}: {} and {} of the audit log hold,",
        Shown(&verdict.bucket),
        Shown(&verdict.prefix),
        Shown(&matter),
        counted(verdict.versions, "version"),
        counted(verdict.records, "record")
    );
    let time = Shown(&verdict.head_time).to_string();
    let head = counted(verdict.head_records, "record");
    println!("under the head of {head} that store {} signed at {time}.", verdict.store);
    if !verdict.key_given {
        println!("Compare the key with one that came on another way: {}", verdict.public_key);
    }
    if let (Some(compared), Some(left), Some(dir)) = (compared, left, content) {
        println!("{} has the content of {compared} of them.", dir.display());
        if left > 0 {
            println!("{left} have keys that are no names of files there, and were not compared.");
        }
    }
    reached.show();
    Ok(())
}

/// The verdict as JSON.
#[derive(serde::Serialize)]
struct ProofView<'a> {
    #[serde(flatten)]
    verdict: &'a stele_archive::ProofVerdict,
    content_compared: Option<u64>,
    content_left: Option<u64>,
    later_records: Option<u64>,
    countersigned: Option<String>,
}

/// Keys that cannot all be files of one directory, such as `a` and `a/b`. Versions come by key, so
/// that keys with the same beginning follow one another.
struct Apart<'a> {
    dir: &'a Path,
    /// Each key begins with the one before it. The last one came last.
    nested: Vec<Nested>,
    /// Versions whose key is a folder of another key's file, or the other way round.
    left: u64,
}

struct Nested {
    key: String,
    /// It is a folder in the directory.
    is_folder: bool,
    /// A later key needs it to be one.
    holds_another: bool,
}

impl<'a> Apart<'a> {
    fn new(dir: &'a Path) -> Apart<'a> {
        Apart { dir, nested: Vec::new(), left: 0 }
    }

    /// Whether another key takes the place of this version's file. Such a version is counted.
    fn leaves(&mut self, version: &ProvenVersion) -> Result<bool, Finding> {
        let key = version.key.as_str();
        let is_name = |name: &str| !matches!(name, "" | "." | "..") && !name.contains('\0');
        if version.delete_marker || !key.split('/').all(is_name) {
            return Ok(false);
        }
        while self.nested.last().is_some_and(|last| !key.starts_with(&last.key)) {
            self.leave_last()?;
        }
        let mut is_below_file = false;
        for above in &mut self.nested {
            if key.strip_prefix(&above.key).is_some_and(|rest| rest.starts_with('/')) {
                above.holds_another = true;
                is_below_file |= self.dir.join(&above.key).is_file();
            }
        }
        if self.nested.last().is_none_or(|last| last.key != key) {
            let is_folder = self.dir.join(key).is_dir();
            self.nested.push(Nested { key: key.to_owned(), is_folder, holds_another: false });
        }
        let leaves = is_below_file || self.nested.last().is_some_and(|last| last.is_folder);
        self.left += u64::from(leaves);
        Ok(leaves)
    }

    fn leave_last(&mut self) -> Result<(), Finding> {
        match self.nested.pop() {
            Some(last) if last.is_folder && !last.holds_another => {
                Err(format!("{} is a directory", self.dir.join(last.key).display()))
            }
            _ => Ok(()),
        }
    }

    /// The last version has come.
    fn end(&mut self) -> Result<(), Finding> {
        while !self.nested.is_empty() {
            self.leave_last()?;
        }
        Ok(())
    }
}

/// The files of a bundle in a directory. Everything in it counts; only plain files are read.
struct Directory<'a>(&'a Path);

impl Directory<'_> {
    /// As much of the manifest as can be read; the verification says what is wrong with the rest.
    fn manifest(&self) -> Vec<u8> {
        let mut text = Vec::new();
        if let Ok(file) = self.open("manifest.json") {
            let _ = file.take(MANIFEST_MAX).read_to_end(&mut text);
        }
        text
    }
}

impl BundleFiles for Directory<'_> {
    fn names(&self) -> Result<Vec<String>, Finding> {
        let unread = |error: std::io::Error| format!("it cannot be read: {error}");
        let entries = fs::read_dir(self.0).map_err(unread)?;
        entries
            .map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()).map_err(unread))
            .collect()
    }

    fn open(&self, name: &str) -> Result<Box<dyn Read + '_>, Finding> {
        let path = self.0.join(name);
        let unread = |error: std::io::Error| format!("{name} cannot be read: {error}");
        if !fs::symlink_metadata(&path).map_err(unread)?.is_file() {
            return Err(format!("{name} is not a plain file"));
        }
        Ok(Box::new(File::open(&path).map_err(unread)?))
    }
}

/// `stele audit key`.
pub async fn key(site: &Site, json: bool, to: &str) -> Outcome<()> {
    let head = exact(site, stele_server::api::archive::AuditHead {}).await?;
    if json {
        return print_json(&serde_json::json!({ "store": head.store, "public_key": head.public_key }));
    }
    write_new(to, &format!("{}\n", head.public_key))
}

/// `stele audit prove`.
pub async fn prove(site: &Site, from: &Path, until: Option<&Path>, to: &str) -> Outcome<()> {
    let text = read_text(from)?;
    let manifest = || serde_json::from_str::<Manifest>(text.trim()).map(|manifest| manifest.head);
    let head = match serde_json::from_str::<SignedHead>(text.trim()).or_else(|_| manifest()) {
        Ok(head) => head,
        Err(_) => read_statement(from)?.place().1.clone(),
    };
    let until = until.map(anchor::read_head).transpose()?;
    let proof = exact(site, calls::AuditProve { from: head, until }).await?;
    write_new(to, &line(&proof)?)
}

pub(super) async fn exact<C: stele_server::api::Call>(site: &Site, call: C) -> Outcome<C::Answer> {
    let connection = Connection::find(site).await?;
    let answer = connection.exact(call).await;
    connection.leave().await?;
    answer
}

fn wrong(path: &Path, finding: &str) -> Failure {
    Failure::new(Kind::Damaged, format!("{} does not hold: {finding}", path.display()))
        .next("get it again from its source; if it stays so, it was changed or is of another store")
}

pub(super) fn line(value: &impl serde::Serialize) -> Outcome<String> {
    let text = json_line(value).map_err(|error| Failure::failed(format!("cannot write JSON: {error}")))?;
    Ok(format!("{text}\n"))
}

/// Writes a new file, or standard output.
pub(super) fn write_new(to: &str, text: &str) -> Outcome<()> {
    if to == "-" {
        print!("{text}");
        return Ok(());
    }
    files::create(Path::new(to), text.as_bytes())
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path, what: &str) -> Outcome<T> {
    let text = read_text(path)?;
    refuse_later(path, text.trim().as_bytes())?;
    serde_json::from_str(text.trim()).map_err(|error| wrong(path, &format!("it is not {what}: {error}")))
}

/// Refuses a file of a format that a later version of Stele wrote.
fn refuse_later(path: &Path, text: &[u8]) -> Outcome<()> {
    later_format(text).map_or(Ok(()), |(format, known)| Err(later(path, &format, known)))
}

/// The refusal of a file whose format this version does not know, although it may be whole.
pub(super) fn later(path: &Path, format: &str, known: &str) -> Failure {
    let message = format!(
        "{} is of the format '{format}', which a later version of Stele wrote; this one knows '{known}', and verified \
         nothing of it",
        path.display()
    );
    Failure::new(Kind::Refused, message).next("repeat the command with that version, or a later one")
}

/// A certificate of disposal, or a receipt.
fn read_statement(path: &Path) -> Outcome<Statement> {
    #[derive(serde::Deserialize)]
    struct Format {
        format: String,
    }
    let text = read_text(path)?;
    let format = serde_json::from_str::<Format>(text.trim()).map(|named| named.format).unwrap_or_default();
    match format.starts_with("stele disposal ") {
        true => read_json(path, "a certificate of disposal").map(|made| Statement::Disposal(Box::new(made))),
        false => read_receipt(path).map(|receipt| Statement::Receipt(Box::new(receipt))),
    }
}

/// A receipt as `receipt get` writes it, or as S3 answers carry it, in base64.
fn read_receipt(path: &Path) -> Outcome<Receipt> {
    let text = read_text(path)?;
    let text = text.trim();
    let decoded = match text.starts_with('{') {
        true => Some(text.as_bytes().to_vec()),
        false => base64_simd::STANDARD.decode_to_vec(text.trim_start_matches("x-stele-receipt:").trim()).ok(),
    };
    refuse_later(path, decoded.as_deref().unwrap_or_default())?;
    let read = decoded.as_deref().map(serde_json::from_slice::<Receipt>);
    match read {
        Some(Ok(receipt)) => Ok(receipt),
        Some(Err(error)) => Err(wrong(path, &format!("it is not a receipt: {error}"))),
        None => Err(wrong(path, "it is neither JSON nor base64")),
    }
}

fn hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.chars().map(|digit| u8::try_from(digit.to_digit(16)?).ok()).collect();
    digits.map(|digits| digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect())
}

fn digests(path: &Path, parts: Option<&[(u64, u64)]>) -> Outcome<stele_archive::ContentDigests> {
    let failure = |error: std::io::Error| io_failure("read", path, &error);
    let mut file = File::open(path).map_err(failure)?;
    let (mut hasher, mut buffer) = (ContentHasher::new(parts), vec![0; 1 << 20]);
    loop {
        let count = file.read(&mut buffer).map_err(failure)?;
        match buffer.get(..count).filter(|read| !read.is_empty()) {
            Some(read) => hasher.update(read),
            None => return Ok(hasher.finish()),
        }
    }
}
