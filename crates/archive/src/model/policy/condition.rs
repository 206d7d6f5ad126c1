//! Conditions of a statement: an operator, a key, and the values it is compared with.

use std::net::IpAddr;

use super::pattern::Pattern;
use super::{RequestFacts, normal};

/// Condition keys whose facts a frontend states.
const KEYS: [&str; 27] = [
    "aws:currenttime",
    "aws:epochtime",
    "aws:referer",
    "aws:securetransport",
    "aws:sourceip",
    "aws:useragent",
    "aws:userid",
    "aws:username",
    "s3:authtype",
    "s3:delimiter",
    "s3:if-match",
    "s3:if-none-match",
    "s3:max-keys",
    "s3:object-lock-legal-hold",
    "s3:object-lock-mode",
    "s3:object-lock-remaining-retention-days",
    "s3:object-lock-retain-until-date",
    "s3:prefix",
    "s3:requestobjecttagkeys",
    "s3:signatureversion",
    "s3:versionid",
    "s3:x-amz-acl",
    "s3:x-amz-content-sha256",
    "s3:x-amz-copy-source",
    "s3:x-amz-metadata-directive",
    "s3:x-amz-server-side-encryption",
    "s3:x-amz-server-side-encryption-customer-algorithm",
];

/// Condition keys with the name of a tag behind them.
const TAG_KEYS: [&str; 2] = ["s3:existingobjecttag", "s3:requestobjecttag"];

/// How several values of the request count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Quantifier {
    One,
    ForAny,
    ForAll,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    Equal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, PartialEq, Debug)]
enum Expected {
    Texts(Vec<Pattern>),
    Numbers(Order, Vec<f64>),
    /// In milliseconds since 1970.
    Dates(Order, Vec<i64>),
    Flag(Vec<bool>),
    /// A network: its address and the length of its prefix.
    Networks(Vec<(IpAddr, u8)>),
    /// Whether the key must be absent.
    Absent(bool),
}

/// One condition: a key and what its values have to be.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Condition {
    key: String,
    quantifier: Quantifier,
    negated: bool,
    if_exists: bool,
    expected: Expected,
}

impl Condition {
    pub fn parse(operator: &str, key: &str, values: &[String]) -> Result<Condition, String> {
        let known = normal(key);
        let tagged = known.split_once('/').is_some_and(|(name, tag)| TAG_KEYS.contains(&name) && !tag.is_empty());
        if !tagged && !KEYS.contains(&known.as_str()) {
            return Err(format!("Policy has an invalid condition key: `{key}` is not supported"));
        }
        if values.is_empty() {
            return Err(format!("the condition on `{key}` has no value"));
        }
        let (quantifier, rest) = match operator.split_once(':') {
            Some((which, rest)) if which.eq_ignore_ascii_case("ForAnyValue") => (Quantifier::ForAny, rest),
            Some((which, rest)) if which.eq_ignore_ascii_case("ForAllValues") => (Quantifier::ForAll, rest),
            Some(_) => return Err(unknown(operator)),
            None => (Quantifier::One, operator),
        };
        let lower = rest.to_ascii_lowercase();
        let (name, if_exists) = match lower.strip_suffix("ifexists") {
            Some(name) => (name, true),
            None => (lower.as_str(), false),
        };
        // Its values have no slash in front; policies may be written with it, as a request may.
        let source = |value: &String| value.strip_prefix('/').unwrap_or(value).to_owned();
        let sources: Vec<String> = match known == "s3:x-amz-copy-source" {
            true => values.iter().map(source).collect(),
            false => Vec::new(),
        };
        let values = if sources.is_empty() { values } else { &sources };
        let (negated, expected) = expected(name, values).ok_or_else(|| unknown(operator))??;
        if matches!(expected, Expected::Absent(_)) && if_exists {
            return Err(unknown(operator));
        }
        Ok(Condition { key: known, quantifier, negated, if_exists, expected })
    }

    pub fn key(&self) -> &str {
        &self.key
    }

    /// Whether it holds only for requests that have certain values, and for few of them: not for
    /// half of the internet.
    pub fn is_narrow(&self) -> bool {
        let is_small = |(network, length): &(IpAddr, u8)| *length >= if network.is_ipv4() { 8 } else { 32 };
        let few = match &self.expected {
            Expected::Networks(networks) => networks.iter().all(is_small),
            Expected::Texts(patterns) => patterns.iter().all(Pattern::is_plain),
            _ => false,
        };
        few && !self.negated && !self.if_exists && self.quantifier != Quantifier::ForAll
    }

    pub fn holds(&self, facts: &RequestFacts) -> bool {
        let values = facts.values(&self.key);
        if let Expected::Absent(absent) = self.expected {
            return values.is_empty() == absent;
        }
        if values.is_empty() {
            // As on AWS: for a missing key a negated comparison holds, "all of none" too, and "any
            // of none" does not.
            return self.if_exists
                || match self.quantifier {
                    Quantifier::One => self.negated,
                    Quantifier::ForAll => true,
                    Quantifier::ForAny => false,
                };
        }
        let fits = |value: &String| self.expected.fits(value, facts) != self.negated;
        match self.quantifier {
            Quantifier::ForAny | Quantifier::One => values.iter().any(fits),
            Quantifier::ForAll => values.iter().all(fits),
        }
    }
}

fn unknown(operator: &str) -> String {
    format!("the condition operator `{operator}` is not supported")
}

type Parsed = Result<(bool, Expected), String>;

