//! Calls about single files of a share.

use serde::{Deserialize, Serialize};
use stele_archive::VersionId;
use stele_file::files::Files;
use stele_file::share::Share;
use stele_file::share::registry::is_archive_key;
use stele_file::{Caller, FileError, Inode, Kind as FileKind};
use stele_ground::counted_are;

use super::found::open;
use crate::api::{Actor, Call};
use crate::failure::{Failure, Kind, Outcome};
use crate::node::Node;
use crate::node::shares::failed;

/// Entries of a directory that one answer carries.
const LISTED_MAX: usize = 10_000;

/// One file of a share.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FileView {
    /// What is no text in it is shown as U+FFFD.
    pub name: String,
    /// Its number in the share, as 16 hexadecimal digits. Calls take it instead of the path.
    #[serde(default)]
    pub inode: String,
    /// `file`, `directory`, `link` or `special`.
    pub kind: String,
    /// `open`, `archived` or `locked`; none of what has no content.
    pub state: Option<String>,
    pub mode: String,
    pub uid: u32,
    pub gid: u32,
    pub size_bytes: u64,
    /// Seconds since 1970.
    #[serde(with = "crate::moment::option", default)]
    pub modified: Option<u64>,
    /// The end of its retention.
    pub retained_until: Option<String>,
    /// Its content stays in the cache.
    pub pinned: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ls {
    pub name: String,
    pub path: String,
}

impl Call for Ls {
    const NAME: &'static str = "share/ls";
    const READS: bool = true;
    type Answer = Vec<FileView>;
    async fn perform(self, node: &Node, _: &Actor) -> Outcome<Vec<FileView>> {
        let share = open(node, &self.name)?;
        let inode = find(&share, &self.name, &self.path)?;
        let about = share.attributes(inode).await.map_err(failed)?;
        if about.kind != FileKind::Directory {
            let name = self.path.rsplit('/').next().unwrap_or(&self.path).to_owned();
            return Ok(vec![file_view(node, &share, name, &about)?]);
        }
        let (mut views, mut cookie) = (Vec::new(), 0);
        loop {
            let listing = share.read_directory(&Caller::ROOT, inode, cookie, 1000).await.map_err(failed)?;
            for entry in &listing.entries {
                let name = String::from_utf8_lossy(&entry.name).into_owned();
                views.push(file_view(node, &share, name, &entry.attributes)?);
                cookie = entry.cookie;
            }
            if listing.end || listing.entries.is_empty() {
                return Ok(views);
            }
            if views.len() >= LISTED_MAX {
                return Err(Failure::new(Kind::Refused, format!("more than {LISTED_MAX} entries lie there"))
                    .next("list a directory below, or mount the share"));
            }
        }
    }
}

/// The file of a path. What no file has as its path may be the number of one.
fn find(share: &Share, name: &str, path: &str) -> Outcome<Inode> {
    share.resolve(path).or_else(|error| share.numbered(path).ok_or(error)).map_err(|error| failed_at(name, path, error))
}

/// A failure that names the file.
fn failed_at(name: &str, path: &str, error: FileError) -> Failure {
    let failure = failed(error);
    Failure { error: format!("`{name}/{path}`: {}", failure.error), ..failure }
}

fn file_view(node: &Node, share: &Share, name: String, about: &stele_file::Attributes) -> Outcome<FileView> {
    let state = match about.kind {
        FileKind::File => Some(share.state(about.inode).map_err(failed)?),
        _ => None,
    };
    let now = node.archive()?.compliance_time();
    Ok(FileView {
        name,
        inode: format!("{:016x}", about.inode.0),
        kind: match about.kind {
            FileKind::File => "file",
            FileKind::Directory => "directory",
            FileKind::Link => "link",
            _ => "special",
        }
        .to_owned(),
        state: state.as_ref().map(|state| state.word(now).to_owned()),
        mode: format!("{:04o}", about.mode),
        uid: about.uid,
        gid: about.gid,
        size_bytes: about.size,
        modified: u64::try_from(about.modified.seconds).ok(),
        retained_until: state.and_then(|state| state.committed).map(|until| until.to_string()),
        pinned: share.is_pinned(about.inode),
    })
}

