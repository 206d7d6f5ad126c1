//! Where a server has its data directory, its configuration and its sockets.

use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::Config;
use crate::failure::{Kind, Outcome};

/// The path at which a package installs the configuration.
const INSTALLED: &str = "/etc/stele/stele.toml";
/// The socket that this configuration names unless an operator changes it.
const INSTALLED_SOCKET: &str = "/run/stele/stele.sock";

/// Whether a package has installed its configuration. A user who may not look has to take it as
/// installed.
fn is_installed(seen: std::io::Result<bool>) -> bool {
    seen.unwrap_or_else(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
}

/// The paths of a server: the data directory and its configuration.
#[derive(Clone, Debug)]
pub struct Site {
    pub dir: PathBuf,
    pub config_path: PathBuf,
}

impl Site {
    pub fn find(dir: Option<&Path>, config: Option<&Path>) -> Site {
        match (dir, config) {
            (Some(dir), Some(config)) => Site { dir: dir.to_owned(), config_path: config.to_owned() },
            (Some(dir), None) => Site { dir: dir.to_owned(), config_path: dir.join("stele.toml") },
            (None, Some(config)) => Site::configured(config),
            (None, None) => {
                let (here, installed) = (Path::new("stele-data/stele.toml"), Path::new(INSTALLED));
                if !here.exists() && is_installed(installed.try_exists()) {
                    return Site::configured(installed);
                }
                Site { dir: PathBuf::from("stele-data"), config_path: here.to_owned() }
            }
        }
    }

    /// Takes the data directory from the file itself. Errors in the file are reported by the code
    /// that reads all of it.
    fn configured(config: &Path) -> Site {
        #[derive(Deserialize)]
        struct Place {
            data: Option<PathBuf>,
        }
        let text = crate::whole::read_text(config).unwrap_or_default();
        let data = toml::from_str::<Place>(&text).ok().and_then(|place| place.data);
        Site::of(config, data.as_deref())
    }

    /// The paths of a configuration that has this key `data`.
    pub fn of(config: &Path, data: Option<&Path>) -> Site {
        let beside = config.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Site { dir: data.map_or_else(|| beside.to_owned(), |data| beside.join(data)), config_path: config.to_owned() }
    }

    /// A path of the configuration, relative to the data directory.
    pub fn path(&self, path: &Path) -> PathBuf {
        if path.is_absolute() { path.to_owned() } else { self.dir.join(path) }
    }

    /// The Unix socket of network block devices.
    pub fn nbd_socket(&self, config: &Config) -> PathBuf {
        config.nbd.socket.as_ref().map_or_else(|| self.dir.join("nbd.sock"), |socket| self.path(socket))
    }

    /// The Unix socket of commands.
    pub fn admin_socket(&self, config: &Config) -> PathBuf {
        config.admin.socket.as_ref().map_or_else(|| self.unset_socket(), |socket| self.path(socket))
    }

    /// The socket of a server of this directory.
    pub fn socket(&self) -> PathBuf {
        self.socket_of(Config::read(&self.config_path))
    }

    /// Officers may not read the package's configuration, and reach its server where the package
    /// puts the socket.
    fn socket_of(&self, config: Outcome<Config>) -> PathBuf {
        match config {
            Ok(config) => self.admin_socket(&config),
            Err(failure) if failure.kind == Kind::Refused && self.config_path == Path::new(INSTALLED) => {
                PathBuf::from(INSTALLED_SOCKET)
            }
            Err(_) => self.unset_socket(),
        }
    }

    fn unset_socket(&self) -> PathBuf {
        self.dir.join("stele.sock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::io_failure;

    /// The administration is for root and the server's user; an officer sees neither the folder nor
    /// the file.
    #[test]
    fn whoever_may_not_read_the_packages_configuration_finds_its_socket() {
        let closed = || std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        assert!(is_installed(Ok(true)) && is_installed(Err(closed())) && !is_installed(Ok(false)));
        let installed = Site::of(Path::new(INSTALLED), None);
        let unread = |site: &Site, error| site.socket_of(Err(io_failure("read", &site.config_path, &error)));
        assert_eq!(unread(&installed, closed()), Path::new("/run/stele/stele.sock"));
        assert_eq!(unread(&installed, std::io::ErrorKind::NotFound.into()), Path::new("/etc/stele/stele.sock"));
        let other = Site::of(Path::new("/srv/stele/stele.toml"), None);
        assert_eq!(unread(&other, closed()), Path::new("/srv/stele/stele.sock"));
    }
}
