//! The steps, in order, and the table at the end.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use stele_ground::Bytes;

use crate::archive::{self, Pace, Refusal, Stored};
use crate::server::Server;
use crate::{Arguments, Outcome, damage, tree};

/// The interrupted upload: long enough to be observed and killed in the middle.
const CUT_OFF: (&str, usize) = ("cut-off/never-acknowledged.bin", 192 << 20);
/// Bytes of it that must be written to the pool before the kill.
const CUT_OFF_AFTER: u64 = 8 << 20;

/// One line of the table at the end.
struct Line {
    step: &'static str,
    what: String,
    pace: Option<Pace>,
}

pub async fn run(arguments: Arguments) -> Outcome<String> {
    let dir = match &arguments.dir {
        Some(dir) => dir.clone(),
        None => std::env::temp_dir().join(format!("stele-demo-{}", std::process::id())),
    };
    prepare(&dir)?;
    let mut server = Server::new(&dir)?;
    let result = walk(&arguments, &dir, &mut server).await;
    let stopped = server.stop().await;
    if !arguments.keep && result.is_ok() {
        std::fs::remove_dir_all(&dir).map_err(|error| format!("cannot remove {}: {error}", dir.display()))?;
    } else {
        println!("\nLeft behind: {}", dir.display());
    }
    let line = result?;
    stopped?;
    Ok(line)
}

/// Makes the data directory. One that holds anything is refused: the demonstration removes the
/// directory at its end.
fn prepare(dir: &Path) -> Outcome<()> {
    let cannot = |error| format!("cannot make {}: {error}", dir.display());
    if dir.join("stele.toml").exists() {
        return Err(format!("{} already holds a pool; name another directory with --dir", dir.display()));
    }
    std::fs::create_dir_all(dir).map_err(cannot)?;
    match std::fs::read_dir(dir).map_err(cannot)?.next() {
        None => Ok(()),
        Some(_) => Err(format!(
            "{} is not empty, and the demonstration removes its directory at the end; name a new one with --dir",
            dir.display()
        )),
    }
}

async fn walk(arguments: &Arguments, dir: &Path, server: &mut Server) -> Outcome<String> {
    let mut lines = Vec::new();
    let roots = match arguments.from.as_slice() {
        [] => tree::default_roots(),
        given => given.iter().map(|root| (name_of(root), root.clone())).collect(),
    };
    let items = tree::gather(&roots)?;

    say("1. A pool of 12 drives in 6 enclosures, a mirrored catalog volume, an 8+2 data volume, and S3 on loopback");
    let begun = Instant::now();
    server.start().await?;
    println!("   ready in {:.1} s at {}", begun.elapsed().as_secs_f64(), server.endpoint);
    for volume in server.ask(&["volume", "list"]).await?.as_array().into_iter().flatten() {
        println!(
            "   volume {:<8} {:<9} {}",
            text(volume, "name"),
            text(volume, "code"),
            Bytes(number(volume, "size_bytes"))
        );
    }

    say("2. A real tree into a bucket with COMPLIANCE retention");
    let client = archive::connect(server);
    archive::make_bucket(&client).await?;
    let mut stored = Stored::new();
    let pace = archive::store_all(&client, &items, &mut stored).await?;
    println!("   {}", show(&pace));
    lines.push(Line {
        step: "stored",
        what: format!("{} files, {}", pace.objects, Bytes(pace.bytes)),
        pace: Some(pace),
    });

    say("3. What must be refused");
    let refusals = archive::try_forbidden(&client, &stored).await?;
    for Refusal { tried, answer } in &refusals {
        println!("   {tried}: {answer}");
        lines.push(Line { step: "refused", what: (*tried).to_owned(), pace: None });
    }

    say("4. kill -9 in the middle of an upload");
    let (took, written) = cut_off(&client, server).await?;
    let client = archive::connect(server);
    if archive::exists(&client, CUT_OFF.0).await? {
        return Err("an upload that was never acknowledged is visible after the restart".to_owned());
    }
    let pace = archive::read_all(&client, &stored).await?;
    println!("   killed after {} of {} had reached the volumes", Bytes(written), Bytes(CUT_OFF.1 as u64));
    println!("   up again in {:.1} s; the unfinished upload left nothing; {}", took.as_secs_f64(), show(&pace));
    lines.push(Line {
        step: "killed",
        what: format!("restarted in {:.1} s, nothing acknowledged was lost", took.as_secs_f64()),
        pace: Some(pace),
    });

    say("5. Flipped bytes on one drive");
    let pace = repair(dir, server, &stored, &mut lines).await?;
    lines.push(Line { step: "read", what: "everything, through the damage".to_owned(), pace: Some(pace) });

    say("6. A whole enclosure of two drives taken away");
    let pace = lose_enclosure(dir, server, &stored, &mut lines).await?;
    lines.push(Line { step: "read", what: "everything, two drives short".to_owned(), pace: Some(pace) });

    say("7. The audit log");
    let verified = server.ask(&["audit", "verify"]).await?;
    println!("   {} records, chain unbroken", number(&verified, "records"));

    print_table(&lines);
    println!("\nTo look around{}:", if arguments.keep { "" } else { " (run again with --keep)" });
    for command in [
        "pool status",
        "volume list",
        &format!("why {}/{}", archive::BUCKET, first_key(&stored)),
        "audit show --limit 10",
    ] {
        println!("  stele {command} --dir {}", dir.display());
    }
    println!("  stele drive dump {}", dir.join("drives/e0-0.img").display());
    Ok(format!(
        "demo: ok {} stored, {} refused, {} read back 3 times identical, 1 kill, 1 drive damaged, 2 drives lost",
        stored.len(),
        refusals.len(),
        stored.len()
    ))
}

