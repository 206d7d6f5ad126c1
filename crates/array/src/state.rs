//! What each flow knows. One struct per flow with private fields, which change only by methods that
//! say what happens.

pub mod admission;
pub mod checkpointing;
pub mod counters;
pub mod destaging;
pub mod hospital;
pub mod losses;
pub mod lost_list;
pub mod membership;
pub mod moving;
pub mod pins;
pub mod reading;
pub mod rebuilding;
pub mod reclaiming;
pub mod redo;
pub mod repairing;
pub mod scrubbing;
pub mod standing;
pub mod throttle;
pub mod unanswered;
pub mod work;
