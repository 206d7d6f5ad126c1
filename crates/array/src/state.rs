//! What each flow knows. One struct per flow with private fields, which change only by methods that say what happens.

pub mod destaging;
pub mod hospital;
pub mod losses;
pub mod redo;
pub mod throttle;
