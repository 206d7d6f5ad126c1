use super::*;

fn export(path: &str, share: u32) -> Export<()> {
    Export { path: path.to_owned(), share, files: Arc::new(()), rules: Vec::new() }
}

#[test]
fn a_network_holds_what_begins_like_it() {
    for (network, address, expected) in [
        ("10.0.0.0/8", "10.255.1.2", true),
        ("10.0.0.0/8", "11.0.0.1", false),
        ("10.1.2.3", "10.1.2.3", true),
        ("10.1.2.3", "10.1.2.2", false),
        ("10.1.2.3/31", "10.1.2.2", true),
        ("0.0.0.0/0", "255.255.255.255", true),
        ("0.0.0.0/0", "::1", false),
        ("::/0", "fe80::1", true),
        ("::/0", "10.0.0.1", false),
        ("10.0.0.0/8", "::ffff:10.1.1.1", true),
        ("fd00::/8", "fdff::1", true),
        ("fd00::/8", "fe00::1", false),
        ("fd00::1", "fd00::1", true),
        ("fd00::1", "fd00::2", false),
        ("::ffff:10.1.2.3", "10.1.2.3", true),
        ("::ffff:10.0.0.0/104", "::ffff:10.9.9.9", true),
        ("::ffff:10.0.0.0/104", "11.0.0.1", false),
        ("::ffff:0:0/95", "10.0.0.1", false),
    ] {
        let network: Network = network.parse().unwrap();
        assert_eq!(network.contains(address.parse().unwrap()), expected, "{network} {address}");
    }
}

#[test]
fn networks_with_the_same_addresses_are_the_same() {
    for (one, other, expected) in [
        ("10.0.0.0/8", "10.1.2.3/8", true),
        ("10.0.0.0/8", "::ffff:10.0.0.0/104", true),
        ("10.0.0.0/8", "10.0.0.0/9", false),
        ("10.0.0.0/8", "11.0.0.0/8", false),
        ("10.1.2.3", "10.1.2.3/32", true),
        ("fd00::1/16", "fd00::/16", true),
        ("fd00::/16", "fd01::/16", false),
        ("0.0.0.0/0", "::/0", false),
        ("0.0.0.0/0", "1.2.3.4/0", true),
    ] {
        let (one, other): (Network, Network) = (one.parse().unwrap(), other.parse().unwrap());
        assert_eq!((one.is_same(&other), other.is_same(&one)), (expected, expected), "{one} {other}");
    }
}

#[test]
fn what_is_no_network_is_refused() {
    for text in ["", "10.0.0.0/33", "::/129", "10.0.0/8", "10.0.0.0/", "10.0.0.0/+8", "host", "10.0.0.0/8/8", "/8"] {
        assert_eq!(text.parse::<Network>(), Err(ExportError::Network(text.to_owned())));
    }
}

#[test]
fn the_first_rule_of_the_clients_network_decides() {
    let mut export = export("/a", 1);
    let rule = |network: &str, read_only| Rule { read_only, ..Rule::new(network.parse().unwrap()) };
    export.rules = vec![rule("10.1.0.0/16", false), rule("10.0.0.0/8", true)];
    let of = |address: &str| export.rule(address.parse().unwrap()).map(|rule| rule.read_only);
    assert_eq!((of("10.1.1.1"), of("10.2.1.1"), of("9.1.1.1")), (Some(false), Some(true), None));
}

#[test]
fn root_and_its_group_are_squashed() {
    let sys = |uid, gid| Credentials::Sys { uid, gid, groups: vec![0, 5] };
    let rule = |squash| Rule { squash, anonymous_uid: 77, anonymous_gid: 78, ..Rule::new(Network::ALL_V4) };
    let caller = |uid, gid, groups: &[u32]| Caller { uid, gid, groups: groups.to_vec() };
    for (squash, credentials, expected) in [
        (Squash::None, sys(0, 0), caller(0, 0, &[0, 5])),
        (Squash::None, Credentials::None, caller(77, 78, &[])),
        (Squash::Root, sys(0, 4), caller(77, 78, &[])),
        (Squash::Root, sys(3, 0), caller(3, 78, &[5])),
        (Squash::Root, sys(3, 4), caller(3, 4, &[5])),
        (Squash::All, sys(3, 4), caller(77, 78, &[])),
    ] {
        assert_eq!(rule(squash).caller(credentials.clone()), expected, "{squash:?} {credentials:?}");
    }
}

