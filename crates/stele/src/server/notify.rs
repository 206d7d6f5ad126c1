//! What a service manager is told: that the server is ready, that it is well, and that it stops (systemd's sd_notify: a
//! datagram to the socket that NOTIFY_SOCKET names). Without a manager that asks, nothing is said.
//!
//! It is well while the pool answers: a server that hangs is ended by its manager and started again, which loses nothing
//! acknowledged. Failure model: a manager that does not take the datagram is a line of the log, and no more.

use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

use stele_array::Command;

use crate::node::Node;

/// Says one thing, like `READY=1`.
pub fn tell(what: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET").filter(|socket| !socket.is_empty()) else { return };
    if let Err(error) = send(&socket, what) {
        tracing::warn!("the service manager was not told {what}: {error}");
    }
}

fn send(socket: &OsString, what: &str) -> std::io::Result<usize> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(what.as_bytes(), &address)
}

/// Tells the manager that the server is well, twice as often as it asks for, until the task is dropped.
pub async fn keep_watch(node: Arc<Node>) {
    let asked = |name: &str| std::env::var(name).ok();
    let Some(within) = interval(asked("WATCHDOG_USEC"), asked("WATCHDOG_PID"), std::process::id()) else { return };
    loop {
        tokio::time::sleep(within / 2).await;
        if tokio::time::timeout(within / 4, node.pool.command(Command::Status)).await.is_ok() {
            tell("WATCHDOG=1");
        }
    }
}

/// How often the manager wants to hear of this process, if at all.
fn interval(micros: Option<String>, process: Option<String>, own: u32) -> Option<Duration> {
    if process.is_some_and(|process| process.trim().parse() != Ok(own)) {
        return None;
    }
    micros?.trim().parse().ok().filter(|micros| *micros > 0).map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_process_that_is_watched_answers() {
        let check = |micros: Option<&str>, process: Option<&str>| {
            interval(micros.map(str::to_owned), process.map(str::to_owned), 7).map(|span| span.as_millis())
        };
        assert_eq!(check(Some("2000000"), Some("7")), Some(2000));
        assert_eq!(check(Some("2000000"), None), Some(2000));
        assert_eq!(check(Some("2000000"), Some("8")), None);
        assert_eq!(check(None, Some("7")), None);
        assert_eq!(check(Some("0"), None), None);
        assert_eq!(check(Some("often"), None), None);
    }
}
