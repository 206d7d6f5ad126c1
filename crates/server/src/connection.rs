//! The connection of a command: to the socket of a running server, or to the drives themselves if
//! no server holds them.

use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::api::approval::Officer;
use crate::api::{Actor, Call, OFFICER_HEADER};
use crate::config::{Config, Site};
use crate::failure::{Failure, Kind, Outcome, io_failure};
use crate::node::{Node, Opening};
use crate::said::answered;

/// Names the file with an officer's key, for calls that only read and have no `--officer`.
const OFFICER_VARIABLE: &str = "STELE_OFFICER";

/// Time without an answer after which a command that only reads says that it waits.
const SILENCE: Duration = Duration::from_secs(5);
/// The same for one that changes something. It may wait for drives, or for what it changes.
const SILENCE_OF_CHANGES: Duration = Duration::from_secs(60);

/// The officer whose key this command was given with `--officer`. Calls that only read show it
/// beside them.
static SHOWN: OnceLock<Officer> = OnceLock::new();

/// Shows an officer's key with the calls that follow.
pub fn show(officer: &Officer) {
    SHOWN.get_or_init(|| officer.clone());
}

/// An officer's key, from the file that only the officer can read. It is shown with all calls that
/// follow.
pub fn read_officer(path: &Path) -> Outcome<Officer> {
    let text = crate::whole::read_text(path).map_err(|error| io_failure("read the officer's key", path, &error))?;
    // The text is a secret: the error names the file and quotes nothing of it.
    let officer = serde_json::from_str(text.trim()).map_err(|_| {
        Failure::usage(format!("{} is not an access key", path.display()))
            .next("it holds access_key and secret_key, as `stele key create --json` prints them")
    })?;
    show(&officer);
    Ok(officer)
}

fn shown() -> Outcome<Option<Officer>> {
    if let Some(officer) = SHOWN.get() {
        return Ok(Some(officer.clone()));
    }
    let file = std::env::var_os(OFFICER_VARIABLE).filter(|file| !file.is_empty());
    file.map(|file| read_officer(Path::new(&file))).transpose()
}

pub enum Connection {
    Server(std::path::PathBuf),
    /// The drives themselves, and where their server would be.
    Drives(Box<Node>, Site),
}

impl Connection {
    /// Finds the server of this directory, or opens the drives with the archive read-only.
    pub async fn find(site: &Site) -> Outcome<Connection> {
        let socket = site.socket();
        match UnixStream::connect(&socket).await {
            Ok(_) => Ok(Connection::Server(socket)),
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                Err(io_failure("talk to the server at", &socket, &error)
                    .next("run the command as root or as the user the server runs as"))
            }
            Err(_) => {
                let config = Config::read(&site.config_path).map_err(|failure| match failure.kind {
                    Kind::Refused => failure.next(
                        "run the command as root or as the user the server runs as; officers need a server that runs",
                    ),
                    _ => failure,
                })?;
                match Node::open(site, config, Opening::for_command()).await {
                    Ok(node) => Ok(Connection::Drives(Box::new(node), site.clone())),
                    Err(failure) => match UnixStream::connect(&socket).await {
                        // A server was starting when it was looked for, and answers by now.
                        Ok(_) => Ok(Connection::Server(socket)),
                        Err(_) => Err(held(failure, command_line)),
                    },
                }
            }
        }
    }

    pub fn is_server(&self) -> bool {
        matches!(self, Connection::Server(_))
    }

    /// Makes a call, and returns the answer in a form that is safe to display.
    pub async fn call<C: Call>(&self, call: C) -> Outcome<C::Answer> {
        answered(self.exact(call).await?)
    }

    /// Makes a call, and returns the exact answer, for data that is kept or compared instead of
    /// displayed.
    pub async fn exact<C: Call>(&self, call: C) -> Outcome<C::Answer> {
        match self {
            Connection::Server(socket) => post(socket, &call).await,
            Connection::Drives(node, site) => {
                if !C::READS {
                    node.compare_before_change(site).await;
                }
                call.perform(node, &Actor { uid: crate::node::own_uid() }).await
            }
        }
    }

    /// Closes the drives cleanly, if they were opened.
    pub async fn leave(self) -> Outcome<()> {
        match self {
            Connection::Server(_) => Ok(()),
            Connection::Drives(node, _) => node.close().await,
        }
    }
}