#[test]
fn the_longest_path_is_found() {
    let mut exports = Exports::default();
    for (path, share) in [("/a", 1), ("/a/b", 2), ("/c d", 3)] {
        exports.add(export(path, share)).unwrap();
    }
    fn find(exports: &Exports<()>, path: &str) -> Option<(u32, Vec<String>)> {
        let (export, below) = exports.find(path.as_bytes())?;
        Some((export.share, below.into_iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect()))
    }
    for (path, share, below) in [
        ("/a", 1, vec![]),
        ("//a/./", 1, vec![]),
        ("/a/x/y", 1, vec!["x", "y"]),
        ("/a/b", 2, vec![]),
        ("/a/b/c", 2, vec!["c"]),
        ("/c d/", 3, vec![]),
    ] {
        let below: Vec<String> = below.into_iter().map(str::to_owned).collect();
        assert_eq!(find(&exports, path), Some((share, below)), "{path}");
    }
    for path in ["/", "", "/ab", "a", "/a/../c d", "/x"] {
        assert_eq!(find(&exports, path), None, "{path}");
    }
    exports.add(export("/", 4)).unwrap();
    for path in ["/", "", "/ab"] {
        assert_eq!(find(&exports, path).map(|found| found.0), Some(4), "{path}");
    }
}

#[test]
fn exports_do_not_collide() {
    let mut exports = Exports::default();
    exports.add(export("/a", 1)).unwrap();
    for (path, share, expected) in [
        ("/a", 2, ExportError::PathTaken("/a".into())),
        ("/b", 1, ExportError::ShareTaken(1)),
        ("b", 2, ExportError::Path("b".into())),
        ("", 2, ExportError::Path("".into())),
        ("/b/", 2, ExportError::Path("/b/".into())),
        ("/b/../c", 2, ExportError::Path("/b/../c".into())),
        ("//b", 2, ExportError::Path("//b".into())),
    ] {
        assert_eq!(exports.add(export(path, share)), Err(expected));
    }
    let long = format!("/{}", "x".repeat(PATH_MAX));
    assert_eq!(exports.add(export(&long, 2)), Err(ExportError::Path(long)));
    assert!(exports.remove(1) && !exports.remove(1));
    exports.add(export("/a", 2)).unwrap();
    assert_eq!(exports.iter().count(), 1);
}

#[test]
fn a_share_is_awaited_until_it_is_exported_or_removed() {
    let mut exports = Exports::default();
    exports.add(export("/a", 1)).unwrap();
    let rule = |network: &str| Rule::new(network.parse().unwrap());
    let late = |path: &str| AwaitedExport { path: path.to_owned(), rules: vec![rule("10.0.0.0/8")] };
    exports.set_awaited([(1, late("/a")), (2, late("/b")), (3, late("/c"))].into());
    let awaited = |exports: &Exports<()>| [1, 2, 3, 4].map(|share| exports.is_awaited(share));
    assert_eq!(awaited(&exports), [false, true, true, false]);
    assert!(exports.admits("10.1.2.3".parse().unwrap()), "it may use what is to come");
    assert!(!exports.admits("11.1.2.3".parse().unwrap()));
    for (path, client, expected) in [
        ("/b", "10.1.2.3", true),
        ("/b/below", "10.1.2.3", true),
        ("/b", "11.1.2.3", false),
        ("/a", "10.1.2.3", false),
        ("/", "10.1.2.3", false),
        ("/bb", "10.1.2.3", false),
        ("/b/../c", "10.1.2.3", false),
    ] {
        assert_eq!(exports.awaits(path.as_bytes(), client.parse().unwrap()), expected, "{path} for {client}");
    }
    exports.add(export("/b", 2)).unwrap();
    assert!(!exports.remove(3), "it had no export");
    assert_eq!(awaited(&exports), [false; 4]);
    assert!(!exports.admits("10.1.2.3".parse().unwrap()));
}
