//! A client that sends exactly the given request, signed or not, and reads the answer.
#![allow(dead_code)]

use std::time::SystemTime;

use aws_lc_rs::{digest, hmac};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::server::Server;

#[derive(Clone, Debug, Default)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
    /// Whether the server closed the connection, or announced it.
    pub closed: bool,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<String> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    }

    /// The error code of the document, if it is one.
    pub fn code(&self) -> String {
        let text = String::from_utf8_lossy(&self.body).into_owned();
        between(&text, "<Code>", "</Code>").unwrap_or_default()
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

pub fn between(text: &str, left: &str, right: &str) -> Option<String> {
    let (_, rest) = text.split_once(left)?;
    rest.split_once(right).map(|(inner, _)| inner.to_owned())
}

/// Sends bytes unchanged and reads one answer.
pub async fn raw(server: &Server, bytes: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    answer(&mut stream, false).await
}

/// Reads one answer.
pub async fn answer(stream: &mut TcpStream, head_only: bool) -> Answer {
    let mut bytes = Vec::new();
    let mut answer = Answer::default();
    loop {
        let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        if let Some(end) = end {
            answer.head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            if answer.head.starts_with("HTTP/1.1 100") {
                bytes.drain(..end + 4);
                continue;
            }
            answer.status = answer.head.split(' ').nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
            let length: usize = answer.header("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
            let length = if head_only || answer.status == 304 { 0 } else { length };
            if bytes.len() >= end + 4 + length {
                answer.body = bytes[end + 4..end + 4 + length].to_vec();
                answer.closed = answer.header("connection").as_deref() == Some("close");
                return answer;
            }
        }
        let mut piece = [0; 16 * 1024];
        match stream.read(&mut piece).await {
            Ok(0) | Err(_) => {
                answer.closed = true;
                return answer;
            }
            Ok(length) => bytes.extend_from_slice(&piece[..length]),
        }
    }
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn sha256(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn sign(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

/// A request under construction: correct by default, with every part open for a test to break.
#[derive(Clone)]
pub struct Ask {
    pub method: String,
    /// The path as sent, percent-encoded.
    pub path: String,
    /// Name and value, percent-encoded.
    pub query: Vec<(String, String)>,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    pub payload_hash: Option<String>,
    pub access_key: String,
    pub secret_key: String,
    pub region: String,
    pub when: SystemTime,
    /// Headers added after signing.
    pub smuggled: Vec<(String, String)>,
}

impl Ask {
    pub fn new(server: &Server, method: &str, target: &str) -> Ask {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let query = query
            .split('&')
            .filter(|piece| !piece.is_empty())
            .map(|piece| piece.split_once('=').unwrap_or((piece, "")))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        Ask {
            method: method.into(),
            path: path.into(),
            query,
            headers: vec![("host".into(), server.address.to_string())],
            body: Vec::new(),
            payload_hash: None,
            access_key: server.access_key.clone(),
            secret_key: server.secret_key.clone(),
            region: "us-east-1".into(),
            when: SystemTime::now(),
            smuggled: Vec::new(),
        }
    }

    pub fn header(mut self, name: &str, value: &str) -> Ask {
        self.headers.push((name.to_lowercase(), value.into()));
        self
    }

    pub fn smuggle(mut self, name: &str, value: &str) -> Ask {
        self.smuggled.push((name.into(), value.into()));
        self
    }

    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Ask {
        self.body = body.into();
        self
    }

    pub fn hash(mut self, text: &str) -> Ask {
        self.payload_hash = Some(text.into());
        self
    }

    pub fn by(mut self, key: &(String, String)) -> Ask {
        (self.access_key, self.secret_key) = key.clone();
        self
    }

    pub fn at(mut self, when: SystemTime) -> Ask {
        self.when = when;
        self
    }

    /// `20130524T000000Z`, computed from the form of HTTP dates.
    pub fn stamp(&self) -> String {
        let seconds = self.when.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let date = httpdate::fmt_http_date(self.when);
        let months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
        let month = months.iter().position(|month| *month == &date[8..11]).unwrap() + 1;
        let rest = seconds % 86_400;
        format!("{}{month:02}{}T{:02}{:02}{:02}Z", &date[12..16], &date[5..7], rest / 3600, rest / 60 % 60, rest % 60)
    }

    pub fn signing_key(&self) -> Vec<u8> {
        let dated = sign(format!("AWS4{}", self.secret_key).as_bytes(), &self.stamp()[..8]);
        sign(&sign(&sign(&dated, &self.region), "s3"), "aws4_request")
    }

    pub fn scope(&self) -> String {
        format!("{}/{}/s3/aws4_request", &self.stamp()[..8], self.region)
    }

    /// The signature of a form's policy, as it is sent.
    pub fn signature_of(&self, policy: &str) -> String {
        hex(&sign(&self.signing_key(), policy))
    }

    /// The signed headers, and the signature.
    pub fn signed(&self) -> (Ask, String) {
        let mut ask = self.clone();
        let hash = self.payload_hash.clone().unwrap_or_else(|| sha256(&self.body));
        ask.headers.push(("x-amz-content-sha256".into(), hash.clone()));
        ask.headers.push(("x-amz-date".into(), self.stamp()));
        ask.headers.sort();
        let names: Vec<&str> = ask.headers.iter().map(|(name, _)| name.as_str()).collect();
        let names = names.join(";");
        let lines: String = ask.headers.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
        let mut query: Vec<String> = ask.query.iter().map(|(name, value)| format!("{name}={value}")).collect();
        query.sort();
        let canonical = format!("{}\n{}\n{}\n{lines}\n{names}\n{hash}", ask.method, ask.path, query.join("&"));
        let text = format!("AWS4-HMAC-SHA256\n{}\n{}\n{}", self.stamp(), self.scope(), sha256(canonical.as_bytes()));
        let signature = hex(&sign(&self.signing_key(), &text));
        ask.headers.push((
            "authorization".into(),
            format!(
                "AWS4-HMAC-SHA256 Credential={}/{}, SignedHeaders={names}, Signature={signature}",
                self.access_key,
                self.scope()
            ),
        ));
        (ask, signature)
    }

    /// The same as a presigned request that is valid for an hour: the signature is in the query and
    /// covers only the host. With `payload_hash` the query names the payload too.
    pub fn presigned(&self) -> Ask {
        let mut ask = self.clone();
        let encoded = |text: &str| text.replace('/', "%2F");
        ask.query.extend([
            ("X-Amz-Algorithm".into(), "AWS4-HMAC-SHA256".into()),
            ("X-Amz-Credential".into(), encoded(&format!("{}/{}", self.access_key, self.scope()))),
            ("X-Amz-Date".into(), self.stamp()),
            ("X-Amz-Expires".into(), "3600".into()),
            ("X-Amz-SignedHeaders".into(), "host".into()),
        ]);
        ask.query.extend(self.payload_hash.clone().map(|hash| ("X-Amz-Content-Sha256".into(), hash)));
        let mut query: Vec<String> = ask.query.iter().map(|(name, value)| format!("{name}={value}")).collect();
        query.sort();
        let host = ask.headers.iter().find(|(name, _)| name == "host").unwrap().1.clone();
        let hash = self.payload_hash.as_deref().unwrap_or("UNSIGNED-PAYLOAD");
        let canonical = format!("{}\n{}\n{}\nhost:{host}\n\nhost\n{hash}", ask.method, ask.path, query.join("&"));
        let text = format!("AWS4-HMAC-SHA256\n{}\n{}\n{}", self.stamp(), self.scope(), sha256(canonical.as_bytes()));
        ask.query.push(("X-Amz-Signature".into(), hex(&sign(&self.signing_key(), &text))));
        ask
    }

    /// The bytes as sent, unsigned.
    pub fn bytes(&self) -> Vec<u8> {
        let query: Vec<String> = self
            .query
            .iter()
            .map(|(name, value)| if value.is_empty() { name.clone() } else { format!("{name}={value}") })
            .collect();
        let target = if query.is_empty() { self.path.clone() } else { format!("{}?{}", self.path, query.join("&")) };
        let mut text = format!("{} {target} HTTP/1.1\r\n", self.method);
        for (name, value) in self.headers.iter().chain(&self.smuggled) {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        let known = self
            .headers
            .iter()
            .chain(&self.smuggled)
            .any(|(name, _)| name == "content-length" || name == "transfer-encoding");
        if !known && (!self.body.is_empty() || self.method == "PUT" || self.method == "POST") {
            text.push_str(&format!("content-length: {}\r\n", self.body.len()));
        }
        text.push_str("\r\n");
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }

    /// Signs, sends, and reads the answer.
    pub async fn send(self, server: &Server) -> Answer {
        let head_only = self.method == "HEAD";
        let (ask, _) = self.signed();
        ask.send_unsigned(server, head_only).await
    }

    pub async fn send_unsigned(self, server: &Server, head_only: bool) -> Answer {
        // Of a server that is gone there is no answer: its status is 0.
        let Ok(mut stream) = TcpStream::connect(server.address).await else { return Answer::default() };
        // A server may answer and close before it has read everything.
        let _ = stream.write_all(&self.bytes()).await;
        answer(&mut stream, head_only).await
    }
}

/// A chunk's or trailer's signature, computed from the previous one.
pub fn chain(key: &[u8], ask: &Ask, kind: &str, previous: &str, hashes: &str) -> String {
    let text = format!("{kind}\n{}\n{}\n{previous}\n{hashes}", ask.stamp(), ask.scope());
    hex(&sign(key, &text))
}
