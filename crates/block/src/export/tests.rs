use super::*;

fn network(text: &str) -> Network {
    text.parse().unwrap()
}

#[test]
fn networks_contain_what_their_prefix_says() {
    let check = |text: &str, address: &str, inside: bool| {
        assert_eq!(network(text).contains(address.parse().unwrap()), inside, "{address} in {text}");
    };
    check("10.1.0.0/16", "10.1.255.3", true);
    check("10.1.0.0/16", "10.2.0.0", false);
    check("10.1.0.0/16", "::ffff:10.1.0.9", true);
    check("192.168.7.3", "192.168.7.3", true);
    check("192.168.7.3", "192.168.7.4", false);
    check("0.0.0.0/0", "203.0.113.9", true);
    check("0.0.0.0/0", "fd00::1", false);
    check("fd00::/8", "fdff::1", true);
    check("::/0", "2001:db8::1", true);
    for wrong in ["", "10.1.0.0/33", "fd00::/129", "ten", "10.1.0.0/", "10.1.0.0/-1"] {
        assert!(wrong.parse::<Network>().is_err(), "{wrong}");
    }
}

#[test]
fn an_export_admits_only_who_meets_all_its_conditions() {
    let mine = Fingerprint([7; 32]);
    let access = Access { networks: vec![network("10.0.0.0/8")], tls: false, certificates: vec![mine] };
    let peer = Peer { address: "10.1.1.1".parse().ok(), name: String::new(), tls: true, certificate: Some(mine) };
    assert!(access.admit(&peer).is_ok());
    assert!(access.admit(&Peer { address: "11.1.1.1".parse().ok(), ..peer.clone() }).is_err());
    assert!(access.admit(&Peer { certificate: None, ..peer.clone() }).is_err());
    assert!(access.admit(&Peer { certificate: Some(Fingerprint([8; 32])), ..peer.clone() }).is_err());
    assert!(access.admit(&Peer { tls: false, ..peer }).is_err());
    assert!(Access::default().admit(&Peer::default()).is_ok());
    assert!(Access { tls: true, ..Access::default() }.admit(&Peer::default()).is_err());
}

#[test]
fn fingerprints_read_what_openssl_prints() {
    let text = "AB:".repeat(31) + "cd";
    let read: Fingerprint = text.parse().unwrap();
    assert_eq!((read.0[0], read.0[31]), (0xab, 0xcd));
    assert_eq!(read.to_string().parse(), Ok(read));
    assert!("ab".repeat(31).parse::<Fingerprint>().is_err());
    assert!("zz".repeat(32).parse::<Fingerprint>().is_err());
}
