//! More drives absent than the code survives, at every moment of a destage, running and across a
//! power cut. Whatever does not need them answers, nothing waits, nothing is invented, and when
//! they return nothing is missing.

use stele_ground::{Duration, VolumeId};
use stele_media::{Buffer, MediaFault, Op, Priority, Request};

use super::KIB;
use crate::model::{Action, Command, DigestUnit, Event, VolumeSpec};
use crate::pool::State;
use crate::testing::drives::End;
use crate::testing::{Fixture, NoAnswer, pattern, spec};

const SIZE: usize = 2 << 20;
const STRIPE: usize = 128 * KIB;

struct Scene {
    fixture: Fixture,
    data: VolumeId,
    catalog: VolumeId,
    /// What the data volume holds.
    model: Vec<u8>,
}

/// An 8+2 volume with a change in every stripe that is not destaged yet, beside a mirrored one.
fn scene(seed: u64, digest: DigestUnit) -> Scene {
    let mut fixture = Fixture::new(12, 6, seed);
    fixture.options.rebuild_after = Duration::from_secs(3600);
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened");
    let data = fixture.create_volume(VolumeSpec { digest, ..spec("data", "8+2", SIZE as u64) }).id;
    let catalog =
        fixture.create_volume(VolumeSpec { fully_allocated: true, ..spec("catalog", "mirror-4", 1 << 20) }).id;
    let mut model = pattern(seed, SIZE);
    fixture.write(data, 0, &model).expect("written");
    fixture.write(catalog, 0, &pattern(1, 1 << 20)).expect("written");
    fixture.command(Command::Close).expect("closed");
    fixture.open().expect("opened");
    for stripe in 0..SIZE / STRIPE {
        let at = stripe * STRIPE + stripe * 4 * KIB;
        let new = pattern(100 + stripe as u64, 4 * KIB);
        fixture.write(data, at as u64, &new).expect("written");
        model[at..at + 4 * KIB].copy_from_slice(&new);
    }
    Scene { fixture, data, catalog, model }
}

impl Scene {
    /// A checkpoint, and reads of every stripe, all at once; everything must be answered.
    fn busy(&mut self, case: &str) {
        self.fixture.pool.event(Event::Command { id: 1 << 40, command: Command::Checkpoint });
        for stripe in 0..SIZE / STRIPE {
            let op = Op::Read { at: (stripe * STRIPE) as u64, buffer: Buffer::zeroed(STRIPE) };
            let request = Request { tag: 1 << 41 | stripe as u64, op, priority: Priority::Host, deadline: None };
            self.fixture.pool.event(Event::Submit { volume: self.data, request });
        }
        let wanted = SIZE / STRIPE + 1;
        let mut answers = Vec::new();
        let answered = |answers: &[Action]| {
            answers.iter().filter(|a| matches!(a, Action::Finished { .. } | Action::Reply { .. })).count()
        };
        let end = self
            .fixture
            .test_drives
            .run_pool(&mut self.fixture.pool, &mut answers, |answers, _| answered(answers) == wanted);
        assert_eq!((end, answered(&answers)), (End::Idle, wanted), "{case}: an operation was never answered");
        for answer in answers {
            let Action::Finished { completion, .. } = answer else { continue };
            match (completion.op, completion.result) {
                (Op::Read { at, buffer }, Ok(())) => {
                    assert!(buffer[..] == self.model[at as usize..][..STRIPE], "{case}: read at {at} is invented");
                }
                (_, Err(error)) => assert_eq!(error.fault, MediaFault::Damaged, "{case}: {error}"),
                other => panic!("{case}: {other:?}"),
            }
        }
    }

