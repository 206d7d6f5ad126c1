use std::path::Path;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

use super::*;

/// A mail server that refuses the addresses of `gone`, and keeps for whom it took each mail.
async fn server(gone: &'static [&'static str]) -> (String, Arc<Mutex<Vec<Vec<String>>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("smtp://{}", listener.local_addr().unwrap());
    let taken = Arc::new(Mutex::new(Vec::new()));
    let keeping = Arc::clone(&taken);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (read, mut write) = stream.into_split();
            let mut lines = BufReader::new(read).lines();
            let mut to = Vec::new();
            let mut is_content = false;
            write.write_all(b"220 test\r\n").await.unwrap();
            while let Ok(Some(line)) = lines.next_line().await {
                let word = line.get(..4).unwrap_or_default().to_ascii_uppercase();
                let answer = match (is_content, word.as_str()) {
                    (true, _) if line != "." => continue,
                    (true, _) => {
                        is_content = false;
                        keeping.lock().unwrap().push(std::mem::take(&mut to));
                        "250 taken"
                    }
                    (_, "RCPT") if gone.iter().any(|gone| line.contains(gone)) => "550 no such mailbox",
                    (_, "RCPT") => {
                        to.push(line[9..].trim_matches(['<', '>']).to_owned());
                        "250 ok"
                    }
                    (_, "DATA") => {
                        is_content = true;
                        "354 go on"
                    }
                    (_, "QUIT") => "221 bye",
                    (_, "MAIL") | (_, "RSET") => {
                        to.clear();
                        "250 ok"
                    }
                    _ => "250 test",
                };
                let _ = write.write_all(format!("{answer}\r\n").as_bytes()).await;
            }
        }
    });
    (url, taken)
}

fn mail(url: &str) -> Mail {
    let text = |text: &str| Some(text.to_owned());
    let addresses = ["ops@example.org", "anna@example.org", "eve@example.org"].map(str::to_owned).to_vec();
    let config = Messages {
        mail_to: addresses,
        mail_from: text("stele@example.org"),
        mail_server: text(url),
        ..Messages::default()
    };
    Mail::new(&Site::find(Some(Path::new("/nowhere")), None), &config).unwrap()
}

#[tokio::test]
async fn an_address_that_is_refused_keeps_no_message_from_the_others() {
    let (url, taken) = server(&[]).await;
    mail(&url).deliver("alarm".into(), "text".into()).await.unwrap();
    assert_eq!(taken.lock().unwrap().as_slice(), [["ops@example.org", "anna@example.org", "eve@example.org"]]);
    let (url, taken) = server(&["anna"]).await;
    mail(&url).deliver("alarm".into(), "text".into()).await.unwrap();
    assert_eq!(taken.lock().unwrap().as_slice(), [["ops@example.org"], ["eve@example.org"]]);
    // Only where nobody took it, it is repeated.
    let (url, taken) = server(&["example"]).await;
    let why = mail(&url).deliver("alarm".into(), "text".into()).await.unwrap_err();
    assert!(why.contains("no such mailbox"), "{why}");
    assert!(taken.lock().unwrap().is_empty());
}
