use super::*;

#[test]
fn a_document_that_says_more_removes_no_rules() {
    let filter = "<Filter><S3Key><FilterRule><Name>prefix</Name><Value>a</Value></FilterRule></S3Key></Filter>";
    let whole = format!(
        "<QueueConfiguration><Id>a</Id><Queue>q</Queue><Event>e</Event>{filter}</QueueConfiguration>\
         <TopicConfiguration><Topic>t</Topic><Event>e</Event></TopicConfiguration>\
         <CloudFunctionConfiguration><CloudFunction>f</CloudFunction><Event>e</Event></CloudFunctionConfiguration>"
    );
    for (inside, good) in [
        ("", true),
        (whole.as_str(), true),
        ("<EventBridgeConfiguration/>", true),
        // The name in the model of AWS, which is not the one of the wire.
        ("<LambdaFunctionConfiguration><Id>a</Id></LambdaFunctionConfiguration>", false),
        ("<QueueConfigurations/>", false),
        // The wire crate passes over names with a prefix.
        ("<x:QueueConfiguration xmlns:x=\"y\"><x:Queue>q</x:Queue></x:QueueConfiguration>", false),
        ("<QueueConfiguration><Events>e</Events></QueueConfiguration>", false),
    ] {
        let document = format!("<NotificationConfiguration>{inside}</NotificationConfiguration>");
        assert_eq!(check_elements(document.as_bytes()).is_ok(), good, "{inside}");
    }
}
