//! What policies see of requests that could pass them by a spelling without effect, or take along
//! what they did not ask for.

use super::http::Ask;
use super::server::Server;
use stele_archive::{BucketChange, Caller, NewBucket, Rights};
use stele_ground::Bytes;
use stele_object::Settings;

async fn server() -> Server {
    let server = Server::start(Settings::default(), Bytes(256 << 20)).await;
    for bucket in ["bucket", "source"] {
        server.archive.create_bucket(&Caller::local(0), bucket, NewBucket::default()).await.unwrap();
    }
    server
}

async fn set_policy(server: &Server, bucket: &str, statements: &str) {
    let policy = format!(r#"{{"Version":"2012-10-17","Statement":[{statements}]}}"#);
    let change = BucketChange::Policy(Some(policy));
    server.archive.change_bucket(&Caller::local(0), bucket, change).await.unwrap();
}

fn statement(effect: &str, actions: &str, resource: &str, condition: &str) -> String {
    let head =
        format!(r#""Effect":"{effect}","Principal":"*","Action":[{actions}],"Resource":"arn:aws:s3:::{resource}""#);
    format!("{{{head}{condition}}}")
}

/// An empty delimiter lists every key, and satisfied a policy that demands one.
#[tokio::test]
async fn an_empty_parameter_satisfies_no_policy_that_demands_it() {
    let server = server().await;
    let user = server.key(Rights::user("bucket", "")).await;
    for (name, value) in [("delimiter", "%2F"), ("max-keys", "5")] {
        let condition = format!(r#","Condition":{{"Null":{{"s3:{name}":"true"}}}}"#);
        set_policy(&server, "bucket", &statement("Deny", r#""s3:ListBucket""#, "bucket", &condition)).await;
        for (query, status) in [(format!("{name}={value}"), 200), (format!("{name}="), 403), (String::new(), 403)] {
            let answer = Ask::new(&server, "GET", &format!("/bucket?{query}")).by(&user).send(&server).await;
            assert_eq!(answer.status, status, "{query}: {}", answer.text());
        }
    }
    // Policies name the empty prefix, as on AWS.
    let condition = r#","Condition":{"StringNotEquals":{"s3:prefix":["","home/"]}}"#;
    set_policy(&server, "bucket", &statement("Deny", r#""s3:ListBucket""#, "bucket", condition)).await;
    for (query, status) in [("prefix=", 200), ("prefix=home%2F", 200), ("prefix=other", 403)] {
        let answer = Ask::new(&server, "GET", &format!("/bucket?{query}")).by(&user).send(&server).await;
        assert_eq!(answer.status, status, "{query}: {}", answer.text());
    }
}

/// As on AWS. No policy was asked for the rights to read and to write tags.
#[tokio::test]
async fn a_copy_of_an_object_with_tags_takes_the_rights_of_tags() {
    let server = server().await;
    for (key, tags) in [("tagged", "a=b"), ("bare", "")] {
        let ask = Ask::new(&server, "PUT", &format!("/source/{key}")).header("x-amz-tagging", tags).body("x");
        assert_eq!(ask.send(&server).await.status, 200, "{key}");
    }
    let mut rights = Rights::user("bucket", "");
    rights.grants.extend(Rights::user("source", "").grants);
    let user = server.key(rights).await;
    let copy = async |key: &str, directive: &str, status: u16| {
        let ask = Ask::new(&server, "PUT", "/bucket/copy").header("x-amz-copy-source", &format!("source/{key}"));
        let ask = if directive.is_empty() { ask } else { ask.header("x-amz-tagging-directive", directive) };
        let answer = ask.by(&user).send(&server).await;
        assert_eq!(answer.status, status, "{key}, {directive}: {}", answer.text());
        let tags = Ask::new(&server, "GET", "/bucket/copy?tagging").send(&server).await.text();
        if status == 200 {
            assert_eq!(tags.contains("<Key>a</Key>"), key == "tagged" && directive != "REPLACE", "{tags}");
        }
    };
    let deny = |action: &str, bucket: &str| statement("Deny", action, &format!("{bucket}/*"), "");
    let harmless = |bucket: &str| deny(r#""s3:BypassGovernanceRetention""#, bucket);
    for (of_source, of_target, is_denied) in [
        (harmless("source"), harmless("bucket"), false),
        (deny(r#""s3:GetObjectTagging""#, "source"), harmless("bucket"), true),
        (harmless("source"), deny(r#""s3:PutObjectTagging""#, "bucket"), true),
    ] {
        set_policy(&server, "source", &of_source).await;
        set_policy(&server, "bucket", &of_target).await;
        copy("bare", "", 200).await;
        copy("tagged", "REPLACE", 200).await;
        for directive in ["", "COPY"] {
            copy("tagged", directive, if is_denied { 403 } else { 200 }).await;
        }
    }
    // A copy onto itself without tags changes nothing as before.
    let ask = Ask::new(&server, "PUT", "/source/bare").header("x-amz-copy-source", "source/bare");
    let answer = ask.by(&user).send(&server).await;
    assert_eq!((answer.status, answer.code().as_str()), (400, "InvalidRequest"), "{}", answer.text());
}

/// A policy that gives a caller the writing of objects alone gives no tags along.
#[tokio::test]
async fn a_policy_that_allows_a_copy_allows_no_tags_by_that() {
    let server = server().await;
    for (key, tags) in [("tagged", "a=b"), ("bare", "")] {
        let ask = Ask::new(&server, "PUT", &format!("/source/{key}")).header("x-amz-tagging", tags).body("x");
        assert_eq!(ask.send(&server).await.status, 200, "{key}");
    }
    // It may write somewhere else, and has what it does here from the policies.
    let user = server.key(Rights::user("elsewhere", "")).await;
    let copy = async |key: &str| {
        let ask = Ask::new(&server, "PUT", "/bucket/copy").header("x-amz-copy-source", &format!("source/{key}"));
        ask.by(&user).send(&server).await.status
    };
    let allow = |actions: &str, bucket: &str| statement("Allow", actions, &format!("{bucket}/*"), "");
    let (read, write) = (r#""s3:GetObject""#, r#""s3:PutObject""#);
    let (read_tags, write_tags) = (r#","s3:GetObjectTagging""#, r#","s3:PutObjectTagging""#);
    for (of_source, of_target, status) in
        [("", "", 403), (read_tags, "", 403), ("", write_tags, 403), (read_tags, write_tags, 200)]
    {
        set_policy(&server, "source", &allow(&format!("{read}{of_source}"), "source")).await;
        set_policy(&server, "bucket", &allow(&format!("{write}{of_target}"), "bucket")).await;
        assert_eq!(copy("bare").await, 200, "{of_source} {of_target}");
        assert_eq!(copy("tagged").await, status, "{of_source} {of_target}");
    }
}

/// The archive has no object without a key.
#[tokio::test]
async fn an_empty_key_of_a_batch_is_refused_as_no_document_of_s3() {
    let server = server().await;
    assert_eq!(Ask::new(&server, "PUT", "/bucket/k").body("x").send(&server).await.status, 200);
    for keys in ["<Object><Key></Key></Object>", "<Object><Key>k</Key></Object><Object><Key/></Object>"] {
        let document = format!("<Delete>{keys}</Delete>");
        let ask = Ask::new(&server, "POST", "/bucket?delete").header("content-md5", &super::strict::md5(&document));
        let answer = ask.body(document).send(&server).await;
        assert_eq!((answer.status, answer.code().as_str()), (400, "MalformedXML"), "{keys}: {}", answer.text());
    }
    assert_eq!(Ask::new(&server, "HEAD", "/bucket/k").send(&server).await.status, 200, "nothing was deleted");
}
