use super::*;

#[test]
fn items_come_out_in_order_up_to_the_limit() {
    let mailbox = Mailbox::new(3).expect("an eventfd");
    for n in 0..3 {
        assert!(mailbox.post(n).is_ok());
    }
    assert!(matches!(mailbox.post(3), Err(Refused::Full(3))));
    let mut out = Vec::new();
    mailbox.take(2, &mut out);
    assert!(mailbox.post(4).is_ok());
    mailbox.take(9, &mut out);
    assert_eq!(out, [0, 1, 2, 4]);
    assert!(mailbox.is_empty());
}

#[test]
fn a_closed_mailbox_keeps_what_it_has_and_takes_no_more() {
    let mailbox = Mailbox::new(3).expect("an eventfd");
    assert!(mailbox.post(1).is_ok());
    mailbox.close();
    assert!(matches!(mailbox.post(2), Err(Refused::Closed(2))));
    mailbox.wait(None);
    let mut out = Vec::new();
    mailbox.take(9, &mut out);
    assert_eq!(out, [1]);
}

#[test]
fn no_wake_up_is_lost() {
    const EACH: u64 = 20_000;
    let mailbox = Mailbox::new(7).expect("an eventfd");
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let mailbox = &mailbox;
            scope.spawn(move || {
                for n in 0..EACH {
                    let mut item = thread << 32 | n;
                    while let Err(Refused::Full(back)) = mailbox.post(item) {
                        item = back;
                        std::thread::yield_now();
                    }
                }
            });
        }
        let mut next = [0; 3];
        let mut batch = Vec::new();
        while next.iter().sum::<u64>() < 3 * EACH {
            // No time limit: a lost wake-up must hang the test.
            mailbox.wait(None);
            mailbox.take(5, &mut batch);
            for item in batch.drain(..) {
                let thread = (item >> 32) as usize;
                assert_eq!(item & 0xFFFF_FFFF, next[thread], "posts of one thread stay in order");
                next[thread] += 1;
            }
        }
    });
}
