//! Real clients, as people install them, against the frontend over TCP. A missing client is named
//! and left out, except in CI: `.ci/run` installs all of them.

use std::process::{Command, Output};

use super::server::Server;
use stele_archive::Rights;
use stele_ground::Bytes;
use stele_object::Settings;

/// Runs a script in `tests/clients` with the server's address and keys; `needs` lists the required
/// programs.
async fn check(script: &str, needs: &[&str]) {
    for need in needs {
        let (program, arguments) = need.split_once(' ').unwrap_or((need, "--version"));
        // The text after `-c` is one argument.
        let arguments: Vec<&str> = match arguments.strip_prefix("-c ") {
            Some(code) => vec!["-c", code],
            None => vec![arguments],
        };
        let found = Command::new(program).args(arguments).output();
        if !found.is_ok_and(|output| output.status.success()) {
            assert!(std::env::var_os("CI").is_none(), "{script} needs `{need}`, and CI leaves nothing out");
            println!("left out: {script} needs `{need}`, which does not run here");
            return;
        }
    }
    let server = Server::start(Settings::default(), Bytes(2 << 30)).await;
    let (less, less_secret) = server.key(Rights::user("scoped", "mine/")).await;
    let mut command = Command::new("python3");
    command
        .arg(format!("{}/tests/clients/{script}", env!("CARGO_MANIFEST_DIR")))
        .env("S3_ENDPOINT", server.endpoint())
        .env("S3_ACCESS_KEY", &server.access_key)
        .env("S3_SECRET_KEY", &server.secret_key)
        .env("S3_LESS_ACCESS_KEY", less)
        .env("S3_LESS_SECRET_KEY", less_secret)
        .env("AWS_EC2_METADATA_DISABLED", "true");
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let Output { status, stdout, stderr } = output;
    let said = String::from_utf8_lossy(&stdout);
    println!("{said}");
    assert!(status.success(), "{script}: {status}\n{said}\n{}", String::from_utf8_lossy(&stderr));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn boto3_finds_s3_as_aws_documents_it() {
    check("boto.py", &["python3 -c import boto3"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_header_of_the_model_is_honoured_or_refused() {
    check("model.py", &["python3 -c import botocore"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_aws_command_line_works() {
    check("awscli.py", &["python3", "aws"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rclone_works() {
    check("rclone.py", &["python3", "rclone version"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restic_works() {
    check("restic.py", &["python3", "restic version"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_cors_and_lifecycle_rules_do_what_boto3_sets() {
    check("documents.py", &["python3 -c import boto3"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn temporary_credentials_work_with_boto3_and_the_aws_command_line() {
    check("sts.py", &["python3 -c import boto3", "aws"]).await;
}
