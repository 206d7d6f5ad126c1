use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use stele_array::Command;

use super::*;
use crate::api::blocks::RestoreBegin;
use crate::api::volume;
use crate::exports::still_exported;
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
        new_name: None,
        read_only: None,
        networks: None,
        tls: None,
        certificates: None,
        chap: None,
        mutual: None,
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

#[test]
fn an_export_of_the_other_protocol_is_named_if_it_may_be_meant() {
    let known = [Export {
        name: "iqn.2026-01.local.stele:db".into(),
        volume: "db".into(),
        protocol: Protocol::Iscsi,
        read_only: false,
        access: Access::default(),
        iscsi: Terms::default(),
    }];
    for name in ["db", "iqn.2026-01.local.stele:db"] {
        let next = missing(Protocol::Nbd, name, &known).next;
        assert_eq!(next, "if iqn.2026-01.local.stele:db is meant, add --protocol iscsi");
    }
    for (protocol, name) in [(Protocol::Nbd, "vm1"), (Protocol::Iscsi, "db")] {
        assert!(missing(protocol, name, &known).next.contains("stele export list"), "{protocol} {name}");
    }
    let by_volume = missing(Protocol::Iscsi, "db", &known).next;
    assert!(by_volume.contains("iqn.2026-01.local.stele:db"), "{by_volume}");
}

#[test]
fn an_exported_volume_is_refused_with_the_commands_that_help() {
    let export = |name: &str, volume: &str, protocol| Export {
        name: name.into(),
        volume: volume.into(),
        protocol,
        read_only: false,
        access: Access::default(),
        iscsi: Terms::default(),
    };
    let known = [export("vm1", "db", Protocol::Nbd), export("iqn.x:db", "db", Protocol::Iscsi)];
    let message = still_exported("db", &known).unwrap();
    assert!(message.contains("`stele export remove vm1`"), "{message}");
    assert!(message.contains("`stele export remove iqn.x:db --protocol iscsi`"), "{message}");
    assert_eq!(still_exported("vm1", &known), None);
}

#[tokio::test]
async fn the_targets_credentials_are_set_and_go_with_the_initiators() {
    let scene = Scene::new("exports-mutual");
    let node = &*scene.node;
    scene.volume("vm").await;
    adding("vm").perform(node, &ACTOR).await.unwrap();
    let of = |user: &str, secret: &str| Some(Credentials { user: user.into(), secret: secret.into() });
    for change in [SetExport { no_chap: true, ..setting("vm") }, SetExport { mutual: of("t", "x"), ..setting("vm") }] {
        let refused = change.perform(node, &ACTOR).await.unwrap_err();
        assert!(refused.error.contains("CHAP is of iSCSI"), "{refused}");
    }
    node.note_iscsi_address("127.0.0.1:3260".parse().unwrap());
    AddExport { protocol: Protocol::Iscsi, ..adding("vm") }.perform(node, &ACTOR).await.unwrap();
    let of_iscsi = |change: SetExport| SetExport {
        protocol: Protocol::Iscsi,
        name: "iqn.2026-01.local.stele:vm".into(),
        ..change
    };
    let terms = || node.exports.list().into_iter().find(|export| export.protocol == Protocol::Iscsi).unwrap().iscsi;
    let alone = of_iscsi(SetExport { mutual: of("target", "another long secret"), ..setting("vm") });
    assert!(alone.clone().perform(node, &ACTOR).await.unwrap_err().error.contains("--chap-user"));
    let chap = SetExport { chap: of("host", "a long secret indeed"), ..setting("vm") };
    of_iscsi(chap).perform(node, &ACTOR).await.unwrap();
    alone.perform(node, &ACTOR).await.unwrap();
    assert_eq!((terms().chap.unwrap().user, terms().mutual.unwrap().user), ("host".to_owned(), "target".to_owned()));
    of_iscsi(SetExport { no_chap: true, ..setting("vm") }).perform(node, &ACTOR).await.unwrap();
    assert!(terms().chap.is_none() && terms().mutual.is_none());
}

