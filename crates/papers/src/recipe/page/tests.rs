use super::*;

#[test]
fn a_command_is_quoted_where_a_shell_would_take_it_apart() {
    assert_eq!(quoted("nbd://host/vm1"), "nbd://host/vm1");
    assert_eq!(quoted("nbd+unix:///vm1?socket=/run/a b"), "'nbd+unix:///vm1?socket=/run/a b'");
    assert_eq!(quoted("it's"), "'it'\\''s'");
}

#[test]
fn a_curve_that_falls_by_more_than_a_twentieth_is_told() {
    let curve = |points: &[(f64, f64)]| Curve { name: "reads".into(), over: "threads", points: points.to_vec() };
    let found = falls(&[curve(&[(1.0, 100.0), (2.0, 96.0), (4.0, 88.0)])]);
    assert_eq!(found, ["reads: 96.0 at 2, 88.0 at 4 threads: 8.3 % less."]);
}

#[test]
fn a_curve_is_flat_where_the_last_step_brought_little() {
    assert!(flattened(&[(1.0, 50.0), (2.0, 98.0), (4.0, 100.0)]));
    assert!(flattened(&[(1.0, 100.0), (2.0, 60.0)]), "it fell");
    assert!(!flattened(&[(1.0, 50.0), (2.0, 80.0), (4.0, 100.0)]));
    assert!(!flattened(&[(1.0, 50.0)]) && !flattened(&[]));
}