/// The other `stele` that has a drive, as the message about the drive's lock names it.
pub fn holder(failure: &Failure) -> Option<u32> {
    let (_, by) = failure.error.split_once(" is in use by process ").filter(|_| failure.kind == Kind::Busy)?;
    let (process, name) = by.split_once(' ')?;
    process.parse().ok().filter(|_| name.starts_with("(stele)"))
}

/// Says of drives that another `stele` has whether it is a server, which has its drives before it
/// answers at its socket and after it stopped answering.
fn held(failure: Failure, command_line: impl Fn(u32) -> Vec<String>) -> Failure {
    let Some(process) = holder(&failure) else { return failure };
    let is_server = command_line(process).iter().skip(1).any(|word| word == "serve" || word == "up");
    let (what, next) = match is_server {
        true => (
            "a server of these drives is starting or stopping",
            "wait until it has started, and give the command again; its log says how far it is",
        ),
        false => ("another command reads these drives", "give the command again when that one has ended"),
    };
    Failure::new(Kind::Busy, format!("{what}: process {process} (stele) has them")).next(next)
}

/// The words of a process. Of one that has ended, or that this user may not look at, there are
/// none.
fn command_line(process: u32) -> Vec<String> {
    let words = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    words.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// Refuses if a server already serves this directory: it has locked the drives, and would lose its
/// socket.
pub async fn alone(site: &Site) -> Outcome<()> {
    let socket = site.socket();
    match UnixStream::connect(&socket).await {
        Ok(_) => Err(Failure::new(
            Kind::Busy,
            format!("a server has these drives in use; it answers at {}", socket.display()),
        )
        .next("`stele pool status` shows it; stop it first")),
        Err(_) => Ok(()),
    }
}

/// A connection to a server's socket for calls one after another.
pub type Sender = hyper::client::conn::http1::SendRequest<Full<Bytes>>;

fn broken(socket: &Path, what: &str, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(Kind::Busy, format!("the server at {} {what}: {error}", socket.display()))
        .next("see its log; start it again with `stele serve`")
}

/// Connects to a server. The connection ends with its sender.
pub async fn connect(socket: &Path) -> Outcome<Sender> {
    let stream = UnixStream::connect(socket).await.map_err(|error| broken(socket, "does not answer", &error))?;
    connect_over(stream, socket).await
}

/// The same over a stream to the server at that socket.
pub async fn connect_over<S>(stream: S, socket: &Path) -> Outcome<Sender>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| broken(socket, "does not speak HTTP", &error))?;
    tokio::spawn(connection);
    Ok(sender)
}

/// Sends one request, and returns the bytes of its answer.
pub async fn ask(socket: &Path, sender: &mut Sender, target: &str, body: Vec<u8>) -> Outcome<Bytes> {
    let mut request = hyper::Request::post(format!("/v1/{target}"))
        .header("host", "stele")
        .header("content-type", "application/json");
    if let Some(officer) = shown()? {
        let officer = serde_json::to_vec(&officer).unwrap_or_default();
        request = request.header(OFFICER_HEADER, base64_simd::STANDARD.encode_to_string(officer));
    }
    let request =
        request.body(Full::new(Bytes::from(body))).map_err(|error| broken(socket, "was asked wrongly", &error))?;
    let response = sender.send_request(request).await.map_err(|error| broken(socket, "broke off", &error))?;
    let status = response.status();
    let body = response.into_body().collect().await.map_err(|error| broken(socket, "broke off", &error))?.to_bytes();
    match status.is_success() {
        true => Ok(body),
        false => Err(serde_json::from_slice(&body).unwrap_or_else(|_| broken(socket, "refused", &status))),
    }
}

