//! Growth of the data volume.
//!
//! The second copy of the superblock lies at the volume's end, so growth moves it. After a crash at
//! any of these points the store opens with all its content:
//! 1. before the volume is larger: nothing has changed;
//! 2. after it: the first copy, which is not written meanwhile, is complete, and the next opening
//!    writes the missing one;
//! 3. after the copy at the new end: the former copy is a block that no segment has begun to use.

use std::future::Future;

use stele_ground::Bytes;

use crate::model::error::Result;
use crate::space::BLOCK;
use crate::space::superblock::places;
use crate::space::superblock::segments_on;
use crate::store::Archive;

impl Archive {
    /// Makes the data volume larger by `grow`, and uses all of it from then on. Reads, writes and
    /// reclamation continue meanwhile. Returns the added room, in whole segments.
    pub async fn grow(&self, grow: impl Future<Output = Result<()>>) -> Result<Bytes> {
        let store = &self.store();
        store.writable()?;
        // No other task writes the superblock meanwhile.
        let _turn = store.witnessing().take_turn().await;
        let superblock = store.witnessing().superblock();
        // Once the volume ends elsewhere, the second copy is not found. The first one must be sound
        // before that.
        superblock.mend(store.volume()).await?;
        let [_, before] = places(store.volume());
        grow.await?;
        let [_, end] = places(store.volume());
        if end != before {
            superblock.write_copy(store.volume(), end).await?;
            store.volume().zero(before, u64::from(BLOCK)).await?;
        }
        let (segments, had) = (&store.segments(), store.segments().count());
        segments.grow_to(segments_on(store.volume().geometry().size.0, segments.size));
        Ok(Bytes(u64::from(segments.count() - had) * u64::from(segments.size)))
    }
}
