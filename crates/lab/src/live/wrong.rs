//! What was read and is not as it was written: how much of it, and where.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Places that are told; more are only counted.
const PLACES_MAX: usize = 16;

#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Wrong {
    /// Of 512 bytes.
    #[serde(rename = "wrong_sectors")]
    pub sectors: u64,
    /// The first ones found, each with its reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<String>,
}

impl Wrong {
    pub fn is_none(&self) -> bool {
        self.sectors == 0
    }

    pub fn note(&mut self, why: String) {
        self.sectors += 1;
        if self.places.len() < PLACES_MAX {
            self.places.push(why);
        }
    }

    pub fn add(&mut self, other: Wrong) {
        self.sectors = self.sectors.saturating_add(other.sectors);
        let room = PLACES_MAX.saturating_sub(self.places.len());
        self.places.extend(other.places.into_iter().take(room));
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let many = if self.sectors == 1 { "sector of 512 bytes is" } else { "sectors of 512 bytes are" };
        write!(f, "{} {many} not as written: {}", self.sectors, self.places.join("; "))?;
        match self.sectors.saturating_sub(self.places.len() as u64) {
            0 => {}
            more => write!(f, "; and {more} more")?,
        }
        // A run without checks on the same file began before this one, and no lock tells.
        f.write_str("; another writer on the target looks the same: make sure that there was none during the run")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_names_another_writer_as_a_cause() {
        let mut wrong = Wrong::default();
        (0..PLACES_MAX as u64 + 2).for_each(|at| wrong.note(format!("offset {at}")));
        let said = wrong.to_string();
        assert!(said.starts_with("18 sectors of 512 bytes are not as written: offset 0; "), "{said}");
        assert!(said.contains("; and 2 more; another writer on the target"), "{said}");
    }
}
