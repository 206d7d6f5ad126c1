//! Moves a payload into a writer. A slow sender holds little of the memory that all uploads share.
//!
//! While there is enough memory, pieces fill up however slowly. If another upload waits for memory,
//! an upload that has handed nothing on for [`ROOM_PATIENCE`] stores its data and keeps less than
//! 64 KiB, whether its sender is silent or slow. The memory therefore suffices for as many uploads
//! as may be served at once, and an active upload proceeds beside any number of stalled ones.

use crate::payload::Payload;
use crate::refusal::translated;
use s3s::S3Result;
use std::pin::pin;
use std::time::Duration;
use stele_archive::ObjectWriter;
use tokio::time::{Instant, sleep_until};

/// Largest time for an upload to hold memory for a piece while others wait.
const ROOM_PATIENCE: Duration = Duration::from_secs(1);

/// Moves a whole payload into a writer.
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
