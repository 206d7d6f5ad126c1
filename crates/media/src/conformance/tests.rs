//! The suite must be able to fail: it has to catch each of these broken drives.

use std::panic::{AssertUnwindSafe, catch_unwind};

use stele_ground::{BLOCK, Bytes, MIB};

use super::*;
use crate::{Buffer, Completion, Extent, ExtentState, Geometry, MemoryDrive, Op, Request};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Defect {
    None,
    LosesWrites,
    MisdirectsWrites,
    TearsWrites,
    SwapsPieces,
    ShiftsReads,
    LeavesReadBuffers,
    ForgetsZero,
    ZeroesTooMuch,
    RefusesDiscard,
    CallsDataHoles,
    SplitsExtents,
    ExtentsFallShort,
    TakesAnyRequest,
    AnswersTwice,
    NeverAnswers,
    MixesTags,
    KeepsBuffers,
    TearsBlocksUnderReads,
    FlushLies,
    FuaLies,
    WritesByItself,
}

const DEFECTS: &[Defect] = &[
    Defect::LosesWrites,
    Defect::MisdirectsWrites,
    Defect::TearsWrites,
    Defect::SwapsPieces,
    Defect::ShiftsReads,
    Defect::LeavesReadBuffers,
    Defect::ForgetsZero,
    Defect::ZeroesTooMuch,
    Defect::RefusesDiscard,
    Defect::CallsDataHoles,
    Defect::SplitsExtents,
    Defect::ExtentsFallShort,
    Defect::TakesAnyRequest,
    Defect::AnswersTwice,
    Defect::NeverAnswers,
    Defect::MixesTags,
    Defect::KeepsBuffers,
    Defect::TearsBlocksUnderReads,
    Defect::FlushLies,
    Defect::FuaLies,
    Defect::WritesByItself,
];

/// A volatile memory drive with one defect that appears now and then.
struct Broken {
    inner: MemoryDrive,
    defect: Defect,
    dice: Dice,
    polls: u32,
    answers: Vec<Completion>,
    /// The second half of a write, applied later.
    late: Option<(u64, Vec<crate::Shared>)>,
}

impl Broken {
    fn hits(&mut self, defect: Defect, sides: u64) -> bool {
        self.defect == defect && self.dice.one_in(sides)
    }

    /// Runs an operation of its own, and hides its completion.
    fn do_now(&mut self, op: Op) {
        self.inner.submit(Request { tag: u64::MAX, op, priority: crate::Priority::Host, deadline: None });
    }
}

fn split(data: &[crate::Shared], at: usize) -> [Vec<crate::Shared>; 2] {
    let joined = Buffer::copy_of(&data.concat()).freeze();
    [vec![joined.slice(..at)], vec![joined.slice(at..)]]
}

impl Drive for Broken {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn submit(&mut self, mut request: Request) {
        if let Some((at, data)) = self.late.take() {
            self.do_now(Op::Write { at, data, fua: false });
        }
        if self.defect == Defect::TakesAnyRequest && self.geometry().admit(&request.op).is_err() {
            request.op = Op::Flush;
        }
        if self.geometry().admit(&request.op).is_err() {
            self.inner.submit(request);
            return;
        }
        let size = self.geometry().size.0;
        match &mut request.op {
            Op::Write { .. } if self.hits(Defect::LosesWrites, 30) => {
                // The memory drive runs a flush instead; the completion shows the write.
                return self.pretend(request, Op::Flush);
            }
            Op::Write { at, data, fua }
                if *at + 2 * BLOCK as u64 * 40 < size && self.hits(Defect::MisdirectsWrites, 30) =>
            {
                let op = Op::Write { at: *at + BLOCK as u64, data: data.clone(), fua: *fua };
                return self.pretend(request, op);
            }
            Op::Write { at, data, fua } if self.hits(Defect::TearsWrites, 30) => {
                let total: usize = data.iter().map(|piece| piece.len()).sum();
                let [first, _] = split(data, total / 2 / 512 * 512);
                let op = Op::Write { at: *at, data: first, fua: *fua };
                return self.pretend(request, op);
            }
            Op::Write { at, data, fua } if data.len() > 2 && self.hits(Defect::SwapsPieces, 1) => {
                let mut data = data.clone();
                let last = data.len() - 1;
                data.swap(0, last);
                let op = Op::Write { at: *at, data, fua: *fua };
                return self.pretend(request, op);
            }
            Op::Write { at, data, .. } if self.defect == Defect::TearsBlocksUnderReads => {
                let total: usize = data.iter().map(|piece| piece.len()).sum();
                let [first, second] = split(data, total - 512);
                let at = *at;
                self.late = Some((at + total as u64 - 512, second));
                return self.pretend(request, Op::Write { at, data: first, fua: false });
            }
            Op::Write { at, data, fua: true } if self.defect == Defect::FuaLies => {
                let op = Op::Write { at: *at, data: data.clone(), fua: false };
                return self.pretend(request, op);
            }
            Op::Zero { .. } if self.hits(Defect::ForgetsZero, 3) => return self.pretend(request, Op::Flush),
            Op::Zero { at, length } if *at + *length < size && self.hits(Defect::ZeroesTooMuch, 3) => {
                let op = Op::Zero { at: *at, length: *length + self.inner.geometry().block.0 };
                return self.pretend(request, op);
            }
            Op::Flush if self.defect == Defect::FlushLies => {
                let op = Op::Zero { at: 1, length: 1 };
                return self.pretend(request, op);
            }
            _ => {}
        }
        self.inner.submit(request);
    }

