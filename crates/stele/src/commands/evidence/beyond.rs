//! What leads beyond the head of a receipt or a retention proof: to a later head, and to one that a
//! witness signed.
//!
//! A store can show different logs to different readers. A head that a witness countersigned is on
//! the one line that the witness has seen. A receipt is on that line if its head is that head, or
//! if a proof leads from its head to it.

use std::path::Path;

use stele_archive::{ConsistencyProof, SignedHead, check_head};
use stele_ground::Shown;
use stele_server::failure::{Failure, Outcome};

use super::{read_json, wrong};
use crate::cli::evidence::Beyond;
use crate::commands::archive::anchor;

/// What holds beyond the head.
#[derive(Default)]
pub(super) struct Reached {
    pub later: Option<SignedHead>,
    /// When the witness countersigned it, by its clock.
    pub countersigned: Option<String>,
    /// Records under the head that the witness countersigned.
    records: u64,
}

/// Checks what was given, for a file whose head this key signed.
pub(super) fn check(given: &Beyond, file: &Path, head: &SignedHead, public: &[u8]) -> Outcome<Reached> {
    let mut reached = Reached::default();
    if let Some(path) = &given.later {
        let proof: ConsistencyProof = read_json(path, "a proof")?;
        proof.verify(head, public).map_err(|finding| wrong(path, &finding))?;
        reached.later = Some(proof.head);
    }
    let (Some(path), Some(key)) = (&given.anchor, &given.witness) else { return Ok(reached) };
    let made = anchor::check_witness(key, path)?;
    check_head(&made.head, public).map_err(|finding| wrong(path, &finding))?;
    let last = reached.later.as_ref().unwrap_or(head);
    if made.head.store != last.store {
        return Err(wrong(path, "its head is of another store"));
    }
    let (seen, known) = (made.head.records, last.records);
    if seen == known && (&made.head.root, &made.head.link) != (&last.root, &last.link) {
        let finding = format!("the witness signed another log of {seen} records than the one of {}", file.display());
        return Err(wrong(path, &finding));
    }
    if seen != known {
        let next = match seen < head.records {
            true => "take a later head of the witness, of at least as many records".to_owned(),
            false => format!(
                "`stele audit prove FROM --until {} --to later.proof` makes the proof that leads there; give it with --later",
                path.display()
            ),
        };
        let message = format!("{} is of {seen} records, and what was given leads to {known}", path.display());
        return Err(Failure::usage(message).next(next));
    }
    reached.countersigned = Some(made.time);
    reached.records = seen;
    Ok(reached)
}

impl Reached {
    pub fn show(&self) {
        if let Some(head) = &self.later {
            println!("The log of {} records, signed {}, still begins with it.", head.records, Shown(&head.time));
        }
        if let Some(time) = &self.countersigned {
            println!("The witness countersigned the head of {} records at {}.", self.records, Shown(time));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stele_server::failure::Kind;
    use stele_server::witness::Countersigned;
    use stele_server::witness::samples::{head, key, public};

    #[test]
    fn only_the_head_that_the_witness_signed_counts() {
        let (store, witness) = (key(7), key(1));
        let dir = std::env::temp_dir().join(format!("stele-beyond-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (anchor, key_file) = (dir.join("a.witness"), dir.join("witness.pub"));
        std::fs::write(&key_file, format!("{}\n", stele_server::witness::hex(&public(&witness)))).unwrap();
        let made = Countersigned::sign(head(&store, 5, "aa"), "2027-01-15T09:00:00Z".into(), &witness);
        std::fs::write(&anchor, serde_json::to_string(&made).unwrap()).unwrap();
        let given = Beyond { later: None, anchor: Some(anchor), witness: Some(key_file) };
        let judged = |of: &SignedHead, public: &[u8]| {
            let reached = check(&given, Path::new("ledger.receipt"), of, public);
            reached.map(|reached| reached.countersigned).map_err(|failure| failure.kind)
        };
        let same = judged(&head(&store, 5, "aa"), &public(&store));
        let cases = [
            ("another log of as many records", judged(&head(&store, 5, "bb"), &public(&store)), Kind::Damaged),
            ("fewer records", judged(&head(&store, 4, "aa"), &public(&store)), Kind::Usage),
            ("more records", judged(&head(&store, 6, "aa"), &public(&store)), Kind::Usage),
            ("another store's key", judged(&head(&store, 5, "aa"), &public(&key(8))), Kind::Damaged),
        ];
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!(same, Ok(Some(made.time)));
        for (what, found, kind) in cases {
            assert_eq!(found, Err(kind), "{what}");
        }
    }
}
