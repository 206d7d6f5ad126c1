//! The versions of the formats on the pool's volumes. A later binary asks for them before it takes
//! over the drives.
//!
//! The answer gives the stored versions without judgement, because the caller may be of another
//! version.

use serde::{Deserialize, Serialize};
use stele_catalog::embedded::layout::Layout;
use stele_ground::BLOCK;
use stele_media::Handle;

use super::{Actor, Call};
use crate::failure::Outcome;
use crate::node::Node;

/// Number of segment headers read; those of one store hardly differ.
const SEGMENTS_MAX: u64 = 256;

#[derive(Serialize, Deserialize)]
pub struct Formats {}

/// The version in a format's own header.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Stated {
    pub version: u32,
    pub features: u64,
}

impl Stated {
    pub fn version(version: u32) -> Stated {
        Stated { version, features: 0 }
    }
}

/// The versions in the headers of one volume; each version once.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct OnVolume {
    pub volume: String,
    pub stated: Vec<Stated>,
    /// Copies of the header that are damaged or unreadable.
    pub damaged: u32,
}

#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub struct FormatsView {
    /// Version of the answering binary.
    pub version: String,
    pub catalog: Option<OnVolume>,
    pub tree: Option<OnVolume>,
    pub archive: Option<OnVolume>,
    pub segments: Option<OnVolume>,
}

impl Call for Formats {
    const NAME: &'static str = "formats";
    const READS: bool = true;
    type Answer = FormatsView;

    async fn perform(self, node: &Node, _: &Actor) -> Outcome<FormatsView> {
        let names = &node.config.archive;
        let mut view = FormatsView { version: env!("CARGO_PKG_VERSION").to_owned(), ..FormatsView::default() };
        for volume in node.volumes().await? {
            let (handle, name) = (node.pool.volume_of(&volume), &volume.spec.name);
            if *name == names.catalog_volume {
                view.catalog = Some(
                    of_copies(&handle, name, |block| {
                        let (version, features) = Layout::stamp(block)?;
                        Some(Stated { version, features: features.into() })
                    })
                    .await,
                );
                view.tree = tree(&handle, name).await;
            } else if *name == names.data_volume {
                let stated = |block: &[u8]| {
                    stele_archive::inspect::store_format(block).map(|(format, _)| Stated::version(format))
                };
                view.archive = Some(of_copies(&handle, name, stated).await);
                view.segments = segments(&handle, name).await;
            }
        }
        Ok(view)
    }
}

/// Reads the copies in the first and the last block of the volume.
async fn of_copies(volume: &Handle, name: &str, stated: impl Fn(&[u8]) -> Option<Stated>) -> OnVolume {
    let last = (volume.geometry().size.0 / BLOCK as u64).saturating_sub(1) * BLOCK as u64;
    let mut found = OnVolume { volume: name.to_owned(), ..OnVolume::default() };
    for at in [0, last] {
        match block(volume, at).await.and_then(|block| stated(&block)) {
            Some(stated) => found.stated.push(stated),
            None => found.damaged += 1,
        }
    }
    found.stated.sort_unstable();
    found.stated.dedup();
    found
}

/// The catalog's B-tree, from redb's own header; `None` if this binary does not know the catalog
/// that contains it.
async fn tree(volume: &Handle, name: &str) -> Option<OnVolume> {
    let layout = Layout::decode(&block(volume, 0).await?).ok().flatten()?;
    let header = block(volume, layout.area_at).await;
    let version = header.and_then(|header| stele_catalog::embedded::layout::tree_version(&header));
    let stated: Vec<Stated> = version.map(|version| Stated::version(version.into())).into_iter().collect();
    Some(OnVolume { volume: name.to_owned(), damaged: u32::from(stated.is_empty()), stated })
}

/// The headers of the first segments; a free segment has none.
async fn segments(volume: &Handle, name: &str) -> Option<OnVolume> {
    let (_, size) = stele_archive::inspect::store_format(&block(volume, 0).await?)?;
    let size = u64::from(size).max(BLOCK as u64);
    let count = (volume.geometry().size.0 / size).min(SEGMENTS_MAX);
    let mut found = OnVolume { volume: name.to_owned(), ..OnVolume::default() };
    for segment in 1..count {
        let header = block(volume, segment * size).await;
        found
            .stated
            .extend(header.and_then(|header| stele_archive::inspect::segment_format(&header)).map(Stated::version));
    }
    found.stated.sort_unstable();
    found.stated.dedup();
    Some(found)
}

async fn block(volume: &Handle, at: u64) -> Option<Vec<u8>> {
    volume.read(at, BLOCK).await.ok().map(|bytes| bytes.to_vec())
}
