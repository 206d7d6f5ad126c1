//! A payload on its way into a writer. A slow sender keeps little of the room that all uploads share.
//!
//! While there is room for everybody, pieces fill up however slowly. When somebody waits for room, an upload that has
//! handed nothing on for [`ROOM_PATIENCE`] stores what it has and keeps less than 64 KiB, whether its sender is silent or
//! drips. So as many uploads as may be served at once fit in the room, and one that sends is served beside all that do not.

use crate::payload::Payload;
use crate::refusal::translated;
use s3s::S3Result;
use std::pin::pin;
use std::time::Duration;
use stele_archive::ObjectWriter;
use tokio::time::{Instant, sleep_until};

/// How long an upload may keep room for a piece that others wait for.
const ROOM_PATIENCE: Duration = Duration::from_secs(1);

/// Moves all of a payload into a writer.
pub async fn arrive(payload: &mut Payload, writer: &mut ObjectWriter) -> S3Result<()> {
    let mut kept_since = Instant::now();
    let mut handed_on = 0;
    loop {
        let mut arriving = pin!(payload.next());
        let piece = loop {
            let overdue = async {
                sleep_until(kept_since + ROOM_PATIENCE).await;
                writer.crowded().await;
            };
            tokio::select! {
                biased;
                piece = &mut arriving => break piece?,
                () = overdue => {}
            }
            writer.give_way().await.map_err(translated)?;
            kept_since = Instant::now();
        };
        let Some(piece) = piece else { return Ok(()) };
        writer.write(piece).await.map_err(translated)?;
        if writer.handed_on() != handed_on {
            handed_on = writer.handed_on();
            kept_since = Instant::now();
        }
    }
}
