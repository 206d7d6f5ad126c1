//! smb.conf for shares that are mounted through FUSE with `dos_attributes`: a pure text, made from
//! names and paths.
//!
//! Samba reads its file line by line and gives `%`, `;`, `#`, `[`, quotes and a backslash at the
//! end of a line a meaning. Every value from outside is checked, so that none of them can add a
//! line or a parameter.
//!
//! What a share needs, and why:
//!
//! | setting | reason |
//! | --- | --- |
//! | `store dos attributes = yes` | with `dos_attributes` of the mount, "read-only" takes the write permissions |
//! | `map readonly = yes` | so it is for files that have no stored attributes yet |
//! | no `acl_xattr` among the VFS objects | it keeps permissions of its own, which no other protocol sees |
//! | `streams_xattr` | alternate data streams are `user.*` attributes of the file, under its retention |
//! | `kernel oplocks`, `kernel share modes`, `posix locking = no` | durable handles need it |
//! | `kernel change notify = no` | inotify does not see what other protocols change |
//! | `strict sync = yes` | a flush of the client is an fsync, and so a commit |
//! | `strict allocate = no` | the share reserves no space |
//! | `hosts deny = ALL` | beside `hosts allow` it keeps all others out, this machine too |
//!
//! smbd sends SIGTERM to its process group when it ends. Start it in a group of its own.

use std::fmt::{self, Write};
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};

use crate::nfs::Network;

/// The longest name of a share that clients take, in characters.
pub const SHARE_NAME_MAX: usize = 80;
/// Names that Samba or Windows give to sections and shares of their own.
const RESERVED: &[&str] = &["global", "homes", "printers", "print$", "ipc$", "admin$"];

/// One smbd that serves the shares of this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SambaConfig {
    /// Where smbd keeps its passwords, databases, locks and logs.
    pub directory: PathBuf,
    /// Addresses or names of interfaces to listen on; empty: all.
    pub interfaces: Vec<String>,
    pub port: u16,
    pub workgroup: String,
    /// A file of the site with settings of its own. It is read after the global settings and before
    /// the shares, so that it cannot change what a share depends on.
    pub include: Option<PathBuf>,
    pub shares: Vec<SambaShare>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SambaShare {
    pub name: String,
    /// Where the share is mounted.
    pub path: PathBuf,
    pub read_only: bool,
    /// Clients of these networks may connect, and no others.
    pub networks: Vec<Network>,
    /// Users, and groups as `@group`; empty: every user that Samba knows.
    pub valid_users: Vec<String>,
}

/// Why there is no smb.conf: a value that Samba would misunderstand.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadSetting {
    /// What the value is for.
    pub what: &'static str,
    pub value: String,
    pub why: &'static str,
}

impl fmt::Display for BadSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the {} '{}' cannot be written to smb.conf: {}", self.what, self.value.escape_debug(), self.why)
    }
}

impl std::error::Error for BadSetting {}

/// The directories below [`SambaConfig::directory`] that smbd needs. Only root may enter them.
pub const DIRECTORIES: &[&str] = &["private", "state", "cache", "lock", "pid", "ncalrpc", "log"];

/// The text of smb.conf.
pub fn smb_conf(config: &SambaConfig) -> Result<String, BadSetting> {
    let directory = path("directory of Samba", &config.directory)?;
    let mut text = String::from("# Written by Stele. Changes are lost; use the site's include file.\n");
    let mut global = Section::new(&mut text, "global");
    global.set("server role", "standalone server");
    global.set("workgroup", word("workgroup", &config.workgroup)?);
    global.set("smb ports", &config.port.to_string());
    if !config.interfaces.is_empty() {
        let interfaces: Result<Vec<&str>, _> = config.interfaces.iter().map(|name| word("interface", name)).collect();
        global.set("interfaces", &interfaces?.join(" "));
        global.set("bind interfaces only", "yes");
    }
    for (name, below) in [
        ("private dir", "private"),
        ("state directory", "state"),
        ("cache directory", "cache"),
        ("lock directory", "lock"),
        ("pid directory", "pid"),
        ("ncalrpc dir", "ncalrpc"),
    ] {
        global.set(name, &format!("{directory}/{below}"));
    }
    global.set("passdb backend", &format!("tdbsam:{directory}/private/passdb.tdb"));
    global.set("log file", &format!("{directory}/log/smbd.log"));
    for (name, value) in [
        ("server min protocol", "SMB2_10"),
        ("disable netbios", "yes"),
        ("map to guest", "never"),
        ("restrict anonymous", "2"),
        ("load printers", "no"),
        ("printcap name", "/dev/null"),
        ("disable spoolss", "yes"),
        ("kernel change notify", "no"),
    ] {
        global.set(name, value);
    }
    if let Some(include) = &config.include {
        global.set("include", path("include file", include)?);
    }
    let mut names = Vec::new();
    for share in &config.shares {
        let name = share_name(&share.name)?;
        let lower = name.to_lowercase();
        if names.contains(&lower) {
            return Err(bad("name of a share", name, "another share has it, perhaps in other letters"));
        }
        names.push(lower);
        write_share(&mut text, name, share)?;
    }
    Ok(text)
}