/// Makes a call on a connection.
pub async fn call_on<C: Call>(socket: &Path, sender: &mut Sender, call: &C) -> Outcome<C::Answer> {
    let body = serde_json::to_vec(call)
        .map_err(|error| Failure::failed(format!("cannot write the request as JSON: {error}")))?;
    let body = ask(socket, sender, C::NAME, body).await?;
    serde_json::from_slice(&body)
        .map_err(|error| broken(socket, "answered something this command does not understand", &error))
}

async fn post<C: Call>(socket: &Path, call: &C) -> Outcome<C::Answer> {
    let answered = async { call_on(socket, &mut connect(socket).await?, call).await };
    patiently(patience(C::READS), answered, || eprintln!("stele: {}", silence(socket, C::READS))).await
}

/// Waits for an answer, and says so once where it takes longer than `silence`.
async fn patiently<T>(silence: Duration, answer: impl Future<Output = T>, say: impl FnOnce()) -> T {
    let mut answer = std::pin::pin!(answer);
    match timeout(silence, answer.as_mut()).await {
        Ok(answered) => answered,
        Err(_) => {
            say();
            answer.await
        }
    }
}

fn patience(reads: bool) -> Duration {
    if reads { SILENCE } else { SILENCE_OF_CHANGES }
}

fn silence(socket: &Path, reads: bool) -> String {
    let why = match reads {
        true => "its log says why, as where it may open no further file (`stele doctor`), or its drives do not answer",
        false => {
            "what was asked may take so long, and goes on if this command is ended; `stele pool status` says whether the \
             server answers"
        }
    };
    let seconds = patience(reads).as_secs();
    format!("the server at {} has given no answer for {seconds} s, and is waited for; {why}", socket.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As where a server has no descriptor left: the connection waits at its socket.
    #[tokio::test]
    async fn a_server_that_gives_no_answer_is_named_and_waited_for() {
        let soon = patiently(Duration::from_secs(3600), async { 1 }, || panic!("the answer was there"));
        assert_eq!(soon.await, 1);
        let (answer, answered) = tokio::sync::oneshot::channel();
        let late = patiently(Duration::ZERO, async { answered.await.unwrap() }, || answer.send(2).unwrap());
        assert_eq!(late.await, 2, "the answer comes only once the wait is told");
        let said = silence(Path::new("/srv/stele.sock"), true);
        assert!(said.contains("/srv/stele.sock") && said.contains("for 5 s"), "{said}");
    }

    /// It would wait without a word for a server that hangs.
    #[test]
    fn a_command_that_changes_something_says_after_a_minute_that_it_waits() {
        let said = silence(Path::new("/srv/stele.sock"), false);
        assert!(said.contains("for 60 s") && said.contains("goes on if this command is ended"), "{said}");
    }

    #[test]
    fn drives_that_another_stele_has_are_told_with_what_it_does() {
        let failure =
            |by: &str| Failure::new(Kind::Busy, format!("/d/1.img: is in use by {by}: stop it, or name other drives"));
        let told = |by: &str, words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            held(failure(by), |_| words.clone()).to_string()
        };
        for words in [&["stele", "up", "--dir", "/srv"][..], &["/usr/bin/stele", "--json", "serve"]] {
            let said = told("process 708 (stele)", words);
            assert!(said.contains("is starting or stopping: process 708") && said.contains("wait until"), "{said}");
        }
        for words in [&["stele", "pool", "status"][..], &[]] {
            let said = told("process 708 (stele)", words);
            assert!(said.contains("another command reads these drives: process 708"), "{said}");
        }
        for other in ["process 708 (stele-tests)", "process 708 (fio)", "process 708", "another process"] {
            assert_eq!(holder(&failure(other)), None, "{other}");
            assert!(told(other, &["stele", "up"]).contains("is in use by"), "{other}");
        }
        assert_eq!(holder(&Failure::usage("/d/1.img: is in use by process 708 (stele): stop it")), None);
    }
}
