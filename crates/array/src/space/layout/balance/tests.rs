use super::*;

fn candidates(enclosures: &[u32]) -> Vec<Candidate> {
    let one = |(drive, enclosure): (usize, &u32)| Candidate { drive, enclosure: *enclosure, used: 0, total: 100 };
    enclosures.iter().enumerate().map(one).collect()
}

/// The dull twin: tries every limit and every way to fill it.
fn slow_limit(enclosures: &[u32], width: usize, most: usize) -> Option<usize> {
    let kinds: std::collections::BTreeSet<u32> = enclosures.iter().copied().collect();
    let count = |kind: &u32| enclosures.iter().filter(|enclosure| *enclosure == kind).count();
    (most.max(1)..=width).find(|limit| {
        let mut placed = 0;
        for kind in &kinds {
            for place in 0..count(kind) {
                if place < *limit {
                    placed += 1;
                }
            }
        }
        placed >= width
    })
}

#[test]
fn the_limit_is_the_least_that_fits() {
    let mut dice = Dice::new(1);
    for _ in 0..2_000 {
        let enclosures: Vec<u32> = (0..dice.below(20)).map(|_| dice.below(6) as u32).collect();
        let (width, most) = (1 + dice.below(12) as usize, dice.below(4) as usize);
        let limit = enclosure_limit(&candidates(&enclosures), width, most);
        assert_eq!(limit, slow_limit(&enclosures, width, most), "{enclosures:?} {width} {most}");
        let chosen = choose(&candidates(&enclosures), width, most, &|_, _| 0, &mut dice);
        assert_eq!(chosen.is_some(), limit.is_some());
        let Some(mut chosen) = chosen else { continue };
        chosen.sort_unstable();
        chosen.dedup();
        assert_eq!(chosen.len(), width, "distinct drives");
        for kind in &enclosures {
            let here = chosen.iter().filter(|drive| enclosures[**drive] == *kind).count();
            assert!(here <= limit.unwrap_or(0));
        }
    }
}
