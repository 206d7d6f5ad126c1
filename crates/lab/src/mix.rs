//! Several kinds of streams as one load: each access belongs to one of them, drawn by their shares.
//! A stream has its part of the target, its share of reads, its sizes, and its way through its
//! part.

use stele_ground::Dice;

use crate::workload::Access;

/// How a stream goes through its part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessPattern {
    /// Each place as often as any other, at a multiple of the access's size.
    Even,
    /// Some places far more often than others, at every scale: of two halves one gets [`HOT`]
    /// percent of the accesses.
    Uneven,
    /// Where the last access ended; the first is at a random place.
    Ordered,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccessStream {
    /// Of all accesses, in thousandths.
    pub share: u16,
    /// Percent that read.
    pub read: u8,
    pub course: AccessPattern,
    /// Bytes, and percent of the accesses of that size.
    pub sizes: &'static [(u64, u8)],
    /// The part of the target, in percent of its bytes: from, and to.
    pub part: (u8, u8),
}

/// All streams of a load; their shares sum to 1000.
pub type Mix = &'static [AccessStream];

/// Percent of the accesses that go to the busier half.
const HOT: u64 = 75;
/// Halves of halves, until a part of this many is even.
const LEVELS: u32 = 8;
/// Parts begin at multiples of it.
const GRAIN: u64 = 1 << 20;

/// Draws the accesses of a mix.
#[derive(Clone, Debug)]
pub struct Mixer {
    mix: Mix,
    /// Where the last access of each ordered stream ended.
    ends: Vec<Option<u64>>,
}

impl Mixer {
    pub fn new(mix: Mix) -> Mixer {
        Mixer { mix, ends: vec![None; mix.len()] }
    }

    /// The next access of a target of so many bytes. It is none where there are no streams.
    pub fn draw(&mut self, dice: &mut Dice, target: usize, bytes: u64) -> Option<Access> {
        let mut drawn = dice.below(1000);
        let after = |stream: &AccessStream, drawn: &mut u64| {
            let share = u64::from(stream.share);
            let is_this = *drawn < share;
            *drawn = drawn.saturating_sub(share);
            is_this
        };
        let number = self.mix.iter().position(|stream| after(stream, &mut drawn)).unwrap_or(0);
        let (stream, end) = (self.mix.get(number)?, self.ends.get_mut(number)?);
        let write = dice.below(100) >= u64::from(stream.read);
        let length = size_of(stream, dice).min(bytes);
        let (from, to) = part_of(stream, bytes, length);
        let slots = ((to - from) / length.max(1)).max(1);
        let anywhere = |dice: &mut Dice| from + dice.below(slots) * length;
        let at = match stream.course {
            AccessPattern::Even => anywhere(dice),
            AccessPattern::Uneven => from + uneven(dice, slots) * length,
            AccessPattern::Ordered => match *end {
                Some(end) if end + length <= to => end,
                Some(_) => from,
                None => anywhere(dice),
            },
        };
        *end = Some(at + length);
        Some(Access { target, at, length, write })
    }
}

fn size_of(stream: &AccessStream, dice: &mut Dice) -> u64 {
    let mut drawn = dice.below(100);
    for (size, share) in stream.sizes {
        let share = u64::from(*share);
        if drawn < share {
            return *size;
        }
        drawn -= share;
    }
    stream.sizes.last().map_or(4096, |(size, _)| *size)
}

/// Where the stream's part begins and ends; a target that is small has one part.
fn part_of(stream: &AccessStream, bytes: u64, length: u64) -> (u64, u64) {
    let edge = |percent: u8| (u128::from(bytes) * u128::from(percent) / 100) as u64 / GRAIN * GRAIN;
    let (from, to) = (edge(stream.part.0), if stream.part.1 == 100 { bytes } else { edge(stream.part.1) });
    if to >= from + length { (from, to) } else { (0, bytes) }
}

/// A slot of so many, some of them far more often than others.
fn uneven(dice: &mut Dice, slots: u64) -> u64 {
    let (mut from, mut to) = (0, slots);
    for level in 0..LEVELS {
        if to - from < 2 {
            break;
        }
        let middle = from + (to - from) / 2;
        // Which half is busy changes from place to place, and is the same for all who draw.
        let is_first = Dice::new(from ^ (u64::from(level) << 56)).below(2) == 0;
        if (dice.below(100) < HOT) == is_first { to = middle } else { from = middle }
    }
    from + dice.below((to - from).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: &[(u64, u8)] = &[(4096, 100)];
    const MIX: Mix = &[
        AccessStream { share: 250, read: 100, course: AccessPattern::Even, sizes: SIZES, part: (0, 50) },
        AccessStream { share: 500, read: 0, course: AccessPattern::Uneven, sizes: SIZES, part: (50, 90) },
        AccessStream {
            share: 250,
            read: 100,
            course: AccessPattern::Ordered,
            sizes: &[(8192, 50), (65536, 50)],
            part: (90, 100),
        },
    ];
    const BYTES: u64 = 1 << 30;

    #[test]
    fn each_stream_has_its_share_and_stays_in_its_part() {
        let (mut mixer, mut dice) = (Mixer::new(MIX), Dice::new(7));
        let mut counts = [0u32; 3];
        for _ in 0..40_000 {
            let access = mixer.draw(&mut dice, 0, BYTES).unwrap();
            // Parts begin at whole MiB: at 512 and at 921.
            let stream = usize::from(access.at >= 512 << 20) + usize::from(access.at >= 921 << 20);
            counts[stream] += 1;
            assert_eq!(access.write, stream == 1, "{access:?}");
            assert!(access.at + access.length <= BYTES && access.at.is_multiple_of(4096), "{access:?}");
            assert_eq!(access.length == 4096, stream < 2, "{access:?}");
        }
        for (count, share) in counts.into_iter().zip([0.25, 0.5, 0.25]) {
            assert!((f64::from(count) / 40_000.0 - share).abs() < 0.01, "{counts:?}");
        }
    }

    #[test]
    fn an_ordered_stream_goes_on_where_it_ended_and_an_uneven_one_prefers_places() {
        let (mut mixer, mut dice) = (Mixer::new(MIX), Dice::new(7));
        let all: Vec<Access> = (0..40_000).filter_map(|_| mixer.draw(&mut dice, 0, BYTES)).collect();
        let ordered: Vec<&Access> = all.iter().filter(|access| access.length > 4096).collect();
        let joined = ordered.windows(2).filter(|pair| pair[1].at == pair[0].at + pair[0].length).count();
        assert!(joined + 20 > ordered.len(), "{joined} of {}", ordered.len());
        let mut places = [0u32; 64];
        let part = BYTES * 4 / 10;
        all.iter().filter(|access| access.write).for_each(|access| {
            places[((access.at - BYTES / 2) * 64 / part).min(63) as usize] += 1;
        });
        places.sort_unstable();
        let (few, many): (u32, u32) = (places[..32].iter().sum(), places[56..].iter().sum());
        assert!(many > 2 * few, "an eighth has {many}, and a half {few}");
    }

    #[test]
    fn a_target_smaller_than_a_part_is_used_whole() {
        let (mut mixer, mut dice) = (Mixer::new(MIX), Dice::new(7));
        for _ in 0..1000 {
            let access = mixer.draw(&mut dice, 3, 256 << 10).unwrap();
            assert!(access.at + access.length <= 256 << 10 && access.target == 3, "{access:?}");
        }
        assert_eq!(Mixer::new(&[]).draw(&mut dice, 0, BYTES), None);
    }
}
