use super::*;

#[test]
fn every_kind_of_answer_arrives() {
    assert_eq!(Pending::ready(Ok(1)).wait(), Ok(1));
    assert_eq!(Pending::future(async { Ok(2) }).wait(), Ok(2));
    let (answerer, pending) = Pending::channel();
    let thread = std::thread::spawn(move || answerer.answer(Ok(3)));
    assert_eq!(pending.wait(), Ok(3));
    assert!(thread.join().is_ok());
    let (answerer, pending) = Pending::<u8>::channel();
    drop(answerer);
    assert!(matches!(pending.wait(), Err(CatalogError::Stopped(_))));
}