#[tokio::test]
async fn an_export_that_is_there_is_changed_by_set_only() {
    let scene = Scene::new("exports-again");
    let node = &*scene.node;
    scene.volume("vm").await;
    let guarded = || AddExport {
        read_only: true,
        access: Access { networks: vec!["10.0.0.0/8".parse().unwrap()], ..Access::default() },
        ..adding("vm")
    };
    guarded().perform(node, &ACTOR).await.unwrap();
    let target = || node.exports.directory.find(Protocol::Nbd, "vm").unwrap();
    let served = target();
    // Without its options the command would drop what protects the volume.
    let refused = adding("vm").perform(node, &ACTOR).await.unwrap_err();
    assert!(refused.kind == Kind::Exists && refused.next.contains("stele export set"), "{refused}");
    // The same command again does nothing, and ends no connection.
    guarded().perform(node, &ACTOR).await.unwrap();
    assert!(std::sync::Arc::ptr_eq(&served, &target()));
    let list = node.exports.list();
    let [kept] = &list[..] else { panic!("one export") };
    assert!(kept.read_only && kept.access.networks.len() == 1, "{kept:?}");
    let open = SetExport { read_only: Some(false), networks: Some(Vec::new()), ..setting("vm") };
    open.perform(node, &ACTOR).await.unwrap();
    adding("vm").perform(node, &ACTOR).await.unwrap();
    assert_agreement(node, scene.dir());
}

#[tokio::test]
async fn a_change_that_changes_nothing_ends_no_connection() {
    let scene = Scene::new("exports-same");
    let node = &*scene.node;
    scene.volume("vm").await;
    adding("vm").perform(node, &ACTOR).await.unwrap();
    let target = || node.exports.directory.find(Protocol::Nbd, "vm").unwrap();
    let served = target();
    let open = || SetExport { read_only: Some(false), networks: Some(Vec::new()), ..setting("vm") };
    open().perform(node, &ACTOR).await.unwrap();
    SetExport { new_name: Some("vm".to_owned()), ..open() }.perform(node, &ACTOR).await.unwrap();
    assert!(std::sync::Arc::ptr_eq(&served, &target()) && !served.is_withdrawn());
    SetExport { read_only: Some(true), ..open() }.perform(node, &ACTOR).await.unwrap();
    assert!(served.is_withdrawn() && target().export.read_only);
    assert_agreement(node, scene.dir());
}

#[tokio::test]
async fn an_export_gets_another_name_and_keeps_its_restrictions() {
    let scene = Scene::new("exports-renamed");
    let node = &*scene.node;
    node.note_iscsi_address("127.0.0.1:3260".parse().unwrap());
    scene.volume("vm").await;
    scene.volume("other").await;
    let guarded = Access { networks: vec!["10.0.0.0/8".parse().unwrap()], ..Access::default() };
    let chap = Some(Credentials { user: "host".into(), secret: "a long secret indeed".into() });
    let iscsi = Terms { chap, ..Terms::default() };
    AddExport { access: guarded.clone(), protocol: Protocol::Iscsi, iscsi: iscsi.clone(), ..adding("vm") }
        .perform(node, &ACTOR)
        .await
        .unwrap();
    AddExport { protocol: Protocol::Iscsi, ..adding("other") }.perform(node, &ACTOR).await.unwrap();
    let former = node.exports.directory.find(Protocol::Iscsi, "iqn.2026-01.local.stele:vm").unwrap();
    let renaming =
        |from: &str, to: &str| SetExport { protocol: Protocol::Iscsi, new_name: Some(to.to_owned()), ..setting(from) };
    // A name that is taken, one that no target can have, and an export that is not there.
    for (from, to, kind) in [
        ("iqn.2026-01.local.stele:vm", "iqn.2026-01.local.stele:other", Kind::Exists),
        ("iqn.2026-01.local.stele:vm", "two words", Kind::Usage),
        ("iqn.2026-01.local.stele:none", "iqn.a:web", Kind::Missing),
    ] {
        let refused = renaming(from, to).perform(node, &ACTOR).await.unwrap_err();
        assert_eq!(refused.kind, kind, "{from} to {to}: {refused}");
        assert!(!former.is_withdrawn());
        assert_agreement(node, scene.dir());
    }
    let renamed = renaming("iqn.2026-01.local.stele:vm", "iqn.a:web").perform(node, &ACTOR).await.unwrap();
    assert_eq!((renamed.export.name.as_str(), renamed.export.volume.as_str()), ("iqn.a:web", "vm"));
    assert!(former.is_withdrawn());
    let list = node.exports.list();
    let kept = list.iter().find(|export| export.volume == "vm").unwrap();
    assert_eq!((&kept.access, &kept.iscsi, list.len()), (&guarded, &iscsi, 2));
    assert_agreement(node, scene.dir());
}

