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
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}
