//! The spare space of a new pool.

use std::collections::BTreeMap;

use stele_ground::counted;
use stele_server::drives::DriveArgument;
use stele_server::failure::{Failure, Outcome};

/// Each drive keeps its part of the spare space, and at most half of itself.
fn most(drives: usize) -> usize {
    (drives / 2).max(1)
}

/// Refuses more spare space than the drives can keep.
pub fn check(spare: Option<u32>, drives: usize) -> Outcome<()> {
    let most = most(drives);
    match spare.filter(|spare| *spare as usize > most) {
        Some(spare) => Err(Failure::usage(format!(
            "--spare {spare} is more than half of the drives: a pool of {} has at most {most} as spare space",
            counted(drives as u64, "drive")
        ))
        .next(format!("write --spare {most}, or name more drives"))),
        None => Ok(()),
    }
}

/// What an operator has to know if the drives cannot keep the default of a pool: as much as its
/// largest enclosure, or two drives.
pub fn cut(drives: &[DriveArgument]) -> Option<String> {
    let mut enclosures: BTreeMap<u32, usize> = BTreeMap::new();
    for (own, drive) in (0..).zip(drives) {
        *enclosures.entry(drive.0.enclosure.unwrap_or(own)).or_default() += 1;
    }
    let (wanted, why) = match enclosures.len() {
        1 => (2, "a pool of one enclosure"),
        _ => (enclosures.values().copied().max().unwrap_or(1), "the largest enclosure"),
    };
    let most = most(drives.len());
    (wanted > most).then(|| {
        format!(
            "Spare space is worth {}, which is half of the drives, instead of {wanted} for {why}: more than that is not \
             rebuilt until drives are replaced or added",
            counted(most as u64, "drive")
        )
    })
}

#[cfg(test)]
mod tests {
    use stele_server::failure::Kind;

    use super::*;

    #[test]
    fn more_spare_space_than_half_of_the_drives_is_refused() {
        for (spare, drives, most) in [(None, 3, None), (Some(0), 3, None), (Some(1), 3, None), (Some(4), 8, None)]
            .into_iter()
            .chain([(Some(2), 3, Some(1)), (Some(5), 8, Some(4)), (Some(600), 512, Some(256))])
        {
            let refused = check(spare, drives).err();
            assert_eq!(refused.is_some(), most.is_some(), "{spare:?} of {drives}: {refused:?}");
            if let (Some(failure), Some(most)) = (refused, most) {
                assert!(
                    failure.kind == Kind::Usage && failure.next.contains(&format!("--spare {most},")),
                    "{failure:?}"
                );
            }
        }
    }

    #[test]
    fn spare_space_that_is_cut_is_told() {
        let told = |enclosures: &[u32]| {
            let drives = enclosures.iter().zip(0..).map(|(enclosure, at)| format!("/d/{at}@{enclosure}"));
            cut(&drives.map(|drive| drive.parse().expect("a drive")).collect::<Vec<_>>())
        };
        for enough in [&[1, 2, 3][..], &[1, 1, 2, 2], &[1, 1, 1, 1], &[1, 1, 2, 2, 3]] {
            assert_eq!(told(enough), None, "{enough:?}");
        }
        for (few, words) in [(&[0, 0, 1][..], "instead of 2 for the largest"), (&[1, 1, 1], "a pool of one enclosure")]
        {
            let said = told(few).unwrap_or_default();
            assert!(said.contains("is worth 1 drive,") && said.contains(words), "{few:?}: {said}");
        }
    }
}
