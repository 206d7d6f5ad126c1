//! The limit of open files.
//!
//! A shell often gives a process 1024 open files, and lets it have more if it asks. The server asks
//! for all that it may have. Where that is less than its connections and drives may need, the log
//! says so: at the limit a listener takes no further connection.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::config::Config;

/// Descriptors for the server's own files; connections need further ones.
const OWN_FILES: u64 = 512;

/// The files that a server may have open at once. `connections`: of S3 and to exports.
pub fn needed(connections: u64, drives: u64) -> u64 {
    OWN_FILES + drives + 2 * connections
}

/// Raises the limit as far as the system lets it be raised.
pub fn raise(config: &Config) {
    let limit = raised(getrlimit(Resource::Nofile));
    let connections = u64::from(config.s3.connections_max) + u64::from(config.block.connections_max);
    let needed = needed(connections, config.pool.drives.len() as u64);
    if let Some(warning) = lack(limit, needed) {
        tracing::warn!("{warning}");
    }
}

/// The limit that holds afterwards; `None`: there is none.
fn raised(limit: Rlimit) -> Option<u64> {
    if limit.current == limit.maximum {
        return limit.current;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    }
}

fn lack(limit: Option<u64>, needed: u64) -> Option<String> {
    let limit = limit.filter(|limit| *limit < needed)?;
    Some(format!(
        "{limit} files may be open, and {needed} may be needed; raise LimitNOFILE of the service, or `ulimit -n`, or \
         lower connections_max"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_takes_all_open_files_that_it_may_have() {
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(raised(limit), limit.maximum);
        assert_eq!(getrlimit(Resource::Nofile).current, limit.maximum);
    }

    #[test]
    fn the_log_names_a_limit_that_is_too_low() {
        let needed = needed(1024 + 256, 12);
        assert_eq!(lack(Some(needed), needed), None);
        assert_eq!(lack(None, needed), None);
        let warning = lack(Some(256), needed).unwrap();
        assert!(warning.starts_with("256 files may be open, and 3084 may be needed"), "{warning}");
    }
}
