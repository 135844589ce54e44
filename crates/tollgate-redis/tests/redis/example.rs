//! Tests the example with classes, run by two processes.

use crate::load::{on_each_server, patient};
use serde_json::json;
use shared_classes::Service;
use std::time::{Duration, Instant};
use tollgate_testing::store::nodes::{Nodes, node};
use tollgate_testing::store::wait::run;

#[allow(dead_code, reason = "its `main` reads the arguments of the program")]
#[path = "../../examples/shared_classes.rs"]
mod shared_classes;

const REQUESTS: usize = 700;

#[test]
#[ignore = "a node that other tests start"]
fn serving_node() {
    node(|node| {
        run(async {
            let client = patient(node.var("URL"));
            let service = Service::new(&client).unwrap();
            client.connect().await.unwrap();
            node.ready();
            let free = service.admitted("free", "bob", REQUESTS).await;
            let paid = service.admitted("paid", "alice", REQUESTS).await;
            node.say(json!([free, paid]));
        });
    });
}

#[test]
fn a_free_caller_is_admitted_ten_times_by_two_processes_in_all() {
    on_each_server(async |server| {
        let begun = Instant::now();
        let mut nodes = Nodes::start(2, "example::serving_node", &[("URL", &server.url())]);
        nodes.go();
        let said = nodes.finish();
        let time = begun.elapsed();
        let admitted = |class: usize| said.iter().map(|said| said[class].as_u64().unwrap()).sum::<u64>();
        // On a very busy machine, tokens refill during the test.
        let most = |limit: u64| limit + limit * (time.as_secs() + 1) / 60;
        assert!((10..=most(10)).contains(&admitted(0)), "{said:?} in {time:?}");
        assert!((1_000..=most(1_000)).contains(&admitted(1)), "{said:?} in {time:?}");
        if time < Duration::from_secs(6) {
            assert_eq!(admitted(0), 10, "{said:?}");
        }
    });
}
