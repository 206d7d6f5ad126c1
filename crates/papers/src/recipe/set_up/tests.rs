use super::*;
use stele_lab::report::chart::drawing::Frame;

#[test]
fn published_configurations_are_drawn_from_stated_facts() {
    for (diagram, words) in [
        (ds4500(), ["xSeries 345", "1024 MB of cache each", "20, 60, 100, 140, 180 drives", "18.2 GB at 15K rpm"]),
        (dr550(), ["2229-FSG", "100 files of 40 MB", "48 drives", "SATA of 750 GB"]),
        (gnr_tsm(), ["backup server 2", "40 Gbit/s each", "116 drives", "58 drives"]),
        (fc8(), ["x3650 M2", "SAN24B-4 Express", "DS5300 number 2", "All I/O was read"]),
    ] {
        let svg = diagram.svg(Frame::BROAD);
        for word in words {
            assert!(svg.contains(word), "{word}: {svg}");
        }
        assert!(!svg.contains("not stated"), "{svg}");
    }
    assert!(modelled("9+1", "48", 8).svg(Frame::SLIM).contains("48 modelled drives"));
}