/// Refuses a name under which Samba can serve no share.
pub fn share_name(value: &str) -> Result<&str, BadSetting> {
    const WHAT: &str = "name of a share";
    let why = match plain(WHAT, value)? {
        value if value.chars().count() > SHARE_NAME_MAX => "it is longer than 80 characters",
        value if value.contains(|c: char| "\\/[]:|<>+=;,*?#".contains(c)) => {
            "it has one of the characters \\ / [ ] : | < > + = ; , * ? #"
        }
        value if RESERVED.contains(&value.to_lowercase().as_str()) => "Samba or Windows uses it for itself",
        value => return Ok(value),
    };
    Err(bad(WHAT, value, why))
}

fn write_share(text: &mut String, name: &str, share: &SambaShare) -> Result<(), BadSetting> {
    let mut section = Section::new(text, name);
    section.set("path", path("path of a share", &share.path)?);
    section.set("read only", if share.read_only { "yes" } else { "no" });
    let networks: Vec<String> = share.networks.iter().map(hosts).collect();
    if !networks.is_empty() {
        section.set("hosts allow", &networks.join(" "));
    }
    section.set("hosts deny", "ALL");
    if !share.valid_users.is_empty() {
        let users: Result<Vec<String>, _> = share.valid_users.iter().map(|name| user(name)).collect();
        section.set("valid users", &users?.join(", "));
    }
    for (name, value) in [
        ("vfs objects", "streams_xattr"),
        ("store dos attributes", "yes"),
        ("map readonly", "yes"),
        // These three would use the bits of execution.
        ("map archive", "no"),
        ("map hidden", "no"),
        ("map system", "no"),
        ("ea support", "yes"),
        ("kernel oplocks", "no"),
        ("kernel share modes", "no"),
        ("posix locking", "no"),
        ("durable handles", "yes"),
        ("strict sync", "yes"),
        ("strict allocate", "no"),
        ("use sendfile", "no"),
        // What else a mode allows is for the owner to take away; without these, Samba takes away
        // group access.
        ("create mask", "0666"),
        ("directory mask", "0777"),
    ] {
        section.set(name, value);
    }
    Ok(())
}

struct Section<'t> {
    text: &'t mut String,
}

impl<'t> Section<'t> {
    fn new(text: &'t mut String, name: &str) -> Section<'t> {
        text.push_str(&format!("\n[{name}]\n"));
        Section { text }
    }

    fn set(&mut self, name: &str, value: &str) {
        // Writing to a string never fails.
        writeln!(self.text, "\t{name} = {value}").unwrap_or_default();
    }
}

fn bad(what: &'static str, value: &str, why: &'static str) -> BadSetting {
    BadSetting { what, value: value.to_owned(), why }
}

/// A network in Samba's form. Samba takes a prefix of more than two digits for an address, so IPv6
/// has a mask.
fn hosts(network: &Network) -> String {
    match network.parts() {
        (IpAddr::V4(address), prefix) => format!("{address}/{prefix}"),
        (IpAddr::V6(address), prefix) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
            format!("{address}/{}", Ipv6Addr::from(mask))
        }
    }
}

/// What no value may hold: Samba would replace it, end the line, or join the next one.
fn plain<'v>(what: &'static str, value: &'v str) -> Result<&'v str, BadSetting> {
    let why = match value {
        "" => "it is empty",
        value if value.chars().any(char::is_control) => "it has a control character",
        value if value.contains('%') => "Samba replaces what follows a '%'",
        value if value.contains('"') => "it has a quotation mark",
        value if value.ends_with('\\') => "a backslash at the end joins the next line",
        value if value.trim() != value => "it begins or ends with a blank",
        _ => return Ok(value),
    };
    Err(bad(what, value, why))
}

/// One of several values in a line.
fn word<'v>(what: &'static str, value: &'v str) -> Result<&'v str, BadSetting> {
    match plain(what, value)? {
        value if value.contains(|c: char| c.is_whitespace() || ",;".contains(c)) => {
            Err(bad(what, value, "it has a blank, a comma or a semicolon"))
        }
        value => Ok(value),
    }
}

fn path<'v>(what: &'static str, value: &'v Path) -> Result<&'v str, BadSetting> {
    let Some(text) = value.to_str() else {
        return Err(bad(what, &value.to_string_lossy(), "it is not UTF-8"));
    };
    match plain(what, text)? {
        text if !value.is_absolute() => Err(bad(what, text, "it does not begin at the root")),
        text => Ok(text),
    }
}

/// A user, or a group behind a `@`, in quotation marks because names may hold blanks.
fn user(value: &str) -> Result<String, BadSetting> {
    const WHAT: &str = "user";
    let value = plain(WHAT, value)?;
    let name = value.strip_prefix('@').unwrap_or(value);
    let why = match name {
        "" => "a group has a name",
        name if name.starts_with(['@', '+', '&']) => "Samba gives its first character a meaning",
        name if name.contains([',', ';']) => "it has a comma or a semicolon",
        _ => return Ok(format!("\"{value}\"")),
    };
    Err(bad(WHAT, value, why))
}

#[cfg(test)]
mod tests;
