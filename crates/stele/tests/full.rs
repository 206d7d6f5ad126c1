//! A pool that runs full: the right refusal, no partly stored object, and a way out.

use crate::support::http::between;
use crate::support::pool::wreck_volume;
use crate::support::server::good;
use crate::support::{Place, content, wait_for};

const LENGTH: usize = 12 << 20;

#[test]
fn a_full_pool_refuses_whole_objects_and_serves_on() {
    let place = Place::new("full");
    place.pool(5);
    let server = place.serve();
    let keys = server.keys();
    place.json(&["bucket", "create", "fill"]);
    let put = |key: &str, body: &[u8]| {
        server.send(server.ask("PUT", &format!("/fill/{key}")).hash("UNSIGNED-PAYLOAD").body(body))
    };
    let mut stored = Vec::new();
    let refused = loop {
        let answer = put(&format!("{:03}", stored.len()), &content(stored.len() as u64, LENGTH));
        if answer.status != 200 {
            break answer;
        }
        stored.push(format!("{:03}", stored.len()));
        assert!(stored.len() < 200, "a pool of 1.3 GB does not hold this much");
    };
    assert!(stored.len() >= 10, "{} objects, then {}", stored.len(), refused.text());
    assert_eq!((refused.status, refused.code().as_str()), (507, "InsufficientStorage"), "{}", refused.text());
    let message = between(&refused.text(), "<Message>", "</Message>").unwrap();
    assert!(message.contains("segment") || message.contains("room"), "{message}");

    // A multipart upload is refused too, and can still be aborted.
    let begun = server.send(server.ask("POST", "/fill/parts?uploads"));
    if begun.status == 200 {
        let id = between(&begun.text(), "<UploadId>", "</UploadId>").unwrap();
        let part = server.ask("PUT", &format!("/fill/parts?partNumber=1&uploadId={id}")).hash("UNSIGNED-PAYLOAD");
        let answer = server.send(part.body(content(1, 5 << 20)));
        assert!(matches!(answer.status, 200 | 507), "{}", answer.text());
        good(server.delete(&format!("/fill/parts?uploadId={id}")));
    } else {
        assert_eq!(begun.status, 507, "{}", begun.text());
    }

    // No object is stored partly, and all others are intact.
    let listed = good(server.get("/fill?list-type=2")).text();
    assert_eq!(listed.matches("<Key>").count(), stored.len(), "{listed}");
    assert_eq!(server.get(&format!("/fill/{:03}", stored.len())).code(), "NoSuchKey");
    for (seed, key) in stored.iter().enumerate() {
        assert!(good(server.get(&format!("/fill/{key}"))).body == content(seed as u64, LENGTH), "{key}");
    }
    let alarmed = |name: &str| {
        wait_for(name, || {
            server.plain("/metrics").text().contains(&format!("stele_alarm{{alarm=\"{name}\"}} 1")).then_some(())
        });
    };
    alarmed("space-low");

    // Deletes work and free space.
    let (gone, kept) = stored.split_at(stored.len() / 2);
    for key in gone {
        good(server.delete(&format!("/fill/{key}")));
    }
    // Try with little data, since the space of a refused upload must be reclaimed too.
    wait_for("room after deletes", || (put("little", b"fits").status == 200).then_some(()));
    good(put("again", &content(999, LENGTH)));
    assert!(good(server.get("/fill/again")).body == content(999, LENGTH));
    for key in kept {
        assert_eq!(good(server.get(&format!("/fill/{key}"))).body.len(), LENGTH);
    }
    // Fill the pool again, for the next part.
    let mut more = 0;
    while put(&format!("more{more}"), &content(more, LENGTH)).status == 200 {
        more += 1;
    }
    server.stop();

    // Without space for a second catalog nothing is overwritten: drives must be added first.
    wreck_volume(&place, "catalog");
    place.refused(6, &["no room", "stele pool add"], &["catalog", "rebuild", "--yes"]);
    let more: Vec<String> =
        (0..2).map(|number| format!("{}@{}", place.path(&format!("more{number}.img")), 10 + number)).collect();
    place.json(&["pool", "add", "--size", "512MiB", "--drive", &more[0], "--drive", &more[1]]);
    let report = place.json(&["catalog", "rebuild", "--yes"]);
    assert_eq!(report["catalog_volume"].as_str(), Some("catalog-2"), "{report}");
    let server = place.serve().with_keys(keys);
    for key in kept {
        let seed: u64 = key.parse().unwrap();
        assert!(good(server.get(&format!("/fill/{key}"))).body == content(seed, LENGTH), "{key}");
    }
}
