//! Mail over SMTP: one mail for each message, in plain text.
//!
//! Failure model: a mail server that refuses one address refuses the mail for all of them. Each address then gets a mail of
//! its own. The message is taken once one address took it, and the log names the others: an address that is no more keeps
//! no alarm from the rest.

use lettre::address::Envelope;
use lettre::message::header::ContentTransferEncoding;
use lettre::message::{Body, Mailbox};
use lettre::transport::smtp::authentication::Credentials;
use lettre::{AsyncSmtpTransport, AsyncTransport, Tokio1Executor};
use stele_ground::Shown;

use super::Message;
use crate::config::{Messages, Site};
use crate::failure::{Failure, Outcome, io_failure};
use stele_ground::calendar::moment;

/// Characters of a line that mail carries unchanged (RFC 5322).
const LINE_MAX: usize = 998;

pub struct Mail {
    transport: AsyncSmtpTransport<Tokio1Executor>,
    from: Mailbox,
    to: Vec<Mailbox>,
    server: String,
}

fn mailbox(key: &str, text: &str) -> Outcome<Mailbox> {
    text.parse().map_err(|error| Failure::usage(format!("[messages] {key}: '{text}' is no mail address: {error}")))
}

impl Mail {
    pub fn new(site: &Site, config: &Messages) -> Outcome<Mail> {
        Mail::to(site, config, "mail_to", &config.mail_to)
    }

    /// Mail to other addresses; `key` names their setting.
    pub fn to(site: &Site, config: &Messages, key: &str, addresses: &[String]) -> Outcome<Mail> {
        let missing = |absent: &str| {
            Failure::usage(format!("{key} needs {absent} under [messages]")).next("OPERATIONS.md lists what mail needs")
        };
        let server = config.mail_server.clone().ok_or_else(|| missing("mail_server"))?;
        if server.contains('@') {
            return Err(Failure::usage("[messages] mail_server: names a user")
                .next("write the user into mail_user, and the path of a file with the password into mail_password"));
        }
        let from = mailbox("mail_from", config.mail_from.as_ref().ok_or_else(|| missing("mail_from"))?)?;
        let to = addresses.iter().map(|text| mailbox(key, text)).collect::<Outcome<_>>()?;
        let mut transport = AsyncSmtpTransport::<Tokio1Executor>::from_url(&server).map_err(|error| {
            Failure::usage(format!("[messages] mail_server: '{server}' cannot be used: {error}"))
                .next("write smtps://HOST, smtp://HOST:587?tls=required, or smtp://HOST:25 without TLS")
        })?;
        if let Some(user) = &config.mail_user {
            let path = site.path(config.mail_password.as_ref().ok_or_else(|| missing("mail_password"))?);
            let password = std::fs::read_to_string(&path)
                .map_err(|error| io_failure("read the password of mail in", &path, &error))?;
            transport = transport.credentials(Credentials::new(user.clone(), password.trim_end().to_owned()));
        }
        Ok(Mail { transport: transport.build(), from, to, server })
    }

    pub fn name(&self) -> String {
        format!("the mail server {}", self.server)
    }

    pub async fn send(&self, message: &Message) -> Result<(), String> {
        self.deliver(subject(message), text(message)).await
    }

    /// Sends a mail in plain text.
    pub async fn deliver(&self, subject: String, text: String) -> Result<(), String> {
        self.deliver_body(subject, Body::new(text)).await
    }

    /// Sends a mail whose lines arrive as they are: the raw mail contains them too. Mail carries lines of ASCII with
    /// at most 998 characters so; other texts are encoded.
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
        let mut mail = lettre::Message::builder().from(self.from.clone()).subject(subject);
        for to in &self.to {
            mail = mail.to(to.clone());
        }
        let mail = mail.body(body).map_err(|error| error.to_string())?;
        let bytes = mail.formatted();
        match self.transport.send_raw(mail.envelope(), &bytes).await {
            Ok(_) => Ok(()),
            Err(error) if self.to.len() > 1 && (error.is_permanent() || error.is_transient()) => {
                self.deliver_to_each(&bytes).await
            }
            Err(error) => Err(error.to_string()),
        }
    }

    /// Sends the same mail to each address by itself.
    async fn deliver_to_each(&self, mail: &[u8]) -> Result<(), String> {
        let mut refused = Vec::new();
        for to in &self.to {
            let envelope = Envelope::new(Some(self.from.email.clone()), vec![to.email.clone()]);
            let envelope = envelope.map_err(|error| error.to_string())?;
            if let Err(error) = self.transport.send_raw(&envelope, mail).await {
                refused.push(format!("{}: {error}", to.email));
            }
        }
        let why = refused.join("; ");
        if refused.len() == self.to.len() {
            return Err(why);
        }
        if !refused.is_empty() {
            tracing::warn!("{} took a mail for some addresses only: {why}", self.name());
        }
        Ok(())
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
