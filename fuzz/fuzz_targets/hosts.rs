//! The messages between hosts that measure together: those that `stele lab serve` reads, and those
//! that the caller reads from each host. Lines parse the same in any pieces, and their contents are
//! usable or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde::de::DeserializeOwned;
use stele_lab::hosts::wire::{Ask, LINE_MAX, LineBuffer, STRANGER_MAX, Say, is_proof, proof};
use stele_lab::hosts::{HostRecord, merged};
use stele_lab::live::target::Target;

/// All values before the first invalid line.
fn read<T: DeserializeOwned>(bytes: &[u8], line_max: usize, step: usize) -> Vec<T> {
    let (mut lines, mut found) = (LineBuffer::new(line_max), Vec::new());
    for part in bytes.chunks(step) {
        lines.feed(part);
        loop {
            match lines.take() {
                Ok(Some(value)) => found.push(value),
                Ok(None) => break,
                Err(_) => return found,
            }
        }
    }
    found
}

/// Reads in pieces and in one, and compares.
fn both<T: DeserializeOwned + PartialEq + std::fmt::Debug>(bytes: &[u8], line_max: usize, step: usize) -> Vec<T> {
    let pieces = read(bytes, line_max, step);
    assert_eq!(pieces, read(bytes, line_max, bytes.len().max(1)), "in pieces of {step}");
    pieces
}

fn asked(ask: Ask) {
    match ask {
        Ask::Prove { proof: text } => {
            let right = text.eq_ignore_ascii_case(&proof(b"a secret of hosts", "nonce"));
            assert_eq!(is_proof(b"a secret of hosts", "nonce", &text), right);
        }
        // As a host does, without opening the named target.
        Ask::Open { job, destroy } => {
            if let Ok(cells) = job.cells() {
                drop(job.opening(&cells, destroy));
            }
            drop(job.on.as_deref().unwrap_or_default().parse::<Target>());
        }
        Ask::Run { .. } | Ask::ReadBack | Ask::Stop | Ask::Close { .. } => {}
    }
}

fn said(say: Say) {
    let Say::Ran { run } = say else { return };
    HostRecord::of("host", &run);
    if let Some(all) = merged(&[*run.clone(), *run.clone()]) {
        assert_eq!(all.rounds.len(), run.rounds.len());
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((choice, bytes)) = input.split_first() else { return };
    let step = 1 + usize::from(choice >> 2);
    match choice & 3 {
        0 => both(bytes, STRANGER_MAX, step).into_iter().for_each(asked),
        1 => both(bytes, LINE_MAX, step).into_iter().for_each(asked),
        _ => both(bytes, LINE_MAX, step).into_iter().for_each(said),
    }
});
