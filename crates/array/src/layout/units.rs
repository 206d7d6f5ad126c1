//! Which units of which drive are taken, and the reserve.
