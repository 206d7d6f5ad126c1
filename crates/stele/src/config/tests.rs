use super::*;

#[test]
fn a_written_configuration_reads_back() {
    let drives = ["drives/a@0", "/dev/sdb@3", "plain"].map(|text| text.parse().unwrap()).to_vec();
    let config = Config::new(drives);
    let text = toml::to_string_pretty(&config).unwrap();
    let again: Config = toml::from_str(&text).unwrap();
    assert_eq!(toml::to_string_pretty(&again).unwrap(), text);
    assert!(text.contains("128MiB"), "{text}");
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
