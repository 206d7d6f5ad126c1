use super::*;
use crate::fio::jobs;

fn pace(text: &str) -> Pace {
    Pace::new(&jobs(&format!("[a]\nrw=rw\nsize=1m\n{text}")).unwrap()[0])
}

#[test]
fn a_rate_says_when_the_next_access_may_start() {
    let mut dice = Dice::new(1);
    let mut paced = pace("rate_iops=100,200");
    assert_eq!((paced.due(0), paced.due(1)), (0, 0));
    paced.issued(0, 4096, &mut dice);
    paced.issued(1, 8192, &mut dice);
    assert_eq!((paced.due(0), paced.due(1)), (10_000_000, 10_000_000));
    let mut paced = pace("rate=1m,\nbs=64k");
    paced.issued(0, 65536, &mut dice);
    paced.issued(1, 65536, &mut dice);
    assert_eq!((paced.due(0), paced.due(1)), (62_500_000, 0));
    let mut paced = pace("rate_iops=1000\nrate_process=poisson");
    (0..10_000).for_each(|_| paced.issued(0, 4096, &mut dice));
    assert!((9_500_000_000..10_500_000_000).contains(&paced.due(0)), "{}", paced.due(0));
}

#[test]
fn a_rate_that_is_not_kept_is_an_error_once_in_a_cycle() {
    let mut paced = pace("rate_min=1m\nratecycle=100");
    assert_eq!(paced.check(99_000_000, [0, 0]), Ok(()));
    assert_eq!(paced.check(100_000_000, [1 << 20, 1 << 20]), Ok(()));
    let why = paced.check(200_000_000, [2 << 20, 1 << 20]).unwrap_err();
    assert!(why.starts_with("writes came to 0 bytes a second"), "{why}");
}