/// Who opens a volume to all must not look like who closes it.
#[test]
fn the_audit_log_says_who_may_reach_an_export() {
    let mut export = Export {
        name: "vm".into(),
        volume: "vm".into(),
        protocol: Protocol::Nbd,
        read_only: false,
        access: Access::default(),
        iscsi: Terms::default(),
    };
    assert_eq!(described(&export), "read-write for any address");
    export.read_only = true;
    export.access.networks = ["10.0.0.0/8", "fd00::/8"].map(|network| network.parse().unwrap()).to_vec();
    export.access.tls = true;
    assert_eq!(described(&export), "read-only for 10.0.0.0/8, fd00::/8, over TLS");
    export.access = Access { certificates: vec![Fingerprint([0xab; 32])], ..Access::default() };
    let held = |user: &str| Some(Credentials { user: user.into(), secret: "a long secret indeed".into() });
    export.iscsi = Terms { chap: held("host"), mutual: held("target"), ..Terms::default() };
    let told = described(&export);
    assert!(told.contains(&"ab".repeat(32)) && !told.contains("secret"), "{told}");
    assert!(told.ends_with("CHAP as 'host', proving itself as 'target'"), "{told}");
}

#[tokio::test]
async fn an_exported_snapshot_is_compared_with_the_older_ones() {
    let scene = Scene::new("exports-older");
    let node = &*scene.node;
    scene.volume("vm").await;
    for name in ["one", "two", "three"] {
        let command = Command::SnapshotVolume { volume: "vm".to_owned(), name: name.to_owned(), made: 1 };
        node.pool.command(command).await.unwrap();
    }
    for name in ["vm", "two"] {
        AddExport { read_only: name == "two", ..adding(name) }.perform(node, &ACTOR).await.unwrap();
    }
    let snapshots = |name: &str| {
        let target = node.exports.directory.find(Protocol::Nbd, name).unwrap();
        target.snapshots().into_iter().map(|(name, _)| name).collect::<Vec<_>>()
    };
    assert_eq!(snapshots("vm"), ["one", "two", "three"]);
    assert_eq!(snapshots("two"), ["one"]);
}

#[tokio::test]
async fn a_name_that_cannot_name_an_export_has_advice() {
    let scene = Scene::new("exports-names");
    let node = &*scene.node;
    for (protocol, name, word) in
        [(Protocol::Nbd, "two words", "without spaces"), (Protocol::Iscsi, "two words", "iqn.YYYY-MM")]
    {
        let add = AddExport { name: Some(name.to_owned()), protocol, ..adding("vm") };
        let refused = add.perform(node, &ACTOR).await.unwrap_err();
        assert!(refused.error.contains(word) && refused.next.contains("--name"), "{protocol}: {refused}");
    }
}

