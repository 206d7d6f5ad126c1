//! Calls about exports.

use serde::{Deserialize, Serialize};
use stele_array::VolumeStatus;
use stele_block::export::{Fingerprint, Network};
use stele_block::iscsi::{Credentials, Terms};
use stele_block::scsi::Imposed;
use stele_block::{Access, Export, Protocol};
use stele_ground::names_in_row;

use super::volume::volumes_here;
use super::{Actor, Call, Done};
use crate::exports::{Changing, missing};
use crate::failure::{Failure, Kind, Outcome};
use crate::node::Node;

/// An export, for an operator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExportView {
    #[serde(flatten)]
    pub export: Export,
    /// The preferred URL: over TCP if the server listens there, otherwise the Unix socket's.
    pub url: String,
    /// All URLs.
    pub urls: Vec<String>,
    pub connections: usize,
    /// Whether a server serves it now; if not, its volume may be gone, or its protocol has no
    /// listener.
    pub served: bool,
    /// What initiators have set on an iSCSI export; `None`: nothing.
    #[serde(default)]
    pub initiators: Option<Imposed>,
    /// Warnings for the operator.
    #[serde(default)]
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AddExport {
    pub volume: String,
    pub name: Option<String>,
    pub protocol: Protocol,
    pub read_only: bool,
    pub access: Access,
    #[serde(default)]
    pub iscsi: Terms,
}

impl Call for AddExport {
    const NAME: &'static str = "export/add";
    type Answer = ExportView;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<ExportView> {
        node.accountable()?;
        let AddExport { volume, name, protocol, read_only, access, iscsi } = self;
        let name = name.unwrap_or_else(|| match protocol {
            Protocol::Nbd => volume.clone(),
            Protocol::Iscsi => target_name(&volume),
        });
        let export = Export { name, volume, protocol, read_only, access, iscsi };
        let place = format!("{} {} of {}: {}", export.protocol, export.name, export.volume, described(&export));
        let changing = node.exports.changing().await;
        let adding = put(node, &changing, export.clone(), Purpose::Add, None);
        node.audited(actor, AddExport::NAME, &place, adding).await??;
        Ok(view(node, export))
    }
}

/// Whether an export is made, or one that is there is changed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Add,
    Change,
}

/// `former`: the name that a changed export had.
async fn put(
    node: &Node,
    changing: &Changing<'_>,
    export: Export,
    purpose: Purpose,
    former: Option<&str>,
) -> Outcome<()> {
    check_name(&export).map_err(|message| Failure::usage(message).next("name it with --name"))?;
    let named = former.unwrap_or(&export.name);
    let is_it = |other: &Export| other.protocol == export.protocol && other.name == named;
    let known = node.exports.list().into_iter().find(is_it);
    // What was accepted once is no obstacle to another change.
    if known.as_ref().is_none_or(|known| known.iscsi != export.iscsi) {
        export.iscsi.check().map_err(Failure::usage)?;
    }
    check_tls(node, &export)?;
    let volumes = node.volumes().await?;
    let volume = find(&volumes, &export.volume)?;
    crate::exports::check(&export, volume)?;
    if node.block_urls(&export).is_empty() {
        let protocol = export.protocol;
        let message = format!("no host could reach the export: [{protocol}] listen is not set in stele.toml");
        return Err(Failure::usage(message)
            .next(format!("set listen under [{protocol}], start the server again, and repeat the command")));
    }
    let pool = node.pool_id().await?;
    if let Some(known) = known.filter(|known| known.volume == export.volume) {
        if purpose == Purpose::Add && known != export {
            return Err(is_there(&known));
        }
        // A repeated command ends no connection.
        if known == export && node.exports.directory.find(known.protocol, &known.name).is_some() {
            return Ok(());
        }
    }
    // A restore looks for exports and holds its volume under the same right. From here on nothing
    // waits.
    node.restores.check(&export.volume)?;
    changing.put(export, former, &node.pool, pool, volume)?;
    changing.note_snapshots(&volumes);
    Ok(())
}

fn check_name(export: &Export) -> Result<(), String> {
    match export.protocol {
        Protocol::Nbd => stele_block::export::check_name(&export.name),
        Protocol::Iscsi => stele_block::iscsi::check_target(&export.name),
    }
}

/// The refusal to export a volume again under other rules. What the second command does not name,
/// such as CHAP or `--read-only`, would go without a word.
fn is_there(known: &Export) -> Failure {
    let Export { protocol, name, volume, .. } = known;
    let message = format!("the {protocol} export '{name}' of volume '{volume}' is there, with other settings");
    Failure::new(Kind::Exists, message)
        .next("change it with `stele export set`, or `stele export remove` it first and export the volume anew")
}

