//! What is lost of a strip in a spare cell may still lie at home.
//!
//! The drive of the spare cell may be away when the home drive returns. Or the strip moved with
//! gaps, because too many drives failed their reads at that time. Nothing has overwritten what lies
//! at home, since the cell belongs to the same row. So the units that the spare cell lacks are
//! looked for there. Their digests tell whether they are what was stored last.

use stele_media::Priority;

use crate::engine::Engine;
use crate::formats::entry::{DigestKind, LOST};
use crate::stripe::{Columns, StripPlace, Stripe};

impl Engine {
    /// Takes the lost units of the member's strip from its home where they verify there. False when
    /// there were none.
    pub(super) async fn find_at_home(
        &self,
        of: &Stripe,
        home: StripPlace,
        member: usize,
        columns: &mut Columns,
    ) -> bool {
        let is_sought = |(strip, unit): &(usize, usize)| *strip == member && of.digest(*strip, *unit) != LOST;
        // A CRC-32C stays the same under some writes: what lies at home may be older.
        let tells_versions = of.binding.kind() != DigestKind::Crc32c;
        if !tells_versions || !columns.lost.iter().any(is_sought) {
            return false;
        }
        let mut before = of.clone();
        before.places[member] = home;
        let found = self.ask_units(&before, member, 0..of.shape.units, Priority::Rebuild).await;
        let Some(strip) = columns.strips.get_mut(member).and_then(Option::as_mut) else { return false };
        let lost = columns.lost.len();
        columns.lost.retain(|sought| {
            let is_found = is_sought(sought) && found.good[sought.1];
            if is_found {
                let bytes = of.shape.bytes_of(sought.1..sought.1 + 1);
                strip[bytes.clone()].copy_from_slice(&found.buffer[bytes]);
            }
            !is_found
        });
        columns.lost.len() < lost
    }
}
