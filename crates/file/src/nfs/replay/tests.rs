use super::*;

fn peer(port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], port))
}

fn fresh(replays: &Replays, port: u16, record: &[u8]) -> ReplayTicket {
    match replays.begin(peer(port), record) {
        Repeated::No(ticket) => ticket,
        Repeated::Yes(_) | Repeated::Other(_) => panic!("the call is taken for a repeated one"),
    }
}

fn is_repeated(replays: &Replays, port: u16, record: &[u8]) -> bool {
    matches!(replays.begin(peer(port), record), Repeated::Yes(_))
}

#[tokio::test(start_paused = true)]
async fn a_repeated_call_waits_for_the_first_ones_answer() {
    let replays = Replays::default();
    let ticket = fresh(&replays, 1, b"call");
    let Repeated::Yes(waiting) = replays.begin(peer(1), b"call") else { panic!("the call is not recognised") };
    let waiting = tokio::spawn(answer(waiting));
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    ticket.answered(b"answer");
    assert_eq!(waiting.await.unwrap().as_deref(), Some(&b"answer"[..]));
    let Repeated::Yes(late) = replays.begin(peer(1), b"call") else { panic!("the call is not recognised") };
    assert_eq!(answer(late).await.as_deref(), Some(&b"answer"[..]));
}

#[tokio::test(start_paused = true)]
async fn another_call_or_port_is_not_a_repeated_one() {
    let replays = Replays::default();
    fresh(&replays, 1, b"call").answered(b"answer");
    fresh(&replays, 1, b"cal1").answered(b"answer");
    fresh(&replays, 2, b"call").answered(b"answer");
    assert!(is_repeated(&replays, 1, b"call"));
}

#[tokio::test(start_paused = true)]
async fn a_call_without_an_answer_is_forgotten() {
    let replays = Replays::default();
    let ticket = fresh(&replays, 1, b"call");
    let Repeated::Yes(waiting) = replays.begin(peer(1), b"call") else { panic!("the call is not recognised") };
    drop(ticket);
    assert_eq!(answer(waiting).await, None);
    fresh(&replays, 1, b"call").answered(b"answer");
    assert!(is_repeated(&replays, 1, b"call"));
}

#[tokio::test(start_paused = true)]
async fn answers_are_used_for_a_limited_time() {
    let replays = Replays::default();
    fresh(&replays, 1, b"call").answered(b"old");
    tokio::time::advance(AGE_MAX - Duration::from_secs(1)).await;
    assert!(is_repeated(&replays, 1, b"call"));
    tokio::time::advance(Duration::from_secs(1)).await;
    let ticket = fresh(&replays, 1, b"call");
    assert!(is_repeated(&replays, 1, b"call"));
    ticket.answered(b"new");
}

#[tokio::test(start_paused = true)]
async fn peers_and_answers_are_bounded() {
    let replays = Replays::default();
    for number in 0..2 * ANSWERS_MAX {
        fresh(&replays, 1, &number.to_be_bytes()).answered(b"answer");
    }
    assert!(!is_repeated(&replays, 1, &(ANSWERS_MAX - 1).to_be_bytes()));
    assert!(is_repeated(&replays, 1, &(2 * ANSWERS_MAX - 1).to_be_bytes()));
    for port in 2..2 + PEERS_MAX as u16 {
        fresh(&replays, port, b"call").answered(b"answer");
    }
    let peers = lock(&replays.0);
    assert_eq!(peers.answers.len(), PEERS_MAX);
    // The first peer was quiet the longest.
    assert!(!peers.answers.contains_key(&peer(1)));
    for answers in peers.answers.values() {
        assert_eq!(answers.order.len(), answers.by_key.len());
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_under_way_does_not_grow_old() {
    let replays = Replays::default();
    let ticket = fresh(&replays, 1, b"slow");
    tokio::time::advance(AGE_MAX + Duration::from_secs(10)).await;
    for number in 0..2 * ANSWERS_MAX {
        fresh(&replays, 1, &number.to_be_bytes()).answered(b"answer");
    }
    for port in 2..2 + 2 * PEERS_MAX as u16 {
        fresh(&replays, port, b"call").answered(b"answer");
    }
    assert!(is_repeated(&replays, 1, b"slow"));
    ticket.answered(b"answer");
    // Its answer is as fresh as that of a quick call.
    tokio::time::advance(AGE_MAX - Duration::from_secs(1)).await;
    assert!(is_repeated(&replays, 1, b"slow"));
}

#[tokio::test(start_paused = true)]
async fn one_machine_drives_out_no_answers_of_another() {
    let replays = Replays::default();
    let other = SocketAddr::from(([10, 9, 9, 9], 700));
    let Repeated::No(ticket) = replays.begin(other, b"call") else { panic!("the call is taken for a repeated one") };
    ticket.answered(b"answer");
    for port in 1..=2 * PEERS_MAX as u16 {
        fresh(&replays, port, b"call").answered(b"answer");
    }
    assert!(matches!(replays.begin(other, b"call"), Repeated::Yes(_)));
}
