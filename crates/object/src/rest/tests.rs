//! The header of basic authentication.

use super::*;

#[test]
fn basic_authentication_is_a_key_and_its_secret() {
    let check = |header: &str, expected: Option<(&str, &str)>| {
        let found = HeaderValue::from_str(header).ok().and_then(|header| basic(&header));
        let found = found.as_ref().map(|(id, secret)| (id.as_str(), secret.as_str()));
        assert_eq!(found, expected, "{header}");
    };
    check("Basic YTpi", Some(("a", "b")));
    check("basic  YTpiOmM=", Some(("a", "b:c")));
    check("Basic YWI=", None);
    check("Basic ****", None);
    check("Bearer YTpi", None);
    check("Basic", None);
}
