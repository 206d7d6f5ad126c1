use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use stele_array::Command;

use super::*;
use crate::api::blocks::RestoreBegin;
use crate::api::volume;
use crate::node::testing::{BLOCK, Scene, VOLUME};

const ACTOR: Actor = Actor { uid: 0 };

fn adding(volume: &str) -> AddExport {
    AddExport {
        volume: volume.to_owned(),
        name: None,
        protocol: Protocol::Nbd,
        read_only: false,
        access: Access::default(),
        iscsi: Terms::default(),
    }
}

/// A change of nothing.
fn setting(name: &str) -> SetExport {
    SetExport {
        protocol: Protocol::Nbd,
        name: name.to_owned(),
        read_only: None,
        networks: None,
        tls: None,
        certificates: None,
        chap: None,
        no_chap: false,
    }
}

fn restoring(name: &str) -> RestoreBegin {
    let create = volume::CreateVolume {
        name: name.to_owned(),
        code: "mirror-2".to_owned(),
        size: VOLUME,
        strip: 64 << 10,
        block: BLOCK,
        digest_strip: false,
        write_through: false,
        allocate: false,
    };
    RestoreBegin { create, overwrite: true }
}

/// The list, the file and what is served say the same.
fn assert_agreement(node: &Node, dir: &std::path::Path) {
    let list = node.exports.list();
    let served: Vec<Export> = node.exports.directory.list(None).iter().map(|target| target.export.clone()).collect();
    let read = crate::exports::Exports::read(dir, Default::default()).unwrap().list();
    assert_eq!((&served, &read), (&list, &list));
}

#[tokio::test]
async fn of_two_changes_of_an_export_at_once_none_is_lost() {
    let scene = Scene::new("exports-set");
    let node = &*scene.node;
    scene.volume("vm").await;
    adding("vm").perform(node, &ACTOR).await.unwrap();
    let narrow = SetExport { networks: Some(vec!["10.0.0.0/8".parse().unwrap()]), ..setting("vm") };
    let protect = SetExport { read_only: Some(true), ..setting("vm") };
    let (narrowed, protected) = tokio::join!(narrow.perform(node, &ACTOR), protect.perform(node, &ACTOR));
    assert_eq!(narrowed.unwrap().export.access.networks.len(), 1);
    protected.unwrap();
    let list = node.exports.list();
    let [kept] = &list[..] else { panic!("one export") };
    assert!(kept.read_only && kept.access.networks.len() == 1, "{kept:?}");
    assert_agreement(node, scene.dir());
}

#[tokio::test]
async fn an_export_that_is_removed_during_a_change_stays_removed() {
    let scene = Scene::new("exports-remove");
    let node = &*scene.node;
    scene.volume("vm").await;
    adding("vm").perform(node, &ACTOR).await.unwrap();
    let change = SetExport { read_only: Some(true), ..setting("vm") };
    let remove = RemoveExport { protocol: Protocol::Nbd, name: "vm".to_owned() };
    let (_, removed) = tokio::join!(change.perform(node, &ACTOR), remove.perform(node, &ACTOR));
    removed.unwrap();
    assert!(node.exports.list().is_empty(), "the change brought it back");
    assert_agreement(node, scene.dir());
}

#[tokio::test]
async fn a_volume_is_exported_or_deleted_and_never_both() {
    for first in ["export", "delete"] {
        let scene = Scene::new(&format!("exports-{first}"));
        let node = &*scene.node;
        scene.volume("vm").await;
        let add = adding("vm").perform(node, &ACTOR);
        let delete = volume::Delete { name: "vm".to_owned() }.perform(node, &ACTOR);
        let (added, deleted) = match first {
            "export" => tokio::join!(add, delete),
            _ => {
                let (deleted, added) = tokio::join!(delete, add);
                (added, deleted)
            }
        };
        assert_ne!(added.is_ok(), deleted.is_ok(), "{first} first: {added:?} {deleted:?}");
        assert_agreement(node, scene.dir());
    }
}

#[tokio::test]
async fn a_volume_is_exported_or_restored_and_never_both() {
    for first in ["export", "restore"] {
        let scene = Scene::new(&format!("exports-or-{first}"));
        let node = &*scene.node;
        scene.volume("vm").await;
        let (add, restore) = (adding("vm").perform(node, &ACTOR), restoring("vm").perform(node, &ACTOR));
        let (added, begun) = match first {
            "export" => tokio::join!(add, restore),
            _ => {
                let (begun, added) = tokio::join!(restore, add);
                (added, begun)
            }
        };
        assert_ne!(added.is_ok(), begun.is_ok(), "{first} first: {added:?} {begun:?}");
        assert_agreement(node, scene.dir());
    }
}

#[tokio::test]
async fn a_note_of_snapshots_is_from_after_the_one_before() {
    let scene = Scene::new("exports-notes");
    let node = &*scene.node;
    scene.volume("vm").await;
    adding("vm").perform(node, &ACTOR).await.unwrap();
    let snapshots = || {
        let target = node.exports.directory.find(Protocol::Nbd, "vm").unwrap();
        target.snapshots().into_iter().map(|(name, _)| name).collect::<Vec<_>>()
    };
    let take = async |name: &str| {
        let command = Command::SnapshotVolume { volume: "vm".to_owned(), name: name.to_owned(), made: 1 };
        node.pool.command(command).await.unwrap();
    };
    // One command notes its snapshot while another one, which took its own later, has its turn.
    take("one").await;
    let changing = node.exports.changing().await;
    let mut note = pin!(note_snapshots(node));
    let waits = poll_fn(|context| Poll::Ready(note.as_mut().poll(context).is_pending())).await;
    assert!(waits);
    take("two").await;
    changing.note_snapshots(&node.volumes().await.unwrap());
    drop(changing);
    note.await.unwrap();
    assert_eq!(snapshots(), ["one", "two"]);
}
