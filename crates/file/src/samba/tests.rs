use super::*;

fn share(name: &str) -> SambaShare {
    let path = "/run/stele/records".into();
    SambaShare { name: name.into(), path, read_only: false, networks: Vec::new(), valid_users: Vec::new() }
}

fn config(shares: Vec<SambaShare>) -> SambaConfig {
    SambaConfig {
        directory: "/var/lib/stele/samba".into(),
        interfaces: Vec::new(),
        port: 445,
        workgroup: "WORKGROUP".into(),
        include: None,
        shares,
    }
}

/// Sections and their parameters, read as Samba reads them.
fn parse(text: &str) -> Vec<(String, Vec<(String, String)>)> {
    let mut sections = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', ';'])) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            sections.push((name.to_owned(), Vec::new()));
            continue;
        }
        let (name, value) = line.split_once('=').expect("a parameter has a value");
        let (_, parameters): &mut (String, Vec<_>) = sections.last_mut().expect("a section comes first");
        parameters.push((name.trim().to_owned(), value.trim().to_owned()));
    }
    sections
}

fn value<'p>(sections: &'p [(String, Vec<(String, String)>)], section: &str, name: &str) -> Option<&'p str> {
    let (_, parameters) = sections.iter().find(|(other, _)| other == section)?;
    parameters.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
}

#[test]
fn every_share_has_what_it_depends_on() {
    let mut records = share("records");
    records.valid_users = vec!["ann".into(), "@night shift".into()];
    let mut old = share("Old Records");
    old.read_only = true;
    old.path = "/run/stele/old records".into();
    let text = smb_conf(&config(vec![records, old])).expect("all is well");
    let sections = parse(&text);
    let names: Vec<&str> = sections.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["global", "records", "Old Records"]);
    for name in ["records", "Old Records"] {
        for (parameter, expected) in [
            ("store dos attributes", "yes"),
            ("map readonly", "yes"),
            ("vfs objects", "streams_xattr"),
            ("kernel oplocks", "no"),
            ("kernel share modes", "no"),
            ("posix locking", "no"),
            ("strict sync", "yes"),
        ] {
            assert_eq!(value(&sections, name, parameter), Some(expected), "{name}: {parameter}");
        }
    }
    assert_eq!(value(&sections, "records", "valid users"), Some("\"ann\", \"@night shift\""));
    assert_eq!(value(&sections, "records", "read only"), Some("no"));
    assert_eq!(value(&sections, "Old Records", "valid users"), None);
    assert_eq!(value(&sections, "Old Records", "read only"), Some("yes"));
    assert_eq!(value(&sections, "Old Records", "path"), Some("/run/stele/old records"));
    assert_eq!(value(&sections, "global", "include"), None);
    assert_eq!(value(&sections, "global", "interfaces"), None);
}

#[test]
fn the_site_cannot_change_what_shares_depend_on() {
    let mut config = config(vec![share("records")]);
    config.include = Some("/etc/stele/site.conf".into());
    config.interfaces = vec!["127.0.0.1".into(), "eth0".into()];
    config.port = 4455;
    let text = smb_conf(&config).expect("all is well");
    let include = text.find("include = /etc/stele/site.conf").expect("it is included");
    let section = text.find("[records]").expect("the share is there");
    assert!(include < section, "shares come after it: {text}");
    let (_, global) = &parse(&text)[0];
    assert_eq!(global.last().map(|(name, _)| name.as_str()), Some("include"), "it comes after the global settings");
    let sections = parse(&text);
    assert_eq!(value(&sections, "global", "interfaces"), Some("127.0.0.1 eth0"));
    assert_eq!(value(&sections, "global", "smb ports"), Some("4455"));
    for directory in DIRECTORIES {
        assert!(text.contains(&format!("/var/lib/stele/samba/{directory}")), "{directory}");
    }
}

#[test]
fn no_value_adds_a_line() {
    type Change = fn(&mut SambaConfig, &str);
    let with = |change: Change, value: &str| {
        let mut config = config(vec![share("records")]);
        change(&mut config, value);
        smb_conf(&config)
    };
    let changes: [(&str, Change); 6] = [
        ("name of a share", |config, value| config.shares[0].name = value.into()),
        ("path of a share", |config, value| config.shares[0].path = format!("/{value}").into()),
        ("user", |config, value| config.shares[0].valid_users = vec![value.into()]),
        ("workgroup", |config, value| config.workgroup = value.into()),
        ("interface", |config, value| config.interfaces = vec![value.into()]),
        ("include file", |config, value| config.include = Some(format!("/{value}").into())),
    ];
    for (what, change) in changes {
        for value in ["a\nguest ok = yes", "a\r", "a\0b", "%H", "a\"b", "a\\", "a "] {
            let error = with(change, value).expect_err("Samba would misunderstand it");
            assert_eq!(error.what, what, "{value:?}");
        }
        assert!(with(change, "plain").is_ok(), "{what}");
    }
}

#[test]
fn names_have_rules() {
    let long = "n".repeat(SHARE_NAME_MAX + 1);
    for name in ["", "global", "Homes", "IPC$", "print$", "a/b", "a\\b", "a]b", "a;b", "#a", "a?", &long] {
        assert!(smb_conf(&config(vec![share(name)])).is_err() && share_name(name).is_err(), "{name:?}");
    }
    for name in ["records", "Records 2026", "\u{dc}bersicht", "hidden$", &long[1..]] {
        assert!(smb_conf(&config(vec![share(name)])).is_ok() && share_name(name).is_ok(), "{name:?}");
    }
    let twice = smb_conf(&config(vec![share("records"), share("Records")])).expect_err("clients ignore case");
    assert!(twice.to_string().contains("another share has it"), "{twice}");
    for user in ["@", "+a", "@&a", "a,b", "a;b", ""] {
        let mut share = share("records");
        share.valid_users = vec![user.into()];
        assert!(smb_conf(&config(vec![share])).is_err(), "{user:?}");
    }
    let mut relative = share("records");
    relative.path = "records".into();
    assert!(smb_conf(&config(vec![relative])).is_err_and(|why| why.to_string().contains("root")));
}

#[test]
fn only_the_networks_of_a_share_are_let_in() {
    let mut records = share("records");
    let networks = ["10.1.0.0/16", "192.168.7.9", "0.0.0.0/0", "fd00::/8", "2001:db8::17", "::/0"];
    records.networks = networks.map(|network| network.parse().expect("a network")).to_vec();
    let text = smb_conf(&config(vec![records, share("closed")])).expect("all is well");
    let sections = parse(&text);
    let expected = "10.1.0.0/16 192.168.7.9/32 0.0.0.0/0 fd00::/ff00:: \
                    2001:db8::17/ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff ::/::";
    assert_eq!(value(&sections, "records", "hosts allow"), Some(expected));
    assert_eq!(value(&sections, "closed", "hosts allow"), None);
    for name in ["records", "closed"] {
        assert_eq!(value(&sections, name, "hosts deny"), Some("ALL"), "{name}");
    }
}
