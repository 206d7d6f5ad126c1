//! The frontend on an archive in memory:
//! `cargo run --release -p stele-object --example serve_memory -- 127.0.0.1:9000`.
//! It prints `ENDPOINT ACCESS_KEY SECRET_KEY` and serves until it is killed. Nothing outlives it.

#[path = "../tests/frontend/server.rs"]
mod server;

use stele_ground::Bytes;
use stele_object::Settings;

#[tokio::main]
async fn main() {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:0".into());
    let settings = Settings { open_metrics: true, ..Settings::default() };
    let server = server::Server::listen(settings, Bytes(4 << 30), &address).await;
    println!("{} {} {}", server.endpoint(), server.access_key, server.secret_key);
    std::future::pending::<()>().await;
}
