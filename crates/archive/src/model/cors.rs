//! Rules for requests that a browser sends from the page of another origin (CORS).

use minicbor::{Decode, Encode};

use crate::model::error::{ArchiveError, Result};

const RULES_MAX: usize = 100;
const ID_MAX: usize = 255;
/// Entries of one list of a rule, and bytes of one entry.
const ENTRIES_MAX: usize = 100;
const ENTRY_MAX: usize = 1024;
const METHODS: [&str; 5] = ["GET", "PUT", "POST", "DELETE", "HEAD"];

/// One rule: requests from these origins, with these methods and headers, are allowed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Encode, Decode)]
pub struct CorsRule {
    #[n(0)]
    pub id: Option<String>,
    /// Each with at most one `*`.
    #[n(1)]
    pub origins: Vec<String>,
    #[n(2)]
    pub methods: Vec<String>,
    /// Headers that a request may have, each with at most one `*`.
    #[n(3)]
    pub headers: Vec<String>,
    /// Headers of the answer that the page may read.
    #[n(4)]
    pub exposed: Vec<String>,
    /// Seconds for which a browser may remember the answer.
    #[n(5)]
    pub max_age: Option<u32>,
}

impl CorsRule {
    /// Whether the rule allows a request with this method and these headers from a page of this
    /// origin.
    pub fn allows(&self, origin: &str, method: &str, headers: &[&str]) -> bool {
        self.methods.iter().any(|allowed| allowed == method)
            && self.origins.iter().any(|pattern| fits(pattern, origin, false))
            && headers.iter().all(|header| self.headers.iter().any(|pattern| fits(pattern, header, true)))
    }

    /// Whether every origin is allowed, so that the answer does not depend on the origin.
    pub fn allows_every_origin(&self) -> bool {
        self.origins.iter().any(|origin| origin == "*")
    }
}

/// Matches a pattern with at most one `*`.
fn fits(pattern: &str, text: &str, ignore_case: bool) -> bool {
    let equal = |a: &str, b: &str| if ignore_case { a.eq_ignore_ascii_case(b) } else { a == b };
    let Some((front, back)) = pattern.split_once('*') else { return equal(pattern, text) };
    let front_fits = text.get(..front.len()).is_some_and(|start| equal(front, start));
    let rest = text.get(front.len()..).unwrap_or_default();
    front_fits && rest.len() >= back.len() && rest.get(rest.len() - back.len()..).is_some_and(|end| equal(back, end))
}

/// Checks the rules of a bucket.
pub(crate) fn check_rules(rules: &[CorsRule]) -> Result<()> {
    let refuse = |message: String| Err(ArchiveError::InvalidArgument(message));
    if rules.is_empty() || rules.len() > RULES_MAX {
        return refuse(format!("a CORS configuration has 1 to {RULES_MAX} rules, not {}", rules.len()));
    }
    for rule in rules {
        if rule.origins.is_empty() || rule.methods.is_empty() {
            return refuse("a CORS rule needs at least one AllowedOrigin and one AllowedMethod".into());
        }
        if rule.id.as_ref().is_some_and(|id| id.chars().count() > ID_MAX) {
            return refuse(format!("the id of a CORS rule has at most {ID_MAX} characters"));
        }
        let lists = [&rule.origins, &rule.methods, &rule.headers, &rule.exposed];
        if lists.iter().any(|list| list.len() > ENTRIES_MAX) {
            return refuse(format!("a list of a CORS rule has at most {ENTRIES_MAX} entries"));
        }
        for entry in lists.into_iter().flatten() {
            // What a rule says goes into headers of answers.
            if entry.is_empty() || entry.len() > ENTRY_MAX || !entry.bytes().all(|byte| byte.is_ascii_graphic()) {
                return refuse(format!(
                    "`{}` cannot be in a CORS rule: an entry has 1 to {ENTRY_MAX} visible ASCII characters",
                    entry.escape_debug()
                ));
            }
        }
        for pattern in rule.origins.iter().chain(&rule.headers) {
            if pattern.matches('*').count() > 1 {
                return refuse(format!("`{pattern}` cannot have more than one wildcard"));
            }
        }
        if let Some(method) = rule.methods.iter().find(|method| !METHODS.contains(&method.as_str())) {
            return refuse(format!("Found unsupported HTTP method in CORS config. Unsupported method is {method}"));
        }
        if let Some(header) = rule.exposed.iter().find(|header| header.contains('*')) {
            return refuse(format!("ExposeHeader `{header}` contains a wildcard, which is not allowed"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
