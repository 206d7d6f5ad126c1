use super::*;
use crate::report::chart::drawing::Frame;
use crate::report::tests::{cell, recorded};

#[test]
fn a_diagram_names_generator_way_and_target() {
    let mut recorded = recorded(vec![cell(0, 1, 1000.0, 900), cell(1, 32, 1000.0, 900)]);
    recorded.head.target = "nbd://server:10809/volume".into();
    recorded.head.environment = vec![("processors".into(), "2".into()), ("processor".into(), "A Processor".into())];
    let svg = set_up(&recorded, &["nbd://other:10809/volume".to_owned()]).svg(Frame::BROAD);
    for words in ["generator: this machine", "2 x A Processor", "up to 32 accesses", ">NBD<", "1 GiB in use", "other"] {
        assert!(svg.contains(words), "{words}: {svg}");
    }
}