/// Archives a file now, without waiting until it is idle.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ArchiveFile {
    pub name: String,
    pub path: String,
}

impl Call for ArchiveFile {
    const NAME: &'static str = "share/archive";
    type Answer = FileView;
    async fn perform(self, node: &Node, _: &Actor) -> Outcome<FileView> {
        let share = open(node, &self.name)?;
        let inode = find(&share, &self.name, &self.path)?;
        share.archive_now(inode).await.map_err(|error| failed_at(&self.name, &self.path, error))?;
        let about = share.attributes(inode).await.map_err(failed)?;
        file_view(node, &share, self.path, &about)
    }
}

/// Keeps a file's content in the cache, or no longer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pin {
    pub name: String,
    pub path: String,
    pub pinned: bool,
}

impl Call for Pin {
    const NAME: &'static str = "share/pin";
    type Answer = FileView;
    async fn perform(self, node: &Node, _: &Actor) -> Outcome<FileView> {
        let share = open(node, &self.name)?;
        let inode = find(&share, &self.name, &self.path)?;
        let done = match self.pinned {
            true => share.pin(inode).await.map(drop),
            false => share.unpin(inode).await,
        };
        done.map_err(|error| failed_at(&self.name, &self.path, error))?;
        let about = share.attributes(inode).await.map_err(failed)?;
        file_view(node, &share, self.path, &about)
    }
}

/// Why a file cannot be removed, and when it could.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExplainFile {
    pub name: String,
    pub path: String,
}

impl Call for ExplainFile {
    const NAME: &'static str = "share/why";
    const READS: bool = true;
    type Answer = stele_archive::Why;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<stele_archive::Why> {
        explained(node, actor, &self.name, &self.path, None).await
    }
}

/// `stele why` for a bucket that is a share: its keys are the paths of files. None: the bucket is
/// no share. Also none where the key is the one that the archive gives to a file, and no file has
/// this path: versions of a removed file have no other.
pub async fn why(
    node: &Node,
    actor: &Actor,
    bucket: &str,
    key: &str,
    version: Option<VersionId>,
) -> Outcome<Option<stele_archive::Why>> {
    if node.registry()?.get(bucket).map_err(failed)?.is_none() {
        return Ok(None);
    }
    let is_path = || node.shares.get(bucket).is_some_and(|share| share.resolve(key).is_ok());
    if is_archive_key(key) && !is_path() {
        return Ok(None);
    }
    explained(node, actor, bucket, key, version).await.map(Some)
}

async fn explained(
    node: &Node,
    actor: &Actor,
    name: &str,
    path: &str,
    version: Option<VersionId>,
) -> Outcome<stele_archive::Why> {
    let share = open(node, name)?;
    let inode = find(&share, name, path)?;
    let state =
        share.state(inode).map_err(|error| match (failed_at(name, path, error), share.committed_below(inode)) {
            (failure, Ok(count @ 1..)) => failure.next(format!(
                "{} below it, and it keeps its name until they are removed; `stele share ls` shows them",
                counted_are(count, "committed file")
            )),
            (failure, _) => failure,
        })?;
    match node.archive()?.why(&actor.caller(), name, &state.key, version).await {
        Err(stele_archive::ArchiveError::NoSuchKey { .. }) => {
            Err(Failure::missing(format!("`{name}/{path}` is not archived; nothing retains it"))
                .next("`stele share archive` archives it now"))
        }
        other => {
            let mut why = other?;
            why.key = format!("{path} (inode {})", state.key);
            // The file keeps its names while any of its versions is kept.
            if version.is_none()
                && !why.protected
                && let Some(reason) = share.kept(inode).await.map_err(|error| failed_at(name, path, error))?
            {
                (why.protected, why.deletable_from) = (true, None);
                why.reasons.insert(0, format!("the file keeps its name: {reason}"));
            }
            Ok(why)
        }
    }
}
