//! The URLs under which hosts reach volumes.

use std::net::SocketAddr;
use std::path::Path;

use stele_block::Export;

/// The URLs of an export (the NBD project's `uri.md`): over TCP if the server listens there, and
/// over the Unix socket.
pub fn nbd_urls(export: &Export, listen: Option<SocketAddr>, socket: &Path, tls_required: bool) -> Vec<String> {
    let access = &export.access;
    let secure = access.tls || !access.certificates.is_empty();
    let name = escaped(&export.name);
    let mut urls = Vec::new();
    if let Some(address) = listen {
        urls.push(format!("nbd{}://{address}/{name}", if secure || tls_required { "s" } else { "" }));
    }
    let scheme = if secure { "nbds+unix" } else { "nbd+unix" };
    urls.push(format!("{scheme}:///{name}?socket={}", escaped(&socket.display().to_string())));
    urls
}

/// The URL of an export as libiscsi and QEMU take it, without secrets. Without a listener there is
/// no URL.
pub fn iscsi_urls(export: &Export, listen: Option<SocketAddr>) -> Vec<String> {
    listen.map(|address| format!("iscsi://{address}/{}/0", export.name)).into_iter().collect()
}

/// Percent-encodes the characters that a URL's path or query does not allow.
fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/:".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use stele_block::Protocol;

    #[test]
    fn urls_name_the_export_and_its_socket_whatever_they_are_called() {
        let export = Export {
            name: "a+b".to_owned(),
            volume: "v".to_owned(),
            protocol: Protocol::Nbd,
            read_only: false,
            access: Default::default(),
            iscsi: Default::default(),
        };
        let urls = |listen: Option<&str>, tls| {
            nbd_urls(&export, listen.map(|text| text.parse().unwrap()), Path::new("/a dir/nbd.sock"), tls)
        };
        assert_eq!(urls(None, true), ["nbd+unix:///a%2Bb?socket=/a%20dir/nbd.sock"]);
        assert_eq!(urls(Some("[::1]:10809"), false)[0], "nbd://[::1]:10809/a%2Bb");
        assert_eq!(urls(Some("127.0.0.1:1"), true)[0], "nbds://127.0.0.1:1/a%2Bb");
    }
}
