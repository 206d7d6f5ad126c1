//! Why a command failed, in words: SAM status and sense data, fixed or by descriptors.

const CHECK_CONDITION: u8 = 0x02;
const BUSY: u8 = 0x08;
const RESERVATION_CONFLICT: u8 = 0x18;
const TASK_SET_FULL: u8 = 0x28;
const UNIT_ATTENTION: u8 = 6;

/// Key, additional code and qualifier of what came with a response.
fn parse(data: &[u8]) -> Option<(u8, u8, u8)> {
    let length = usize::from(u16::from_be_bytes([*data.first()?, *data.get(1)?]));
    let sense = data.get(2..2 + length)?;
    match sense.first()? & 0x7f {
        0x70 | 0x71 => Some((sense.get(2)? & 0xf, *sense.get(12)?, *sense.get(13)?)),
        0x72 | 0x73 => Some((sense.get(1)? & 0xf, *sense.get(2)?, *sense.get(3)?)),
        _ => None,
    }
}

/// It says what was before, or that there is much to do: the same command may be sent again.
pub fn is_passing(status: u8, data: &[u8]) -> bool {
    match status {
        BUSY | TASK_SET_FULL => true,
        CHECK_CONDITION => parse(data).is_some_and(|(key, ..)| key == UNIT_ATTENTION),
        _ => false,
    }
}

pub fn words(status: u8, data: &[u8]) -> String {
    let (key, code, qualifier) = match status {
        CHECK_CONDITION => match parse(data) {
            Some(sense) => sense,
            None => return "the target reports an error, and not which one".into(),
        },
        BUSY => return "the target is busy".into(),
        RESERVATION_CONFLICT => return "another host has reserved the unit".into(),
        TASK_SET_FULL => return "the target has no room for another command".into(),
        status => return format!("the target ended the command with status {status:#04x}"),
    };
    let kind = match key {
        1 => "recovered error",
        2 => "not ready",
        3 => "medium error",
        4 => "hardware error",
        5 => "illegal request",
        UNIT_ATTENTION => "unit attention",
        7 => "data protect",
        8 => "blank check",
        0xa => "copy aborted",
        0xb => "aborted command",
        0xd => "volume overflow",
        0xe => "miscompare",
        _ => "no sense",
    };
    let what = match (code, qualifier) {
        (0x03, _) | (0x0c, _) => "a write failed",
        (0x04, _) => "the unit does not work now",
        (0x11, _) => "a read failed that cannot be repaired",
        (0x20, 0) => "it does not know this command",
        (0x21, 0) => "the place is beyond the end of the unit",
        (0x24, 0) => "it does not accept a field of the command",
        (0x25, 0) => "there is no such unit",
        (0x26, _) => "it does not accept a parameter",
        (0x27, 7) => "there is no room left to write to",
        (0x27, _) => "it is write-protected",
        (0x28, _) => "its medium was changed",
        (0x29, _) => "it was reset",
        (0x2a, _) => "its parameters were changed",
        (0x3a, _) => "it has no medium",
        (0x44, _) => "internal failure of the target",
        (0x47, _) => "data was damaged on its way",
        _ => "",
    };
    let what = if what.is_empty() { String::new() } else { format!(": {what}") };
    format!("{kind}{what} (sense {key:x}/{code:02x}/{qualifier:02x})")
}
