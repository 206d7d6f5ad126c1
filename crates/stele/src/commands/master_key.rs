//! Runs `stele master-key`.

use std::path::Path;

use stele_server::api::acts::MasterKeyRequestCall;
use stele_server::api::archive as calls;
use stele_server::config::Site;
use stele_server::connection::read_officer;
use stele_server::failure::{Failure, Kind, Outcome, io_failure};
use stele_server::files::Draft;
use stele_server::whole;

use crate::cli::master_key::MasterKeyCommand;
use crate::commands::approve::asked;
use crate::commands::archive::ask;
use crate::commands::print_json;

/// More than a key in text takes.
const KEY_ROOM: usize = 4096;

pub async fn run(site: &Site, json: bool, command: MasterKeyCommand) -> Outcome<()> {
    match command {
        MasterKeyCommand::Export(given) => export(site, json, &given.to).await,
        MasterKeyCommand::Request(given) => {
            let officer = read_officer(&given.officer)?;
            asked(json, &ask(site, MasterKeyRequestCall { officer }).await?)
        }
        MasterKeyCommand::Verify(given) => verify(site, json, &given.file).await,
    }
}

async fn export(site: &Site, json: bool, to: &Path) -> Outcome<()> {
    refuse_standard_output(to, "the master key")?;
    // The call uses up what officers approved, and the log then says that the key left.
    let mut draft = Draft::private(to)?;
    draft.reserve(KEY_ROOM)?;
    let exported = ask(site, calls::MasterKeyExportCall {}).await?;
    draft.put(format!("{}\n", exported.key).as_bytes())?;
    draft.keep()?;
    if json {
        return print_json(&serde_json::json!({ "file": to }));
    }
    println!("Master key written to {}. Keep it away from this machine.", to.display());
    println!("Prove that it opens this store: stele master-key verify {}", to.display());
    Ok(())
}

/// A secret that goes to standard output is soon in a log or in a terminal's history.
pub fn refuse_standard_output(to: &Path, secret: &str) -> Outcome<()> {
    match to == Path::new("-") {
        true => Err(Failure::usage(format!("--to -: {secret} is not written to standard output"))
            .next("name a new file, as in --to /media/usb/FILE; a file called - is named ./-")),
        false => Ok(()),
    }
}

async fn verify(site: &Site, json: bool, file: &Path) -> Outcome<()> {
    let text = whole::read_text(file).map_err(|error| io_failure("read the exported key", file, &error))?;
    let found = ask(site, calls::MasterKeyVerifyCall { key: of_file(file, &text)?.to_owned() }).await?;
    if json {
        print_json(&found)?;
    } else if found.opens {
        println!("{} opens this store.", file.display());
    }
    if found.opens {
        return Ok(());
    }
    Err(Failure::new(Kind::Refused, format!("the key in {} does not open this store", file.display()))
        .next("find the right copy, or export one now with `stele master-key export` while the store still opens"))
}

/// The key in the text of a file.
fn of_file<'a>(file: &Path, text: &'a str) -> Outcome<&'a str> {
    let key = text.trim();
    match stele_archive::MasterKey::parse(key) {
        Ok(_) => Ok(key),
        Err(error) => Err(Failure::new(Kind::Refused, format!("{} holds no master key: {error}", file.display()))
            .next("name the file that `stele master-key export` wrote")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_key_is_named() {
        let key = "0123456789abcdef".repeat(4);
        assert_eq!(of_file(Path::new("a.key"), &format!("{key}\n")), Ok(key.as_str()));
        for text in ["", "paid 300\n", &key[1..]] {
            let refused = of_file(Path::new("a.key"), text).unwrap_err();
            assert!(
                refused.kind == Kind::Refused && refused.error.starts_with("a.key holds no master key"),
                "{refused}"
            );
        }
    }

    #[test]
    fn a_secret_goes_to_a_file_alone() {
        let refused = refuse_standard_output(Path::new("-"), "the master key").unwrap_err();
        assert!(refused.kind == Kind::Usage && !refused.next.is_empty(), "{refused}");
        for file in ["./-", "a.key", "/media/usb/-"] {
            assert_eq!(refuse_standard_output(Path::new(file), "the master key"), Ok(()), "{file}");
        }
    }
}
