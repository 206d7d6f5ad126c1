//! smbd over a mounted tree in memory, used with smbclient.
//!
//! Needs /dev/fuse, root, and the programs smbd, smbpasswd and smbclient. Without them the test
//! says so and passes, except where `CI` is set.

use std::fs::{self, Permissions};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, Signal};
use stele_file::fuse::{MountOptions, mount};
use stele_file::samba::{DIRECTORIES, SambaConfig, SambaShare, smb_conf};
use stele_file::{Caller, Files, MemoryFiles, Moment};
use tokio::runtime::Runtime;

const USER: &str = "root%secret";

/// A running smbd, which ends with it.
struct Server {
    smbd: Child,
    configuration: PathBuf,
    port: u16,
}

impl Server {
    fn start(directory: &Path, share: &Path) -> Server {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
        let port = listener.local_addr().expect("it has an address").port();
        drop(listener);
        for below in DIRECTORIES {
            fs::create_dir_all(directory.join(below)).expect("a directory is made");
        }
        let networks = |networks: &[&str]| networks.iter().map(|text| text.parse().expect("a network")).collect();
        let share = |name: &str, read_only, valid_users| SambaShare {
            name: name.into(),
            path: share.into(),
            read_only,
            networks: networks(&["10.9.9.0/24", "127.0.0.1", "::1"]),
            valid_users,
        };
        let config = SambaConfig {
            directory: directory.into(),
            interfaces: vec!["127.0.0.1".into()],
            port,
            workgroup: "WORKGROUP".into(),
            include: None,
            shares: vec![
                share("records", false, vec!["root".into()]),
                share("reading", true, Vec::new()),
                share("others", false, vec!["daemon".into()]),
                SambaShare { networks: networks(&["10.9.9.0/24", "::1"]), ..share("elsewhere", false, Vec::new()) },
                SambaShare { networks: networks(&["fd00::/8", "126.0.0.0/7"]), ..share("wide", true, Vec::new()) },
            ],
        };
        let configuration = directory.join("smb.conf");
        fs::write(&configuration, smb_conf(&config).expect("it is in order")).expect("it is written");
        let mut password = Command::new("smbpasswd");
        password.args(["-L", "-s", "-a", "root", "-c"]).arg(&configuration).stdin(Stdio::piped());
        let mut password = password.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("smbpasswd starts");
        let mut input = password.stdin.take().expect("it reads");
        std::io::Write::write_all(&mut input, b"secret\nsecret\n").expect("it reads");
        drop(input);
        assert!(password.wait().expect("it ends").success());
        // At its end smbd signals its process group.
        let mut smbd = Command::new("smbd");
        smbd.args(["--foreground", "--no-process-group"]).arg(format!("--configfile={}", configuration.display()));
        let smbd = smbd.process_group(0).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("smbd starts");
        let mut server = Server { smbd, configuration, port };
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(server.smbd.try_wait().expect("it is a child").is_none(), "smbd has ended");
            std::thread::yield_now();
        }
        server
    }

    fn run(&self, share: &str, commands: &str) -> Output {
        let mut client = Command::new("smbclient");
        client.arg(format!("//127.0.0.1/{share}")).args(["-p", &self.port.to_string(), "-U", USER, "-c", commands]);
        client.arg(format!("--configfile={}", self.configuration.display()));
        client.output().expect("smbclient starts")
    }

    /// What smbclient says; all of its commands must succeed.
    fn ask(&self, share: &str, commands: &str) -> String {
        let output = self.run(share, commands);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && !text.contains("NT_STATUS"), "{commands}: {text} {output:?}");
        text
    }

    /// The status with which the commands are refused.
    fn refused(&self, share: &str, commands: &str) -> String {
        let output = self.run(share, commands);
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let group = Pid::from_child(&self.smbd);
        rustix::process::kill_process_group(group, Signal::TERM).unwrap_or_default();
        self.smbd.wait().expect("smbd ends");
    }
}

fn able() -> bool {
    let has = |program: &str| {
        let mut version = Command::new(program);
        version.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
    };
    let root = rustix::process::geteuid().is_root();
    let able = root && Path::new("/dev/fuse").exists() && has("smbd") && has("smbclient") && has("smbpasswd");
    if !able {
        assert!(std::env::var_os("CI").is_none(), "smbd over a mount does not run here, and CI leaves nothing out");
        eprintln!("skipped: needs /dev/fuse, root, smbd, smbpasswd and smbclient");
    }
    able
}

