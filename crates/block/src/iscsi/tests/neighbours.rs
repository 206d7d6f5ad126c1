//! The targets that a copy may reach: the initiator must be logged in there, and its proof here
//! must suffice for that login.

use std::sync::Arc;

use super::*;
use crate::iscsi::node::{Joined, Kept};
use crate::scsi::{Port, naa};
use crate::testing::{Volume, export};
use crate::{Access, Directory, Export, Limits, Peer, Protocol};

struct Names;

impl Keeper for Names {
    fn identity(&self, volume: &str) -> [u8; 16] {
        let mut id = [0; 16];
        id[15] = volume.as_bytes()[0];
        id
    }
    fn load(&self, _: &str) -> Result<Option<Vec<u8>>, MediaError> {
        Ok(None)
    }
    fn keep(&self, _: &str, _: Option<Vec<u8>>, done: Kept) {
        done(Ok(()));
    }
}

fn agreed(initiator: &str, target: &str, parameters: parameters::Parameters) -> LoginResult {
    LoginResult {
        initiator: initiator.to_owned(),
        isid: [1; 6],
        target: Some(format!("iqn.a:{target}")),
        rules: LoginRules::default(),
        tsih: 0,
        cid: 0,
        command_number: 1,
        status_number: 1,
        parameters,
    }
}

/// Targets `iqn.a:NAME`, each with a volume of that name.
pub(super) struct Site {
    pub directory: Directory,
    pub node: Arc<Node>,
}

impl Site {
    pub fn new() -> Site {
        let directory = Directory::default();
        let node = Arc::new(Node::new(directory.clone(), Arc::new(Names)));
        Site { directory, node }
    }

    pub fn serve(&self, name: &str, change: impl FnOnce(&mut Export)) -> Volume {
        let mut export =
            Export { protocol: Protocol::Iscsi, volume: name.to_owned(), ..export(&format!("iqn.a:{name}")) };
        change(&mut export);
        let drive = MemoryDrive::with_block(Bytes(BLOCKS * BLOCK), Bytes(BLOCK));
        let volume = Volume::new(drive);
        self.directory.serve(export, volume.handle(), Limits::default());
        volume
    }

    /// The state after a successful login.
    pub fn log_in(&self, initiator: &str, target: &str) -> Joined {
        self.log_in_with(initiator, target, parameters::Parameters::default()).expect("the target lets it in")
    }

    pub fn log_in_with(
        &self,
        initiator: &str,
        target: &str,
        parameters: parameters::Parameters,
    ) -> Result<Joined, Refusal> {
        let agreed = LoginResult { parameters, ..self.agreed(initiator, target) };
        self.node.join(agreed, &Peer::default(), "127.0.0.1:3260".to_owned())
    }

    /// The end of a login that met the present requirements.
    pub fn agreed(&self, initiator: &str, target: &str) -> LoginResult {
        let mut agreed = agreed(initiator, target, parameters::Parameters::default());
        if let Some(served) = self.directory.find(Protocol::Iscsi, &format!("iqn.a:{target}")) {
            let terms = &served.export.iscsi;
            agreed.rules = LoginRules { chap: terms.chap.clone(), mutual: terms.mutual.clone() };
        }
        agreed
    }

    /// A login to `a` from another address.
    pub fn log_in_by(&self, address: &str) -> Joined {
        let peer = Peer { address: Some(address.parse().unwrap()), ..Peer::default() };
        let agreed = agreed(address, "a", parameters::Parameters::default());
        self.node.join(agreed, &peer, "127.0.0.1:3260".to_owned()).expect("the target lets it in")
    }

    /// Returns readable and writable, if it is reached from `here`.
    fn reach(&self, here: &str, peer: &Peer, initiator: &str, name: &str) -> Option<(bool, bool)> {
        let here = self.directory.find(Protocol::Iscsi, &format!("iqn.a:{here}")).expect("it is served");
        let port = Port { initiator: format!("{initiator},i,0x010101010101"), target: 1 };
        let unit = Profile { id: Names.identity(name), ..profile() };
        let found = self.node.neighbours(&here, peer, &port, &(3, naa(&unit).to_vec()));
        let found = found.first()?;
        Some((found.reached.readable, found.reached.writable))
    }
}

fn guarded(secret: &str) -> impl FnOnce(&mut Export) {
    let chap = Credentials { user: "host".to_owned(), secret: secret.to_owned() };
    move |export| export.iscsi.chap = Some(chap)
}

#[test]
fn a_unit_is_reached_by_those_who_are_logged_in_to_it_and_could_be_from_here() {
    let site = Site::new();
    site.serve("a", |_| {});
    site.serve("b", |_| {});
    let peer = Peer::default();
    let _here = site.log_in("iqn.h:one", "a");
    assert_eq!(site.reach("a", &peer, "iqn.h:one", "b"), None, "not logged in to b");
    let other = site.log_in("iqn.h:two", "b");
    assert_eq!(site.reach("a", &peer, "iqn.h:one", "b"), None, "another is logged in to b");
    let there = site.log_in("iqn.h:one", "b");
    assert_eq!(site.reach("a", &peer, "iqn.h:one", "b"), Some((true, true)));
    assert_eq!(site.reach("a", &peer, "iqn.h:one", "x"), None);
    let _sessions = (other, there);

    site.serve("c", |export| {
        export.access = Access { networks: vec!["10.0.0.0/8".parse().unwrap()], ..Access::default() }
    });
    let _there = site.log_in("iqn.h:one", "c");
    let far = Peer { address: Some("192.0.2.1".parse().unwrap()), ..Peer::default() };
    assert_eq!(site.reach("a", &far, "iqn.h:one", "c"), None, "its network is none of c's");

    site.serve("r", |export| export.read_only = true);
    let _there = site.log_in("iqn.h:one", "r");
    assert_eq!(site.reach("a", &peer, "iqn.h:one", "r"), Some((true, false)));
}

#[test]
fn a_name_is_no_proof_of_who_one_is() {
    let site = Site::new();
    site.serve("a", |_| {});
    site.serve("g", guarded("quite a long secret"));
    site.serve("h", guarded("quite a long secret"));
    site.serve("i", guarded("another long secret"));
    let peer = Peer::default();
    let _places = ["a", "g", "h", "i"].map(|target| site.log_in("iqn.h:one", target));
    assert_eq!(site.reach("a", &peer, "iqn.h:one", "g"), None, "whoever calls himself so at a has proved nothing");
    assert_eq!(site.reach("g", &peer, "iqn.h:one", "h"), Some((true, true)), "the same credentials");
    assert_eq!(site.reach("g", &peer, "iqn.h:one", "i"), None, "others");
    assert_eq!(site.reach("g", &peer, "iqn.h:one", "a"), Some((true, true)), "a asks for none");
}

#[test]
fn an_initiator_of_another_network_learns_nothing_and_the_log_gets_the_reason() {
    let site = Site::new();
    site.serve("a", |export| export.access.networks = vec!["10.1.0.0/16".parse().unwrap()]);
    let peer = |address: &str| Peer { address: Some(address.parse().unwrap()), ..Peer::default() };
    let other = peer("10.2.0.1");
    let seen = site.node.seen_by(&other);
    assert_eq!(seen.rules("iqn.a:a").err(), seen.rules("iqn.a:none").err());
    assert!(seen.reason("iqn.a:a").unwrap().contains("networks"));
    assert_eq!(seen.reason("iqn.a:none"), None);
    let one = peer("10.1.0.1");
    assert!(site.node.seen_by(&one).rules("iqn.a:a").is_ok());
}
