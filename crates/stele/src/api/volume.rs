//! Calls about volumes.

use serde::{Deserialize, Serialize};
use stele_array::{ArrayError, Command, DigestUnit, Reply, VolumeSpec, VolumeStatus, WriteMode};
use stele_ground::Bytes;

use super::{Actor, Call, Done};
use crate::failure::{Failure, Outcome};
use crate::node::Node;

/// A volume as an operator sees it. Sizes are bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct View {
    pub name: String,
    pub id: u32,
    pub code: String,
    pub size: u64,
    pub strip: u64,
    pub block: u64,
    /// `block` or `strip`.
    pub digest: String,
    /// `write-back`, `write-through` or `volatile`.
    pub mode: String,
    pub allocated: u64,
    pub owner: Option<String>,
    /// True while its owner says that something on it is under retention.
    pub retained: bool,
    /// Offset and length of what is known to be lost.
    pub lost: Vec<(u64, u64)>,
}

impl From<VolumeStatus> for View {
    fn from(status: VolumeStatus) -> View {
        View {
            id: status.id.0,
            code: status.spec.code.to_string(),
            size: status.spec.size.0,
            strip: status.spec.strip.0,
            block: status.spec.block.0,
            digest: match status.spec.digest {
                DigestUnit::Block => "block",
                DigestUnit::Strip => "strip",
            }
            .to_owned(),
            mode: match status.spec.mode {
                WriteMode::WriteBack => "write-back",
                WriteMode::WriteThrough => "write-through",
                WriteMode::Volatile => "volatile",
            }
            .to_owned(),
            allocated: status.allocated.0,
            owner: status.spec.owner,
            retained: status.retained,
            lost: status.lost,
            name: status.spec.name,
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Create {
    pub name: String,
    pub code: String,
    pub size: u64,
    pub strip: u64,
    pub block: u64,
    pub digest_strip: bool,
    pub write_through: bool,
    pub allocate: bool,
}

impl Call for Create {
    const NAME: &'static str = "volume/create";
    type Answer = View;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<View> {
        let code =
            self.code.parse().map_err(|error: stele_codes::code::NoSuchCode| Failure::usage(error.to_string()))?;
        let spec = VolumeSpec {
            name: self.name,
            code,
            size: Bytes(self.size),
            strip: Bytes(self.strip),
            block: Bytes(self.block),
            digest: if self.digest_strip { DigestUnit::Strip } else { DigestUnit::Block },
            mode: if self.write_through { WriteMode::WriteThrough } else { WriteMode::WriteBack },
            fully_allocated: self.allocate,
            owner: None,
        };
        let name = spec.name.clone();
        let created = node.pool.command(Command::CreateVolume(spec)).await;
        node.audit(actor, "volume/create", &name, created.as_ref().err().map(ToString::to_string)).await?;
        match created? {
            Reply::Volume(status) => Ok(status.into()),
            _ => find(node, &name).await,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct List {}

impl Call for List {
    const NAME: &'static str = "volume/list";
    type Answer = Vec<View>;
    async fn perform(self, node: &Node, _: &Actor) -> Outcome<Vec<View>> {
        list(node).await
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Show {
    pub name: String,
}

impl Call for Show {
    const NAME: &'static str = "volume/show";
    type Answer = View;
    async fn perform(self, node: &Node, _: &Actor) -> Outcome<View> {
        find(node, &self.name).await
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Delete {
    pub name: String,
}

impl Call for Delete {
    const NAME: &'static str = "volume/delete";
    type Answer = Done;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<Done> {
        // The array refuses while something on it is retained; a volume that a part of Stele keeps its state on is not
        // an operator's to delete even when nothing is.
        let owner = find(node, &self.name).await?.owner;
        let deleted = match owner {
            Some(owner) => Err(ArrayError::Refused(format!(
                "volume '{}' carries the {owner} of this pool and is not deleted by command; `stele volume list` shows owners",
                self.name
            ))),
            None => node.pool.command(Command::DeleteVolume { name: self.name.clone() }).await,
        };
        node.audit(actor, "volume/delete", &self.name, deleted.as_ref().err().map(ToString::to_string)).await?;
        deleted?;
        Ok(Done {})
    }
}

pub async fn list(node: &Node) -> Outcome<Vec<View>> {
    match node.pool.command(Command::ListVolumes).await? {
        Reply::Volumes(volumes) => Ok(volumes.into_iter().map(View::from).collect()),
        _ => Err(Failure::failed("the pool answered a volume listing with something else; this is a defect of Stele")),
    }
}

async fn find(node: &Node, name: &str) -> Outcome<View> {
    let volumes = list(node).await?;
    let known: Vec<String> = volumes.iter().map(|volume| volume.name.clone()).collect();
    volumes.into_iter().find(|volume| volume.name == name).ok_or_else(|| {
        Failure::missing(format!("no volume is called '{name}'"))
            .next(format!("the volumes here: {}", known.join(", ")))
    })
}
