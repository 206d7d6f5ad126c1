//! Live views of a run: a terminal view after each round (`--live`), and Prometheus metrics
//! (`--metrics`).
//!
//! The listener thread answers one request at a time. Each request has a bounded time and length.
//! The thread ends with the process. A client sees figures of the run and the target's name, and
//! can change nothing.

use std::cell::Cell;
use std::io::{IsTerminal, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use stele_lab::sweep::Step;
use stele_lab::view::View;
use stele_server::failure::{Failure, Outcome};

use super::pages;
use crate::cli::lab::LiveArgs;

/// Limit on the bytes of a request; beside it, the limit on its time.
const REQUEST_MAX: usize = 8192;
const PATIENCE: Duration = Duration::from_secs(2);

pub struct Live {
    view: Arc<Mutex<View>>,
    draws: bool,
    terminal: bool,
    /// Number of lines drawn last.
    drawn: Cell<usize>,
}

impl Live {
    /// `None` if neither option was given.
    pub fn begin(asked: &LiveArgs, target: &str, cells: usize) -> Outcome<Option<Live>> {
        if !asked.live && asked.metrics.is_none() {
            return Ok(None);
        }
        let view = Arc::new(Mutex::new(View::of(target.to_owned(), cells)));
        if let Some(address) = asked.metrics {
            listen(address, Arc::clone(&view))?;
        }
        let terminal = std::io::stderr().is_terminal();
        Ok(Some(Live { view, draws: asked.live, terminal, drawn: Cell::new(0) }))
    }

    /// Whether the view replaces the progress line.
    pub fn draws(&self) -> bool {
        self.draws
    }

    pub fn see(&self, step: &Step<'_>, name: &str) {
        let mut view = lock(&self.view);
        view.see(step, name);
        if !self.draws {
            return;
        }
        let lines = view.lines(pages::columns());
        drop(view);
        let mut text = String::new();
        if self.terminal {
            self.put_back(&mut text);
            self.drawn.set(lines.len());
        }
        for line in &lines {
            text.push_str(line);
            text.push('\n');
        }
        eprint!("{text}");
        let _ = std::io::stderr().flush();
    }

    /// Removes the drawing from the terminal.
    pub fn clear(&self) {
        let mut text = String::new();
        self.put_back(&mut text);
        eprint!("{text}");
    }

    fn put_back(&self, text: &mut String) {
        let drawn = self.drawn.replace(0);
        if drawn > 0 {
            // A progress line may stand below it.
            text.push_str(&format!("\r\x1b[{drawn}A\x1b[J"));
        }
    }
}

fn lock(view: &Mutex<View>) -> MutexGuard<'_, View> {
    view.lock().unwrap_or_else(PoisonError::into_inner)
}

fn listen(address: SocketAddr, view: Arc<Mutex<View>>) -> Outcome<()> {
    let cannot = |error: std::io::Error| {
        Failure::failed(format!("--metrics {address}: cannot listen: {error}")).next("name another port, or 0 for any")
    };
    let listener = TcpListener::bind(address).map_err(cannot)?;
    eprintln!("metrics at http://{}/metrics", listener.local_addr().map_err(cannot)?);
    let serve = move || {
        for stream in listener.incoming().flatten() {
            // A malformed request gets no answer.
            let _ = answer(stream, &view);
        }
    };
    std::thread::Builder::new().name("lab-metrics".into()).spawn(serve).map(drop).map_err(cannot)
}

fn answer(mut stream: TcpStream, view: &Mutex<View>) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let until = Instant::now() + PATIENCE;
    let mut request = Vec::new();
    let mut piece = [0; 1024];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let count = stream.read(&mut piece)?;
        request.extend_from_slice(piece.get(..count).unwrap_or_default());
        if count == 0 || request.len() > REQUEST_MAX || Instant::now() > until {
            return Ok(());
        }
    }
    let asks = |path: &str| request.starts_with(format!("GET {path} ").as_bytes());
    let (status, body) = match asks("/metrics") {
        true => ("200 OK", lock(view).metrics()),
        false => ("404 Not Found", "GET /metrics is all there is\n".to_owned()),
    };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{body}",
        body.len()
    )
}
