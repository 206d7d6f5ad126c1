//! Calls about exports.

use serde::{Deserialize, Serialize};
use stele_array::{Command, Reply, VolumeStatus};
use stele_block::iscsi::Terms;
use stele_block::{Access, Export, Protocol};

use super::{Actor, Call, Done};
use crate::failure::{Failure, Outcome};
use crate::node::Node;

/// An export as an operator sees it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct View {
    #[serde(flatten)]
    pub export: Export,
    /// What clients take: over TCP where the server listens there, else the unix socket's.
    pub url: String,
    /// All ways to it.
    pub urls: Vec<String>,
    pub connections: usize,
    /// Whether a server serves it now; if not, its volume may be gone.
    pub served: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Add {
    pub volume: String,
    pub name: Option<String>,
    pub protocol: Protocol,
    pub read_only: bool,
    pub access: Access,
    #[serde(default)]
    pub iscsi: Terms,
}

impl Call for Add {
    const NAME: &'static str = "export/add";
    type Answer = View;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<View> {
        node.accountable()?;
        let Add { volume, name, protocol, read_only, access, iscsi } = self;
        let name = name.unwrap_or_else(|| match protocol {
            Protocol::Nbd => volume.clone(),
            Protocol::Iscsi => target_name(&volume),
        });
        let export = Export { name, volume, protocol, read_only, access, iscsi };
        let place = format!("{} {} of {}", export.protocol, export.name, export.volume);
        let added = node.audited(actor, Add::NAME, &place, add(node, export.clone())).await?;
        added?;
        Ok(view(node, export))
    }
}

async fn add(node: &Node, export: Export) -> Outcome<()> {
    stele_block::export::check_name(&export.name).map_err(Failure::usage)?;
    if export.protocol == Protocol::Iscsi {
        stele_block::iscsi::check_target(&export.name).map_err(Failure::usage)?;
        export.iscsi.check().map_err(Failure::usage)?;
    }
    let volume = find(node, &export.volume).await?;
    crate::exports::check(&export, &volume)?;
    node.exports.add(export.clone())?;
    node.serve_export(export, &volume).await?;
    note_snapshots(node).await
}

/// After whatever changes which snapshots there are, and which volumes are served.
pub async fn note_snapshots(node: &Node) -> Outcome<()> {
    if let Reply::Volumes(volumes) = node.pool.command(Command::ListVolumes).await? {
        node.exports.note_snapshots(&volumes);
    }
    Ok(())
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Remove {
    pub protocol: Protocol,
    pub name: String,
}

impl Call for Remove {
    const NAME: &'static str = "export/remove";
    type Answer = Done;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<Done> {
        node.accountable()?;
        let place = format!("{} {}", self.protocol, self.name);
        let act = async { node.exports.remove(self.protocol, &self.name) };
        let removed = node.audited(actor, Remove::NAME, &place, act).await?;
        removed.map(|()| Done {})
    }
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct List {}

impl Call for List {
    const NAME: &'static str = "export/list";
    type Answer = Vec<View>;
    async fn perform(self, node: &Node, _: &Actor) -> Outcome<Vec<View>> {
        Ok(node.exports.list().into_iter().map(|export| view(node, export)).collect())
    }
}

fn view(node: &Node, export: Export) -> View {
    let target = node.exports.directory.find(export.protocol, &export.name);
    let urls = node.block_urls(&export);
    View {
        url: urls.first().cloned().unwrap_or_default(),
        urls,
        connections: target.as_ref().map_or(0, |target| target.connections().len()),
        served: target.is_some(),
        // Secrets are written and never shown.
        export: Export { iscsi: export.iscsi.without_secrets(), ..export },
    }
}

/// The name of a volume's target where none is given: what of the volume's name an iSCSI name may have.
fn target_name(volume: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || ".:-".contains(c) { c.to_ascii_lowercase() } else { '-' };
    format!("iqn.2026-01.local.stele:{}", volume.chars().map(plain).collect::<String>())
}

async fn find(node: &Node, name: &str) -> Outcome<VolumeStatus> {
    let Reply::Volumes(volumes) = node.pool.command(Command::ListVolumes).await? else {
        return Err(Failure::failed(
            "the pool answered a volume listing with something else; this is a defect of Stele",
        ));
    };
    let known: Vec<String> = volumes.iter().map(|volume| volume.spec.name.clone()).collect();
    volumes.into_iter().find(|volume| volume.spec.name == name).ok_or_else(|| {
        Failure::missing(format!("no volume is called '{name}'"))
            .next(format!("the volumes here: {}", known.join(", ")))
    })
}
