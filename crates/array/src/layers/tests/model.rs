//! Chance against a dull twin: volumes are byte arrays, a snapshot is a copy of one.

use std::collections::BTreeMap;

use stele_ground::{Dice, VolumeId};

use crate::model::{ArrayError, Command};
use crate::testing::{Fixture, NoAnswer, pattern, spec};

const SIZE: usize = 512 << 10;

struct Twin {
    id: VolumeId,
    snapshot: bool,
    /// The volume it is a snapshot of.
    of: Option<String>,
    content: Vec<u8>,
    /// A write that the power cut off: where, and what may be there instead.
    perhaps: Option<(usize, Vec<u8>)>,
}

struct Chance {
    fixture: Fixture,
    twins: BTreeMap<String, Twin>,
    dice: Dice,
    names: u64,
    seed: u64,
}

/// A command that the power cut off.
enum Cut {
    Made(String, Box<Twin>),
    RolledBack(String, Vec<u8>),
    Deleted(String),
}

impl Chance {
    fn new(seed: u64) -> Chance {
        let mut dice = Dice::new(seed);
        let code = ["mirror-2", "2+1", "4+2"][dice.below(3) as usize];
        let mut fixture = Fixture::new(6, 6, seed);
        let mut volume = spec("a", code, SIZE as u64);
        if dice.one_in(3) {
            volume.digest = crate::model::DigestUnit::Strip;
        }
        let id = fixture.create_volume(volume).id;
        let twin = Twin { id, snapshot: false, of: None, content: vec![0; SIZE], perhaps: None };
        Chance { fixture, twins: BTreeMap::from([("a".to_owned(), twin)]), dice, names: 0, seed }
    }

    fn pick(&mut self, snapshot: bool) -> Option<String> {
        let names: Vec<String> =
            self.twins.iter().filter(|(_, twin)| twin.snapshot == snapshot).map(|(name, _)| name.clone()).collect();
        self.dice.pick(&names).cloned()
    }

    fn new_name(&mut self) -> String {
        self.names += 1;
        format!("n{}", self.names)
    }

    /// One thing. True when the power went.
    fn step(&mut self) -> bool {
        match self.dice.below(24) {
            0..=11 => self.write(),
            12 => {
                let Some(name) = self.pick(false) else { return false };
                let id = self.twins[&name].id;
                let at = self.dice.below(8) as usize * (64 << 10);
                match self.fixture.discard(id, at as u64, 64 << 10) {
                    Ok(()) => self.twin(&name).content[at..at + (64 << 10)].fill(0),
                    Err(NoAnswer::PowerCut) => self.twin(&name).perhaps = Some((at, vec![0; 64 << 10])),
                    Err(other) => panic!("seed {}: {other:?}", self.seed),
                }
                self.fixture.test_drives.cut_at.is_some_and(|at| self.fixture.test_drives.operations >= at)
            }
            13 => matches!(self.fixture.command(Command::Checkpoint), Err(NoAnswer::PowerCut)),
            14..=16 => self.snapshot(),
            17 => self.make_clone(),
            18 | 19 => self.roll_back(),
            20 | 21 => self.delete(),
            _ => self.look(),
        }
    }

    fn twin(&mut self, name: &str) -> &mut Twin {
        self.twins.get_mut(name).expect("it is known")
    }

    fn write(&mut self) -> bool {
        let Some(name) = self.pick(false) else { return false };
        let length = [4096, 12288, 32 << 10, 100 << 10, 128 << 10][self.dice.below(5) as usize];
        let at = self.dice.below(((SIZE - length) / 4096) as u64 + 1) as usize * 4096;
        let data = pattern(self.dice.roll(), length);
        let id = self.twins[&name].id;
        match self.fixture.write(id, at as u64, &data) {
            Ok(()) => {
                self.twin(&name).content[at..at + length].copy_from_slice(&data);
                false
            }
            Err(NoAnswer::PowerCut) => {
                self.twin(&name).perhaps = Some((at, data));
                true
            }
            Err(other) => panic!("seed {}: {other:?}", self.seed),
        }
    }

    /// The power went while the command was under way: it was carried out or not, and the list says
    /// which.
    fn settle(&mut self, cut: Cut) -> bool {
        self.fixture.crash().unwrap_or_else(|error| panic!("seed {}: {error:?}", self.seed));
        let list = self.fixture.list();
        let status = |name: &str| list.iter().find(|status| status.spec.name == name);
        match cut {
            Cut::Made(name, mut twin) => {
                if let Some(status) = status(&name) {
                    twin.id = status.id;
                    self.twins.insert(name, *twin);
                }
            }
            Cut::Deleted(name) => {
                if status(&name).is_none() {
                    self.twins.remove(&name);
                }
            }
            Cut::RolledBack(name, content) => {
                let read = self.fixture.read(self.twins[&name].id, 0, SIZE).expect("read");
                if read == content {
                    self.twin(&name).content = content;
                }
            }
        }
        self.look()
    }

