use super::*;

#[test]
fn a_command_is_quoted_where_a_shell_would_take_it_apart() {
    assert_eq!(quoted("nbd://host/vm1"), "nbd://host/vm1");
    assert_eq!(quoted("nbd+unix:///vm1?socket=/run/a b"), "'nbd+unix:///vm1?socket=/run/a b'");
    assert_eq!(quoted("it's"), "'it'\\''s'");
}

#[test]
fn a_curve_that_falls_by_more_than_its_intervals_is_told() {
    let curve = |margin: f64| {
        let point = |(at, value)| (at, Estimate { value, margin: Some(margin) });
        let points = [(1.0, 100.0), (2.0, 96.0), (4.0, 88.0)].map(point).to_vec();
        Curve { name: "reads".into(), over: "threads", points }
    };
    let (narrow, wide) =
        ("reads: 100 at 1, 96.0 at 2 threads: 4.0 % less.", "reads: 96.0 at 2, 88.0 at 4 threads: 8.3 % less.");
    assert_eq!(falls(&[curve(2.0)]), [narrow, wide]);
    assert_eq!(falls(&[curve(4.0)]), [wide]);
    assert_eq!(falls(&[curve(6.0)]), Vec::<String>::new());
}

#[test]
fn a_curve_is_flat_where_the_last_step_brought_little() {
    assert!(flattened(&[(1.0, 50.0), (2.0, 98.0), (4.0, 100.0)]));
    assert!(flattened(&[(1.0, 100.0), (2.0, 60.0)]), "it fell");
    assert!(!flattened(&[(1.0, 50.0), (2.0, 80.0), (4.0, 100.0)]));
    assert!(!flattened(&[(1.0, 50.0)]) && !flattened(&[]));
}

#[test]
fn runs_of_less_than_their_usual_time_are_told_with_their_length() {
    let job = stele_lab::job::Job { on: Some("null".into()), ..Default::default() };
    let part = RecipePart { name: "fc8".into(), quick: false, beside: Vec::new() };
    let job = stele_lab::job::Job { recipe: Some(part), ..job };
    let asked = crate::recipe::fc8::live(&job).unwrap();
    let cells: Vec<_> = asked.into_iter().map(|asked| asked.cell).collect();
    // Five rounds of a second each.
    let recorded = crate::recipe::tests::made_up(&job, &cells, Some("abc"));
    let said = shorter(&recorded, "a cell", 10.0, "ten and more");
    assert_eq!(said.as_deref(), Some("the time of a cell: 5.00 s instead of ten and more"));
    assert_eq!(shorter(&recorded, "a cell", 5.0, "five"), None);
}
