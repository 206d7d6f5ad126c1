use std::path::Path;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;

use super::*;

/// A mail server that refuses the addresses of `gone`, and keeps for whom it took each mail. With
/// `QUIT` among them it does not answer the end of a session.
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
                    (_, "QUIT") if gone.contains(&"QUIT") => continue,
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

fn mails(url: &str) -> Vec<Mail> {
    let text = |text: &str| Some(text.to_owned());
    let config = Messages { mail_from: text("stele@example.org"), mail_server: text(url), ..Messages::default() };
    let addresses = ["ops@example.org", "anna@example.org", "eve@example.org"].map(str::to_owned);
    Mail::each(&Site::find(Some(Path::new("/nowhere")), None), &config, "mail_to", &addresses).unwrap()
}

#[tokio::test]
async fn each_address_is_a_destination_of_its_own() {
    let (url, taken) = server(&["anna"]).await;
    let mut refused = Vec::new();
    for mail in mails(&url) {
        if let Err(why) = mail.deliver("alarm".into(), "text".into()).await {
            assert!(why.contains("no such mailbox"), "{why}");
            refused.push(mail.name());
        }
    }
    assert_eq!(refused, [format!("anna@example.org at the mail server {url}")]);
    assert_eq!(taken.lock().unwrap().as_slice(), [["ops@example.org"], ["eve@example.org"]]);
}

#[tokio::test]
async fn a_mail_that_was_taken_is_sent_although_the_session_does_not_end() {
    let (url, taken) = server(&["QUIT"]).await;
    let mut mail = mails(&url).remove(0);
    mail.server.parting = std::time::Duration::ZERO;
    mail.deliver("alarm".into(), "text".into()).await.unwrap();
    assert_eq!(taken.lock().unwrap().as_slice(), [["ops@example.org"]]);
}

#[tokio::test]
async fn an_answer_without_end_is_cut_off() {
    const MOST: usize = 64 << 20;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("smtp://{}", listener.local_addr().unwrap());
    let flood = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut sent = 0;
        while sent < MOST && stream.write_all(&[b'2'; 64 << 10]).await.is_ok() {
            sent += 64 << 10;
        }
        sent
    });
    let why = mails(&url).remove(0).deliver("alarm".into(), "text".into()).await.unwrap_err();
    assert!(why.contains("answers more than"), "{why}");
    assert!(flood.await.unwrap() < MOST);
}

#[test]
fn a_url_says_how_the_mail_server_is_reached() {
    let place = |url: &str| MailServer::of(url).map(|server| (server.host, server.port));
    for (url, host, port) in [
        ("smtps://mail.example.org", "mail.example.org", 465),
        ("smtp://mail.example.org", "mail.example.org", 25),
        ("smtp://mail.example.org/archive1", "mail.example.org", 25),
        ("smtp://mail.example.org?tls=required", "mail.example.org", 587),
        ("smtp://[::1]:2525?tls=opportunistic", "::1", 2525),
    ] {
        assert_eq!(place(url), Some((host.to_owned(), port)), "{url}");
    }
    for url in ["mail.example.org", "http://mail.example.org", "smtp://mail.example.org?tls=wrapper"] {
        assert_eq!(place(url), None, "{url}");
    }
}

/// What follows `#` is no setting, and neither is one within another.
#[test]
fn a_password_goes_to_no_server_that_is_reached_in_the_clear() {
    let password = std::env::temp_dir().join(format!("stele-mail-password-{}", std::process::id()));
    std::fs::write(&password, "hidden").unwrap();
    let each = |url: &str| {
        let text = |text: &str| Some(text.to_owned());
        let config = Messages {
            mail_from: text("stele@example.org"),
            mail_server: text(url),
            mail_user: text("stele"),
            mail_password: Some(password.clone()),
            ..Messages::default()
        };
        let site = Site::find(Some(Path::new("/nowhere")), None);
        Mail::each(&site, &config, "mail_to", &["ops@example.org".to_owned()]).map(|mails| mails.len())
    };
    for url in ["smtps://mail.example.org", "smtp://mail.example.org:587?tls=required"] {
        assert_eq!(each(url).unwrap(), 1, "{url}");
    }
    for url in [
        "smtp://mail.example.org",
        "smtp://mail.example.org?tls=opportunistic",
        "smtp://mail.example.org#?tls=required",
        "smtp://mail.example.org?a=b?tls=required",
    ] {
        assert!(each(url).unwrap_err().error.contains("in the clear"), "{url}");
    }
    std::fs::remove_file(&password).unwrap();
}
