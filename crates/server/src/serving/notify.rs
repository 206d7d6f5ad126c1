//! Notifications to a service manager: the server is ready, is healthy, or stops. This is systemd's
//! sd_notify: a datagram to the socket in NOTIFY_SOCKET. Without that variable, nothing is sent.
//!
//! The server is healthy while the pool answers. The manager ends and restarts a server that hangs,
//! which loses no acknowledged data. Failure model: if the manager does not take a datagram, the
//! server logs a line and continues.

use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

use stele_array::Command;

use crate::node::Node;

/// Sends one notification, for example `READY=1`.
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

/// Sends the watchdog notification twice in each interval that the manager asks for, until the task
/// is dropped.
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

/// The manager's watchdog interval for this process, if it asks for one.
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
