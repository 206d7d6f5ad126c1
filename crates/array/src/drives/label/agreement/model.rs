//! A model of the agreement among drives, checked exhaustively: every order of openings, cuts
//! between any two writes, absences, returns, additions and losses, up to a number of lives and of
//! events in each.
//!
//! The model holds what lies on the drives and in the process, and takes every step by the
//! functions of `agreement.rs` that the code takes it by. Two worlds that differ only in the names
//! of their drives are one. It knows what it must not know, too: which configuration was put in
//! force last, and which drives lack an acknowledged write.

use std::collections::{HashSet, VecDeque};

use super::*;
use crate::cache::FixedState;
use fingerprint::fingerprint;

/// Rules that can be taken away, to see that the model notices.
#[derive(Clone, Copy, Debug)]
struct Rules {
    /// An opening announces its epoch before it writes a configuration with it.
    promise: bool,
    /// A renewed label does not say more about what its drive holds than before.
    complete: bool,
    /// A loss is committed before a write that missed the drive is acknowledged.
    settle: bool,
    /// An opening brings its anchor to a quorum before it goes on.
    spread: bool,
    /// It does so under its own epoch.
    restamp: bool,
    /// A checkpoint counts only on as many drives as `holders` says.
    anchor_quorum: bool,
    /// One voter comes at a time.
    single: bool,
    /// A drive that was given up and is taken back is filled before it counts.
    refill: bool,
}

mod fingerprint;
mod world;

const RULES: Rules = Rules {
    promise: true,
    complete: true,
    settle: true,
    spread: true,
    restamp: true,
    anchor_quorum: true,
    single: true,
    refill: true,
};

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
enum Phase {
    Down,
    Promised,
    Claimed,
    Anchored,
    Running,
}

/// A configuration; the states of its drives are in the columns.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
struct Paper {
    /// Its epoch, where epochs are announced and so tell papers apart; else a number of its own.
    id: u8,
    epoch: u8,
    settled: u8,
    /// Papers it stands on: bits by identity.
    ancestors: u128,
}

/// A drive: its label (a paper's identity, 0 for none), its anchor, what the process knows of it,
/// and whether it truly lacks something.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
struct Column {
    label: u8,
    promised: u8,
    complete: u8,
    /// Epoch and sequence.
    anchor: (u8, u8),
    /// The pool went on from an older anchor, and what this one refers to may be written over.
    passed_over: bool,
    lacks: bool,
    here: bool,
    caught_up: bool,
    /// Its state in each paper; none where the table does not know it.
    states: Vec<Option<DriveState>>,
}

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
struct World {
    papers: Vec<Paper>,
    columns: Vec<Column>,
    phase: Phase,
    /// The paper in force in the process.
    current: u8,
    next: u8,
    settled: u8,
    /// A drive was lost since the last commit.
    unsettled: bool,
    papers_made: u8,
    /// The newest paper that was in force.
    decided: u8,
    /// Older anchors are of no use any more.
    trimmed: (u8, u8),
    lives: u8,
    events: u8,
}

struct Bounds {
    drives: usize,
    newcomers: usize,
    tolerates: usize,
    lives: u8,
    events: u8,
}

struct Model {
    bounds: Bounds,
    rules: Rules,
}

type Next = Result<Vec<World>, String>;

impl Model {
    fn first(&self) -> World {
        let member = Column {
            label: 1,
            promised: 1,
            complete: 1,
            anchor: (1, 1),
            passed_over: false,
            lacks: false,
            here: false,
            caught_up: false,
            states: vec![Some(DriveState::Active)],
        };
        let blank = Column { label: 0, promised: 0, complete: 0, anchor: (0, 0), states: vec![None], ..member.clone() };
        let mut columns = vec![member; self.bounds.drives];
        columns.extend(vec![blank; self.bounds.newcomers]);
        World {
            papers: vec![Paper { id: 1, epoch: 1, settled: 0, ancestors: 0 }],
            columns,
            phase: Phase::Down,
            current: 0,
            next: 0,
            settled: 0,
            unsettled: false,
            papers_made: 1,
            decided: 1,
            trimmed: (1, 1),
            lives: self.bounds.lives,
            events: 0,
        }
    }