/// Kills the server during an upload. Returns the duration of the next start, and the bytes written
/// before the kill.
async fn cut_off(client: &aws_sdk_s3::Client, server: &mut Server) -> Outcome<(Duration, u64)> {
    let before = written(server).await?;
    let upload = archive::begin_upload(client, CUT_OFF.0, CUT_OFF.1);
    let arrived = loop {
        let arrived = written(server).await?.saturating_sub(before);
        if upload.is_finished() {
            return Err("the upload was over before the server could be killed".to_owned());
        }
        if arrived >= CUT_OFF_AFTER {
            break arrived;
        }
    };
    server.kill().await?;
    if upload.await.is_ok_and(|result| result.is_ok()) {
        return Err("the upload was acknowledged although the server was killed".to_owned());
    }
    let begun = Instant::now();
    server.start().await?;
    Ok((begun.elapsed(), arrived))
}

/// Bytes written to the volumes of the pool since it was opened.
async fn written(server: &Server) -> Outcome<u64> {
    let status = server.ask(&["pool", "status"]).await?;
    let counter = status.get("counters").and_then(|counters| counters.get("written bytes"));
    counter.and_then(Value::as_u64).ok_or_else(|| "the pool counts no writes".to_owned())
}

async fn repair(dir: &Path, server: &mut Server, stored: &Stored, lines: &mut Vec<Line>) -> Outcome<Pace> {
    // Restart the server, so that no cache answers for the damaged drive.
    server.stop().await?;
    let places = damage::flip_bytes(&dir.join("drives/e2-0.img"))?;
    server.start().await?;
    let client = archive::connect(server);
    let pace = archive::read_all(&client, stored).await?;
    let after_reads = number(&server.ask(&["pool", "status"]).await?, "repaired");
    println!("   8 bytes changed at {places} places of a drive; reads met and repaired {after_reads}: {}", show(&pace));
    if after_reads == 0 {
        return Err("no read met the damage, so nothing was shown".to_owned());
    }
    let first = server.ask(&["pool", "scrub", "--wait"]).await?;
    let second = server.ask(&["pool", "scrub", "--wait"]).await?;
    let (found, left) = (number(&first, "scrub_damage_found"), number(&second, "scrub_damage_found"));
    println!("   a scrub found and repaired {found} more; the next one found {left}");
    let given_up = given_up(&second);
    if let Some(drive) = given_up {
        let (begun, new) = (Instant::now(), dir.join("drives/e2-2.img"));
        let (drive, new) = (drive.to_string(), new.to_string_lossy());
        server.ask(&["pool", "replace", &drive, &new, "--size", "1GiB", "--yes", "--wait"]).await?;
        let took = begun.elapsed().as_secs_f64();
        println!("   the pool had given the drive up for its errors; a new one took its place in {took:.1} s");
    }
    if left != 0 || number(&second, "lost_stripes") != 0 {
        return Err(format!("the second scrub still found {left} damaged places"));
    }
    lines.push(Line { step: "damaged", what: format!("{places} places on one drive"), pace: None });
    lines.push(Line {
        step: "repaired",
        what: format!(
            "{after_reads} by reads, {found} by a scrub{}; the next scrub is clean",
            if given_up.is_some() { ", the drive replaced" } else { "" }
        ),
        pace: None,
    });
    Ok(pace)
}

