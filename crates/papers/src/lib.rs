//! Floor 6: papers. The published papers as data and as recipes that measure them again, the model of the machine that one
//! of them is about, reports as PDF, and the formats of other tools.

pub mod ds4500;
pub mod export;
pub mod import;
pub mod oddities;
pub mod pdf;
pub mod published;
pub mod recipe;

#[cfg(test)]
mod tests;
