//! A drive as it is named on the command line and in the configuration: `PATH` or `PATH@ENCLOSURE`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use stele_array::server::DrivePlace;
use stele_ground::shown::{Shown, is_unsafe};

use crate::config::Site;

/// The array's type for the place of a drive, as text.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DriveArgument(pub DrivePlace);

impl DriveArgument {
    /// Resolves the path against the data directory.
    pub fn placed(&self, site: &Site) -> DrivePlace {
        DrivePlace { path: site.path(&self.0.path), enclosure: self.0.enclosure }
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
