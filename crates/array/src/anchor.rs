//! The anchor: the root of a checkpoint, in two alternating slots on every drive. Written and read by the table only.