    /// The mirror reads and writes; blocks of the wide volume are right, or an error that names
    /// them.
    fn check_degraded(&mut self, case: &str) {
        let Scene { fixture, data, catalog, model } = self;
        assert!(fixture.read(*catalog, 0, 1 << 20).expect("the catalog answers") == pattern(1, 1 << 20), "{case}");
        fixture.write(*catalog, 8192, &pattern(1, 1 << 20)[8192..12288]).expect("the catalog takes writes");
        for at in (0..SIZE).step_by(4 * KIB) {
            match fixture.read(*data, at as u64, 4 * KIB) {
                Ok(read) => assert!(read == model[at..at + 4 * KIB], "{case}: the block at {at} is invented"),
                Err(NoAnswer::Media(error)) => {
                    assert_eq!(error.fault, MediaFault::Damaged, "{case}: {error}");
                    let stripe = format!("stripe {},", at / STRIPE);
                    assert!(error.message.contains("'data'") && error.message.contains(&stripe), "{case}: {error}");
                }
                Err(other) => panic!("{case}: {other:?} at {at}"),
            }
        }
        assert_eq!(fixture.status().lost_stripes, 0, "{case}: drives that are only away lose nothing");
    }

    fn check_whole(&mut self, drives: &[usize], case: &str) {
        for drive in drives {
            self.fixture.give_back(*drive);
        }
        self.fixture.idle();
        let read = self.fixture.read(self.data, 0, SIZE).expect("everything is readable");
        assert!(read == self.model, "{case}: something is missing after the drives returned");
        let status = self.fixture.status();
        assert_eq!((status.dirty.0, status.lost_stripes), (0, 0), "{case}");
        assert_eq!(self.fixture.scrub().0, 0, "{case}");
        self.fixture.command(Command::Close).expect("closed");
        self.fixture.open().expect("opened");
        assert!(self.fixture.read(self.data, 0, SIZE).expect("read") == self.model, "{case}, reopened");
    }

    /// Stripes with redo images that too few strips have taken.
    fn owing(&self) -> usize {
        let serving = self.fixture.pool.serving().expect("open");
        let key = |stripe| crate::model::place::StripeKey { volume: self.data, stripe };
        (0..(SIZE / STRIPE) as u64).filter(|stripe| serving.engine.look(|core| core.redo.owes(key(*stripe)))).count()
    }
}

#[test]
fn a_third_drive_lost_while_destages_run_stops_nobody_else() {
    let mut owing = 0;
    for case in 0..32u64 {
        let digest = if case % 2 == 0 { DigestUnit::Block } else { DigestUnit::Strip };
        let mut scene = scene(case, digest);
        let drives = [1, 4, 9];
        let name = format!("case {case}");
        scene.fixture.test_drives.lose_at = Some((scene.fixture.test_drives.operations + case * 18, drives.to_vec()));
        scene.busy(&name);
        scene.fixture.pull(&drives);
        owing += scene.owing();
        scene.check_degraded(&name);
        if case % 3 == 0 {
            scene.fixture.command(Command::Close).expect("it can be closed");
            assert_eq!(*scene.fixture.pool.state(), State::Closed);
            scene.fixture.open().expect("it can be opened");
            scene.check_degraded(&name);
        }
        scene.check_whole(&drives, &name);
    }
    assert!(owing > 0, "no case lost the drives between a redo record and its strips");
}

#[test]
fn a_power_cut_in_a_destage_and_three_drives_absent_afterwards_stop_nobody_else() {
    let mut owing = 0;
    for case in 0..32u64 {
        let digest = if case % 2 == 0 { DigestUnit::Block } else { DigestUnit::Strip };
        let mut scene = scene(case, digest);
        let drives = [0, 5, 7];
        let name = format!("case {case}");
        scene.fixture.test_drives.cut_at = Some(scene.fixture.test_drives.operations + case * 18);
        let cut = scene.fixture.command(Command::Checkpoint);
        assert!(matches!(cut, Ok(_) | Err(NoAnswer::PowerCut)), "{name}: {cut:?}");
        for drive in drives {
            scene.fixture.test_drives.drives[drive].gone = true;
        }
        scene.fixture.crash().unwrap_or_else(|error| panic!("{name}: {error:?}"));
        owing += scene.owing();
        scene.check_degraded(&name);
        scene.busy(&name);
        if case % 3 == 0 {
            scene.fixture.crash().unwrap_or_else(|error| panic!("{name}, again: {error:?}"));
            scene.check_degraded(&name);
        }
        scene.check_whole(&drives, &name);
    }
    assert!(owing > 0, "no case cut the power between a redo record and its strips");
}
