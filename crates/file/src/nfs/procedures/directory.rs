//! READDIR and READDIRPLUS.
//!
//! The wire lists `.` and `..`, which the gateway does not: they have the cookies 1 and 2, and
//! every other cookie is the gateway's. Cookies stay valid, so the cookie verifier is always 0.

use crate::nfs::attributes::{ATTRIBUTES, put_after};
use crate::nfs::handle;
use crate::nfs::status;
use crate::nfs::xdr::{Writer, opaque_length};
use crate::{Attributes, DirectoryEntry, Files};

use super::{Failure, Outcome, Request};

const DOT: u64 = 1;
const DOTS: u64 = 2;
const VERIFIER: [u8; 8] = [0; 8];

/// Bytes of the largest answer.
pub(super) const ANSWER_MAX: usize = 256 << 10;
/// Entries asked of the gateway at once.
const ENTRIES_MAX: usize = 2048;
/// Results around the entries: status, attributes, verifier, the end of the list and of the
/// directory.
const AROUND: usize = 4 + 4 + ATTRIBUTES + 8 + 4 + 4;
/// An entry without its name: its mark, number and cookie.
const ENTRY: usize = 4 + 8 + 8;
/// The bytes that READDIRPLUS adds to an entry.
const PLUS: usize = 4 + ATTRIBUTES + 4 + opaque_length(handle::LENGTH);
/// A short name, for a guess how many entries an answer may hold.
const NAME: usize = opaque_length(8);

/// How much an answer may hold.
struct Room {
    /// Bytes of the whole answer that are left.
    whole: usize,
    /// Bytes of names, numbers and cookies that are left.
    names: usize,
    plus: bool,
}

impl Room {
    /// Says whether the entry still fits, and takes its room.
    fn take(&mut self, name: &[u8]) -> bool {
        let names = ENTRY + opaque_length(name.len());
        let whole = names + if self.plus { PLUS } else { 0 };
        let fits = names <= self.names && whole <= self.whole;
        if fits {
            self.names -= names;
            self.whole -= whole;
        }
        fits
    }
}

pub async fn read<F: Files>(request: &mut Request<F>, out: &mut Vec<u8>) -> Outcome {
    let cookie = request.arguments.u64()?;
    request.arguments.u64()?;
    let count = request.arguments.u32()? as usize;
    let whole = count.min(ANSWER_MAX).saturating_sub(AROUND);
    list(request, out, cookie, Room { whole, names: whole, plus: false }).await
}

pub async fn read_plus<F: Files>(request: &mut Request<F>, out: &mut Vec<u8>) -> Outcome {
    let cookie = request.arguments.u64()?;
    request.arguments.u64()?;
    let (names, whole) = (request.arguments.u32()? as usize, request.arguments.u32()? as usize);
    let whole = whole.min(ANSWER_MAX).saturating_sub(AROUND);
    list(request, out, cookie, Room { whole, names, plus: true }).await
}

async fn list<F: Files>(request: &mut Request<F>, out: &mut Vec<u8>, cookie: u64, mut room: Room) -> Outcome {
    let inode = request.subject()?;
    let each = ENTRY + NAME + if room.plus { PLUS } else { 0 };
    let limit = (room.whole / each).min(room.names / (ENTRY + NAME) + 1).clamp(1, ENTRIES_MAX);
    let behind = if cookie <= DOTS { 0 } else { cookie };
    // Also checks that this is a directory which the caller may list.
    let listing = request.files().read_directory(&request.caller, inode, behind, limit).await?;
    let own = request.attributes(inode).await;
    out.put_u32(status::OK);
    put_after(out, request.share(), own.as_ref());
    out.put_fixed(&VERIFIER);
    let mut dots: Vec<DirectoryEntry> = Vec::new();
    if let Some(own) = own.filter(|_| cookie < DOTS) {
        // A caller who may list the directory and not search it sees the directory itself as `..`.
        let above = request.files().lookup(&request.caller, inode, b"..").await.unwrap_or_else(|_| own.clone());
        dots.extend((cookie < DOT).then(|| dot(b".", DOT, own)));
        dots.push(dot(b"..", DOTS, above));
    }
    let mut listed = 0;
    let all = dots.len() + listing.entries.len();
    for entry in dots.iter().chain(&listing.entries) {
        if !room.take(&entry.name) {
            break;
        }
        listed += 1;
        out.put_bool(true);
        out.put_u64(entry.attributes.inode.0);
        out.put_opaque(&entry.name);
        out.put_u64(entry.cookie);
        if room.plus {
            put_after(out, request.share(), Some(&entry.attributes));
            out.put_bool(true);
            request.put_handle(out, entry.attributes.inode);
        }
    }
    if listed == 0 && all > 0 {
        return Err(Failure::Status(status::TOOSMALL));
    }
    out.put_bool(false);
    out.put_bool(listing.end && listed == all);
    Ok(())
}

fn dot(name: &'static [u8], cookie: u64, attributes: Attributes) -> DirectoryEntry {
    DirectoryEntry { name: bytes::Bytes::from_static(name), cookie, attributes }
}
