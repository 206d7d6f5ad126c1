use super::*;

fn diagram() -> Diagram {
    Diagram::new("Set-up")
        .row(vec![Component::new("generator").fact("2 processors & 8 GiB of memory")], "io_uring")
        .row(
            vec![
                Component::new("array one").fact("RAID-5"),
                Component::new("array two"),
                Component::new("array three"),
            ],
            "",
        )
}

#[test]
fn every_box_holds_its_text_and_lies_in_the_frame() {
    for frame in [Frame::BROAD, Frame::SLIM] {
        let drawing = diagram().drawing(frame);
        let mut boxes: Vec<((f64, f64), (f64, f64))> = Vec::new();
        for shape in &drawing.shapes {
            if let Shape::Path { points, .. } = shape
                && let [first, _, third, _, _] = points.as_slice()
            {
                assert!(first.0 >= 0.0 && third.0 <= frame.wide && third.1 <= drawing.high, "{points:?}");
                boxes.push((*first, *third));
            }
        }
        assert_eq!(boxes.len(), 4);
        for word in ["generator", "array one", "RAID-5", "array three"] {
            let inside = drawing.shapes.iter().any(|shape| {
                matches!(shape, Shape::Text { at, text, .. } if text == word
                    && boxes.iter().any(|(a, b)| at.0 > a.0 && at.0 < b.0 && at.1 > a.1 && at.1 < b.1))
            });
            assert!(inside, "{word} at width {}", frame.wide);
        }
    }
}

#[test]
fn one_box_is_joined_with_all_that_stand_below_it() {
    let drawing = diagram().drawing(Frame::BROAD);
    let joins = drawing.shapes.iter().filter(|shape| matches!(shape, Shape::Path { points, .. } if points.len() == 2));
    assert_eq!(joins.count(), 1 + 3 + 1, "down, across, and down to each");
    assert!(diagram().svg(Frame::SLIM).contains("2 processors &amp; 8"));
    assert!(Diagram::new("nothing").row(Vec::new(), "").is_empty());
}
