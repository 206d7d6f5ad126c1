//! NFS version 3 by hand, for calls that no packaged client makes.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

const MOUNT: (u32, u32) = (100_005, 3);
const NFS: (u32, u32) = (100_003, 3);

/// Sets the mode of a file in the root of an export. The error is the NFS status.
pub fn set_mode(port: u16, export: &str, name: &str, uid: u32, mode: u32) -> Result<(), u32> {
    let mut client = Client::new(port, uid);
    let root = client.mount(export);
    let file = client.lookup(&root, name)?;
    let mut body = opaque(&file);
    // The mode; no owner, group, size and times; no guard.
    [1, mode, 0, 0, 0, 0, 0, 0].iter().for_each(|word: &u32| body.extend_from_slice(&word.to_be_bytes()));
    status(&client.call(NFS, 2, &body))
}

pub fn remove(port: u16, export: &str, name: &str, uid: u32) -> Result<(), u32> {
    let mut client = Client::new(port, uid);
    let root = client.mount(export);
    let body = [opaque(&root), opaque(name.as_bytes())].concat();
    status(&client.call(NFS, 12, &body))
}

/// The status of a call whose server went away before it answered.
pub const GONE: u32 = u32::MAX;

/// One connection; every failure is the NFS status, or `GONE`.
pub struct Client {
    stream: TcpStream,
    uid: u32,
    xid: u32,
}

impl Client {
    pub fn new(port: u16, uid: u32) -> Client {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
        Client { stream, uid, xid: 1 }
    }

    pub fn mount(&mut self, export: &str) -> Vec<u8> {
        let answer = self.call(MOUNT, 1, &opaque(export.as_bytes()));
        status(&answer).unwrap();
        taken(&answer[4..])
    }

    pub fn lookup(&mut self, directory: &[u8], name: &str) -> Result<Vec<u8>, u32> {
        let answer = self.call(NFS, 3, &[opaque(directory), opaque(name.as_bytes())].concat());
        status(&answer)?;
        Ok(taken(&answer[4..]))
    }

    pub fn create(&mut self, directory: &[u8], name: &str) -> Result<(), u32> {
        // Unchecked; a mode of 0666; nothing else is set.
        let how = words(&[0, 1, 0o666, 0, 0, 0, 0, 0]);
        status(&self.call(NFS, 8, &[opaque(directory), opaque(name.as_bytes()), how].concat()))
    }

    pub fn remove(&mut self, directory: &[u8], name: &str) -> Result<(), u32> {
        status(&self.call(NFS, 12, &[opaque(directory), opaque(name.as_bytes())].concat()))
    }

    pub fn rename(&mut self, directory: &[u8], from: &str, to: &str) -> Result<(), u32> {
        let names = [opaque(directory), opaque(from.as_bytes()), opaque(directory), opaque(to.as_bytes())];
        status(&self.call(NFS, 14, &names.concat()))
    }

    pub fn set_size(&mut self, file: &[u8], size: u64) -> Result<(), u32> {
        // No mode, owner and group; the size; no times, no guard.
        let body = [opaque(file), words(&[0, 0, 0, 1]), size.to_be_bytes().to_vec(), words(&[0, 0, 0])].concat();
        self.patient(2, &body).map(drop)
    }

    pub fn write(&mut self, file: &[u8], offset: u64, data: &[u8], stable: bool) -> Result<(), u32> {
        let how = words(&[data.len() as u32, if stable { 2 } else { 0 }]);
        let body = [opaque(file), offset.to_be_bytes().to_vec(), how, opaque(data)].concat();
        self.patient(7, &body).map(drop)
    }

    pub fn commit(&mut self, file: &[u8]) -> Result<(), u32> {
        self.patient(21, &[opaque(file), vec![0; 12]].concat()).map(drop)
    }

    /// The write verifier: another one tells that unstable writes may be lost.
    pub fn verifier(&mut self, file: &[u8]) -> Vec<u8> {
        let answer = self.patient(21, &[opaque(file), vec![0; 12]].concat()).unwrap();
        answer[answer.len() - 8..].to_vec()
    }

    pub fn read_all(&mut self, file: &[u8]) -> Vec<u8> {
        self.try_read_all(file).unwrap()
    }

