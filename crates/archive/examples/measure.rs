//! What the archive costs by itself: `cargo run --release -p stele-archive --example measure`.
//!
//! Eight writers, then eight readers, on memory drives served by a thread each and the embedded
//! catalog: rates, and processor time of the whole process (archive, catalog, drives, and this
//! loop) for each operation.

use std::sync::Arc;
use std::time::{Instant as Elapsed, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use stele_archive::{
    Archive, Caller, Expected, Foundation, GetRequest, MasterKey, NewBucket, NoGuard, Options, PutRequest, Reading,
    Surroundings, Timestamp,
};
use stele_catalog::EmbeddedCatalog;
use stele_ground::{Bytes as Size, Instant};

struct Machine(Elapsed);

impl Surroundings for Machine {
    fn now(&self) -> Reading {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
        Reading { monotonic: Instant(self.0.elapsed().as_nanos() as u64), wall: Timestamp(wall) }
    }

    fn entropy(&self, into: &mut [u8]) {
        if aws_lc_rs::rand::fill(into).is_err() {
            std::process::abort();
        }
    }
}

/// Microseconds of processor time that this process has used.
fn processor_time() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    // Behind the name: the state, ten more, then user and system time in hundredths of a second.
    let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    (ticks(11) + ticks(12)) * 10_000
}

/// `receipts`: asks for the receipt of each object, in the form that S3 answers with.
async fn write(archive: Archive, from: usize, count: usize, body: Bytes, receipts: bool) -> stele_archive::Result<()> {
    for n in from..from + count {
        let request = PutRequest {
            bucket: "measure".into(),
            key: format!("{}/{n}", body.len()),
            length: Some(body.len() as u64),
            ..PutRequest::default()
        };
        let mut writer = archive.put(&Caller::local(0), request).await?;
        for chunk in 0..body.len().div_ceil(65_536) {
            writer.write(body.slice(chunk * 65_536..body.len().min((chunk + 1) * 65_536))).await?;
        }
        let info = writer.finish(Expected::default()).await?;
        if let Some(logged) = info.logged.filter(|_| receipts) {
            let receipt = archive.receipt_of_act(&Caller::local(0), "measure", &info.key, logged, None).await?;
            assert!(receipt.to_json().len() > 1000);
        }
    }
    Ok(())
}

async fn read(archive: Archive, from: usize, count: usize, size: usize) -> stele_archive::Result<()> {
    for n in from..from + count {
        let request = GetRequest { bucket: "measure".into(), key: format!("{size}/{n}"), ..GetRequest::default() };
        let mut reader = archive.get(&Caller::local(0), request).await?;
        let mut length = 0;
        while let Some(bytes) = reader.next().await {
            length += bytes?.len();
        }
        assert_eq!(length, size);
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let surroundings = Arc::new(Machine(Elapsed::now()));
    let catalog_volume = stele_media::serve_memory(Size(2 << 30))?;
    stele_catalog::format(&catalog_volume, &stele_catalog::Format { id: [7; 16], journal: None })?;
    let catalog = EmbeddedCatalog::open(&catalog_volume, stele_catalog::Options::default())?;
    let foundation = Foundation {
        catalog: Arc::new(catalog),
        data: stele_media::serve_memory(Size(10 << 30))?,
        master: MasterKey::generate(&*surroundings),
        surroundings,
        guard: Arc::new(NoGuard),
    };
    let archive = Archive::create(foundation.clone(), Options::default()).await?;
    archive.create_bucket(&Caller::local(0), "measure", NewBucket::default()).await?;
    println!("{:>10} {:>5} {:>12} {:>10} {:>14}", "size", "", "a second", "MB/s", "processor us");
    for (size, count) in [(4096, 12_500), (262_144, 200), (10 << 20, 8)] {
        let body = Bytes::from((0..size).map(|n| (n * 7 / 3) as u8).collect::<Vec<u8>>());
        // Receipts of the smallest objects weigh most. They come between two rounds of the same
        // without.
        let rounds: &[&str] = if size == 4096 { &["put", "+rcpt", "put", "+rcpt", "get"] } else { &["put", "get"] };
        for what in rounds {
            let (start, used) = (Elapsed::now(), processor_time());
            let mut tasks = Vec::new();
            for client in 0..8 {
                let (archive, body) = (archive.clone(), body.clone());
                tasks.push(match *what {
                    "put" => tokio::spawn(write(archive, client * count, count, body, false)),
                    "+rcpt" => tokio::spawn(write(archive, client * count, count, body, true)),
                    _ => tokio::spawn(read(archive, client * count, count, size)),
                });
            }
            for task in tasks {
                task.await??;
            }
            let (seconds, total) = (start.elapsed().as_secs_f64(), 8 * count);
            println!(
                "{size:>10} {what:>5} {:>12.0} {:>10.1} {:>14.1}",
                total as f64 / seconds,
                (total * size) as f64 / 1e6 / seconds,
                (processor_time() - used) as f64 / total as f64
            );
        }
    }
    drop(archive);
    for closed in [false, true] {
        let start = Elapsed::now();
        let archive = Archive::open(foundation.clone(), Options::default()).await?;
        let how = if closed { "closed in order" } else { "just dropped" };
        println!("opened after being {how} in {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
        archive.step().await?;
        archive.close().await?;
    }
    Ok(())
}
