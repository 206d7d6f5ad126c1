//! Mail over SMTP: one mail for each message and address, in plain text.
//!
//! Failure model: each address is a destination of its own. A mail server that refuses one address,
//! or puts it off, keeps no mail from the others, and what one address took counts for no other.

mod session;

use lettre::message::header::ContentTransferEncoding;
use lettre::message::{Body, Mailbox};
use lettre::transport::smtp::authentication::Credentials;
use lettre::{AsyncSmtpTransport, Tokio1Executor};
use stele_ground::Shown;

use self::session::MailServer;
use super::Message;
use crate::config::{Messages, Site};
use crate::failure::{Failure, Outcome, io_failure};
use stele_ground::calendar::moment;

/// Characters of a line that mail carries unchanged (RFC 5322).
const LINE_MAX: usize = 998;

pub struct Mail {
    server: MailServer,
    from: Mailbox,
    to: Mailbox,
    url: String,
}

fn mailbox(key: &str, text: &str) -> Outcome<Mailbox> {
    text.parse().map_err(|error| Failure::usage(format!("[messages] {key}: '{text}' is no mail address: {error}")))
}

impl Mail {
    /// The mail to each of the addresses; `key` names their setting.
    pub fn each(site: &Site, config: &Messages, key: &str, addresses: &[String]) -> Outcome<Vec<Mail>> {
        let missing = |absent: &str| {
            Failure::usage(format!("{key} needs {absent} under [messages]")).next("OPERATIONS.md lists what mail needs")
        };
        let url = config.mail_server.clone().ok_or_else(|| missing("mail_server"))?;
        if url.contains('@') {
            return Err(Failure::usage("[messages] mail_server: names a user")
                .next("write the user into mail_user, and the path of a file with the password into mail_password"));
        }
        let from = mailbox("mail_from", config.mail_from.as_ref().ok_or_else(|| missing("mail_from"))?)?;
        let unusable = |why: &str| {
            Failure::usage(format!("[messages] mail_server: '{url}' cannot be used: {why}"))
                .next("write smtps://HOST, smtp://HOST:587?tls=required, or smtp://HOST:25 without TLS")
        };
        // The library says best what is wrong with a URL.
        AsyncSmtpTransport::<Tokio1Executor>::from_url(&url).map_err(|error| unusable(&error.to_string()))?;
        let mut server = MailServer::of(&url).ok_or_else(|| unusable("it is no such URL"))?;
        if let Some(user) = &config.mail_user {
            if !server.is_encrypted() {
                return Err(Failure::usage(format!(
                    "[messages] mail_user: '{url}' would get the password in the clear"
                ))
                .next("write smtps://HOST, or smtp://HOST:587?tls=required"));
            }
            let path = site.path(config.mail_password.as_ref().ok_or_else(|| missing("mail_password"))?);
            let password = crate::whole::read_text(&path)
                .map_err(|error| io_failure("read the password of mail in", &path, &error))?;
            server.credentials = Some(Credentials::new(user.clone(), password.trim_end().to_owned()));
        }
        let mail = |to| Mail { server: server.clone(), from: from.clone(), to, url: url.clone() };
        addresses.iter().map(|text| Ok(mail(mailbox(key, text)?))).collect()
    }

    pub fn name(&self) -> String {
        format!("{} at the mail server {}", self.to.email, self.url)
    }

    pub async fn send(&self, message: &Message) -> Result<(), String> {
        self.deliver(subject(message), text(message)).await
    }

    /// Sends a mail in plain text.
    pub async fn deliver(&self, subject: String, text: String) -> Result<(), String> {
        self.deliver_body(subject, Body::new(text)).await
    }

    /// Sends a mail whose lines arrive as they are: the raw mail contains them too. Mail carries
    /// lines of ASCII with at most 998 characters so; other texts are encoded.
    pub async fn deliver_exact(&self, subject: String, text: String) -> Result<(), String> {
        let is_plain = text.is_ascii() && text.lines().all(|line| line.len() <= LINE_MAX);
        let body = match is_plain {
            true => {
                let lines = text.lines().map(|line| format!("{line}\r\n")).collect::<String>();
                Body::dangerous_pre_encoded(lines.into_bytes(), ContentTransferEncoding::SevenBit)
            }
            false => Body::new(text),
        };
        self.deliver_body(subject, body).await
    }

    async fn deliver_body(&self, subject: String, body: Body) -> Result<(), String> {
        let mail = lettre::Message::builder().from(self.from.clone()).to(self.to.clone()).subject(subject).body(body);
        let mail = mail.map_err(|error| error.to_string())?;
        self.server.send(mail.envelope(), &mail.formatted()).await
    }
}

/// Names in the subject are untrusted: a line break in one must not begin another header line.
fn subject(message: &Message) -> String {
    let Message { state, kind, subject, pool, .. } = message;
    format!("[stele {}] {kind} {state}: {}", Shown(pool), Shown(subject))
}

fn text(message: &Message) -> String {
    let Message { since, message: what, done, next, dropped, .. } = message;
    let mut text = format!("{}\n\nsince  {}\n", Shown(what), moment(*since));
    for (word, line) in [("done", done), ("next", next)].into_iter().filter(|(_, line)| !line.is_empty()) {
        text.push_str(&format!("{word}   {}\n", Shown(line)));
    }
    if *dropped > 0 {
        text.push_str(&format!("\n{dropped} messages before this one were dropped; see alarms.jsonl\n"));
    }
    text
}

#[cfg(test)]
mod tests;