    fn done<T>(&mut self, result: Result<T, NoAnswer>) -> Option<T> {
        match result {
            Ok(done) => Some(done),
            Err(NoAnswer::PowerCut) => None,
            Err(other) => panic!("seed {}: {other:?}", self.seed),
        }
    }

    fn snapshot(&mut self) -> bool {
        let Some(of) = self.pick(false) else { return false };
        if self.twins.len() > 8 {
            return false;
        }
        let name = self.new_name();
        let result = self.fixture.snapshot(&of, &name);
        let content = self.twins[&of].content.clone();
        let mut twin = Twin { id: VolumeId(0), snapshot: true, of: Some(of), content, perhaps: None };
        match self.done(result) {
            Some(status) => {
                twin.id = status.id;
                self.twins.insert(name, twin);
                false
            }
            None => self.settle(Cut::Made(name, Box::new(twin))),
        }
    }

    fn make_clone(&mut self) -> bool {
        let Some(of) = self.pick(true) else { return false };
        let name = self.new_name();
        let result = self.fixture.make_clone(&of, &name);
        let content = self.twins[&of].content.clone();
        let mut twin = Twin { id: VolumeId(0), snapshot: false, of: Some(of), content, perhaps: None };
        match self.done(result) {
            Some(status) => {
                twin.id = status.id;
                self.twins.insert(name, twin);
                false
            }
            None => self.settle(Cut::Made(name, Box::new(twin))),
        }
    }

    fn roll_back(&mut self) -> bool {
        let Some(to) = self.pick(true) else { return false };
        let Some(volume) = self.twins[&to].of.clone() else { return false };
        let result = self.fixture.roll_back(&volume, &to);
        let content = self.twins[&to].content.clone();
        match self.done(result) {
            Some(_) => {
                self.twin(&volume).content = content;
                false
            }
            None => self.settle(Cut::RolledBack(volume, content)),
        }
    }

    fn delete(&mut self) -> bool {
        let snapshot = self.dice.one_in(2);
        let Some(name) = self.pick(snapshot) else { return false };
        let has = self.twins.values().any(|twin| twin.of.as_ref() == Some(&name) && twin.snapshot != snapshot);
        if name == "a" {
            return false;
        }
        match self.fixture.delete(&name) {
            Ok(()) => {
                assert!(!has, "seed {}: {name} was deleted from under others", self.seed);
                self.twins.remove(&name);
                false
            }
            Err(NoAnswer::Array(ArrayError::Refused(_))) if has => false,
            Err(NoAnswer::PowerCut) => self.settle(Cut::Deleted(name)),
            Err(other) => panic!("seed {}: {other:?}", self.seed),
        }
    }

    /// Everything is as it should be. True when the power went.
    fn look(&mut self) -> bool {
        let names: Vec<String> = self.twins.keys().cloned().collect();
        for name in names {
            let read = self.fixture.read(self.twins[&name].id, 0, SIZE);
            let Some(read) = self.done(read) else { return true };
            let seed = self.seed;
            let twin = self.twin(&name);
            for (at, have) in read.chunks(4096).enumerate().map(|(block, have)| (block * 4096, have)) {
                let in_flight = twin.perhaps.as_ref().and_then(|(from, data)| {
                    let inside = at.checked_sub(*from).filter(|inside| *inside < data.len())?;
                    Some(&data[inside..inside + 4096])
                });
                let right = have == &twin.content[at..at + 4096] || in_flight.is_some_and(|data| data == have);
                assert!(right, "seed {seed}: {name} is wrong at {at}");
            }
            twin.content = read;
            twin.perhaps = None;
        }
        false
    }

    fn restart(&mut self) {
        self.fixture.crash().unwrap_or_else(|error| panic!("seed {}: {error:?}", self.seed));
        while self.look() {
            self.fixture.crash().unwrap_or_else(|error| panic!("seed {}: {error:?}", self.seed));
        }
    }
}

#[test]
fn chance_finds_no_difference_to_copies_of_everything() {
    for seed in 0..40 {
        let mut chance = Chance::new(seed);
        for _ in 0..6 {
            chance.fixture.test_drives.cut_at = Some(chance.fixture.test_drives.operations + chance.dice.below(4000));
            for _ in 0..60 {
                if chance.step() {
                    chance.restart();
                    break;
                }
            }
        }
        chance.fixture.test_drives.cut_at = None;
        chance.restart();
        assert_eq!(chance.fixture.scrub(), (0, 0), "seed {seed}");
        // Nothing that was deleted is left of anything.
        let mut names: Vec<String> = chance.twins.keys().cloned().collect();
        while !names.is_empty() {
            let before = names.len();
            names.retain(|name| chance.fixture.delete(name).is_err());
            assert!(names.len() < before, "seed {seed}: {names:?} cannot be deleted");
        }
        assert_eq!((chance.fixture.layers(), chance.fixture.slots_used()), (0, 0), "seed {seed}");
    }
}