#[test]
fn smbclient_uses_a_share() {
    if !able() {
        return;
    }
    let top = std::env::temp_dir().join(format!("stele-samba-{}", std::process::id()));
    let (tree, samba) = (top.join("tree"), top.join("samba"));
    fs::create_dir_all(&tree).expect("a directory is made");
    let runtime = Runtime::new().expect("a runtime starts");
    let now = || {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
        Moment::from_nanoseconds(since.as_nanos() as i128)
    };
    let files = Arc::new(MemoryFiles::new(now));
    let options = MountOptions { dos_attributes: true, ..MountOptions::default() };
    let mut mounted = mount(files.clone(), &tree, &options, None, runtime.handle().clone()).expect("it is mounted");
    let server = Server::start(&samba, &tree);

    // Content, in pieces larger than one request.
    let (source, back) = (top.join("source"), top.join("back"));
    let content: Vec<u8> = (0..9_000_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(&source, &content).expect("it is written");
    let (from, to) = (source.display(), back.display());
    server.ask("records", &format!("mkdir d; cd d; put {from} f; rename f g; get g {to}"));
    assert!(fs::read(&back).expect("it came back") == content);
    assert!(fs::read(tree.join("d/g")).expect("it is in the tree") == content);
    assert!(server.ask("records", "cd d; ls").contains("9000000"));

    // Read-only takes the write permissions, which commits a file; the access time is its
    // retention.
    let mode = || {
        let found = async {
            let directory = files.lookup(&Caller::ROOT, files.root(), b"d").await?;
            files.lookup(&Caller::ROOT, directory.inode, b"g").await
        };
        runtime.block_on(found).expect("it is there").mode
    };
    assert_eq!(mode(), 0o666);
    server.ask("records", "cd d; setmode g +r");
    // Samba sees that the owner may change attributes.
    assert_eq!((mode(), fs::metadata(tree.join("d/g")).expect("it is there").mode() & 0o777), (0o444, 0o644));
    assert!(server.ask("records", "cd d; allinfo g").contains("attributes: RA "));
    fs::set_permissions(tree.join("d/g"), Permissions::from_mode(0o644)).expect("a mode is set");
    assert!(server.ask("records", "cd d; allinfo g").contains("attributes: A "));
    fs::set_permissions(tree.join("d/g"), Permissions::from_mode(0o444)).expect("a mode is set");
    assert!(server.ask("records", "cd d; allinfo g").contains("attributes: RA "));
    server.ask("records", &format!("cd d; put {from} h"));
    assert!(server.refused("records", "cd d; rename h g -f").contains("NT_STATUS_ACCESS_DENIED"));
    server.ask("records", "cd d; del h");
    server.ask("records", "cd d; setmode g -r; utimes g -1 2033:05:18-03:33:20 -1 -1");
    let file = fs::metadata(tree.join("d/g")).expect("it is there");
    assert_eq!((file.mode() & 0o200, file.atime()), (0o200, 2_000_000_000));

    // An alternate stream lies in the file's attributes.
    fs::write(&source, b"aside").expect("it is written");
    server.ask("records", &format!("put {from} d/g:note; get d/g:note {to}"));
    assert_eq!(fs::read(&back).expect("it came back"), b"aside");
    let mut names = [0; 200];
    let length = rustix::fs::listxattr(tree.join("d/g"), &mut names).expect("they are listed");
    assert!(String::from_utf8_lossy(&names[..length]).contains("user.DosStream.note"));

    // Names without regard to case, and what is refused.
    assert!(server.ask("records", "ls D/G").contains("9000000"));
    assert!(server.refused("reading", &format!("put {from} x")).contains("NT_STATUS_ACCESS_DENIED"));
    assert!(server.refused("others", "ls").contains("NT_STATUS_ACCESS_DENIED"));
    assert!(server.refused("elsewhere", "ls").contains("NT_STATUS_ACCESS_DENIED"), "another network's share");
    server.ask("wide", "ls");
    assert!(server.refused("records", "rmdir d").contains("NT_STATUS_DIRECTORY_NOT_EMPTY"));
    server.ask("records", "del d/g; rmdir d");
    assert_eq!(fs::read_dir(&tree).expect("it is listed").count(), 0);

    drop(server);
    while mounted.unmount().is_err() {
        std::thread::yield_now();
    }
    fs::remove_dir_all(&top).expect("it is removed");
}
