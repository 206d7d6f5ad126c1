//! Alarms over TLS, to servers on loopback with certificates of the test's own authority.
//! `SSL_CERT_FILE` names the machine's authorities.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::Value;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::{PATIENCE, listening, take_mail, take_post};
use crate::support::{Place, Server, clients, installed, wait_for};

/// An authority, and a server's certificate that it has signed.
struct Signed {
    authority: String,
    certificate: rcgen::Certificate,
    key: KeyPair,
}

fn signed() -> Signed {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let own = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    Signed { authority: own, certificate, key }
}

/// An authority's certificate, and the configuration of a server with a certificate that it has
/// signed.
fn authority() -> (String, Arc<ServerConfig>) {
    let Signed { authority: own, certificate, key } = signed();
    let chain = vec![CertificateDer::from(certificate.der().to_vec())];
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(tokio_rustls::rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    (own, Arc::new(config.with_no_client_auth().with_single_cert(chain, private).unwrap()))
}

type Secured = StreamOwned<ServerConnection, TcpStream>;

fn secured(config: &Arc<ServerConfig>, stream: TcpStream) -> Secured {
    StreamOwned::new(ServerConnection::new(Arc::clone(config)).unwrap(), stream)
}

/// A mail server that is unencrypted until it is asked for TLS.
fn mail_with_starttls(config: Arc<ServerConfig>) -> (SocketAddr, Receiver<String>) {
    listening(move |_, mut stream, heard| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let _ = stream.write_all(b"220 here\r\n");
        let mut line = String::new();
        while reader.read_line(&mut line).is_ok_and(|read| read > 0) {
            let asked = line.trim_end() == "STARTTLS";
            let answer: &[u8] = match () {
                () if asked => b"220 go on\r\n",
                () if line.starts_with("EHLO") => b"250-here\r\n250 STARTTLS\r\n",
                () => b"530 not in the clear\r\n",
            };
            let _ = stream.write_all(answer);
            if asked {
                // No greeting follows: the client sends EHLO again.
                return take_mail(false, Silent { stream: secured(&config, stream), greeted: false }, heard);
            }
            line.clear();
        }
    })
}

/// Leaves out the first written line, which is the greeting.
struct Silent {
    stream: Secured,
    greeted: bool,
}

impl std::io::Read for Silent {
    fn read(&mut self, bytes: &mut [u8]) -> std::io::Result<usize> {
        self.stream.read(bytes)
    }
}

impl Write for Silent {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if !std::mem::replace(&mut self.greeted, true) {
            return Ok(bytes.len());
        }
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.stream.flush()
    }
}

#[test]
fn alarms_go_over_tls_and_only_to_servers_that_are_trusted() {
    let place = Place::new("messages-tls");
    place.up().stop();
    let (trusted, config) = authority();
    let (stranger, _) = authority();
    let hook = Arc::clone(&config);
    let (hook, hooked) = listening(move |_, stream, heard| take_post(false, secured(&hook, stream), heard));
    let mail = Arc::clone(&config);
    let (mail, mailed) = listening(move |_, stream, heard| take_mail(false, secured(&mail, stream), heard));
    let (later, mailed_later) = mail_with_starttls(config);
    let written = |url: String| {
        place.edit_config(|text| {
            let before = text.split("\n[messages]").next().unwrap_or_default().to_owned();
            format!(
                "{before}\n[messages]\nwebhooks = [\"https://localhost:{}/\"]\nmail_to = [\"storage@example.org\"]\n\
                 mail_from = \"stele@example.org\"\nmail_server = \"{url}\"\n",
                hook.port()
            )
        });
    };
    let authorities = |text: &str| {
        let path = place.path("authorities.pem");
        std::fs::write(&path, text).unwrap();
        path
    };
    std::fs::rename(place.0.join("drives/e2-0.img"), place.0.join("e2-0.img")).unwrap();
    place.listen_anywhere();
    let serve = |authorities: &str| Server::start_with(&place, &["serve"], &[("SSL_CERT_FILE", authorities)]).unwrap();

    // A server without a trusted certificate receives nothing, and the log gives the reason.
    written(format!("smtps://localhost:{}", mail.port()));
    let server = serve(&authorities(&stranger));
    wait_for("both to be refused", || {
        let log = place.log();
        let refused = |name: &str| log.lines().any(|line| line.contains(name) && line.contains("ertificate"));
        (refused("the webhook at localhost") && refused("the mail server smtps://localhost")).then_some(())
    });
    assert!(hooked.try_recv().is_err() && mailed.try_recv().is_err());
    server.stop();

    let server = serve(&authorities(&trusted));
    assert!(hooked.recv_timeout(PATIENCE).unwrap().contains("drive-missing"));
    assert!(mailed.recv_timeout(PATIENCE).unwrap().contains("drive-missing begun: drive 4"));
    server.stop();

    // From an unencrypted connection to the required TLS.
    written(format!("smtp://localhost:{}?tls=required", later.port()));
    let server = serve(&authorities(&trusted));
    assert!(mailed_later.recv_timeout(PATIENCE).unwrap().contains("drive-missing begun: drive 4"));
    server.stop();
}

