//! More drives are lost than the code tolerates: the store names the lost data, serves everything
//! else, and invents nothing.

use crate::support::server::good;
use crate::support::{Place, content};

const LENGTH: usize = 300_000;

#[test]
fn a_third_lost_drive_costs_what_can_be_named_and_no_more() {
    let place = Place::new("losses");
    let server = place.up();
    let keys = server.keys();
    place.json(&["bucket", "create", "records", "--lock", "--retention", "compliance:1y"]);
    let count = 120;
    for seed in 0..count {
        server.put(&format!("/records/{seed:02}"), &content(seed, LENGTH));
    }
    server.stop();
    let away = place.0.join("away");
    std::fs::create_dir(&away).unwrap();
    let lost = ["e0-0.img", "e2-1.img", "e4-0.img"];
    for name in lost {
        std::fs::rename(place.0.join("drives").join(name), away.join(name)).unwrap();
    }

    // Twice, since a restart must not forget the losses.
    for round in 0..2 {
        let server = place.up().with_keys(keys.clone());
        let listed = good(server.get("/records?list-type=2")).text();
        assert!(listed.matches("<Key>").count() >= count as usize, "the catalog answers: {listed}");
        let (mut whole, mut named) = (0, 0);
        for seed in 0..count {
            let answer = server.get(&format!("/records/{seed:02}"));
            let body = content(seed, LENGTH);
            if answer.status == 200 {
                assert!(body.starts_with(&answer.body), "{seed}: bytes were invented");
                whole += u32::from(answer.body.len() == LENGTH);
                assert!(answer.body.len() == LENGTH || answer.closed, "{seed}: short, and not cut off");
            } else {
                let text = answer.text();
                assert_eq!((answer.status, answer.code().as_str()), (500, "InternalError"), "{text}");
                assert!(text.contains(&format!("{seed:02}")) && text.contains("stripe"), "object and stripe: {text}");
                named += 1;
            }
        }
        assert!(whole > 0, "round {round}: stripes that lie beside the lost drives are readable");
        assert!(named > 0, "round {round}: three drives of twelve meet some stripes three times");
        // A write that cannot have its full protection is refused, whether the data volume still
        // takes some writes or none.
        let put = server.send(server.ask("PUT", "/records/new").body("new"));
        assert!(put.status == 200 || put.status >= 500, "{}\n{}", put.head, put.text());
        let status = place.json(&["pool", "status"]);
        let missing = |drive: &&serde_json::Value| matches!(drive["health"].as_str(), Some("missing" | "failed"));
        assert_eq!(status["drives"].as_array().unwrap().iter().filter(missing).count(), 3, "{status}");
        if round == 0 { server.kill() } else { server.stop() }
    }

    // The drives come back, and everything is readable again.
    for name in lost {
        std::fs::rename(away.join(name), place.0.join("drives").join(name)).unwrap();
    }
    let server = place.up().with_keys(keys);
    for seed in 0..count {
        assert!(good(server.get(&format!("/records/{seed:02}"))).body == content(seed, LENGTH), "{seed}");
    }
}