async fn lose_enclosure(dir: &Path, server: &mut Server, stored: &Stored, lines: &mut Vec<Line>) -> Outcome<Pace> {
    server.kill().await?;
    damage::take_enclosure(&dir.join("drives"), 4, &dir.join("taken-away"))?;
    server.start().await?;
    let client = archive::connect(server);
    let pace = archive::read_all(&client, stored).await?;
    println!("   {}", show(&pace));
    let begun = Instant::now();
    let mut last = String::new();
    loop {
        let status = server.ask(&["pool", "status"]).await?;
        if number(&status, "lost_stripes") != 0 {
            return Err("stripes were lost with two drives".to_owned());
        }
        match status.get("rebuild") {
            Some(work) if !work.is_null() => {
                let line = format!("{} of {}", Bytes(number(work, "done_bytes")), Bytes(number(work, "total_bytes")));
                if line != last {
                    let left = work.get("seconds_left").and_then(Value::as_u64);
                    let left = left.map_or("time left unknown".to_owned(), |seconds| format!("{seconds} s left"));
                    println!(
                        "   rebuilding onto spare space: {line}, {}/s, {left}",
                        Bytes(number(work, "bytes_per_second"))
                    );
                    last = line;
                }
            }
            _ if number(&status, "rebuilt") > 0 => {
                let outcome = match number(&status, "stripes_without_spare") {
                    0 => "full redundancy again".to_owned(),
                    waiting => format!("{waiting} stripes wait for a new drive, since no spare space is left"),
                };
                println!("   rebuilt {} strips; {outcome}", number(&status, "rebuilt"));
                lines.push(Line { step: "lost", what: "an enclosure of two drives".to_owned(), pace: None });
                lines.push(Line {
                    step: "rebuilt",
                    what: format!("{} strips onto spare space", number(&status, "rebuilt")),
                    pace: None,
                });
                return Ok(pace);
            }
            _ => {}
        }
        if begun.elapsed() > Duration::from_secs(90) {
            return Err(format!("the rebuild was not over after 90 s; the last word was: {last}"));
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

fn say(title: &str) {
    println!("\n{title}");
}

fn name_of(root: &Path) -> String {
    root.file_name().and_then(|name| name.to_str()).unwrap_or("files").to_owned()
}

fn first_key(stored: &Stored) -> String {
    stored.keys().next().cloned().unwrap_or_default()
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// The number of a drive that the pool has given up.
fn given_up(status: &Value) -> Option<u64> {
    let mut drives = status.get("drives")?.as_array()?.iter();
    drives.find(|drive| drive.get("health").is_some_and(|health| health == "failed"))?.get("drive")?.as_u64()
}

fn number(value: &Value, name: &str) -> u64 {
    value.get(name).and_then(Value::as_u64).unwrap_or(0)
}

fn rate(pace: &Pace) -> String {
    format!("{:.0} MB/s", pace.bytes as f64 / 1e6 / pace.took.as_secs_f64().max(1e-9))
}

fn show(pace: &Pace) -> String {
    format!("{} objects, {} in {:.1} s, {}", pace.objects, Bytes(pace.bytes), pace.took.as_secs_f64(), rate(pace))
}

fn print_table(lines: &[Line]) {
    let wide = lines.iter().map(|line| line.what.chars().count()).max().unwrap_or(0);
    println!("\n{:<9} {:<wide$} {:>10}", "step", "what", "rate");
    for line in lines {
        let rate = line.pace.as_ref().map(rate).unwrap_or_default();
        println!("{:<9} {:<wide$} {rate:>10}", line.step, line.what);
    }
}

#[cfg(test)]
mod tests;