#[test]
fn a_list_of_exports_that_cannot_be_read_has_advice() {
    let dir = std::env::temp_dir().join(format!("stele-exports-damaged-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir(&dir).unwrap();
    for text in ["", "[]", "{\"version\": 1, \"exports\": [{\"name\""] {
        std::fs::write(dir.join("exports.json"), text).unwrap();
        let refused = crate::exports::Exports::read(&dir, Default::default()).err().unwrap();
        assert!(refused.error.contains("exports.json") && refused.next.contains("backup"), "{text}: {refused}");
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn exports_of_a_later_version_are_refused_by_name() {
    let path = std::path::Path::new("exports.json");
    for text in [
        r#"{"version":2,"exports":[]}"#,
        r#"{"version":2,"restrictions":{},"exports":[{"name":"vm","new":true}]}"#,
        r#"{"exports":{"vm":[]},"version":3}"#,
    ] {
        let refused = crate::exports::understood(path, text.as_bytes()).unwrap_err();
        assert_eq!(refused.kind, Kind::Refused, "{text}: {refused}");
        assert!(refused.error.contains("a later version of Stele wrote it"), "{text}: {refused}");
        assert!(!refused.next.contains("without the file"), "{text}: {refused}");
    }
}

#[test]
fn a_list_with_two_exports_of_one_name_is_refused() {
    let path = std::path::Path::new("exports.json");
    let read = |exports: &[(&str, &str, &str)]| {
        let one = |(name, volume, protocol): &(&str, &str, &str)| {
            format!(r#"{{"name":"{name}","volume":"{volume}","protocol":"{protocol}"}}"#)
        };
        let exports: Vec<String> = exports.iter().map(one).collect();
        let text = format!(r#"{{"version":1,"exports":[{}]}}"#, exports.join(","));
        crate::exports::understood(path, text.as_bytes())
    };
    // Only one of them could be served, and what the other restricts would not hold.
    let refused = read(&[("a", "v", "nbd"), ("b", "v", "nbd"), ("a", "w", "nbd")]).unwrap_err();
    assert!(refused.kind == Kind::Usage && refused.next.contains("backup"), "{refused}");
    assert!(refused.error.starts_with("exports.json has two nbd exports with the name 'a'"), "{refused}");
    // One volume by several names, and one name in both protocols, are allowed.
    let kept = [("a", "v", "nbd"), ("b", "v", "nbd"), ("a", "v", "iscsi"), ("iqn.x:b", "w", "iscsi")];
    assert_eq!(read(&kept).unwrap().len(), 4);
}

#[test]
fn a_field_that_no_export_has_is_never_ignored() {
    let path = std::path::Path::new("exports.json");
    let read = |more: &str, access: &str, iscsi: &str| {
        let export = format!(
            r#"{{"name":"vm","volume":"vm","protocol":"iscsi","access":{{"networks":["10.0.0.0/8"]{access}}},
                "iscsi":{{"chap":{{"user":"u","secret":"0123456789ab"{iscsi}}}}}{more}}}"#
        );
        crate::exports::understood(path, format!(r#"{{"version":1,"exports":[{export}]}}"#).as_bytes())
    };
    assert_eq!(read("", "", "").unwrap().len(), 1);
    for (more, access, iscsi) in
        [(r#","hours":"8-17""#, "", ""), ("", r#","hours":"8-17""#, ""), ("", "", r#","hours":"8-17""#)]
    {
        let refused = read(more, access, iscsi).unwrap_err();
        assert!(refused.kind == Kind::Usage && refused.error.contains("the field `hours`"), "{refused}");
    }
}

#[tokio::test]
async fn an_export_without_a_listener_is_not_served() {
    let scene = Scene::new("exports-unheard");
    let node = &*scene.node;
    scene.volume("vm").await;
    let added = adding("vm").perform(node, &ACTOR).await.unwrap();
    assert!(added.served && !added.urls.is_empty());
    // An export of iSCSI from before `[iscsi] listen` went from the configuration.
    let unheard = Export { protocol: Protocol::Iscsi, name: target_name("vm"), ..added.export };
    let changing = node.exports.changing().await;
    let volumes = node.volumes().await.unwrap();
    let (pool, volume) = (node.pool_id().await.unwrap(), find(&volumes, "vm").unwrap());
    changing.put(unheard.clone(), None, &node.pool, pool, volume).unwrap();
    let seen = view(node, unheard);
    assert!(!seen.served && seen.url.is_empty(), "{seen:?}");
}
