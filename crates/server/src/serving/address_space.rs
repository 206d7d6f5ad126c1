//! The limit of the address space (`ulimit -v`). An allocation beyond it fails, and ends the server
//! at once: so the log says before the pool opens where the limit is below what a server may need.

use rustix::process::{Resource, getrlimit};
use stele_ground::Bytes;

use crate::config::Config;
use crate::config::machine::{BESIDE_CACHES, memory_here};

/// Warns of a limit that is too low. The warning is written when this returns: the next allocation
/// may be the one that fails.
pub fn check(config: &Config) {
    let caches = config.memory.caches(memory_here()).0;
    if let Some(warning) = lack(getrlimit(Resource::As).current, caches.saturating_add(BESIDE_CACHES)) {
        tracing::warn!("{warning}");
        crate::log::settle();
    }
}

fn lack(limit: Option<u64>, needed: u64) -> Option<String> {
    let limit = limit.filter(|limit| *limit < needed)?;
    Some(format!(
        "the server may use {} of address space, and may need {}: it ends where it gets no more; raise `ulimit -v`, or \
         LimitAS of the service, or make the sizes under [memory] smaller",
        Bytes(limit),
        Bytes(needed)
    ))
}

#[cfg(test)]
mod tests {
    use stele_ground::{GIB, MIB};

    use super::*;

    #[test]
    fn the_log_names_an_address_space_that_is_too_small() {
        assert_eq!(lack(None, 2 * GIB), None);
        assert_eq!(lack(Some(2 * GIB), 2 * GIB), None);
        let warning = lack(Some(500 * MIB), 2 * GIB).unwrap();
        assert!(warning.starts_with("the server may use 500 MiB of address space, and may need 2 GiB"), "{warning}");
    }
}