fn expected(name: &str, values: &[String]) -> Option<Parsed> {
    let texts = |negated: bool, ignore_case: bool, wild: bool| -> Parsed {
        let read = |text: &String| match wild {
            true => Pattern::parse(text, ignore_case),
            false => Pattern::literal(text, ignore_case),
        };
        Ok((negated, Expected::Texts(values.iter().map(read).collect::<Result<_, _>>()?)))
    };
    let order = |name: &str| {
        Some(match name {
            "equals" => (false, Order::Equal),
            "notequals" => (true, Order::Equal),
            "lessthan" => (false, Order::Less),
            "lessthanequals" => (false, Order::LessOrEqual),
            "greaterthan" => (false, Order::Greater),
            "greaterthanequals" => (false, Order::GreaterOrEqual),
            _ => return None,
        })
    };
    Some(match name {
        "stringequals" => texts(false, false, false),
        "stringnotequals" => texts(true, false, false),
        "stringequalsignorecase" => texts(false, true, false),
        "stringnotequalsignorecase" => texts(true, true, false),
        "stringlike" => texts(false, false, true),
        "stringnotlike" => texts(true, false, true),
        "bool" => all(values, flag).map(|flags| (false, Expected::Flag(flags))),
        "ipaddress" => all(values, network).map(|networks| (false, Expected::Networks(networks))),
        "notipaddress" => all(values, network).map(|networks| (true, Expected::Networks(networks))),
        "null" => match values {
            [one] => flag(one).map(|absent| (false, Expected::Absent(absent))),
            _ => Err("`Null` takes one value, true or false".into()),
        },
        _ => {
            if let Some((negated, order)) = name.strip_prefix("numeric").and_then(order) {
                all(values, number).map(|numbers| (negated, Expected::Numbers(order, numbers)))
            } else {
                let (negated, order) = name.strip_prefix("date").and_then(order)?;
                all(values, date).map(|dates| (negated, Expected::Dates(order, dates)))
            }
        }
    })
}

fn all<T>(values: &[String], read: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    values.iter().map(|value| read(value)).collect()
}

fn flag(text: &str) -> Result<bool, String> {
    text.to_ascii_lowercase().parse().map_err(|_| format!("`{text}` is neither true nor false"))
}

fn number(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.trim().parse().ok();
    number.filter(|number| number.is_finite()).ok_or_else(|| format!("`{text}` is not a number"))
}

/// A date of RFC 3339, a day, or seconds since 1970, in milliseconds.
fn date(text: &str) -> Result<i64, String> {
    if let Ok(seconds) = text.parse::<u32>() {
        return Ok(i64::from(seconds) * 1000);
    }
    let whole = if text.len() == 10 { format!("{text}T00:00:00Z") } else { text.to_owned() };
    let seconds = stele_ground::calendar::parse_moment(&whole).and_then(|seconds| i64::try_from(seconds).ok());
    let seconds = seconds.and_then(|seconds| seconds.checked_mul(1000));
    seconds.ok_or_else(|| format!("`{text}` is not a date, such as 2030-01-31T12:00:00Z"))
}

fn network(text: &str) -> Result<(IpAddr, u8), String> {
    let wrong = || format!("`{text}` is not an address or a network, such as 10.1.0.0/16");
    let (address, length) = match text.split_once('/') {
        Some((address, length)) => (address, Some(length)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    if address.to_canonical() != address {
        return Err(format!("`{text}` is an IPv4 network in the form of IPv6; give it as IPv4"));
    }
    let most = if address.is_ipv4() { 32 } else { 128 };
    let length = match length {
        Some(length) => length.parse().ok().filter(|length| *length <= most).ok_or_else(wrong)?,
        None => most,
    };
    Ok((address, length))
}

impl Expected {
    fn fits(&self, value: &str, facts: &RequestFacts) -> bool {
        match self {
            Expected::Texts(patterns) => patterns.iter().any(|pattern| pattern.matches(value, facts)),
            Expected::Numbers(order, numbers) => {
                number(value).is_ok_and(|value| numbers.iter().any(|expected| order.holds(&value, expected)))
            }
            Expected::Dates(order, dates) => {
                date(value).is_ok_and(|value| dates.iter().any(|expected| order.holds(&value, expected)))
            }
            Expected::Flag(flags) => flag(value).is_ok_and(|value| flags.contains(&value)),
            Expected::Networks(networks) => {
                value.parse().is_ok_and(|address| networks.iter().any(|network| is_inside(address, *network)))
            }
            Expected::Absent(_) => false,
        }
    }
}

impl Order {
    fn holds<T: PartialOrd>(self, value: &T, expected: &T) -> bool {
        match self {
            Order::Equal => value == expected,
            Order::Less => value < expected,
            Order::LessOrEqual => value <= expected,
            Order::Greater => value > expected,
            Order::GreaterOrEqual => value >= expected,
        }
    }
}

/// Whether an address lies in a network. An IPv4 address that arrives in the form of IPv6 counts as
/// IPv4.
fn is_inside(address: IpAddr, (network, length): (IpAddr, u8)) -> bool {
    match (address.to_canonical(), network.to_canonical()) {
        (IpAddr::V4(address), IpAddr::V4(network)) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length.min(32))).unwrap_or(0);
            u32::from(address) & mask == u32::from(network) & mask
        }
        (IpAddr::V6(address), IpAddr::V6(network)) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            u128::from(address) & mask == u128::from(network) & mask
        }
        _ => false,
    }
}
