//! What a world of the model is, and what may become of it.

use stele_ground::{Bytes, DriveId, PoolId};

use super::*;
use crate::drives::label::{DriveEntry, Features};

impl World {
    pub(super) fn here(&self) -> impl Iterator<Item = (usize, &Column)> {
        self.columns.iter().enumerate().filter(|(_, column)| column.here)
    }

    pub(super) fn paper(&self, id: u8) -> Paper {
        *self.papers.iter().find(|paper| paper.id == id).expect("a paper with this identity")
    }

    pub(super) fn state(&self, id: u8, at: usize) -> Option<DriveState> {
        let paper = self.papers.iter().position(|paper| paper.id == id)?;
        self.columns[at].states[paper]
    }

    pub(super) fn votes(&self, id: u8, at: usize) -> bool {
        self.state(id, at).is_some_and(DriveState::votes)
    }

    pub(super) fn filling(&self, id: u8) -> Vec<usize> {
        (0..self.columns.len()).filter(|at| self.state(id, *at) == Some(DriveState::Filling)).collect()
    }

    pub(super) fn usable(&self) -> Vec<DriveNumber> {
        let usable = self.here().filter(|(at, _)| self.votes(self.current, *at));
        usable.map(|(at, _)| DriveNumber(at as u16)).collect()
    }

    pub(super) fn up(&self, phase: Phase) -> Phase {
        if self.phase == Phase::Down { Phase::Down } else { phase }
    }

    pub(super) fn down(&self) -> World {
        let mut world = World { phase: Phase::Down, ..self.clone() };
        for column in &mut world.columns {
            (column.here, column.caught_up) = (false, false);
        }
        (world.current, world.next, world.settled, world.unsettled, world.events) = (0, 0, 0, false, 0);
        world
    }

    pub(super) fn lost(&self, at: usize) -> World {
        let mut world = self.clone();
        (world.columns[at].here, world.columns[at].caught_up) = (false, false);
        world.unsettled = true;
        world
    }

    /// Every outcome of a write to these drives: the power goes after any of them took it, or all
    /// took it, or all but one, which is lost. `then` says what follows where so many hold it.
    pub(super) fn written(
        &self,
        targets: &[DriveNumber],
        change: impl Fn(&mut Column),
        then: impl Fn(&World, &[DriveNumber]) -> Phase,
    ) -> Vec<World> {
        let mut next = Vec::new();
        for subset in subsets(targets.len()) {
            let held: Vec<DriveNumber> =
                targets.iter().enumerate().filter(|(at, _)| subset & 1 << at != 0).map(|(_, number)| *number).collect();
            let mut world = self.clone();
            held.iter().for_each(|number| change(&mut world.columns[usize::from(number.0)]));
            next.push(world.down());
            if held.len() + 1 < targets.len() {
                continue;
            }
            for number in targets.iter().filter(|number| !held.contains(number)) {
                world = world.lost(usize::from(number.0));
            }
            let phase = then(&world, &held);
            next.push(if phase == Phase::Down { world.down() } else { World { phase, ..world } });
        }
        next
    }

    /// Every outcome of writing an anchor: any of the drives hold it, since one that fails an
    /// anchor's write is not lost.
    pub(super) fn anchored(
        &self,
        targets: &[DriveNumber],
        anchor: (u8, u8),
        then: impl Fn(usize) -> Phase,
    ) -> Vec<World> {
        let mut next = Vec::new();
        for subset in subsets(targets.len()) {
            let mut world = self.clone();
            let held = targets.iter().enumerate().filter(|(at, _)| subset & 1 << at != 0);
            for (_, number) in held {
                let column = &mut world.columns[usize::from(number.0)];
                (column.anchor, column.passed_over) = (anchor, false);
            }
            next.push(world.down());
            match then(subset.count_ones() as usize) {
                Phase::Down => {}
                phase => next.push(World { phase, ..world }),
            }
        }
        next
    }

    /// As the code sees it.
    pub(super) fn configuration(&self, id: u8) -> Configuration {
        let paper = self.paper(id);
        let known = (0..self.columns.len()).map_while(|at| {
            // Numbers are given in order; a drive that the table does not know stands for one that
            // has left it.
            let state = self.state(id, at).unwrap_or(DriveState::Retired);
            let identity = DriveId([at as u8 + 1; 16]);
            Some(DriveEntry { identity, enclosure: 0, size: Bytes(0), state, leaving: false, joined: 0 })
        });
        Configuration {
            pool: PoolId([0; 16]),
            name: String::new(),
            created: 0,
            features: Features::default(),
            epoch: paper.epoch.into(),
            seed: 0,
            unit_size: Bytes(0),
            log_size: Bytes(0),
            spare_drives: 0,
            tolerates: 1,
            drives: known.collect(),
            log: Vec::new(),
            protected: false,
            clean: false,
            growing: false,
            settled: paper.settled.into(),
            overrides: Vec::new(),
            shard: Default::default(),
            loss_accepted: false,
            rolling_back: None,
        }
    }

    pub(super) fn label(&self, at: usize, column: &Column) -> Label {
        Label {
            sequence: 0,
            number: DriveNumber(at as u16),
            promised: column.promised.into(),
            complete: column.complete.into(),
            configuration: self.configuration(column.label),
        }
    }

    /// The same world with its drives in one order, without papers that neither a drive nor the
    /// process holds.
    pub(super) fn named_alike(mut self) -> World {
        for at in (0..self.papers.len()).rev() {
            let id = self.papers[at].id;
            if ![self.current, self.decided].contains(&id) && self.columns.iter().all(|column| column.label != id) {
                self.papers.remove(at);
                self.columns.iter_mut().for_each(|column| {
                    column.states.remove(at);
                });
            }
        }
        self.columns.sort_unstable();
        self
    }
}
