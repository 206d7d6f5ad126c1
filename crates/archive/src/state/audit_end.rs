//! The end of the audit log as this session last signed it, and the finding that stops the signing.

use crate::record::audit::SealedRow;
use crate::state::shared::Shared;

#[derive(Default)]
pub(crate) struct AuditEnd {
    signed: Shared<Option<SealedRow>>,
    finding: Shared<Option<String>>,
}

impl AuditEnd {
    /// The end that this session signed last. None: it has signed nothing yet.
    pub fn signed(&self) -> Option<SealedRow> {
        self.signed.look(Option::clone)
    }

    pub fn note_signed(&self, row: SealedRow) {
        self.signed.step(|signed| *signed = Some(row));
    }

    /// Why the log is not signed any more.
    pub fn finding(&self) -> Option<String> {
        self.finding.look(Option::clone)
    }

    pub fn clear_finding(&self) {
        self.finding.step(|finding| *finding = None);
    }

    /// Whether this finding is news.
    pub fn note_finding(&self, message: &str) -> bool {
        self.finding.step(|finding| finding.replace(message.into()).as_deref() != Some(message))
    }
}
