//! A time stamp authority: `openssl ts -reply` with certificates made for the test.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory with the certificates `ca.pem`, `signer.pem` and `web.pem`, the last one not for
/// time stamps. It is removed at the end.
pub struct Authority(pub PathBuf);

const SETTINGS: &str = "\
[ca]
basicConstraints = critical,CA:TRUE
[signer]
basicConstraints = CA:FALSE
extendedKeyUsage = critical,timeStamping
[web]
basicConstraints = CA:FALSE
extendedKeyUsage = serverAuth
[tsa]
default_tsa = ours
[ours]
serial = serial
default_policy = 1.2.3.4.1
digests = sha256, sha512
signer_digest = sha256
ess_cert_id_alg = ESS
[other_policy]
serial = serial
default_policy = 1.2.3.4.1
digests = sha512
signer_digest = sha256
";

/// Kinds of keys, as `openssl genpkey` takes them.
pub const RSA: &[&str] = &["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"];
pub const ECDSA: &[&str] = &["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"];

impl Authority {
    /// `ess` is the digest that names the signer's certificate: `sha1` is that of RFC 3161,
    /// `sha256` that of RFC 5816.
    pub fn new(name: &str, key: &[&str], ess: &str) -> Authority {
        let dir = std::env::temp_dir().join(format!("stele-authority-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let authority = Authority(dir);
        std::fs::write(authority.0.join("settings"), SETTINGS.replace("ESS", ess)).unwrap();
        std::fs::write(authority.0.join("serial"), "0A\n").unwrap();
        for name in ["ca", "signer", "web"] {
            let [own, request, certificate] = ["key", "csr", "pem"].map(|ending| format!("{name}.{ending}"));
            authority.openssl(&[&["genpkey", "-out", &own][..], key].concat());
            let subject = format!("/CN={name}");
            authority.openssl(&["req", "-new", "-key", &own, "-subj", &subject, "-out", &request]);
            let mut sign = vec!["x509", "-req", "-in", &request, "-days", "3650", "-extfile", "settings"];
            sign.extend(["-extensions", name, "-out", &certificate]);
            match name {
                "ca" => sign.extend(["-signkey", &own]),
                _ => sign.extend(["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"]),
            }
            authority.openssl(&sign);
        }
        authority
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Runs openssl there.
    #[track_caller]
    pub fn openssl(&self, arguments: &[&str]) -> String {
        let output = Command::new("openssl").args(arguments).current_dir(&self.0).output().unwrap();
        assert!(output.status.success(), "openssl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The reply to a request, by a section of the settings.
    pub fn reply_by(&self, section: &str, request: &[u8]) -> Vec<u8> {
        std::fs::write(self.path("request"), request).unwrap();
        let arguments = ["ts", "-reply", "-config", "settings", "-section", section, "-queryfile", "request"];
        let keys = ["-signer", "signer.pem", "-inkey", "signer.key", "-chain", "ca.pem", "-out", "reply"];
        self.openssl(&[&arguments[..], &keys].concat());
        std::fs::read(self.path("reply")).unwrap()
    }

    pub fn reply(&self, request: &[u8]) -> Vec<u8> {
        self.reply_by("ours", request)
    }

    /// `openssl ts -verify`, as OPERATIONS.md gives it.
    pub fn verifies(&self, stamped: &Path, reply: &Path) -> bool {
        let mut command = Command::new("openssl");
        command.args(["ts", "-verify", "-in"]).arg(reply).arg("-data").arg(stamped);
        command.arg("-CAfile").arg(self.path("ca.pem")).output().unwrap().status.success()
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
