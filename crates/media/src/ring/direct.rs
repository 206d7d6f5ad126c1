//! Carries out a plan with plain system calls, on the calling thread.

use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, LazyLock};

use super::plan::{PendingOperation, Step, ZEROS};
use crate::file::DriveFile;
use crate::{Buffer, Extent, ExtentState, MediaError, Op, system};

/// The zeros to write if the system supports no better way of zeroing.
pub static ZERO_BYTES: LazyLock<Buffer> = LazyLock::new(|| Buffer::zeroed(ZEROS));

/// Runs the work to its end.
pub fn carry_out(work: &mut PendingOperation) -> Result<(), MediaError> {
    let file = Arc::clone(&work.file);
    loop {
        let step = work.step();
        let _turn = if step == Step::Sync { file.flush_turn() } else { None };
        let result = issue(work, step);
        if let Some(result) = work.outcome(step, result) {
            return result;
        }
    }
}

fn issue(work: &mut PendingOperation, step: Step) -> io::Result<u64> {
    let file = work.file.file();
    match (step, &mut work.op) {
        (Step::Read { at, from }, Op::Read { buffer, .. }) => {
            file.read_at(&mut buffer[from as usize..], at).map(|bytes| bytes as u64)
        }
        (Step::Write { at, from, durable }, Op::Write { data, .. }) => {
            let mut slices = Vec::new();
            match &work.bounce {
                Some(bounce) => slices.push(IoSlice::new(&bounce[from as usize..])),
                None => rest_of(data, from, |piece| slices.push(IoSlice::new(piece))),
            }
            system::write_vectored(file, &slices, at, durable)
        }
        (Step::WriteZeros { at, length }, _) => {
            file.write_at(&ZERO_BYTES[..length as usize], at).map(|bytes| bytes as u64)
        }
        (Step::Allocate { mode, at, length }, _) => system::allocate(file, mode, at, length).map(|()| 0),
        (Step::Sync, _) => file.sync_data().map(|()| 0),
        (Step::Elsewhere, Op::Discard { at, length }) => {
            system::discard_device(file, work.file.base() + *at, *length).map(|()| 0)
        }
        (Step::Elsewhere, Op::Extents { at, length, extents, .. }) => {
            list(&work.file, work.file.base() + *at, *length, extents).map(|()| 0)
        }
        (step, op) => unreachable!("{step:?} is no step of {op:?}"),
    }
}

/// The pieces that remain after the first `from` bytes, none of them empty.
pub fn rest_of<'a>(data: &'a [crate::Shared], mut from: u64, mut each: impl FnMut(&'a [u8])) {
    for piece in data {
        let skipped = from.min(piece.len() as u64);
        from -= skipped;
        let rest = &piece[skipped as usize..];
        if !rest.is_empty() {
            each(rest);
        }
    }
}

/// `at` is a place in the file. The file system knows data and holes; allocated space that was
/// never written counts as a hole. A device reports nothing, so all of it counts as data.
fn list(file: &DriveFile, at: u64, length: u64, extents: &mut Vec<Extent>) -> io::Result<()> {
    extents.clear();
    let end = at + length;
    let block = file.geometry().block.0;
    if file.is_device() {
        extents.push(Extent { length, state: ExtentState::Data });
        return Ok(());
    }
    let mut here = at;
    while here < end {
        // Rounded so that no block with data counts as a hole.
        let data = system::seek(file.file(), here, true)?.map_or(end, |data| (data / block * block).clamp(here, end));
        Extent::append(extents, Extent { length: data - here, state: ExtentState::Hole });
        if data == end {
            break;
        }
        let hole = system::seek(file.file(), data, false)?.map_or(end, |hole| hole.next_multiple_of(block).min(end));
        let hole = hole.max(data + block).min(end);
        Extent::append(extents, Extent { length: hole - data, state: ExtentState::Data });
        here = hole;
    }
    Ok(())
}