/// aiosmtpd and http.server, which others have written.
#[test]
fn alarms_reach_a_mail_server_that_demands_a_password_and_a_web_server() {
    if !installed(&["python3", "-c", "import aiosmtpd"]) {
        return;
    }
    let place = Place::new("messages-servers");
    place.up().stop();
    let Signed { authority, certificate, key } = signed();
    let [authorities, chain, private] = [authority, certificate.pem(), key.serialize_pem()].map(|text| {
        let path = place.path(&format!("pem-{}", text.len()));
        std::fs::write(&path, text).unwrap();
        path
    });
    let mut servers = Command::new("python3")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/messages/servers.py"))
        .args([&chain, &private, "stele", "right"])
        .env("PATH", clients())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(servers.stdout.take().unwrap()).lines().map_while(Result::ok);
    let ports = said.next().unwrap();
    let (mail, hook) = ports.split_once(' ').unwrap();
    let (tell, told) = channel();
    std::thread::spawn(move || said.try_for_each(|line| tell.send(serde_json::from_str::<Value>(&line).unwrap())));
    place.edit_config(|text| {
        format!(
            "{text}\n[messages]\nwebhooks = [\"http://127.0.0.1:{hook}/alarms\"]\nmail_to = [\"storage@example.org\"]\n\
             mail_from = \"stele@example.org\"\nmail_server = \"smtp://localhost:{mail}\"\nmail_user = \"stele\"\n\
             mail_password = \"mail.password\"\n"
        )
    });
    std::fs::write(place.0.join("mail.password"), "wrong\n").unwrap();
    std::fs::rename(place.0.join("drives/e2-0.img"), place.0.join("e2-0.img")).unwrap();
    place.listen_anywhere();
    // In the clear the password is not sent, not even once.
    place.refused(2, &["mail_user", "in the clear", "tls=required"], &["serve"]);
    place.edit_config(|text| text.replace(&format!("localhost:{mail}"), &format!("localhost:{mail}?tls=required")));
    let serve = || Server::start_with(&place, &["serve"], &[("SSL_CERT_FILE", &authorities)]).unwrap();

    let server = serve();
    let hooked = told.recv_timeout(PATIENCE).unwrap();
    assert_eq!((&hooked["by"], &hooked["path"]), (&"webhook".into(), &"/alarms".into()), "{hooked}");
    assert_eq!(hooked["body"]["kind"], "drive-missing", "{hooked}");
    wait_for("the refusal in the log", || {
        let log = place.log();
        log.lines().any(|line| line.contains("the mail server") && line.contains("535")).then_some(())
    });
    assert!(told.try_iter().all(|message| message["by"] != "mail"), "mail went out under a wrong password");
    server.stop();

    std::fs::write(place.0.join("mail.password"), "right\n").unwrap();
    let server = serve();
    let letter =
        std::iter::from_fn(|| told.recv_timeout(PATIENCE).ok()).find(|message| message["by"] == "mail").unwrap();
    assert_eq!((&letter["user"], &letter["to"][0]), (&"stele".into(), &"storage@example.org".into()), "{letter}");
    assert!(letter["text"].as_str().is_some_and(|text| text.contains("drive-missing begun: drive 4")), "{letter}");
    server.stop();
    drop(servers.stdin.take());
    assert!(servers.wait().unwrap().success());
}
