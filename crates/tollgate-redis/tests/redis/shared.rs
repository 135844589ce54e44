//! Processes that share a limit admit exactly as much as the limit allows.

use crate::load::{AGES, Limiter, exhaust, on_each_server, patient};
use futures_util::future::join_all;
use serde_json::json;
use std::time::Duration;
use tollgate::{Algorithm, Quota};
use tollgate_testing::store::nodes::{Nodes, node};
use tollgate_testing::store::wait::run;

const LIMIT: u64 = 1_500;
const TASKS: usize = 32;

#[test]
#[ignore = "a node that other tests start"]
fn greedy_node() {
    node(|node| {
        run(async {
            let client = patient(node.var("URL"));
            client.connect().await.unwrap();
            node.ready();
            let mut admitted = Vec::new();
            for algorithm in Algorithm::ALL {
                let name = format!("shared-{algorithm}");
                let builder = Limiter::builder(&client, name, Quota::new(LIMIT, AGES));
                let limiter = builder.algorithm(algorithm).deadline(Duration::from_secs(20)).build().unwrap();
                let each = (0..TASKS).map(|_| exhaust(&limiter, "alice"));
                admitted.push(join_all(each).await.into_iter().sum::<u64>());
                let stats = limiter.stats();
                assert_eq!((stats.by_fallback, stats.unanswered), (0, 0));
            }
            node.say(json!(admitted));
        });
    });
}

#[test]
fn two_processes_under_full_load_admit_exactly_the_limit() {
    on_each_server(async |server| {
        let mut nodes = Nodes::start(2, "shared::greedy_node", &[("URL", &server.url())]);
        nodes.go();
        let said = nodes.finish();
        for (number, algorithm) in Algorithm::ALL.into_iter().enumerate() {
            let each: Vec<_> = said.iter().map(|said| said[number].as_u64().unwrap()).collect();
            println!("{algorithm}: {each:?}");
            assert_eq!(each.iter().sum::<u64>(), LIMIT, "{algorithm}: {each:?}");
        }
    });
}