    /// Visits every world; answers how many there are, or the first broken promise with the worlds
    /// that lead to it.
    fn explore(&self) -> Result<usize, String> {
        let mut seen: HashSet<u128, FixedState> = HashSet::default();
        let mut queue = VecDeque::from([self.first().named_alike()]);
        seen.extend(queue.iter().map(fingerprint));
        while let Some(world) = queue.pop_front() {
            for next in self.steps(&world).map_err(|broken| format!("{broken}\n{world:#?}"))? {
                let next = next.named_alike();
                if seen.insert(fingerprint(&next)) {
                    queue.push_back(next);
                }
            }
        }
        Ok(seen.len())
    }

    fn steps(&self, world: &World) -> Next {
        match world.phase {
            Phase::Down => self.power_on(world),
            Phase::Promised => self.claim(world),
            Phase::Claimed => self.open_anchor(world),
            Phase::Anchored => {
                Ok(self.commit(world, |_| ()).into_iter().map(|w| World { phase: w.up(Phase::Running), ..w }).collect())
            }
            Phase::Running => self.run(world),
        }
    }

    /// Some drives answer, and the epoch is announced.
    fn power_on(&self, world: &World) -> Next {
        if world.lives == 0 {
            return Ok(Vec::new());
        }
        let mut next = Vec::new();
        for here in subsets(world.columns.len()) {
            let mut world = world.clone();
            world.lives -= 1;
            (world.events, world.unsettled) = (self.bounds.events, false);
            for (at, column) in world.columns.iter_mut().enumerate() {
                column.here = here & 1 << at != 0 && column.label > 0;
            }
            let newest = world.here().map(|(_, column)| column.label).max_by_key(|label| world.paper(*label).epoch);
            let Some(newest) = newest else { continue };
            let table = world.configuration(newest);
            let numbers: Vec<DriveNumber> = world.here().map(|(at, _)| DriveNumber(at as u16)).collect();
            if !majority(&table, &numbers) {
                continue;
            }
            let epochs: Vec<(DriveNumber, u64)> = world
                .here()
                .map(|(at, column)| (DriveNumber(at as u16), world.paper(column.label).epoch.into()))
                .collect();
            let floor = floor(&table, &epochs);
            let labels: Vec<Label> = world.here().map(|(at, column)| world.label(at, column)).collect();
            let ballot =
                if self.rules.promise { next_ballot(&labels) } else { u64::from(world.paper(newest).epoch) + 1 };
            (world.current, world.next, world.settled) = (newest, ballot as u8, floor as u8);
            for column in world.columns.iter_mut() {
                column.caught_up = column.here && u64::from(column.complete) >= floor;
            }
            let caught_up = world.filling(newest);
            caught_up.into_iter().for_each(|at| world.columns[at].caught_up = false);
            if !self.rules.promise {
                world.phase = Phase::Promised;
                next.push(world);
                continue;
            }
            next.extend(world.written(
                &numbers,
                |column| column.promised = column.promised.max(ballot as u8),
                |w, held| {
                    if majority(&table, held) { Phase::Promised } else { w.up(Phase::Down) }
                },
            ));
        }
        Ok(next)
    }

    fn claim(&self, world: &World) -> Next {
        // A drive that lacks something is known to lack it.
        for (at, column) in world.here() {
            let filling = world.state(world.current, at) == Some(DriveState::Filling);
            if column.lacks && column.caught_up && !filling && world.votes(world.current, at) {
                return Err("a drive that lacks an acknowledged write counts as complete".into());
            }
        }
        let stale: Vec<usize> = world
            .here()
            .filter(|(at, column)| !column.caught_up && world.state(world.current, *at) == Some(DriveState::Active))
            .map(|(at, _)| at)
            .collect();
        let base = world.paper(world.current);
        let mut next = Vec::new();
        for after in self.commit(world, |states| stale.iter().for_each(|at| states[*at] = Some(DriveState::Filling))) {
            if after.phase != Phase::Down && base.id != world.decided && base.ancestors & 1 << world.decided == 0 {
                return Err(format!("{} was in force, and {} goes on without it", world.decided, after.current));
            }
            next.push(World { phase: after.up(Phase::Claimed), ..after });
        }
        Ok(next)
    }

