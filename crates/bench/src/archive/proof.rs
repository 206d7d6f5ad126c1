//! The retention proof of many versions: its making into files, and its verification.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use stele_archive::{BundleFiles, ProofSelection, verify_bundle};

use super::store::{KEPT, admin, words};
use super::{Run, SPEED, check, prefix};

const EXPORT: &str = "proof, export";
const VERIFY: &str = "proof, verify";
pub const CASES: [&str; 2] = [EXPORT, VERIFY];
const PROVEN_MAX: u64 = 100_000;

struct Directory(PathBuf);

impl BundleFiles for Directory {
    fn names(&self) -> Result<Vec<String>, String> {
        let entries = fs::read_dir(&self.0).map_err(words)?;
        entries.map(|entry| Ok(entry.map_err(words)?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn open(&self, name: &str) -> Result<Box<dyn Read + '_>, String> {
        Ok(Box::new(BufReader::new(File::open(self.0.join(name)).map_err(words)?)))
    }
}

impl Run<'_> {
    pub fn proof(&mut self) -> Result<(), String> {
        if !CASES.iter().any(|case| self.bench.wants(case)) {
            return Ok(());
        }
        let (prefix, count) = prefix(self.versions, PROVEN_MAX);
        let directory = self.store.directory.join("proof");
        fs::create_dir_all(&directory).map_err(words)?;
        let begin = Instant::now();
        self.runtime.block_on(self.export(prefix, &directory))?;
        let exported = count as f64 / begin.elapsed().as_secs_f64();
        let listed = self.versions as f64 / (self.walk()? / 1e3);
        self.bench.figure(EXPORT, SPEED, exported, Some(("list of all versions", listed)), None);
        let begin = Instant::now();
        let verdict = verify_bundle(&Directory(directory), None)?;
        check("proven", verdict.versions, count)?;
        let verified = count as f64 / begin.elapsed().as_secs_f64();
        self.bench.figure(VERIFY, SPEED, verified, Some(("list of all versions", listed)), None);
        self.bench.note(&format!(
            "the proof is of {count} versions and {} of {} records of the audit log, which the export reads once",
            verdict.records, verdict.head_records
        ));
        Ok(())
    }

    async fn export(&self, prefix: &str, directory: &Path) -> Result<(), String> {
        let selection = ProofSelection { bucket: KEPT.into(), prefix: prefix.into(), matter: None };
        let mut export = self.store.archive.export_proof(&admin(), selection).await.map_err(words)?;
        let mut files = BTreeMap::new();
        while let Some(piece) = export.next().await.map_err(words)? {
            if let Some(signature) = piece.signature {
                let digits = signature.as_bytes().chunks(2);
                let bytes = digits.map(|pair| u8::from_str_radix(&String::from_utf8_lossy(pair), 16).map_err(words));
                fs::write(directory.join("manifest.sig"), bytes.collect::<Result<Vec<u8>, _>>()?).map_err(words)?;
            }
            let file = match files.entry(piece.file) {
                std::collections::btree_map::Entry::Occupied(open) => open.into_mut(),
                std::collections::btree_map::Entry::Vacant(new) => {
                    let path = directory.join(new.key());
                    new.insert(BufWriter::new(File::create(path).map_err(words)?))
                }
            };
            file.write_all(piece.text.as_bytes()).map_err(words)?;
        }
        files.into_values().try_for_each(|mut file| file.flush().map_err(words))
    }
}
