//! The operations of COMPOUND, as calls of [`Files`] and of the table of clients.

mod directory;
mod locking;
mod naming;
mod objects;
mod opening;
mod session;

use super::attributes::{self, FileAttributes};
use super::bitmap::Bitmap;
use super::compound::{At, Compound, Target};
use super::{Outcome, number, pseudo, status};
use crate::nfs::handle::Handle;
use crate::nfs::xdr::Writer;
use crate::{Attributes, Changed, Files, Inode};

/// The first half of a share's identity; the directories above the shares have 0.
const SHARES: u64 = 1;

impl<F: Files> Compound<F> {
    /// `last`: no operation follows.
    pub(super) async fn perform(&mut self, operation: u32, last: bool) -> Outcome {
        match operation {
            number::EXCHANGE_ID => self.exchange_id().await,
            number::CREATE_SESSION => self.create_session().await,
            number::DESTROY_SESSION => self.destroy_session(last),
            number::BIND_CONN_TO_SESSION => self.bind_connection(),
            number::DESTROY_CLIENTID => self.destroy_client(),
            number::RECLAIM_COMPLETE => self.reclaim_complete(),
            number::BACKCHANNEL_CTL => self.backchannel_control(),
            number::PUTFH => self.put_handle(),
            number::PUTROOTFH | number::PUTPUBFH => self.put_root(),
            number::GETFH => self.get_handle(),
            number::SAVEFH => self.save(),
            number::RESTOREFH => self.restore(),
            number::SECINFO => self.secinfo().await,
            number::SECINFO_NO_NAME => self.secinfo_no_name().await,
            number::GETATTR => self.get_attributes().await,
            number::SETATTR => self.set_attributes().await,
            number::VERIFY => self.verify(true).await,
            number::NVERIFY => self.verify(false).await,
            number::ACCESS => self.access().await,
            number::READLINK => self.read_link().await,
            number::READ => self.read().await,
            number::WRITE => self.write().await,
            number::COMMIT => self.commit().await,
            number::LOOKUP => self.lookup().await,
            number::LOOKUPP => self.lookup_parent().await,
            number::CREATE => self.create().await,
            number::REMOVE => self.remove().await,
            number::RENAME => self.rename().await,
            number::LINK => self.link().await,
            number::READDIR => self.read_directory().await,
            number::OPEN => self.open().await,
            number::OPEN_DOWNGRADE => self.open_downgrade().await,
            number::CLOSE => self.close().await,
            number::LOCK => self.lock().await,
            number::LOCKT => self.lock_test().await,
            number::LOCKU => self.unlock(),
            number::FREE_STATEID => self.free_stateid(),
            number::TEST_STATEID => self.test_stateids(),
            _ => Err(status::NOTSUPP.into()),
        }
    }

    /// The place as its attributes show it.
    async fn show(&self, at: &At<F>, wanted: &Bitmap) -> Outcome<FileAttributes> {
        match at {
            At::Pseudo(directory) => Ok(self.show_pseudo(*directory)),
            At::File(target) => {
                let file = target.files().attributes(target.inode).await?;
                let mut shown = self.show_file(target, file);
                if attributes::wants_space(wanted) {
                    shown.space = Some(target.files().space().await?);
                }
                Ok(shown)
            }
        }
    }

    fn show_pseudo(&self, directory: u64) -> FileAttributes {
        FileAttributes {
            file: pseudo::attributes(directory, self.server.exports_change()),
            handle: self.server.handles.encode(Handle { share: pseudo::SHARE, inode: Inode(directory) }),
            file_system: (0, 0),
            mounted_on: directory,
            space: None,
        }
    }

    /// A file of the target's share.
    fn show_file(&self, target: &Target<F>, file: Attributes) -> FileAttributes {
        let share = target.export.share;
        let top = file.inode == target.files().root();
        FileAttributes {
            handle: self.server.handles.encode(Handle { share, inode: file.inode }),
            file_system: (SHARES, u64::from(share)),
            mounted_on: if top { pseudo::number(&target.export.path) } else { file.inode.0 },
            space: None,
            file,
        }
    }

    /// `change_info4`. The gateway makes a change and reads the counter before and after it at
    /// once.
    fn put_change(&mut self, changed: &Changed) {
        self.out.put_bool(true);
        self.out.put_u64(changed.before.change);
        self.out.put_u64(changed.after.change);
    }
}
