use super::*;
use crate::nfs::xdr::Reader;
use tokio::io::{DuplexStream, duplex};

#[test]
fn the_wire_of_a_registration() {
    let mut call = Reader::new(Bytes::from(set(7, Program::Nfs, 2049)));
    let words: Vec<u32> = (0..15).map(|_| call.u32().unwrap()).collect();
    assert_eq!(words, [LAST_FRAGMENT | 56, 7, 0, 2, 100_000, 2, 1, 0, 0, 0, 0, 100_003, 3, 6, 2049]);
    assert_eq!(call.remaining(), 0);
    assert_eq!(unset(7, Program::Mount)[24..28], [0, 0, 0, 2]);
}

/// Answers each call with what the table says; gives the procedures and programs that were asked.
async fn mapper(mut stream: DuplexStream, answers: &[Option<bool>]) -> Vec<(u32, u32)> {
    let mut asked = Vec::new();
    for answer in answers {
        let Ok(mark) = stream.read_u32().await else { break };
        let mut record = vec![0; (mark & !LAST_FRAGMENT) as usize];
        stream.read_exact(&mut record).await.unwrap();
        let mut call = Reader::new(record.into());
        let words: Vec<u32> = (0..12).map(|_| call.u32().unwrap()).collect();
        asked.push((words[5], words[10]));
        let mut head = Reply::success(words[0]);
        match answer {
            Some(answer) => head.put_bool(*answer),
            None => head.put_u32(9),
        }
        stream.write_all(&Reply::of(head).head).await.unwrap();
    }
    asked
}

#[tokio::test(start_paused = true)]
async fn every_program_is_registered_anew() {
    let (mut stream, theirs) = duplex(4096);
    let answers = [Some(false), Some(true)].repeat(Program::ALL.len());
    let (registered, asked) = tokio::join!(register(&mut stream, 2049), mapper(theirs, &answers));
    registered.unwrap();
    let expected: Vec<(u32, u32)> = [100_003, 100_005, 100_021, 100_024, 100_003]
        .into_iter()
        .flat_map(|number| [(UNSET, number), (SET, number)])
        .collect();
    assert_eq!(asked, expected);
    let (mut stream, theirs) = duplex(4096);
    let (removed, asked) = tokio::join!(unregister(&mut stream), mapper(theirs, &[Some(false); Program::ALL.len()]));
    removed.unwrap();
    assert_eq!(asked.len(), Program::ALL.len());
}

#[tokio::test(start_paused = true)]
async fn a_refusal_names_the_program() {
    let (mut stream, theirs) = duplex(4096);
    let answers = [Some(false), Some(true), Some(true), Some(false)];
    let (registered, _) = tokio::join!(register(&mut stream, 2049), mapper(theirs, &answers));
    assert_eq!(registered.unwrap_err().to_string(), "rpcbind does not register program 100005 version 3");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_cannot_be_is_an_error() {
    let (mut stream, theirs) = duplex(4096);
    let (registered, _) = tokio::join!(register(&mut stream, 2049), mapper(theirs, &[None]));
    assert!(matches!(registered, Err(PortmapError::Malformed)));
    let (mut stream, mut theirs) = duplex(4096);
    theirs.write_u32(LAST_FRAGMENT | 0x7fff_ffff).await.unwrap();
    assert!(matches!(register(&mut stream, 2049).await, Err(PortmapError::Malformed)));
    drop(theirs);
    assert!(matches!(register(&mut stream, 2049).await, Err(PortmapError::Io(_))));
}