    fn reap(&mut self, now: Instant, finished: &mut Vec<Completion>) {
        let first = finished.len();
        self.inner.reap(now, finished);
        finished.retain(|completion| completion.tag != u64::MAX);
        finished.append(&mut self.answers);
        let mut more = Vec::new();
        for completion in &mut finished[first..] {
            match &mut completion.op {
                Op::Read { buffer, .. } if self.hits(Defect::ShiftsReads, 30) => buffer.rotate_left(512),
                Op::Read { buffer, .. } if self.hits(Defect::LeavesReadBuffers, 30) => buffer.fill(0xA5),
                Op::Write { data, .. } if self.hits(Defect::KeepsBuffers, 30) => data.clear(),
                Op::Discard { .. } if self.hits(Defect::RefusesDiscard, 5) => {
                    let error = crate::MediaError::new(crate::MediaFault::Refused, "not supported");
                    completion.result = Err(error);
                }
                Op::Extents { length, extents, .. } => match self.defect {
                    Defect::CallsDataHoles => {
                        *extents = vec![Extent { length: *length, state: ExtentState::Hole }];
                    }
                    Defect::SplitsExtents => {
                        if let Some(last) = extents.last_mut().filter(|last| last.length > 4096) {
                            last.length -= 4096;
                            let state = last.state;
                            extents.push(Extent { length: 4096, state });
                        }
                    }
                    Defect::ExtentsFallShort => drop(extents.pop()),
                    _ => {}
                },
                Op::Flush if self.hits(Defect::AnswersTwice, 30) => {
                    more.push(Completion { tag: completion.tag, op: Op::Flush, result: Ok(()) });
                }
                _ => {}
            }
            if self.defect == Defect::MixesTags && self.dice.one_in(100) {
                completion.tag += 1;
            }
        }
        finished.append(&mut more);
        if finished.len() > first && self.hits(Defect::NeverAnswers, 100) {
            finished.pop();
        }
    }
}

impl Broken {
    /// Runs another operation, and answers as if it were the requested one.
    fn pretend(&mut self, request: Request, instead: Op) {
        self.do_now(instead);
        self.answers.push(Completion { tag: request.tag, op: request.op, result: Ok(()) });
    }
}

impl Subject for Broken {
    fn drive(&mut self) -> &mut dyn Drive {
        self
    }
    fn wait(&mut self) -> Instant {
        self.polls += 1;
        assert!(self.polls < 100_000, "an operation never came back");
        Instant(0)
    }
    fn cut_power(&mut self) -> bool {
        self.late = None;
        self.answers.clear();
        if self.defect == Defect::WritesByItself {
            self.do_now(Op::Write { at: 0, data: vec![Buffer::copy_of(&[7; 4096]).freeze()], fua: true });
        }
        self.inner.cut_power();
        true
    }
}

fn survives(defect: Defect) -> bool {
    let mut make = |seed| {
        let inner = MemoryDrive::volatile(Bytes(4 * MIB));
        Box::new(Broken { inner, defect, dice: Dice::new(seed), polls: 0, answers: Vec::new(), late: None })
            as Box<dyn Subject>
    };
    catch_unwind(AssertUnwindSafe(|| check("broken", 1, &mut make))).is_ok()
}

#[test]
fn the_suite_catches_every_defect() {
    assert!(survives(Defect::None), "the suite refuses a drive without a defect");
    let missed: Vec<Defect> = DEFECTS.iter().copied().filter(|defect| survives(*defect)).collect();
    assert!(missed.is_empty(), "not caught: {missed:?}");
}
