//! The witness that countersigns heads, as `[archive] heads_witness` names it.
//!
//! Each turn asks for the last head that it signed, and sends a new one with the proof that the log
//! goes on from there. What the witness signs is kept beside the heads in the directories and the
//! bucket, under the number of its records and the ending `.witness`.
//!
//! Failure model: the witness may be away, hang, or answer anything; only its signature over this
//! head counts. A refusal means that it has signed another log of this store, or more of it than
//! there is. Such a refusal is told at once.

use std::path::PathBuf;
use std::time::Duration;

use stele_archive::{Archive, SignedHead};
use tokio::sync::mpsc;

use super::Shown;

use crate::api::Actor;
use crate::config::{Config, Site};
use crate::failure::{Failure, Outcome};
use crate::serving::messages::webhook::Webhook;
use crate::witness::{Answer, Countersigned, Submission};

/// Time limit for each of two requests.
const PATIENCE: Duration = Duration::from_secs(8);
/// Bytes of an answer.
const ANSWER_MAX: usize = 64 << 10;

pub struct WitnessClient {
    service: Webhook,
    key: [u8; 32],
}

/// Why there is no countersignature.
pub enum Unsigned {
    /// It does not answer as a witness does; the next turn asks again.
    Silent(String),
    /// It has signed something that contradicts the head.
    Refused(String),
}

impl WitnessClient {
    /// Reads the configuration. Nothing is asked yet.
    pub fn of(site: &Site, config: &Config) -> Outcome<Option<WitnessClient>> {
        let archive = &config.archive;
        let (url, path) = match (&archive.heads_witness, &archive.heads_witness_key) {
            (None, None) => return Ok(None),
            (Some(url), Some(path)) => (url, site.path(path)),
            _ => {
                return Err(Failure::usage("[archive] has one of heads_witness and heads_witness_key")
                    .next("give both: the URL of the witness, and a copy of its witness.pub"));
            }
        };
        let service = Webhook::new(url, "[archive] heads_witness")?;
        let key = crate::evidence::public_key(&path)
            .map_err(|failure| failure.next("copy witness.pub from the directory of the witness"))?;
        Ok(Some(WitnessClient { service, key }))
    }

    pub fn name(&self) -> String {
        format!("the witness at {}", self.service.place())
    }

    async fn ask(&self, submission: &Submission) -> Result<Answer, String> {
        let text = serde_json::to_vec(submission).map_err(|error| error.to_string())?;
        let answer = self.service.ask("application/json", text, ANSWER_MAX, PATIENCE).await?;
        let answer: Answer =
            serde_json::from_slice(&answer).map_err(|error| format!("it does not answer as a witness: {error}"))?;
        if let Some(countersigned) = &answer.countersigned {
            countersigned.verify(&self.key)?;
            if countersigned.head.store != submission.store {
                return Err("it answers about another store".into());
            }
        }
        Ok(answer)
    }

    /// The last head of the store that it signed.
    pub async fn last(&self, store: &str) -> Result<Option<Countersigned>, String> {
        let asked = Submission { store: store.to_owned(), head: None, proof: None };
        let answered = self.ask(&asked).await.map_err(|why| format!("{}: {why}", self.name()))?;
        Ok(answered.countersigned)
    }

    /// The last head that it signed, to be compared at a start.
    pub(super) fn shown(self, store: String) -> (Shown, PathBuf) {
        let place = PathBuf::from(self.name());
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(async move {
            let found = match self.last(&store).await {
                Err(why) => vec![Err(Failure::failed(why))],
                Ok(None) => vec![Ok(None)],
                Ok(Some(last)) => {
                    let name = format!("{:020}.head", last.head.records);
                    vec![Ok(Some((Some(last.head), PathBuf::from(self.name()).join(name)))), Ok(None)]
                }
            };
            for found in found {
                // A start that stopped waiting asks no more.
                let _ = sender.send(found).await;
            }
        });
        (Shown(receiver), place)
    }

    /// Sends the head of the log as it is now.
    pub async fn send(&self, archive: &Archive) -> Result<Countersigned, Unsigned> {
        let silent = |why: String| Unsigned::Silent(format!("{}: {why}", self.name()));
        let head = archive.audit_head_to_send().await.map_err(|error| silent(error.to_string()))?;
        let last = self.last(&head.store).await.map_err(Unsigned::Silent)?;
        let (head, proof) = match last.filter(|last| (1..head.records).contains(&last.head.records)) {
            None => (head, None),
            Some(last) => {
                let caller = Actor { uid: crate::node::own_uid() }.caller();
                let proof = archive.consistency(&caller, &last.head, None).await;
                let proof = proof.map_err(|error| silent(error.to_string()))?;
                (proof.head.clone(), Some(proof))
            }
        };
        self.submit(head, proof).await
    }

    async fn submit(
        &self,
        head: SignedHead,
        proof: Option<stele_archive::ConsistencyProof>,
    ) -> Result<Countersigned, Unsigned> {
        let asked = Submission { store: head.store.clone(), head: Some(head.clone()), proof };
        let silent = |why: String| Unsigned::Silent(format!("{}: {why}", self.name()));
        let answer = self.ask(&asked).await.map_err(silent)?;
        if let Some(why) = answer.refused {
            return Err(Unsigned::Refused(format!("{} refused: {why}", self.name())));
        }
        match answer.countersigned {
            // It signs a log of the same end once, unless the head is dated later.
            Some(made) if made.head.link == head.link && made.head.root == head.root => Ok(made),
            _ => Err(silent("it signed another head than the one it was sent".into())),
        }
    }
}
