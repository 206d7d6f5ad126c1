//! HTTPS for a client that verifies: the generated certificate, certificate files, and the remains
//! of a killed start.

use std::process::{Command, Stdio};

use crate::support::{Place, Server, clients, installed};

/// The output of curl, or its exit code: 60 means that the certificate does not verify.
fn curl(certificate: &str, url: &str) -> Result<String, i32> {
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--noproxy", "*", "--cacert", certificate, url])
        .env("PATH", clients())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() { Ok(text) } else { Err(output.status.code().unwrap_or(-1)) }
}

fn healthy(certificate: &str, host: &str, server: &Server) {
    let url = format!("https://{host}:{}/health", server.address.port());
    let said = curl(certificate, &url).unwrap_or_else(|code| panic!("{url}: curl ends with {code}"));
    assert!(said.contains("\"health\":\"healthy\""), "{url}: {said}");
}

#[test]
fn the_generated_certificate_verifies_by_every_name_of_the_endpoint() {
    if !installed(&["curl", "--version"]) {
        return;
    }
    let place = Place::new("tls");
    let server = place.up_with(&["--tls"]);
    let certificate = server.ready["certificate"].as_str().unwrap().to_owned();
    assert!(server.ready["endpoint"].as_str().unwrap().starts_with("https://127.0.0.1:"), "{}", server.ready);
    healthy(&certificate, "127.0.0.1", &server);
    healthy(&certificate, "localhost", &server);
    let mode = |name: &str| {
        use std::os::unix::fs::PermissionsExt;
        std::fs::metadata(place.0.join(name)).unwrap().permissions().mode() & 0o777
    };
    assert_eq!((mode("tls/key.pem"), mode("master.key")), (0o600, 0o600));
    let plain = format!("http://127.0.0.1:{}/health", server.address.port());
    assert!(curl(&certificate, &plain).is_err(), "nothing is served in the clear");
    let keys = server.keys();
    let script = "import boto3,sys\ns=boto3.client('s3',endpoint_url=sys.argv[1],verify=sys.argv[2])\ns.create_bucket(Bucket='records')\ns.put_object(Bucket='records',Key='k',Body=b'data')\nassert s.get_object(Bucket='records',Key='k')['Body'].read()==b'data'";
    if installed(&["python3", "-c", "import boto3"]) {
        let output = Command::new("python3")
            .args(["-c", script, server.ready["endpoint"].as_str().unwrap(), &certificate])
            .env("PATH", clients())
            .env("AWS_ACCESS_KEY_ID", &keys.0)
            .env("AWS_SECRET_ACCESS_KEY", &keys.1)
            .env("AWS_DEFAULT_REGION", "us-east-1")
            .env("AWS_EC2_METADATA_DISABLED", "true")
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    server.stop();

    // The next start uses the same certificate: clients that trust it need no change.
    let first = std::fs::read(&certificate).unwrap();
    place.up_with(&["--tls"]).stop();
    assert_eq!(std::fs::read(&certificate).unwrap(), first);
    // Another address adds another name, and the old ones stay.
    let server = Server::start(&place, &["up", "--tls", "--listen", "127.0.0.5:0"]).unwrap();
    healthy(&certificate, "127.0.0.5", &server);
    assert_eq!(curl(&certificate, &format!("https://127.0.0.6:{}/", server.address.port())).err(), Some(7));
    server.stop();

    // Killed between the two files: a missing one of them is repaired.
    for name in ["tls/certificate.pem", "tls/key.pem"] {
        std::fs::remove_file(place.0.join(name)).unwrap();
        let server = place.up_with(&["--tls"]);
        healthy(&certificate, "localhost", &server);
        server.stop();
    }
}

#[test]
fn certificate_files_are_served_and_mistakes_in_them_named() {
    if !installed(&["curl", "--version"]) {
        return;
    }
    let place = Place::new("tls-files");
    place.up().stop();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    std::fs::write(place.0.join("own.pem"), made.cert.pem()).unwrap();
    std::fs::write(place.0.join("own.key"), made.signing_key.serialize_pem()).unwrap();
    place.edit_config(|text| text.replace("[s3]\n", "[s3]\ntls_certificate = \"own.pem\"\ntls_key = \"own.key\"\n"));
    let server = place.serve();
    healthy(&place.path("own.pem"), "localhost", &server);
    let other = format!("https://127.0.0.1:{}/health", server.address.port());
    assert_eq!(curl(&place.path("own.pem"), &other), Err(60), "the certificate does not name this address");
    server.stop();

    std::fs::write(place.0.join("own.key"), "nothing").unwrap();
    let said = Server::start(&place, &["serve"]).err().unwrap();
    assert!(said.contains("own.key") && said.contains("PEM"), "{said}");
    place.edit_config(|text| text.replace("tls_key = \"own.key\"\n", ""));
    place.refused(2, &["both or neither"], &["serve"]);
}

/// A host that connects on and on, and never says anything, pushes out its own connections.
#[test]
fn handshakes_that_a_host_never_finishes_give_way_to_its_next_ones() {
    use std::io::Read;
    use std::net::TcpStream;
    let place = Place::new("tls-silent");
    let server = place.up_with(&["--tls"]);
    let mut silent: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    // Its time limit alone would end the first one after ten seconds.
    let first = &mut silent[0];
    first.set_read_timeout(Some(std::time::Duration::from_secs(8))).unwrap();
    match first.read(&mut [0]) {
        Ok(length) => assert_eq!(length, 0),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "it is still there: {error}"),
    }
    server.stop();
}