    /// The newest anchor is taken, and brought to its quorum.
    fn open_anchor(&self, world: &World) -> Next {
        let newest = world.here().map(|(_, column)| column.anchor).max().unwrap_or_default();
        // A drive that was given up, or is being filled, is as good as lost.
        let out = (0..world.columns.len()).filter(|at| {
            let (column, state) = (&world.columns[*at], world.state(world.current, *at));
            match state {
                Some(DriveState::Active | DriveState::Filling) => !column.here || !column.caught_up,
                state => state == Some(DriveState::Failed),
            }
        });
        let out = out.count();
        if newest < world.trimmed {
            return match out <= self.bounds.tolerates {
                true => Err(format!("{out} drives are lost, and with them the anchor that the log begins with")),
                // Refused by name.
                false => Ok(Vec::new()),
            };
        }
        if world.here().any(|(_, column)| column.anchor == newest && column.passed_over) && out <= self.bounds.tolerates
        {
            return Err("the pool opens from an anchor that another opening passed over".into());
        }
        let goes_on = |world: &mut World, anchor: (u8, u8)| {
            world.trimmed = anchor;
            world
                .columns
                .iter_mut()
                .for_each(|column| column.passed_over |= column.anchor > newest && column.anchor != anchor);
        };
        if !self.rules.spread {
            let mut world = World { phase: Phase::Anchored, ..world.clone() };
            goes_on(&mut world, newest);
            return Ok(vec![world]);
        }
        let anchor = if self.rules.restamp { (world.paper(world.current).epoch, newest.1 + 1) } else { newest };
        let numbers: Vec<DriveNumber> = world.usable();
        let enough = self.holders(world, numbers.len());
        let mut next =
            world.anchored(&numbers, anchor, |held| if held >= enough { Phase::Anchored } else { Phase::Down });
        // The log epochs before it are dropped next.
        next.iter_mut().filter(|w| w.phase == Phase::Anchored).for_each(|w| goes_on(w, anchor));
        Ok(next)
    }

    fn holders(&self, world: &World, answering: usize) -> usize {
        let tolerates = self.bounds.tolerates as u32;
        super::holders(&Configuration { tolerates, ..world.configuration(world.current) }, answering)
    }

