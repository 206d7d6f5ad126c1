//! Event notifications of a bucket.
//!
//! An ARN names a target of the server's configuration, `arn:stele:sqs::NAME:webhook` or
//! `...:file`. A client cannot name an address or a path: the server would otherwise send requests
//! and write files wherever a client says.

use super::{Answer, Wire, only, plain_elements};
use crate::call::Call;
use crate::refusal::{refuse, translated};
use s3s::dto::*;
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};
use std::sync::Arc;
use stele_archive::{BucketChange, NotificationRule, TargetForm};

/// The elements of a rule besides its target.
const OF_RULES: [&str; 7] = [
    "Id",
    "Event",
    "Filter",
    "Filter/S3Key",
    "Filter/S3Key/FilterRule",
    "Filter/S3Key/FilterRule/Name",
    "Filter/S3Key/FilterRule/Value",
];
/// The elements of rules and of their targets.
const RULES: [(&str, &str); 3] =
    [("QueueConfiguration", "Queue"), ("TopicConfiguration", "Topic"), ("CloudFunctionConfiguration", "CloudFunction")];

/// GetBucketNotificationConfiguration. Empty where nothing is set.
pub async fn get(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<GetBucketNotificationConfigurationInput>,
) -> Answer<GetBucketNotificationConfigurationOutput> {
    let rules = wire.archive.notifications(&call.caller, &request.input.bucket).await.map_err(translated)?;
    let mut output = GetBucketNotificationConfigurationOutput::default();
    for rule in rules.into_iter().flatten() {
        let events = rule.events.into_iter().map(Event::from).collect();
        let (filter, id, arn) = (told_filter(rule.prefix, rule.suffix), Some(rule.id), rule.arn);
        match rule.form {
            TargetForm::Queue => {
                let told = QueueConfiguration { events, filter, id, queue_arn: arn };
                output.queue_configurations.get_or_insert_default().push(told);
            }
            TargetForm::Topic => {
                let told = TopicConfiguration { events, filter, id, topic_arn: arn };
                output.topic_configurations.get_or_insert_default().push(told);
            }
            TargetForm::Function => {
                let told = LambdaFunctionConfiguration { events, filter, id, lambda_function_arn: arn };
                output.lambda_function_configurations.get_or_insert_default().push(told);
            }
        }
    }
    Ok(S3Response::new(output))
}

/// PutBucketNotificationConfiguration. Replaces all rules; an empty document removes them.
pub async fn set(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<PutBucketNotificationConfigurationInput>,
) -> Answer<PutBucketNotificationConfigurationOutput> {
    check_elements(&call.document)?;
    let input = request.input;
    let configuration = input.notification_configuration;
    if configuration.event_bridge_configuration.is_some() {
        return Err(refuse(S3ErrorCode::NotImplemented, "Amazon EventBridge is not implemented."));
    }
    let mut rules = Vec::new();
    for queue in configuration.queue_configurations.into_iter().flatten() {
        rules.push(read(wire, TargetForm::Queue, queue.id, queue.queue_arn, queue.events, queue.filter)?);
    }
    for topic in configuration.topic_configurations.into_iter().flatten() {
        rules.push(read(wire, TargetForm::Topic, topic.id, topic.topic_arn, topic.events, topic.filter)?);
    }
    for function in configuration.lambda_function_configurations.into_iter().flatten() {
        let (arn, events) = (function.lambda_function_arn, function.events);
        rules.push(read(wire, TargetForm::Function, function.id, arn, events, function.filter)?);
    }
    // AWS makes up an id where a rule has none.
    let number = rules.len();
    for (at, rule) in rules.iter_mut().enumerate().filter(|(_, rule)| rule.id.is_empty()) {
        rule.id = format!("notification-{}-of-{number}", at + 1);
    }
    let change = BucketChange::Notifications((!rules.is_empty()).then_some(rules));
    wire.archive.change_bucket(&call.caller, &input.bucket, change).await.map_err(translated)?;
    Ok(S3Response::new(PutBucketNotificationConfigurationOutput::default()))
}

/// Refuses an element that the wire crate would pass over: a document that says more than is
/// understood would remove rules.
fn check_elements(document: &[u8]) -> S3Result<()> {
    const ROOT: &str = "NotificationConfiguration";
    let mut known = vec![ROOT.to_owned(), format!("{ROOT}/EventBridgeConfiguration")];
    for (rule, target) in RULES {
        known.extend([format!("{ROOT}/{rule}"), format!("{ROOT}/{rule}/{target}")]);
        known.extend(OF_RULES.iter().map(|element| format!("{ROOT}/{rule}/{element}")));
    }
    only(&plain_elements(document)?, &known.iter().map(String::as_str).collect::<Vec<_>>())
}

fn read(
    wire: &Wire,
    form: TargetForm,
    id: Option<String>,
    arn: String,
    events: EventList,
    filter: Option<NotificationConfigurationFilter>,
) -> S3Result<NotificationRule> {
    let target = target_of(wire, form, &arn)?;
    let (mut prefix, mut suffix) = (None, None);
    for rule in filter.and_then(|filter| filter.key).and_then(|key| key.filter_rules).into_iter().flatten() {
        let name = rule.name.as_ref().map_or("", FilterRuleName::as_str).to_ascii_lowercase();
        let affix = match name.as_str() {
            "prefix" => &mut prefix,
            "suffix" => &mut suffix,
            _ => return Err(invalid("filter rule name must be either prefix or suffix")),
        };
        if affix.replace(rule.value.unwrap_or_default()).is_some() {
            return Err(invalid("Cannot specify more than one prefix rule and one suffix rule in a filter."));
        }
    }
    let events = events.iter().map(|event| event.as_ref().to_owned()).collect();
    Ok(NotificationRule { id: id.unwrap_or_default(), form, target, arn, events, prefix, suffix })
}

/// The target's name in an ARN, if the configuration has such a target.
fn target_of(wire: &Wire, form: TargetForm, arn: &str) -> S3Result<String> {
    let service = match form {
        TargetForm::Queue => "sqs",
        TargetForm::Topic => "sns",
        TargetForm::Function => "lambda",
    };
    let parts: Vec<&str> = arn.split(':').collect();
    let ["arn", "stele", named, _region, name, kind] = parts.as_slice() else {
        return Err(invalid(
            "The ARN is not well formed: it is arn:stele:sqs::NAME:webhook or arn:stele:sqs::NAME:file",
        ));
    };
    let known = wire.settings.notification_targets.get(*name).is_some_and(|known| known == kind);
    if *named != service || !known {
        return Err(invalid("Unable to validate the following destination configurations"));
    }
    Ok((*name).to_owned())
}

fn told_filter(prefix: Option<String>, suffix: Option<String>) -> Option<NotificationConfigurationFilter> {
    let rule = |name, value| FilterRule { name: Some(FilterRuleName::from_static(name)), value: Some(value) };
    let prefix = prefix.map(|value| rule(FilterRuleName::PREFIX, value));
    let rules: Vec<_> = prefix.into_iter().chain(suffix.map(|value| rule(FilterRuleName::SUFFIX, value))).collect();
    let key = S3KeyFilter { filter_rules: Some(rules) };
    (key.filter_rules.as_ref().is_some_and(|rules| !rules.is_empty()))
        .then_some(NotificationConfigurationFilter { key: Some(key) })
}

fn invalid(message: &'static str) -> S3Error {
    refuse(S3ErrorCode::InvalidArgument, message)
}

#[cfg(test)]
mod tests;
