//! Errors of drives that pass by themselves.

use stele_ground::Duration;

use super::*;

#[test]
fn a_passing_read_error_is_no_damage_to_a_label() {
    let mut test_drives = created(4, 7);
    let discovery = found(&mut test_drives).expect("a pool");
    let (tasks, io) = test_drives.start();
    let labels = Labels::resume(&io, &discovery, false);
    test_drives.drives[1].refuses = 1;
    let scrubbed = test_drives.finish(&tasks, &io, async move { labels.scrub().await });
    assert_eq!(scrubbed, Some(Scrubbed::default()));
}

/// Copies are read again a second later, not at once.
#[test]
fn an_error_of_half_a_second_is_no_damage_to_a_label() {
    let mut test_drives = created(4, 7);
    let discovery = found(&mut test_drives).expect("a pool");
    let (tasks, io) = test_drives.start();
    let labels = Labels::resume(&io, &discovery, false);
    let scrubbed = Rc::new(RefCell::new(None));
    let answer = Rc::clone(&scrubbed);
    tasks.spawn(async move { *answer.borrow_mut() = Some(labels.scrub().await) });
    test_drives.drives[1].is_cut = true;
    let passed = test_drives.now() + Duration::from_millis(500);
    // The copies of all four are read, and what is next is begun.
    test_drives.cut_at = Some(test_drives.operations + 16);
    test_drives.run(&tasks, &io);
    test_drives.cut_at = None;
    test_drives.drives[1].is_cut = test_drives.now() < passed;
    test_drives.run(&tasks, &io);
    assert_eq!(scrubbed.take(), Some(Scrubbed::default()));
}
