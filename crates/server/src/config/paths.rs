//! The paths that a configuration names. An empty one would count as the data directory itself:
//! heads, sockets or secrets would be looked for there under no name.

use std::path::{Path, PathBuf};

use super::Config;

impl Config {
    /// The files and sockets that the server uses for itself, each with its key. Drives and
    /// directories are not among them.
    pub fn own_files(&self) -> Vec<(&'static str, &Path)> {
        let Config { s3, nbd, nfs, smb, admin, archive, messages, .. } = self;
        let settings: [(&str, &Option<PathBuf>); 15] = [
            ("[s3] tls_certificate", &s3.tls_certificate),
            ("[s3] tls_key", &s3.tls_key),
            ("[nbd] socket", &nbd.socket),
            ("[nbd] tls_certificate", &nbd.tls_certificate),
            ("[nbd] tls_key", &nbd.tls_key),
            ("[nbd] client_authority", &nbd.client_authority),
            ("[nfs] tls_certificate", &nfs.tls_certificate),
            ("[nfs] tls_key", &nfs.tls_key),
            ("[nfs] client_authority", &nfs.client_authority),
            ("[smb] include", &smb.include),
            ("[admin] socket", &admin.socket),
            ("[archive] heads_bucket_key", &archive.heads_bucket_key),
            ("[archive] heads_timestamp_ca", &archive.heads_timestamp_ca),
            ("[archive] heads_witness_key", &archive.heads_witness_key),
            ("[messages] mail_password", &messages.mail_password),
        ];
        let key_file = archive.master_key.strip_prefix("file:").map(Path::new);
        let key_file = key_file.map(|path| ("[archive] master_key", path));
        settings.into_iter().filter_map(|(key, path)| Some((key, path.as_deref()?))).chain(key_file).collect()
    }

    /// The first key whose path is empty.
    pub(super) fn empty_path(&self) -> Option<String> {
        let is_empty = |path: &Path| path.as_os_str().is_empty();
        let own = self.own_files().into_iter();
        let heads = [("[archive] heads", self.archive.heads.as_path())].into_iter();
        let also = self.archive.heads_also.iter().map(|path| ("[archive] heads_also", path.as_path()));
        let data = self.data.iter().map(|path| ("data", path.as_path()));
        let mut named = own.chain(heads).chain(also).chain(data);
        let mut targets = self.notifications.iter();
        match named.find(|(_, path)| is_empty(path)) {
            Some((key, _)) => Some(key.to_owned()),
            None => {
                let target = targets.find(|(_, target)| target.file.as_deref().is_some_and(is_empty));
                target.map(|(name, _)| format!("[notifications.{name}] file"))
            }
        }
    }
}
