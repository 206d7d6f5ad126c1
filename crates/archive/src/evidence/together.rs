//! Signing receipts together.
//!
//! Requests whose acts became durable in one commit are answered together, and so are their
//! receipts made. Each request puts its receipt among the unsigned ones and lets the others run
//! that are ready. The first to run again makes a tree over all of them and signs its root, so that
//! a receipt costs a share of a signature. A request that finds no other one signs its receipt by
//! itself, and waits for nothing.

use std::sync::Arc;

use tokio::sync::oneshot;

use crate::evidence::receipt::{RECEIPT, RECEIPT_OF_GROUP, Receipt, ReceiptGroup, group_text};
use crate::model::checksum::to_hex;
use crate::model::merkle::MerkleTree;
use crate::state::log_tree::{SignedPlace, Unsigned};
use crate::store::Store;

impl Store {
    /// Signs a receipt, together with those that others ask for just now.
    pub(crate) async fn sign_receipt(&self, receipt: Receipt) -> Receipt {
        let format = RECEIPT_OF_GROUP.to_owned();
        let mut shared = Receipt { format, group: Some(ReceiptGroup::default()), ..receipt };
        let (answer, signed) = oneshot::channel();
        let text = *blake3::hash(&shared.text()).as_bytes();
        self.receipts().add_unsigned(Unsigned { text, answer });
        tokio::task::yield_now().await;
        self.sign_unsigned();
        // Where another request has taken it, that one does not wait before it has signed.
        match signed.await {
            Ok(Some(SignedPlace { count, index, path, signature })) => {
                let path = path.iter().map(|hash| to_hex(hash)).collect();
                shared.group = Some(ReceiptGroup { count, index, path });
                shared.signature = signature.to_string();
                shared
            }
            Ok(None) | Err(_) => self.sign_alone(shared),
        }
    }

    fn sign_alone(&self, receipt: Receipt) -> Receipt {
        let mut alone = Receipt { format: RECEIPT.into(), group: None, ..receipt };
        alone.signature = to_hex(&self.signing().sign(&alone.text()));
        alone
    }

    /// Signs for all that wait.
    fn sign_unsigned(&self) {
        let unsigned = self.receipts().take_unsigned();
        let mut tree = MerkleTree::default();
        unsigned.iter().for_each(|receipt| tree.push(&receipt.text));
        let count = tree.leaves();
        if count < 2 {
            // Its request signs it.
            unsigned.into_iter().for_each(|receipt| drop(receipt.answer.send(None)));
            return;
        }
        let whole = tree.whole();
        let signature: Arc<str> = to_hex(&self.signing().sign(&group_text(count, &whole.root()))).into();
        for (index, receipt) in (0..).zip(unsigned) {
            let signature = Arc::clone(&signature);
            // A request that went away has no use for it.
            drop(receipt.answer.send(Some(SignedPlace { count, index, path: whole.path(index), signature })));
        }
    }
}
