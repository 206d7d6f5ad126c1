//! `stele notifications`.

use clap::Subcommand;

#[derive(Subcommand, Debug)]
pub enum Notifications {
    /// List the targets, with the events that wait for each and those that were dropped
    #[command(after_help = "Example:\n  stele notifications list")]
    List,
    /// Delete the events that wait for a target which is no longer in the configuration
    #[command(after_help = "\
Example:
  stele notifications forget search

The events are not sent to anyone. A target in the configuration is refused: its events wait for their sender. As long
as rules of buckets name the target, further events come.")]
    Forget {
        /// The name in `[notifications.NAME]`
        target: String,
    },
}
