//! `stele backup dump`: a file of a snapshot on standard output.
//!
//! Each chunk is compared with its id before it is written, so what came out is right as far as it
//! goes. Some chunks are fetched at the same time, so that a distant store is not asked for one
//! after another.

use std::ffi::OsStr;
use std::io::Write;

use stele_backup::BackupError;
use stele_backup::crypt::Kind as Stored;
use stele_backup::repository::trees::{Found, Walk};
use stele_backup::repository::{Indexed, Repository};
use stele_backup::snapshot::Description;
use stele_backup::tree::{Content, Piece};
use stele_ground::Shown;
use stele_server::failure::{Failure, Kind, Outcome};

use super::select::{self, Chosen};
use super::{index_for, shown_path};
use crate::cli::backup::LatestArgs;
use crate::output::{cut_off, flush};

/// Chunks that are fetched at the same time; one has at most 8 MiB.
const AT_ONCE: usize = 8;
/// Zeros of a hole that are written at once.
const ZEROS: &[u8] = &[0; 64 << 10];

pub fn run(repository: &Repository, name: &OsStr, latest: &LatestArgs) -> Outcome<()> {
    let Chosen { snapshot, within, .. } = select::chosen(repository, name, latest)?;
    if within.is_empty() {
        return Err(
            Failure::usage("no file is named").next("write SNAPSHOT:PATH; `stele backup ls SNAPSHOT` lists them")
        );
    }
    let indexed = index_for(repository, &snapshot)?;
    let content = file(&indexed, &snapshot.description, &within)?;
    let pieces = indexed.pieces(&content).map_err(lost)?;
    let mut output = std::io::stdout().lock();
    for some in pieces.chunks(AT_ONCE) {
        for (piece, fetched) in some.iter().zip(fetch(&indexed, some)) {
            match fetched {
                Some(content) => output.write_all(&content.map_err(lost)?).map_err(|error| cut_off(&error))?,
                None => hole(&mut output, piece.length()).map_err(|error| cut_off(&error))?,
            }
        }
    }
    drop(output);
    flush()
}

/// The content of the file at this path.
fn file(indexed: &Indexed, description: &Description, within: &[u8]) -> Outcome<Content> {
    let shown = shown_path(within);
    // Where a part of the tree is lost, the file may have been in it.
    let found = Walk::new(indexed, description, within).step().map_err(lost)?;
    let found = found.ok_or_else(|| Failure::missing(format!("the snapshot has no {shown}")))?;
    // What lies below the path shows that it was a directory.
    let Found { path, entry } = found;
    match entry.content {
        content @ Content::File { .. } if path == within => Ok(content),
        Content::Symlink(to) if path == within => {
            let to = String::from_utf8_lossy(&to).into_owned();
            Err(Failure::usage(format!("{shown} is a symbolic link to {}", Shown(&to))).next("name the file itself"))
        }
        content if path == within && content != Content::Directory => {
            Err(Failure::usage(format!("{shown} is no regular file")).next("`stele backup restore` makes it anew"))
        }
        _ => Err(Failure::usage(format!("{shown} is a directory")).next("`stele backup restore` restores it")),
    }
}

/// The chunks of these pieces, in their order; none for a hole.
fn fetch(indexed: &Indexed, pieces: &[Piece]) -> Vec<Option<Result<Vec<u8>, BackupError>>> {
    std::thread::scope(|scope| {
        let begun: Vec<_> = pieces
            .iter()
            .map(|piece| match piece {
                Piece::Chunk { id, .. } => Some(scope.spawn(|| indexed.chunk(Stored::Content, id))),
                Piece::Hole(_) => None,
            })
            .collect();
        let ended = |thread: std::thread::ScopedJoinHandle<'_, _>| match thread.join() {
            Ok(content) => content,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        begun.into_iter().map(|thread| thread.map(ended)).collect()
    })
}

fn hole(output: &mut impl Write, mut length: u64) -> std::io::Result<()> {
    while length > 0 {
        let part = ZEROS.len().min(usize::try_from(length).unwrap_or(usize::MAX));
        output.write_all(ZEROS.get(..part).unwrap_or(ZEROS))?;
        length -= part as u64;
    }
    Ok(())
}

/// What the snapshot says is not all there.
fn lost(error: BackupError) -> Failure {
    match error {
        BackupError::Damaged(text) | BackupError::Missing(text) => {
            Failure::new(Kind::Damaged, format!("a part of the file is lost: {text}"))
                .next("`stele backup verify --data` names all that is lost")
        }
        other => other.into(),
    }
}