    fn run(&self, world: &World) -> Next {
        for (at, column) in world.here() {
            if world.state(world.current, at) == Some(DriveState::Active) && column.caught_up && column.lacks {
                return Err("a drive that lacks an acknowledged write is called whole".into());
            }
        }
        // The power goes.
        let mut next = vec![world.down()];
        if world.events == 0 {
            return Ok(next);
        }
        let mut world = world.clone();
        world.events -= 1;
        let here: Vec<usize> = world.usable().iter().map(|number| usize::from(number.0)).collect();
        // A write is acknowledged; drives that are away lack it.
        if !world.unsettled || !self.rules.settle {
            let mut acknowledged = world.clone();
            let voters: Vec<usize> = (0..world.columns.len()).filter(|at| world.votes(world.current, *at)).collect();
            for at in voters {
                acknowledged.columns[at].lacks |= !world.columns[at].here;
            }
            next.push(acknowledged);
        }
        // A commit that changes nothing: a loss is settled, or the log changes members.
        next.extend(self.commit(&world, |_| ()));
        // A checkpoint.
        let last = here.iter().map(|at| world.columns[*at].anchor.1).max().unwrap_or(0);
        let anchor = (world.paper(world.current).epoch, last + 1);
        let numbers = world.usable();
        let enough = if self.rules.anchor_quorum { self.holders(&world, numbers.len()) } else { 1 };
        let mut anchored =
            world.anchored(&numbers, anchor, |held| if held >= enough { Phase::Running } else { Phase::Down });
        anchored.iter_mut().filter(|w| w.phase == Phase::Running).for_each(|w| w.trimmed = anchor);
        next.extend(anchored);
        for at in 0..world.columns.len() {
            let (column, state) = (&world.columns[at], world.state(world.current, at));
            match state {
                Some(DriveState::Active) if column.here => {
                    // It goes; or it is given up.
                    next.push(world.lost(at));
                    next.extend(self.commit(&world, |states| states[at] = Some(DriveState::Failed)));
                }
                Some(DriveState::Active) => {
                    // It comes back, and another commit may come before its own.
                    let mut returned = world.clone();
                    (returned.columns[at].here, returned.columns[at].caught_up) = (true, false);
                    next.push(returned);
                }
                Some(DriveState::Filling) if column.here => {
                    let mut filled = world.clone();
                    (filled.columns[at].lacks, filled.columns[at].caught_up) = (false, true);
                    next.extend(self.commit(&filled, |states| states[at] = Some(DriveState::Active)));
                }
                Some(DriveState::Failed) => {
                    // A blank drive takes its place.
                    let mut replaced = world.clone();
                    let column = &mut replaced.columns[at];
                    (column.label, column.promised, column.complete, column.anchor) = (0, 0, 0, (0, 0));
                    (column.lacks, column.here, column.caught_up) = (true, true, false);
                    column.passed_over = false;
                    next.extend(self.commit(&replaced, |states| states[at] = Some(DriveState::Filling)));
                    // Or it is taken back as it is.
                    let known = label_epoch(&world, at).is_some_and(|epoch| epoch <= world.paper(world.current).epoch);
                    if known {
                        let mut back = world.clone();
                        let column = &mut back.columns[at];
                        (column.lacks, column.here, column.caught_up) = (true, true, !self.rules.refill);
                        let state = if self.rules.refill { DriveState::Filling } else { DriveState::Active };
                        next.extend(self.commit(&back, |states| states[at] = Some(state)));
                    }
                }
                Some(DriveState::Joining) if column.here && column.label == world.current => {
                    next.extend(self.commit(&world, |states| states[at] = Some(DriveState::Active)));
                }
                _ => {}
            }
            if state == Some(DriveState::Active) && column.here && !column.caught_up {
                next.extend(self.commit(&world, |states| states[at] = Some(DriveState::Filling)));
            }
        }
        // Blank drives join together.
        let blank = |at: &usize| world.columns[*at].label == 0 && world.state(world.current, *at).is_none();
        let blank: Vec<usize> = (0..world.columns.len()).filter(blank).collect();
        if !blank.is_empty() {
            let mut joining = world.clone();
            for at in &blank {
                (joining.columns[*at].here, joining.columns[*at].caught_up) = (true, true);
            }
            let state = if self.rules.single { DriveState::Joining } else { DriveState::Active };
            next.extend(self.commit(&joining, |states| blank.iter().for_each(|at| states[*at] = Some(state))));
        }
        Ok(next)
    }

    /// Every outcome of a commit: cut off after any subset of the drives took it, or in force; then
    /// at most one drive that did not take it is lost.
    fn commit(&self, world: &World, change: impl FnOnce(&mut [Option<DriveState>])) -> Vec<World> {
        let mut world = world.clone();
        let old = world.configuration(world.current);
        let epoch = world.next;
        world.papers_made += 1;
        let id = if self.rules.promise { epoch } else { world.papers_made };
        let from = world.papers.iter().position(|paper| paper.id == world.current).expect("a paper");
        let base = world.papers[from];
        let paper = Paper { id, epoch, settled: world.settled, ancestors: base.ancestors | 1 << base.id };
        let mut states: Vec<_> = world.columns.iter().map(|column| column.states[from]).collect();
        change(&mut states);
        let place = world.papers.partition_point(|paper| paper.id < id);
        assert!(world.papers.get(place).is_none_or(|other| other.id != id), "two papers of one epoch");
        for (column, state) in world.columns.iter_mut().zip(&states) {
            column.states.insert(place, *state);
        }
        world.papers.insert(place, paper);
        let new = world.configuration(id);
        assert!(!self.rules.single || is_single_change(&old, &new));
        let takes = |state: Option<DriveState>| state.is_some_and(|s| s.votes() || s == DriveState::Joining);
        // A voter that leaves takes the table without itself, too.
        let targets: Vec<DriveNumber> = world
            .here()
            .filter(|(at, _)| takes(states[*at]) || world.votes(base.id, *at))
            .map(|(at, _)| DriveNumber(at as u16))
            .collect();
        let complete = self.rules.complete;
        let renew = |column: &mut Column| {
            let state = column.states[place].expect("in the table");
            let caught_up = column.caught_up || !complete;
            column.complete = renewed(column.complete.into(), caught_up, state, epoch.into()) as u8;
            (column.label, column.promised) = (id, column.promised.max(epoch));
        };
        let agreed = |held: &[DriveNumber]| majority(&old, held) && majority(&new, held);
        let mut next =
            world.written(&targets, renew, |world, held| if agreed(held) { world.phase } else { Phase::Down });
        for world in &mut next {
            let held: Vec<DriveNumber> = (0..world.columns.len())
                .filter(|at| world.columns[*at].label == id)
                .map(|at| DriveNumber(at as u16))
                .collect();
            if world.phase != Phase::Down || agreed(&held) {
                world.decided = id;
            }
            if world.phase != Phase::Down {
                (world.current, world.next, world.settled, world.unsettled) = (id, epoch + 1, epoch, false);
            }
        }
        next
    }
}

