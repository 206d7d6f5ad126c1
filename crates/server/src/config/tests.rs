use super::*;
use crate::failure::Kind;

#[test]
fn a_written_configuration_reads_back() {
    let drives = ["drives/a@0", "/dev/sdb@3", "plain"].map(|text| text.parse().unwrap()).to_vec();
    let config = Config::new(drives);
    let text = toml::to_string_pretty(&config).unwrap();
    let again: Config = toml::from_str(&text).unwrap();
    assert_eq!(toml::to_string_pretty(&again).unwrap(), text);
    assert!(text.contains("64MiB") && !text.contains("blocks"), "{text}");
}

#[test]
fn a_mistake_in_the_file_is_named() {
    let check = |text: &str, named: &str| {
        let error = toml::from_str::<Config>(text).unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    };
    check("[pool]\ndrives = []\n[s4]\n", "s4");
    check("[pool]\ndrives = [\"@1\"]\n", "names no drive");
    check("[pool]\ndrives = []\n[memory]\nblocks = \"many\"\n", "not a size");
}

#[test]
fn a_configuration_that_a_server_had_is_to_be_restored() {
    let dir = std::env::temp_dir().join(format!("stele-config-lost-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let told = || Config::read(&dir.join("stele.toml")).err().unwrap();
    assert!(told().kind == Kind::Missing && told().next.contains("stele up"), "{}", told());
    std::fs::create_dir(dir.join("heads")).unwrap();
    assert!(told().kind == Kind::Missing && told().next.contains("stele config import"), "{}", told());
    std::fs::remove_dir_all(&dir).unwrap();
}

/// Every key of a configuration, with its table.
fn keys(table: &toml::Table, within: &str, found: &mut Vec<(String, String)>) {
    for (name, value) in table {
        match value {
            toml::Value::Table(inner) => keys(inner, name, found),
            _ => found.push((within.to_owned(), name.clone())),
        }
    }
}

#[test]
fn the_packaged_configuration_explains_every_key_and_says_the_defaults() {
    let text = include_str!("../../../../contrib/package/stele.toml");
    let mut packaged: Config = toml::from_str(text).unwrap();
    assert_eq!(packaged.data.take().as_deref(), Some(Path::new("/var/lib/stele")));
    assert_eq!(packaged.admin.socket.take().as_deref(), Some(Path::new("/run/stele/stele.sock")));
    let usual = toml::to_string(&Config::new(Vec::new())).unwrap();
    assert_eq!(toml::to_string(&packaged).unwrap(), usual, "what it says is the default");
    // All optional settings are there too, commented out.
    let path = || Some(PathBuf::from("x"));
    let address = || Some(SocketAddr::from(([127, 0, 0, 1], 1)));
    let mut whole = Config::new(Vec::new());
    whole.data = path();
    whole.pool.background_rate = Some(Size(Bytes(1)));
    (whole.s3.domain, whole.s3.tls_certificate, whole.s3.tls_key) = (Some("x".into()), path(), path());
    whole.nbd = Nbd {
        socket: path(),
        listen: address(),
        tls_certificate: path(),
        tls_key: path(),
        client_authority: path(),
        tls_required: true,
    };
    whole.iscsi.listen = address();
    (whole.memory.blocks, whole.memory.background) = (Some(Size(Bytes(1))), Some(Size(Bytes(1))));
    whole.admin = Admin { socket: path(), metrics: address(), officers: vec![1] };
    whole.archive.heads_also = vec![PathBuf::from("x")];
    (whole.archive.heads_syslog, whole.archive.heads_mail) = (vec!["x".into()], vec!["x".into()]);
    let mut named = Vec::new();
    keys(&toml::Table::try_from(&whole).unwrap(), "", &mut named);
    assert!(named.len() > 30, "{named:?}");
    for (table, key) in named {
        let part = match table.as_str() {
            "" => text.split("\n[").next().unwrap(),
            _ => text.split("\n[").find(|part| part.starts_with(&format!("{table}]"))).unwrap_or_default(),
        };
        let lines: Vec<&str> = part.lines().collect();
        let at = lines.iter().position(|line| line.trim_start_matches("# ").starts_with(&format!("{key} = ")));
        let at = at.unwrap_or_else(|| panic!("[{table}] {key} is not in it"));
        // Related pairs share one explanation.
        assert!(
            lines[..at].iter().rev().take(2).any(|line| line.starts_with("# ")),
            "[{table}] {key} is not explained"
        );
    }
}

#[test]
fn a_configuration_says_where_its_data_are() {
    let dir = std::env::temp_dir().join(format!("stele-site-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join("stele.toml");
    let found = |text: &str| {
        std::fs::write(&file, text).unwrap();
        Site::find(None, Some(&file)).dir
    };
    assert_eq!(found("data = \"/var/lib/stele\"\n[pool]\ndrives = []\n"), Path::new("/var/lib/stele"));
    assert_eq!(found("data = \"elsewhere\"\n"), dir.join("elsewhere"));
    assert_eq!(found("[pool]\ndrives = []\n"), dir);
    assert_eq!(found("not toml"), dir);
    let named = Site::find(Some(Path::new("/given")), Some(&file));
    assert_eq!(named.dir, Path::new("/given"));
    // The drives of a new pool are added to a file that explains everything; nothing else in it
    // changes.
    let text = include_str!("../../../../contrib/package/stele.toml");
    std::fs::write(&file, text).unwrap();
    let drives = ["/dev/sdb@1", "/dev/sdc@2"].map(|text| text.parse().unwrap());
    assert!(first_drives(&file, &drives).unwrap());
    let changed = std::fs::read_to_string(&file).unwrap();
    assert_eq!(changed.replace("[\n    \"/dev/sdb@1\",\n    \"/dev/sdc@2\",\n]", "[]"), text);
    assert!(!first_drives(&file, &drives).unwrap(), "it names drives already");
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn changes_of_a_command_and_of_the_server_are_both_kept() {
    let folder = std::env::temp_dir().join(format!("stele-config-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("stele.toml");
    let drive = |name: String| name.parse::<DriveArgument>().unwrap();
    Config::new(vec![drive("first@0".to_owned())]).write(&path).unwrap();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let path = &path;
            scope.spawn(move || {
                for number in 0..20 {
                    assert!(add_drives(path, &[drive(format!("w{writer}-{number}@1"))]).unwrap());
                    assert!(number % 2 == 0 || remove_drive(path, &drive(format!("w{writer}-{number}@1"))).unwrap());
                }
            });
        }
    });
    assert_eq!(Config::read(&path).unwrap().pool.drives.len(), 1 + 4 * 10);
    // Both may remove the same entry; the later one finds it gone.
    let both = drive("w0-0@1".to_owned());
    assert!(is_without(&path, &both).unwrap() && is_without(&path, &both).unwrap());
    assert_eq!(Config::read(&path).unwrap().pool.drives.len(), 4 * 10);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_time_that_nobody_can_mean_is_refused() {
    let path = std::env::temp_dir().join(format!("stele-seconds-{}.toml", std::process::id()));
    for (text, named) in [
        ("[pool]\ndrives = []\nrebuild_after = 18446744074\n", "rebuild_after"),
        ("[pool]\ndrives = []\n[memory]\nflush_age = 3153600001\n", "flush_age"),
        ("[pool]\ndrives = []\n[archive]\nheads_every = 9223372036854775807\n", "heads_every"),
        ("[pool]\ndrives = []\n[archive]\nself_test_hours = 876001\n", "self_test_hours is 876001 hours"),
        ("[pool]\ndrives = []\n[s3]\naccess_log_every = 3153600001\n", "access_log_every"),
    ] {
        std::fs::write(&path, text).unwrap();
        let failure = Config::read(&path).unwrap_err();
        assert!(failure.kind == Kind::Usage && failure.error.contains(named), "{failure}");
    }
    std::fs::write(&path, "[pool]\ndrives = []\nrebuild_after = 3153600000\n").unwrap();
    Config::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_limit_that_lets_no_client_in_is_refused() {
    let path = std::env::temp_dir().join(format!("stele-zero-{}.toml", std::process::id()));
    for key in ["[s3]\nconnections_max", "[s3]\nconnections_per_peer", "[block]\nconnections_max"] {
        std::fs::write(&path, format!("[pool]\ndrives = []\n{key} = 0\n")).unwrap();
        let failure = Config::read(&path).unwrap_err();
        assert!(failure.kind == Kind::Usage && failure.error.contains(&key.replace('\n', " ")), "{failure}");
        std::fs::write(&path, format!("[pool]\ndrives = []\n{key} = 1\n")).unwrap();
        Config::read(&path).unwrap();
    }
    std::fs::remove_file(&path).unwrap();
}

/// It would count as the data directory: heads would lie among the server's own files.
#[test]
fn a_path_that_is_empty_is_refused() {
    let path = std::env::temp_dir().join(format!("stele-empty-{}.toml", std::process::id()));
    let pool = "[pool]\ndrives = []\n";
    for (text, key) in [
        ("data = \"\"\n[pool]\ndrives = []\n".to_owned(), "data"),
        (format!("{pool}[archive]\nheads = \"\"\n"), "[archive] heads"),
        (format!("{pool}[archive]\nheads_also = [\"/mnt/vault\", \"\"]\n"), "[archive] heads_also"),
        (format!("{pool}[archive]\nmaster_key = \"file:\"\n"), "[archive] master_key"),
        (format!("{pool}[admin]\nsocket = \"\"\n"), "[admin] socket"),
        (format!("{pool}[nfs]\nclient_authority = \"\"\n"), "[nfs] client_authority"),
        (format!("{pool}[notifications.trail]\nfile = \"\"\n"), "[notifications.trail] file"),
    ] {
        std::fs::write(&path, &text).unwrap();
        let failure = Config::read(&path).unwrap_err();
        let said = format!(": {key} is empty");
        assert!(failure.kind == Kind::Usage && failure.error.contains(&said), "{text}: {failure}");
    }
    std::fs::write(&path, format!("{pool}[archive]\nheads = \".\"\n")).unwrap();
    Config::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
}

/// The operator reads the line, the key and what to write; no name of a type in the program.
#[test]
fn a_wrong_value_is_told_with_its_key_and_what_to_write() {
    let path = std::env::temp_dir().join(format!("stele-wrong-{}.toml", std::process::id()));
    for (line, said) in [
        ("background_rate = -5", "background_rate: invalid value: integer `-5`, expected a number of bytes, or a size"),
        ("background_rate = true", "background_rate: invalid type: boolean `true`, expected a number of bytes"),
        ("background_rate = \"fast\"", "background_rate: 'fast' is not a size"),
        ("background_rate = \"20000PiB\"", "background_rate: '20000PiB' is too large: a size is below 16384 PiB"),
        ("background_rate = \"18446744073709551616\"", "background_rate: '18446744073709551616' is too large"),
        ("background_rate = \"1.2.3PiB\"", "background_rate: '1.2.3PiB' is not a size"),
        ("rebuild_after = -1", "rebuild_after: invalid value: integer `-1`, expected a whole number from 0 on"),
        ("rebuild_after = \"10\"", "rebuild_after: invalid type: string \"10\", expected a whole number"),
        ("rebuild_after = 99999999999999999999", "integer `99999999999999999999`, expected a whole number"),
        (
            "[memory]\nflush_high = 256",
            "flush_high: invalid value: integer `256`, expected a whole number from 0 to 255",
        ),
        ("[s3]\nlisten = \"localhost:9000\"", "listen: write IP:PORT, as in 127.0.0.1:9000"),
        ("[messages]\nwebhooks = \"http://h/\"", "webhooks: invalid type: string \"http://h/\", expected a list"),
        (
            "[admin]\nofficers = [-1]",
            "officers: invalid value: integer `-1`, expected a whole number from 0 to 4294967295",
        ),
        ("Rebuild_after = 1", "unknown field `Rebuild_after`, expected one of"),
        ("drives = []", "duplicate key"),
    ] {
        std::fs::write(&path, format!("[pool]\ndrives = []\n{line}\n")).unwrap();
        let failure = Config::read(&path).unwrap_err();
        let number = 2 + line.lines().count();
        assert!(failure.kind == Kind::Usage && failure.error.contains(said), "{line}: {failure}");
        assert!(failure.error.contains(&format!("line {number}: ")), "{line}: {failure}");
    }
    std::fs::write(&path, [0xff, 0xfe]).unwrap();
    let failure = Config::read(&path).unwrap_err();
    assert!(failure.kind == Kind::Usage && failure.error.contains("is no text in UTF-8"), "{failure}");
    let failure = Config::read(&path.join("stele.toml")).unwrap_err();
    assert!(failure.kind == Kind::Usage && failure.next.contains("--config names the file"), "{failure}");
    std::fs::remove_file(&path).unwrap();
}

/// 0 looks like no limit. The scrub stood still, and its time left grew and grew.
#[test]
fn a_rate_at_which_no_scrub_ends_is_refused() {
    let path = std::env::temp_dir().join(format!("stele-rate-{}.toml", std::process::id()));
    let read = |rate: &str| {
        std::fs::write(&path, format!("[pool]\ndrives = []\nbackground_rate = {rate}\n")).unwrap();
        Config::read(&path)
    };
    for (rate, said) in
        [("0", "is 0 B a second"), ("128", "is 128 B a second"), ("\"1023KiB\"", "is 1023 KiB a second")]
    {
        let failure = read(rate).unwrap_err();
        let is_told = failure.kind == Kind::Usage && failure.error.contains(said) && failure.next.contains("1 MiB");
        assert!(is_told, "{rate}: {failure}");
    }
    read("\"1MiB\"").unwrap();
    std::fs::remove_file(&path).unwrap();
}

/// An empty region was taken, and then every signed request was refused.
#[test]
fn a_region_that_no_client_can_sign_for_is_refused() {
    let path = std::env::temp_dir().join(format!("stele-region-{}.toml", std::process::id()));
    let read = |section: &str, key: &str, region: &str| {
        std::fs::write(&path, format!("[pool]\ndrives = []\n[{section}]\n{key} = '{region}'\n")).unwrap();
        Config::read(&path)
    };
    for (section, key) in [("s3", "region"), ("archive", "heads_bucket_region")] {
        for region in ["", "eu/west", "eu west", "eu-wést"] {
            let failure = read(section, key, region).unwrap_err();
            let is_told =
                failure.kind == Kind::Usage && failure.error.contains(key) && failure.next.contains("leave it");
            assert!(is_told, "{region}: {failure}");
        }
        read(section, key, "eu-west_1.a").unwrap();
    }
    std::fs::remove_file(&path).unwrap();
}
