//! Signed heads to a syslog server, as messages of RFC 5424.
//!
//! The message is the head in JSON, with the facility for audit (13) and the severity informational
//! (6). Over TCP it is framed by its length (RFC 6587). Over UDP and a unix socket nothing says
//! whether it arrived.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use stele_archive::SignedHead;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UdpSocket, UnixDatagram, lookup_host};

use crate::failure::{Failure, Outcome};

/// Time limit for the server to take a message.
const PATIENCE: Duration = Duration::from_secs(20);
/// Facility 13, severity 6.
const PRIORITY: u8 = 13 * 8 + 6;

/// A syslog server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Syslog {
    Udp(String),
    Tcp(String),
    Unix(PathBuf),
}

impl Syslog {
    /// Reads `udp:HOST:PORT`, `tcp:HOST:PORT` or `unix:PATH`.
    pub fn parse(text: &str) -> Outcome<Syslog> {
        let has_port = |address: &str| {
            let (host, port) = address.rsplit_once(':').unwrap_or_default();
            !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
        };
        match text.split_once(':') {
            Some(("udp", address)) if has_port(address) => Ok(Syslog::Udp(address.to_owned())),
            Some(("tcp", address)) if has_port(address) => Ok(Syslog::Tcp(address.to_owned())),
            Some(("unix", path)) if path.starts_with('/') => Ok(Syslog::Unix(PathBuf::from(path))),
            _ => Err(Failure::usage(format!("[archive] heads_syslog: '{text}' is no syslog server"))
                .next("write udp:HOST:514, tcp:HOST:601 or unix:/dev/log")),
        }
    }

    /// Sends a head.
    pub async fn send(&self, head: &SignedHead) -> Outcome<()> {
        let sent = tokio::time::timeout(PATIENCE, self.hand_over(message(head).into_bytes())).await;
        let sent = sent.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
        sent.map_err(|error| Failure::failed(format!("the syslog server {} took no head: {error}", self.name())))
    }

    pub fn name(&self) -> String {
        match self {
            Syslog::Udp(address) => format!("udp:{address}"),
            Syslog::Tcp(address) => format!("tcp:{address}"),
            Syslog::Unix(path) => format!("unix:{}", path.display()),
        }
    }

    async fn hand_over(&self, message: Vec<u8>) -> std::io::Result<()> {
        match self {
            Syslog::Udp(address) => {
                let to = lookup_host(address).await?.next().ok_or(std::io::ErrorKind::NotFound)?;
                let any: SocketAddr = match to.is_ipv4() {
                    true => ([0, 0, 0, 0], 0).into(),
                    false => ([0u16; 8], 0).into(),
                };
                UdpSocket::bind(any).await?.send_to(&message, to).await.map(drop)
            }
            Syslog::Tcp(address) => {
                let mut stream = TcpStream::connect(address).await?;
                let framed = [format!("{} ", message.len()).as_bytes(), &message].concat();
                stream.write_all(&framed).await?;
                stream.shutdown().await
            }
            Syslog::Unix(path) => UnixDatagram::unbound()?.send_to(&message, path).await.map(drop),
        }
    }
}

/// The message: header without structured data, and the head.
fn message(head: &SignedHead) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host: String = host.trim().chars().filter(|character| character.is_ascii_graphic()).take(255).collect();
    let host = if host.is_empty() { "-".to_owned() } else { host };
    let json = serde_json::to_string(head).unwrap_or_default();
    format!("<{PRIORITY}>1 {} {host} stele {} head - {json}", head.time, std::process::id())
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;

    fn head() -> SignedHead {
        let text = |text: &str| text.to_owned();
        SignedHead {
            store: text("0a"),
            records: 7,
            link: text("0b"),
            root: text("0c"),
            time: text("2027-01-15T08:00:00.000Z"),
            public_key: text("0d"),
            signature: text("0e"),
        }
    }

    /// The head in a message, if the message is one.
    fn read(message: &[u8]) -> SignedHead {
        let text = std::str::from_utf8(message).unwrap();
        let words: Vec<&str> = text.splitn(8, ' ').collect();
        assert_eq!(
            (words[0], words[1], words[3], words[5], words[6]),
            ("<110>1", "2027-01-15T08:00:00.000Z", "stele", "head", "-"),
            "{text}"
        );
        serde_json::from_str(words[7]).unwrap()
    }

    #[tokio::test]
    async fn a_head_reaches_every_kind_of_syslog_server() {
        let udp = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let place = Syslog::parse(&format!("udp:{}", udp.local_addr().unwrap())).unwrap();
        place.send(&head()).await.unwrap();
        let mut buffer = [0; 4096];
        let (length, _) = udp.recv_from(&mut buffer).await.unwrap();
        assert_eq!(read(&buffer[..length]), head());

        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let place = Syslog::parse(&format!("tcp:{}", tcp.local_addr().unwrap())).unwrap();
        let (sent, accepted) = tokio::join!(Box::pin(async { place.send(&head()).await }), tcp.accept());
        sent.unwrap();
        let mut bytes = Vec::new();
        accepted.unwrap().0.read_to_end(&mut bytes).await.unwrap();
        let space = bytes.iter().position(|byte| *byte == b' ').unwrap();
        let length: usize = std::str::from_utf8(&bytes[..space]).unwrap().parse().unwrap();
        assert_eq!(length, bytes.len() - space - 1);
        assert_eq!(read(&bytes[space + 1..]), head());

        let path = std::env::temp_dir().join(format!("stele-syslog-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let unix = UnixDatagram::bind(&path).unwrap();
        Syslog::parse(&format!("unix:{}", path.display())).unwrap().send(&head()).await.unwrap();
        let length = unix.recv(&mut buffer).await.unwrap();
        assert_eq!(read(&buffer[..length]), head());
        drop(unix);
        let gone = Syslog::Unix(path.clone()).send(&head()).await;
        assert!(gone.is_err_and(|failure| failure.error.contains("took no head")));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_place_that_is_no_syslog_server_is_refused() {
        for text in ["", "udp:", "udp:host", "udp::514", "tcp:host:0", "tcp:host:x", "unix:log", "http://host:514"] {
            assert!(Syslog::parse(text).is_err(), "{text}");
        }
        assert_eq!(Syslog::parse("udp:[::1]:514").unwrap(), Syslog::Udp("[::1]:514".into()));
    }
}
