//! Proves the state that a pool reports: if it calls itself whole, as many drives as the code
//! tolerates are removed, and everything must still be readable.
//!
//! The proof uses a copy: the power goes now, the remaining drives move into another machine, and
//! the pool is opened there. The history thus continues undisturbed, and the reads of the proof
//! repair nothing in it. The copies hold either the drives' caches too, or only the durable data: a
//! power cut may leave both.

use std::collections::BTreeSet;

use stele_array::{OpenOptions, State};
use stele_ground::{Dice, Duration};
use stele_media::faulty::FaultPlan;
use stele_media::simulated::{Plain, SimulatedDrive};
use stele_media::{Buffer, Drive, Op, Priority, Request};

use crate::machine::{Happening, Machine};
use crate::oracle::{Began, Oracle, Violation};
use crate::system::System;
use crate::trace::Trace;
use crate::world::World;

/// Time limit for opening and for each volume's reads, in virtual time.
const PATIENCE: Duration = Duration::from_secs(300);

const PIECE: u64 = 256 << 10;

/// Removes as many drives as tolerated, `choices` times, and reads everything each time.
pub fn prove<S: System>(world: &mut World<S>, when: &str, choices: usize) -> Result<(), Violation> {
    if world.refused.is_some() || world.atlas.is_beyond() {
        return Ok(());
    }
    for number in 0..choices {
        let lost = choose(world, number);
        let of = format!("{when}, without the drives of bays {lost:?} of {:?}", world.members);
        world.machine.trace.say(world.machine.now, of);
        let seed = world.proof_dice.roll();
        let hash = Copy::<S>::of(world, &lost, seed)
            .and_then(|mut copy| copy.look())
            .map_err(|violation| Violation(format!("{when}, without the drives of bays {lost:?}: {violation}")))?;
        world.machine.trace.note(world.machine.now, "everything is read, hash {}", &[hash]);
        world.machine.coverage.count(format!("proofs {when}"));
    }
    Ok(())
}

/// As many drives as are tolerated, or a whole enclosure.
fn choose<S: System>(world: &mut World<S>, number: usize) -> BTreeSet<usize> {
    let members: Vec<usize> = world.members.iter().copied().filter(|bay| world.machine.bays[*bay].present).collect();
    let dice = &mut world.proof_dice;
    if number == 1 && world.setup.enclosure_may_go && !world.growth.crowded && !world.atlas.is_hurt() {
        let enclosure = dice.pick(&members).map(|bay| world.machine.bays[*bay].enclosure);
        let lost: BTreeSet<usize> =
            members.iter().copied().filter(|bay| Some(world.machine.bays[*bay].enclosure) == enclosure).collect();
        // After drives were removed, an enclosure may hold half of the others: then the rest is no
        // majority.
        if 2 * lost.len() < world.members.len() {
            world.machine.coverage.count("proofs without an enclosure");
            return lost;
        }
    }
    let mut shuffled = members;
    dice.shuffle(&mut shuffled);
    // The same in runs with crashes alone, where the history itself removes no drive.
    let tolerated = world.setup.tolerance.min(shuffled.len().saturating_sub(1) / 2);
    shuffled.into_iter().take(tolerated).collect()
}

/// The pool on copies of the remaining drives.
struct Copy<S> {
    machine: Machine<S>,
    volumes: Vec<(stele_ground::VolumeId, Oracle)>,
    flying: Vec<(u64, u64, Began)>,
}

impl<S: System> Copy<S> {
    fn of(world: &World<S>, lost: &BTreeSet<usize>, seed: u64) -> Result<Copy<S>, Violation> {
        let mut dice = Dice::new(seed);
        let mut machine = Machine::new(Trace::new(0));
        let mut order = Vec::new();
        for bay in world.members.iter().filter(|bay| world.machine.bays[**bay].present && !lost.contains(bay)) {
            let bay = &world.machine.bays[*bay];
            let image = match dice.one_in(2) {
                true => bay.drive.inner().image(),
                false => bay.drive.inner().platter().clone(),
            };
            let model = Box::new(Plain::flash(dice.fork()));
            let drive = SimulatedDrive::holding(image, bay.drive.geometry(), world.setup.tear, model);
            order.push(machine.add_bay(drive, &FaultPlan::new(0), bay.enclosure));
        }
        machine.open(OpenOptions { seed: dice.roll(), ..world.setup.open.clone() }, &order);
        let deadline = machine.now + PATIENCE;
        while machine.state() == State::Starting && machine.now < deadline {
            machine.step(deadline);
            machine.happenings.clear();
        }
        if machine.state() != (State::Ready { read_only: false }) {
            return Err(Violation(format!("the pool does not open: {:?}", machine.state())));
        }
        let volumes = world
            .hosts
            .values()
            .map(|host| {
                let mut oracle = host.oracle.clone();
                oracle.crash();
                (host.id, oracle)
            })
            .collect();
        Ok(Copy { machine, volumes, flying: Vec::new() })
    }

    /// Reads everything; returns a hash of all events.
    fn look(&mut self) -> Result<u64, Violation> {
        for (id, mut oracle) in std::mem::take(&mut self.volumes) {
            let size = oracle.size();
            for at in (0..size).step_by(PIECE as usize) {
                let length = (size - at).min(PIECE);
                self.flying.push((at, at, oracle.begin_read()));
                let op = Op::Read { at, buffer: Buffer::zeroed(length as usize) };
                self.machine.submit(id, Request { tag: at, op, priority: Priority::Host, deadline: None });
            }
            let deadline = self.machine.now + PATIENCE;
            while !self.flying.is_empty() {
                self.machine.step(deadline);
                while let Some(happening) = self.machine.happenings.pop_front() {
                    let Happening::Finished { completion, .. } = happening else { continue };
                    let Some(place) = self.flying.iter().position(|(tag, ..)| *tag == completion.tag) else { continue };
                    let (_, at, began) = self.flying.swap_remove(place);
                    match (completion.op, completion.result) {
                        (Op::Read { buffer, .. }, Ok(())) => oracle.end_read(at, &buffer, began)?,
                        (_, Err(error)) => {
                            return Err(Violation(format!("{} at {at}: {error}", oracle.name())));
                        }
                        (op, _) => return Err(Violation(format!("a read came back as {op:?}"))),
                    }
                }
                if self.machine.now >= deadline {
                    return Err(Violation(format!("{}: reads do not end", oracle.name())));
                }
            }
        }
        Ok(self.machine.trace.hash())
    }
}
