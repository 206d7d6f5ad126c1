//! Numbers as fio writes them: sizes in powers of 1024 (`kib` and its like are powers of 1000, as
//! its documentation has it), times in the unit that a key has by default.

/// Bytes, or a share of something.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Amount {
    #[default]
    Unsaid,
    Bytes(u64),
    Percent(u64),
}

pub fn bytes(text: &str) -> Option<u64> {
    let text = text.trim().to_ascii_lowercase();
    if let Some(digits) = text.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).ok();
    }
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let power = |letter: char| "kmgtp".find(letter).map(|at| at as u32 + 1);
    let mut letters = unit.chars();
    let scale = match (letters.next(), letters.as_str()) {
        (None | Some('b'), "") => 1,
        (Some(letter), "" | "b" | "i") => 1024u64.pow(power(letter)?),
        (Some(letter), "ib") => 1000u64.pow(power(letter)?),
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(scale)
}

pub fn amount(text: &str) -> Result<Amount, String> {
    const LIKE: &str = "bytes are needed, like 64k or 1g, or a share like 20%";
    match text.strip_suffix('%') {
        Some(share) => share.parse().ok().filter(|share| *share <= 100).map(Amount::Percent).ok_or(LIKE.into()),
        None => bytes(text).map(Amount::Bytes).ok_or(LIKE.into()),
    }
}

/// Nanoseconds; `unit` is that of a number without one.
pub fn time(text: &str, unit: &str) -> Result<u64, String> {
    let text = text.trim().to_ascii_lowercase();
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, said) = text.split_at(split);
    let scale: u64 = match if said.is_empty() { unit } else { said } {
        "us" | "usec" => 1_000,
        "ms" | "msec" => 1_000_000,
        "s" | "sec" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        _ => return Err("a time is needed, like 30s, 500ms or 2m".into()),
    };
    let scaled = number.parse::<u64>().ok().and_then(|number| number.checked_mul(scale));
    scaled.ok_or_else(|| "a time is needed, like 30s, 500ms or 2m".into())
}

/// fio takes a key without a value for true.
pub fn truth(text: &str) -> Result<bool, String> {
    match text {
        "" | "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => Err("it is 0 or 1".into()),
    }
}

pub fn whole(text: &str) -> Result<u32, String> {
    text.parse().ok().filter(|count| *count > 0).ok_or_else(|| "a whole number above 0 is needed".into())
}

pub fn count(text: &str) -> Result<u64, String> {
    bytes(text).ok_or_else(|| "a whole number is needed".into())
}

pub fn percent(text: &str) -> Result<u8, String> {
    let value = text.parse().ok().filter(|percent| *percent <= 100);
    value.ok_or_else(|| "a percentage is a whole number up to 100".into())
}

/// Of reads, and of writes; one value is for both, an empty one leaves what was.
pub fn both<T: Copy>(text: &str, before: [T; 2], of: impl Fn(&str) -> Result<T, String>) -> Result<[T; 2], String> {
    let mut parts = text.split(',').map(str::trim);
    let each = |part: &str, before: T| if part.is_empty() { Ok(before) } else { of(part) };
    let read = each(parts.next().unwrap_or_default(), before[0])?;
    match parts.next() {
        None => Ok([read, read]),
        Some(part) => Ok([read, each(part, before[1])?]),
    }
}

#[cfg(test)]
mod tests;
