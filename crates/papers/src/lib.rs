//! Floor 6: papers. The published papers as data, recipes that measure them again, the model of the
//! DS4500, reports as PDF, and the formats of other tools.

pub mod ds4500;
pub mod export;
pub mod import;
pub mod oddities;
pub mod pdf;
pub mod published;
pub mod recipe;

#[cfg(test)]
mod tests;
