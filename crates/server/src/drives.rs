//! A drive as it is named on the command line and in the configuration: `PATH` or `PATH@ENCLOSURE`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use stele_array::server::DrivePlace;
use stele_ground::shown::{Shown, is_unsafe};

use crate::config::Site;
use crate::failure::{Failure, Outcome};

/// The array's type for the place of a drive, as text.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DriveArgument(pub DrivePlace);

impl DriveArgument {
    /// Resolves the path against the data directory.
    pub fn placed(&self, site: &Site) -> DrivePlace {
        DrivePlace { path: site.path(&self.0.path), enclosure: self.0.enclosure }
    }

    /// Refuses `x.img@a` where no file has this name: the `@` was to name an enclosure.
    pub fn check_enclosure(&self) -> Outcome<()> {
        let path = &self.0.path;
        let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        let Some((_, word)) = name.rsplit_once('@').filter(|(file, word)| !file.is_empty() && !word.is_empty()) else {
            return Ok(());
        };
        if self.0.enclosure.is_some() || path.symlink_metadata().is_ok() {
            return Ok(());
        }
        let message = format!("{}: '{word}' is no number of an enclosure, and no file has this name", path.display());
        Err(Failure::usage(message).next("write PATH@NUMBER, as in --drive /dev/sdk@4, or PATH without an enclosure"))
    }
}

impl FromStr for DriveArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<DriveArgument, String> {
        if text.contains(is_unsafe) {
            return Err(format!("'{}' has characters that cannot be seen; give the drive another name", Shown(text)));
        }
        DrivePlace::parse(text).map(DriveArgument).map_err(|error| error.to_string())
    }
}

impl fmt::Display for DriveArgument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.0.path.display();
        match self.0.enclosure {
            Some(enclosure) => write!(f, "{path}@{enclosure}"),
            None if path.to_string().contains('@') => write!(f, "{path}@"),
            None => write!(f, "{path}"),
        }
    }
}

impl TryFrom<String> for DriveArgument {
    type Error = String;
    fn try_from(text: String) -> Result<DriveArgument, String> {
        text.parse()
    }
}

impl From<DriveArgument> for String {
    fn from(drive: DriveArgument) -> String {
        drive.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_enclosure_is_a_number() {
        let there = std::env::temp_dir().join(format!("stele-drive-{}@a", std::process::id()));
        std::fs::write(&there, "").unwrap();
        for (text, is_right) in [
            ("/nowhere/x.img", true),
            ("/nowhere/x.img@4", true),
            ("/nowhere/x.img@a", false),
            ("/nowhere/x.img@4a", false),
            ("/nowhere/@x/x.img", true),
            (there.to_str().unwrap(), true),
        ] {
            let drive: DriveArgument = text.parse().unwrap();
            let checked = drive.check_enclosure();
            assert_eq!(checked.is_ok(), is_right, "{text}");
            if let Err(failure) = checked {
                assert_eq!(failure.kind, crate::failure::Kind::Usage);
                assert!(failure.error.contains("is no number of an enclosure") && !failure.next.is_empty());
            }
        }
        std::fs::remove_file(there).unwrap();
    }
}