/// Refuses an export that asks for TLS where the server has none: no host could connect.
fn check_tls(node: &Node, export: &Export) -> Outcome<()> {
    let Access { tls, certificates, .. } = &export.access;
    if !tls && certificates.is_empty() {
        return Ok(());
    }
    match export.protocol {
        Protocol::Iscsi => Err(Failure::usage("iSCSI is not served over TLS: no initiator could log in")
            .next("restrict the export with --allow and --chap-user, without --tls and --client-certificate")),
        Protocol::Nbd if node.config.nbd.tls_certificate.is_none() => {
            Err(Failure::usage("no client could connect: NBD is not served over TLS here").next(
                "set tls_certificate and tls_key under [nbd] in stele.toml, start the server again, and repeat the \
                 command",
            ))
        }
        Protocol::Nbd => Ok(()),
    }
}

/// Informs the exports after every change to the set of snapshots.
pub async fn note_snapshots(node: &Node) -> Outcome<()> {
    let changing = node.exports.changing().await;
    changing.note_snapshots(&node.volumes().await?);
    Ok(())
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RemoveExport {
    pub protocol: Protocol,
    pub name: String,
}

impl Call for RemoveExport {
    const NAME: &'static str = "export/remove";
    type Answer = Done;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<Done> {
        node.accountable()?;
        let place = format!("{} {}", self.protocol, self.name);
        let changing = node.exports.changing().await;
        let act = async { changing.remove(self.protocol, &self.name) };
        let removed = node.audited(actor, RemoveExport::NAME, &place, act).await?;
        removed.map(|()| Done {})
    }
}

/// Changes to an export; a field that is `None` changes nothing.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SetExport {
    pub protocol: Protocol,
    pub name: String,
    /// The new name, if it gets one.
    #[serde(default)]
    pub new_name: Option<String>,
    pub read_only: Option<bool>,
    pub networks: Option<Vec<Network>>,
    pub tls: Option<bool>,
    pub certificates: Option<Vec<Fingerprint>>,
    pub chap: Option<Credentials>,
    /// The target's own credentials, for initiators that ask.
    #[serde(default)]
    pub mutual: Option<Credentials>,
    pub no_chap: bool,
}