    pub fn try_read_all(&mut self, file: &[u8]) -> Result<Vec<u8>, u32> {
        let mut all = Vec::new();
        loop {
            let body = [opaque(file), (all.len() as u64).to_be_bytes().to_vec(), words(&[1 << 20])].concat();
            let answer = self.patient(6, &body)?;
            let mut rest = after_attributes(&answer[4..]);
            let (end, length) = (word(&rest[4..]) != 0, word(&rest[8..]) as usize);
            rest = &rest[12..];
            all.extend_from_slice(&rest[..length]);
            if end {
                return Ok(all);
            }
        }
    }

    /// The names in a directory.
    pub fn names(&mut self, directory: &[u8]) -> Vec<String> {
        let (mut names, mut cookie, mut verifier) = (Vec::new(), 0u64, vec![0; 8]);
        loop {
            let place = [cookie.to_be_bytes().to_vec(), verifier, words(&[60_000])].concat();
            let answer = self.call(NFS, 16, &[opaque(directory), place].concat());
            status(&answer).unwrap();
            let rest = after_attributes(&answer[4..]);
            verifier = rest[..8].to_vec();
            let mut rest = &rest[8..];
            while word(rest) == 1 {
                let name = taken(&rest[12..]);
                rest = &rest[16 + name.len().next_multiple_of(4)..];
                cookie = u64::from_be_bytes(rest[..8].try_into().unwrap());
                rest = &rest[8..];
                let name = String::from_utf8(name).unwrap();
                if name != "." && name != ".." {
                    names.push(name);
                }
            }
            if word(&rest[4..]) == 1 {
                return names;
            }
        }
    }

    /// A call that the server may ask to repeat later.
    fn patient(&mut self, procedure: u32, body: &[u8]) -> Result<Vec<u8>, u32> {
        const JUKEBOX: u32 = 10_008;
        super::wait_for("the server to take a call", || {
            let answer = self.call(NFS, procedure, body);
            match status(&answer) {
                Err(JUKEBOX) => None,
                other => Some(other.map(|()| answer)),
            }
        })
    }

    /// The result of a call that the server accepted.
    fn call(&mut self, (program, version): (u32, u32), procedure: u32, body: &[u8]) -> Vec<u8> {
        self.xid += 1;
        let mut call = Vec::new();
        for word in [self.xid, 0, 2, program, version, procedure] {
            call.extend_from_slice(&word.to_be_bytes());
        }
        // AUTH_SYS: stamp, no machine name, user, group, no other groups. Then an empty verifier.
        for word in [1, 20, 0, 0, self.uid, self.uid, 0, 0, 0] {
            call.extend_from_slice(&word.to_be_bytes());
        }
        call.extend_from_slice(body);
        let mut answer = match self.exchange(&call) {
            Ok(answer) => answer,
            Err(error) if error.kind() == ErrorKind::WouldBlock => panic!("no answer for a minute"),
            Err(_) => return GONE.to_be_bytes().to_vec(),
        };
        // Transaction, reply, accepted, an empty verifier of two words, success.
        assert_eq!(answer[8..12], [0; 4], "the server refused the call");
        assert_eq!(answer[20..24], [0; 4], "the server could not carry out the call");
        answer.split_off(24)
    }

    fn exchange(&mut self, call: &[u8]) -> std::io::Result<Vec<u8>> {
        let mark = 0x8000_0000 | call.len() as u32;
        self.stream.write_all(&[&mark.to_be_bytes()[..], call].concat())?;
        let mut mark = [0; 4];
        self.stream.read_exact(&mut mark)?;
        let mut answer = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
        self.stream.read_exact(&mut answer)?;
        Ok(answer)
    }
}

fn status(answer: &[u8]) -> Result<(), u32> {
    match u32::from_be_bytes(answer[..4].try_into().unwrap()) {
        0 => Ok(()),
        error => Err(error),
    }
}

fn opaque(bytes: &[u8]) -> Vec<u8> {
    let mut written = (bytes.len() as u32).to_be_bytes().to_vec();
    written.extend_from_slice(bytes);
    written.resize(written.len().next_multiple_of(4), 0);
    written
}

fn taken(bytes: &[u8]) -> Vec<u8> {
    let length = u32::from_be_bytes(bytes[..4].try_into().unwrap()) as usize;
    bytes[4..4 + length].to_vec()
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[..4].try_into().unwrap())
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// What follows attributes that may be there.
fn after_attributes(bytes: &[u8]) -> &[u8] {
    match word(bytes) {
        0 => &bytes[4..],
        _ => &bytes[88..],
    }
}
