//! Reads that do not wait for a slow drive: what it should answer is reconstructed from the others.
//!
//! Two kinds. A drive known to be slow is not asked at all; a read that is overdue on any other is
//! answered by the drive or by the others, whichever are first. Neither decides about damage: where
//! the others cannot answer, the drive is waited for. The extra load is bounded (see
//! [`crate::upkeep::hospital`]).

use std::ops::Range;

use futures_util::future::{Either, select};
use futures_util::pin_mut;
use stele_codes::Strips;
use stele_ground::Duration;
use stele_media::{Buffer, Priority};

use super::{Columns, Stripe, Units};
use crate::engine::Engine;
use crate::state::hospital::ReadPolicy;

impl Units {
    /// What stands for a strip that was not waited for.
    fn absent(of: &Stripe, units: Range<usize>) -> Units {
        let buffer = Buffer::zeroed(of.shape.bytes_of(units.clone()).len());
        Units { reachable: false, ..Units::of(buffer, vec![false; units.len()]) }
    }
}

impl Engine {
    /// As `read_units` for a host: the first answer counts. What does not verify may be no damage,
    /// as there.
    pub async fn read_hedged(&self, of: &Stripe, strip: usize, units: Range<usize>) -> Units {
        match self.read_policy(of.places[strip].cell.drive) {
            ReadPolicy::Avoid => {
                if let Some(units) = self.reconstruct_hedged(of, strip, units.clone()).await {
                    return units;
                }
                self.read_units(of, strip, units, Priority::Host).await
            }
            ReadPolicy::AskBoth => self.race(of, strip, units, None).await,
            ReadPolicy::AskFor(patience) => self.race(of, strip, units, Some(patience)).await,
        }
    }

    async fn race(&self, of: &Stripe, strip: usize, units: Range<usize>, patience: Option<Duration>) -> Units {
        let asked = self.read_units(of, strip, units.clone(), Priority::Host);
        pin_mut!(asked);
        if let Some(patience) = patience {
            let late = self.io.sleep(patience);
            pin_mut!(late);
            if let Either::Left((units, _)) = select(asked.as_mut(), late).await {
                return units;
            }
            self.note_overdue(of.places[strip].cell.drive);
            if !self.hospital.pay_for_hedge(of.shape.k) {
                return asked.await;
            }
        }
        let others = self.reconstruct_hedged(of, strip, units);
        pin_mut!(others);
        match select(asked, others).await {
            Either::Left((units, _)) => units,
            Either::Right((Some(units), _)) => units,
            Either::Right((None, asked)) => asked.await,
        }
    }

    /// Units of a strip from as many others as it takes; none where those cannot answer now.
    async fn reconstruct_hedged(&self, of: &Stripe, strip: usize, units: Range<usize>) -> Option<Units> {
        let (width, k) = (of.shape.width(), of.shape.k);
        // Begun at a place of the stripe's own, so that the same drives do not always stand in.
        let first = of.stripe as usize % width;
        let mut others: Vec<usize> = (0..width)
            .map(|at| (first + at) % width)
            .filter(|&other| other != strip && self.is_prompt(of.places[other].cell.drive))
            .collect();
        if others.len() < k {
            return None;
        }
        // Another copy of a mirror costs no more than the one that was asked for: nothing to bound.
        let _bound = if of.shape.code().is_mirror() {
            let load = |copy: &usize| self.drives.index(of.places[*copy].cell.drive).map(|index| self.io.load(index));
            others.sort_by_key(load);
            None
        } else {
            Some(self.hospital.begin_hedge()?)
        };
        others.truncate(k);
        let mut read: Vec<Option<Units>> = (0..width).map(|_| None).collect();
        self.read_strips(of, &others, units.clone(), Priority::Host, &mut read).await;
        read[strip] = Some(Units::absent(of, units.clone()));
        let columns = self.complete_columns(of, Strips::of([strip]), units.clone(), read);
        if !columns.lost.is_empty() {
            return None;
        }
        let buffer = columns.strips.into_iter().nth(strip).flatten()?;
        self.hospital.note_hedged(1);
        Some(Units::of(buffer, vec![true; units.len()]))
    }

    /// The wanted strips as far as their drives answer in time. Answers which were left out.
    pub(super) async fn read_prompt_strips(
        &self,
        of: &Stripe,
        strips: &[usize],
        units: Range<usize>,
        priority: Priority,
        read: &mut [Option<Units>],
    ) -> Strips {
        let units = &units;
        let reads = strips.iter().map(|&strip| async move {
            let absent = || Units::absent(of, units.clone());
            let asked = self.read_units(of, strip, units.clone(), priority);
            match self.read_policy(of.places[strip].cell.drive) {
                ReadPolicy::AskBoth => (strip, asked.await, false),
                ReadPolicy::Avoid => (strip, absent(), true),
                ReadPolicy::AskFor(patience) => {
                    let late = self.io.sleep(patience);
                    pin_mut!(asked, late);
                    match select(asked, late).await {
                        Either::Left((units, _)) => (strip, units, false),
                        Either::Right(((), asked)) => {
                            self.note_overdue(of.places[strip].cell.drive);
                            match self.hospital.pay_for_hedge(of.shape.k) {
                                true => (strip, absent(), true),
                                false => (strip, asked.await, false),
                            }
                        }
                    }
                }
            }
        });
        let mut left_out = Strips::default();
        for (strip, units, left) in crate::runtime::sync::join_all(reads).await {
            read[strip] = Some(units);
            if left {
                left_out = Strips::of(left_out.iter().chain([strip]));
            }
        }
        left_out
    }

    /// As `read_columns`, but a drive that is slow is not waited for where the others can answer.
    pub(super) async fn read_columns_hedged(
        &self,
        of: &Stripe,
        wanted: Strips,
        units: Range<usize>,
        priority: Priority,
    ) -> Columns {
        let width = of.shape.width();
        let mut read: Vec<Option<Units>> = (0..width).map(|_| None).collect();
        let first: Vec<usize> = wanted.iter().collect();
        let left_out = self.read_prompt_strips(of, &first, units.clone(), priority, &mut read).await;
        if left_out.is_empty() && super::all_good(&read, wanted) {
            return self.complete_columns(of, wanted, units, read);
        }
        let others: Vec<usize> = (0..width).filter(|&strip| !wanted.contains(strip)).collect();
        self.read_strips(of, &others, units.clone(), priority, &mut read).await;
        let columns = self.complete_columns(of, wanted, units.clone(), read);
        if !left_out.is_empty() && !columns.lost.is_empty() {
            // It is needed after all.
            return Box::pin(self.read_columns_whole(of, wanted, units, priority)).await;
        }
        self.hospital.note_hedged(left_out.len() as u64);
        columns
    }
}