/// The epoch of a drive's label, where it has one.
fn label_epoch(world: &World, at: usize) -> Option<u8> {
    let label = world.columns[at].label;
    (label > 0).then(|| world.paper(label).epoch)
}

fn subsets(count: usize) -> std::ops::Range<u32> {
    0..1 << count
}

fn explore(
    drives: usize,
    newcomers: usize,
    tolerates: usize,
    lives: u8,
    events: u8,
    rules: Rules,
) -> Result<usize, String> {
    Model { bounds: Bounds { drives, newcomers, tolerates, lives, events }, rules }.explore()
}

#[test]
fn no_order_of_cuts_absences_and_returns_breaks_the_agreement() {
    // Drives, newcomers, tolerated losses, lives, events in each life.
    let shallow = [
        (3, 0, 1, 3, 1),
        (3, 0, 1, 2, 2),
        (4, 0, 1, 3, 0),
        (4, 0, 1, 2, 1),
        (5, 0, 1, 2, 0),
        (6, 0, 2, 2, 0),
        (3, 2, 1, 2, 1),
        // More losses are tolerated than a majority can do without.
        (3, 0, 2, 3, 1),
        (4, 0, 3, 2, 1),
        (5, 0, 3, 2, 0),
    ];
    // Minutes: `STELE_MODEL=deep`.
    let deep = [
        (3, 0, 1, 4, 0),
        (4, 0, 1, 2, 2),
        (5, 0, 1, 2, 1),
        (6, 0, 2, 2, 1),
        (5, 0, 2, 2, 1),
        (3, 2, 1, 2, 2),
        (3, 0, 2, 2, 2),
        (3, 2, 2, 2, 1),
        (4, 0, 3, 3, 0),
        (5, 0, 3, 2, 1),
    ];
    let deeply = std::env::var("STELE_MODEL").is_ok_and(|depth| depth == "deep");
    let cases = shallow.iter().chain(deep.iter().filter(|_| deeply)).copied();
    for (drives, newcomers, tolerates, lives, events) in cases {
        let worlds =
            explore(drives, newcomers, tolerates, lives, events, RULES).unwrap_or_else(|broken| panic!("{broken}"));
        println!("{drives} drives, {newcomers} newcomers, {lives} lives, {events} events: {worlds} worlds");
        assert!(worlds > 1_000, "{drives} drives: {worlds} worlds");
    }
}

#[test]
fn without_any_one_of_its_rules_the_agreement_breaks() {
    // What is taken away; drives, newcomers, lives, events in each.
    let cases = [
        ("promise", Rules { promise: false, ..RULES }, [3u8, 0, 5, 0]),
        ("complete", Rules { complete: false, ..RULES }, [3, 0, 3, 2]),
        ("settle", Rules { settle: false, ..RULES }, [3, 0, 2, 3]),
        ("spread", Rules { spread: false, ..RULES }, [4, 0, 3, 1]),
        ("restamp", Rules { restamp: false, ..RULES }, [4, 0, 3, 1]),
        ("anchor quorum", Rules { anchor_quorum: false, ..RULES }, [3, 0, 2, 1]),
        ("single", Rules { single: false, ..RULES }, [2, 3, 3, 1]),
        ("refill", Rules { refill: false, ..RULES }, [3, 0, 1, 3]),
    ];
    for (name, rules, [drives, newcomers, lives, events]) in cases {
        let found = explore(drives.into(), newcomers.into(), 1, lives, events, rules);
        assert!(found.is_err(), "without '{name}' nothing breaks in {found:?} worlds: the model does not see the rule");
    }
}
