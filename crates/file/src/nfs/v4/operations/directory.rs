//! READDIR.
//!
//! `.` and `..` are not listed. Cookies are the gateway's and stay valid, so the cookie verifier is
//! always 0. In the directories above the exports, a cookie counts the names.

use crate::nfs::v4::attributes::{self, FileAttributes};
use crate::nfs::v4::bitmap::Bitmap;
use crate::nfs::v4::compound::{At, Compound, Target};
use crate::nfs::v4::{Outcome, pseudo, status};
use crate::nfs::xdr::{Writer, opaque_length};
use crate::{FileError, Files};

const VERIFIER: [u8; 8] = [0; 8];
/// Results around the entries: verifier, the end of the list and of the directory.
const AROUND: usize = 8 + 4 + 4;
/// An entry without its name and attributes: its mark and cookie.
const ENTRY: usize = 4 + 8;
/// A short entry with the attributes that clients ask for, for a guess how many an answer may hold.
const GUESS: usize = 160;
/// Entries asked of the gateway at once.
const ENTRIES_MAX: usize = 1024;
/// Cookies 0 to 2 have a meaning of their own.
const FIRST: u64 = 3;

/// Entries and the room that is left for them.
struct List {
    out: Vec<u8>,
    room: usize,
    listed: usize,
}

impl List {
    /// Says whether there was room.
    fn add(&mut self, name: &[u8], cookie: u64, wanted: &Bitmap, shown: &FileAttributes) -> bool {
        let before = self.out.len();
        self.out.put_bool(true);
        self.out.put_u64(cookie);
        self.out.put_opaque(name);
        attributes::put(&mut self.out, wanted, shown);
        let fits = self.out.len() <= self.room;
        match fits {
            true => self.listed += 1,
            false => self.out.truncate(before),
        }
        fits
    }
}

impl<F: Files> Compound<F> {
    pub(super) async fn read_directory(&mut self) -> Outcome {
        let reader = &mut self.arguments;
        let cookie = reader.u64()?;
        let _verifier: [u8; 8] = reader.fixed()?;
        let (_names, most) = (reader.u32()?, reader.u32()? as usize);
        let wanted = attributes::wanted(reader)?;
        if (1..FIRST).contains(&cookie) {
            return Err(status::BAD_COOKIE.into());
        }
        let at = self.at()?.clone();
        let room = most.min(self.left().saturating_sub(ENTRY)).saturating_sub(AROUND);
        let mut list = List { out: Vec::with_capacity(room.min(8 << 10)), room, listed: 0 };
        let end = match &at {
            At::Pseudo(directory) => self.list_pseudo(*directory, cookie, &wanted, &mut list).await?,
            At::File(target) => self.list_share(target, cookie, &wanted, &mut list).await?,
        };
        if !end && list.listed == 0 {
            return Err(status::TOOSMALL.into());
        }
        if most < AROUND {
            return Err(status::TOOSMALL.into());
        }
        self.out.put_fixed(&VERIFIER);
        self.out.put_fixed(&list.out);
        self.out.put_bool(false);
        self.out.put_bool(end);
        Ok(())
    }

    /// Says whether the list reaches the end.
    async fn list_share(&self, target: &Target<F>, cookie: u64, wanted: &Bitmap, list: &mut List) -> Outcome<bool> {
        let limit = (list.room / GUESS.min(ENTRY + opaque_length(8) + 16)).clamp(1, ENTRIES_MAX);
        let limit = if wanted.is_empty() { limit } else { (list.room / GUESS).clamp(1, ENTRIES_MAX) };
        let listing = match target.files().read_directory(&target.caller, target.inode, cookie, limit).await {
            Ok(listing) => listing,
            Err(FileError::NotDirectory) => return Err(status::NOTDIR.into()),
            Err(error) => return Err(error.into()),
        };
        let space = match attributes::wants_space(wanted) {
            true => Some(target.files().space().await?),
            false => None,
        };
        let all = listing.entries.len();
        for entry in listing.entries {
            let shown = FileAttributes { space, ..self.show_file(target, entry.attributes) };
            if !list.add(&entry.name, entry.cookie, wanted, &shown) {
                break;
            }
        }
        Ok(listing.end && list.listed == all)
    }

    async fn list_pseudo(&self, directory: u64, cookie: u64, wanted: &Bitmap, list: &mut List) -> Outcome<bool> {
        let names = pseudo::names(&self.exports, self.peer.address.ip(), directory);
        let behind = (FIRST..).zip(names).filter(|(own, _)| *own > cookie || cookie == 0);
        for (own, name) in behind {
            let at = match pseudo::lookup(&self.exports, self.peer.address.ip(), directory, name.as_bytes()) {
                Some(pseudo::PseudoNode::Directory(directory)) => At::Pseudo(directory),
                Some(pseudo::PseudoNode::Export(export)) => self.enter_export(&export, None)?,
                None => continue,
            };
            let shown = self.show(&at, wanted).await?;
            if !list.add(name.as_bytes(), own, wanted, &shown) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
