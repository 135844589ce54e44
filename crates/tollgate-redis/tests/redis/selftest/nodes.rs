//! Processes share a server and start together. They can be killed and stopped, and their output
//! can be read.

use serde_json::json;
use std::time::Duration;
use tollgate_testing::store::nodes::{Nodes, node};
use tollgate_testing::store::server::Server;
use tollgate_testing::store::wait::until;

#[test]
#[ignore = "a node that other tests start"]
fn counting_node() {
    node(|node| {
        let client = redis::Client::open(node.var("URL")).unwrap();
        let mut connection = client.get_connection().unwrap();
        node.ready();
        let mut last = 0_i64;
        for _ in 0..1000 {
            last = redis::cmd("INCR").arg("hits").query(&mut connection).unwrap();
        }
        node.say(json!({ "number": node.number(), "last": last }));
    });
}

#[test]
fn nodes_that_count_to_a_thousand_count_exactly() {
    let server = Server::start();
    let mut nodes = Nodes::start(4, "selftest::nodes::counting_node", &[("URL", &server.url())]);
    // No process starts before it is told to start.
    until("they are connected, and nobody else", || server.clients() == 4);
    assert_eq!(server.calls("incr"), 0);
    nodes.go();
    let said = nodes.finish();
    let numbers: Vec<_> = said.iter().map(|said| said["number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [0, 1, 2, 3]);
    assert_eq!(said.iter().map(|said| said["last"].as_i64().unwrap()).max(), Some(4000));
    assert_eq!(server.ask::<i64>(&["GET", "hits"]), 4000);
}

#[test]
#[ignore = "a node that other tests start"]
fn echoing_node() {
    node(|node| {
        node.ready();
        loop {
            node.say(json!(node.hear()));
        }
    });
}

#[test]
fn nodes_are_told_stopped_and_killed_one_by_one() {
    let mut nodes = Nodes::start(2, "selftest::nodes::echoing_node", &[]);
    nodes.go();
    nodes.tell_all("one");
    assert_eq!((nodes.hear(0), nodes.hear(1)), (json!("one"), json!("one")));
    nodes.stop(0);
    nodes.tell_all("two");
    assert_eq!(nodes.hear(1), "two");
    assert_eq!(nodes.heard_within(0, Duration::from_millis(50)), None);
    nodes.resume(0);
    assert_eq!(nodes.hear(0), "two");
    nodes.kill(1);
    nodes.tell_all("three");
    assert_eq!(nodes.hear(0), "three");
    assert_eq!(nodes.heard_within(1, Duration::from_secs(10)), None);
}

#[test]
#[ignore = "a node that other tests start"]
fn serving_node() {
    node(|node| {
        let server = Server::start();
        node.ready();
        node.say(json!([server.url(), server.ask::<(String, String)>(&["CONFIG", "GET", "dir"]).1]));
        node.hear();
    });
}

#[test]
fn a_server_and_its_folder_are_gone_even_if_its_process_was_killed() {
    let mut nodes = Nodes::start(1, "selftest::nodes::serving_node", &[]);
    nodes.go();
    let said = nodes.hear(0);
    let client = redis::Client::open(said[0].as_str().unwrap()).unwrap();
    assert!(client.get_connection().is_ok());
    nodes.kill(0);
    until("the server is gone", || client.get_connection().is_err_and(|error| error.is_connection_refusal()));
    until("the folder is gone", || !std::path::Path::new(said[1].as_str().unwrap()).exists());
}