impl Call for SetExport {
    const NAME: &'static str = "export/set";
    type Answer = ExportView;
    async fn perform(self, node: &Node, actor: &Actor) -> Outcome<ExportView> {
        node.accountable()?;
        let changing = node.exports.changing().await;
        let known =
            node.exports.list().into_iter().find(|export| export.protocol == self.protocol && export.name == self.name);
        let mut export = known.ok_or_else(|| missing(self.protocol, &self.name, &node.exports.list()))?;
        export.read_only = self.read_only.unwrap_or(export.read_only);
        export.access.networks = self.networks.unwrap_or(export.access.networks);
        export.access.tls = self.tls.unwrap_or(export.access.tls);
        export.access.certificates = self.certificates.unwrap_or(export.access.certificates);
        if (self.chap.is_some() || self.mutual.is_some() || self.no_chap) && export.protocol != Protocol::Iscsi {
            return Err(Failure::usage("CHAP is of iSCSI").next("add --protocol iscsi if that export is meant"));
        }
        // The target proves itself only to initiators that prove themselves.
        export.iscsi.chap = self.chap.or(export.iscsi.chap).filter(|_| !self.no_chap);
        export.iscsi.mutual = self.mutual.or(export.iscsi.mutual).filter(|_| !self.no_chap);
        let mut place = format!("{} {} of {}", export.protocol, export.name, export.volume);
        if let Some(name) = self.new_name.filter(|name| *name != self.name) {
            place.push_str(&format!(", from now on {name}"));
            export.name = name;
        }
        place.push_str(&format!(": {}", described(&export)));
        let changed = put(node, &changing, export.clone(), Purpose::Change, Some(&self.name));
        node.audited(actor, SetExport::NAME, &place, changed).await??;
        Ok(view(node, export))
    }
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct ListExports {}

impl Call for ListExports {
    const NAME: &'static str = "export/list";
    const READS: bool = true;
    type Answer = Vec<ExportView>;
    async fn perform(self, node: &Node, _: &Actor) -> Outcome<Vec<ExportView>> {
        Ok(node.exports.list().into_iter().map(|export| view(node, export)).collect())
    }
}

fn view(node: &Node, export: Export) -> ExportView {
    let target = node.exports.directory.find(export.protocol, &export.name);
    let urls = node.block_urls(&export);
    let of_iscsi = target.as_ref().filter(|target| target.export.protocol == Protocol::Iscsi);
    let imposed = of_iscsi.map(|target| node.exports.iscsi.imposed(target)).filter(|imposed| !imposed.is_nothing());
    ExportView {
        warnings: open_to_all(node, &export)
            .into_iter()
            .chain(written_beside(node, &export))
            .chain(no_login(node, &export))
            .chain(imposed.iter().flat_map(|imposed| kept_from_use(&export, imposed)))
            .collect(),
        initiators: imposed,
        url: urls.first().cloned().unwrap_or_default(),
        connections: target.as_ref().map_or(0, |target| target.connections().len()),
        served: target.is_some() && !urls.is_empty(),
        urls,
        // Secrets can be set but are never shown.
        export: Export { iscsi: export.iscsi.without_secrets(), ..export },
    }
}

/// A warning if every client that reaches the listener can open the volume.
fn open_to_all(node: &Node, export: &Export) -> Option<String> {
    let Access { networks, tls: _, certificates } = &export.access;
    let asked = !networks.is_empty() || !certificates.is_empty() || export.iscsi.chap.is_some();
    let over_tcp = match export.protocol {
        Protocol::Iscsi => true,
        Protocol::Nbd => node.listens_nbd() && node.config.nbd.client_authority.is_none(),
    };
    let how = match export.protocol {
        Protocol::Iscsi => "--allow or --chap-user",
        Protocol::Nbd => "--allow or --client-certificate",
    };
    let may = if export.read_only { "read" } else { "read and write" };
    (over_tcp && !asked).then(|| {
        format!(
            "anyone who reaches the {} listener may {may} '{}'; restrict it with {how}",
            export.protocol, export.volume
        )
    })
}

/// A warning if hosts write to a volume over iSCSI and over NBD.
fn written_beside(node: &Node, export: &Export) -> Option<String> {
    let is_other = |other: &Export| other.protocol != export.protocol && !other.read_only;
    let other = node.exports.of_volume(&export.volume).into_iter().find(is_other).filter(|_| !export.read_only)?;
    Some(format!(
        "{} export '{}' writes to '{}' too: reservations, ORDERED and exclusive commands of iSCSI do not hold for NBD",
        other.protocol, other.name, other.volume
    ))
}

/// A warning if no initiator can log in.
fn no_login(node: &Node, export: &Export) -> Option<String> {
    let why = node.exports.unreadable_reservations(export)?;
    Some(format!(
        "no initiator can log in to '{}' once the server has started again: {why}; \"Damaged reservations\" in \
         OPERATIONS.md has the steps",
        export.volume
    ))
}

/// Warnings of what an initiator has set and what keeps all of them from writing, or from the
/// medium.
fn kept_from_use(export: &Export, imposed: &Imposed) -> Vec<String> {
    let name = &export.name;
    let protected = imposed.write_protected_by.iter().map(|initiator| {
        format!(
            "initiator '{initiator}' has protected '{name}' from writes of all initiators (SWP); it holds until one \
             takes it back, as `sdparm --clear=SWP` does, or the server starts again"
        )
    });
    let ejected = imposed.ejected_by.iter().map(|initiator| {
        format!(
            "initiator '{initiator}' has ejected '{name}', and no initiator finds a medium; it holds until one loads \
             it, as `sg_start --load` does, or the server starts again"
        )
    });
    protected.chain(ejected).collect()
}

/// Who may reach an export, and how, for the audit log.
fn described(export: &Export) -> String {
    fn listed<T: ToString>(all: &[T]) -> String {
        names_in_row(&all.iter().map(T::to_string).collect::<Vec<String>>(), "stele export list")
    }
    let Access { networks, tls, certificates } = &export.access;
    let networks = if networks.is_empty() { "any address".to_owned() } else { listed(networks) };
    let mut words = vec![format!("{} for {networks}", if export.read_only { "read-only" } else { "read-write" })];
    if *tls {
        words.push("over TLS".to_owned());
    }
    if !certificates.is_empty() {
        words.push(format!("with the certificate {}", listed(certificates)));
    }
    words.extend(export.iscsi.chap.as_ref().map(|chap| format!("CHAP as '{}'", chap.user)));
    words.extend(export.iscsi.mutual.as_ref().map(|own| format!("proving itself as '{}'", own.user)));
    words.join(", ")
}

/// The default name of a volume's target: the characters of its name that an iSCSI name allows.
fn target_name(volume: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || ".:-".contains(c) { c.to_ascii_lowercase() } else { '-' };
    format!("iqn.2026-01.local.stele:{}", volume.chars().map(plain).collect::<String>())
}

fn find<'a>(volumes: &'a [VolumeStatus], name: &str) -> Outcome<&'a VolumeStatus> {
    volumes.iter().find(|volume| volume.spec.name == name).ok_or_else(|| {
        let known: Vec<&str> = volumes.iter().map(|volume| volume.spec.name.as_str()).collect();
        Failure::missing(format!("no volume is called '{name}'")).next(volumes_here(&known))
    })
}

#[cfg(test)]
mod tests;
