//! Servers can be started, killed, stopped and queried. Over TLS, a client trusts one authority.

use crate::load::on_each_server;
use redis::{Client, Value};
use std::time::{Duration, Instant};
use tollgate_testing::store::certificates::Authority;
use tollgate_testing::store::program::{Program, for_each_server};
use tollgate_testing::store::server::Server;
use tollgate_testing::store::setup::Setup;
use tollgate_testing::store::wait::{is_silent, run, until};

#[test]
fn a_server_that_is_started_again_has_lost_its_data_and_kept_its_address() {
    for_each_server(async |program| {
        let server = Server::of(program);
        assert_eq!(server.ask::<i64>(&["INCR", "hits"]), 1);
        let before = server.address();
        server.restart();
        assert_eq!(server.address(), before);
        assert_eq!(server.command(&["GET", "hits"]), Value::Nil);
        let info: String = server.ask(&["INFO", "server"]);
        assert_eq!(info.contains("valkey_version:"), program == Program::Valkey, "{info}");
    });
}

#[test]
fn a_killed_server_refuses_connections_and_a_dropped_one_leaves_no_folder() {
    let server = Server::start();
    let (client, folder) = (server.client(), server.ask::<(String, String)>(&["CONFIG", "GET", "dir"]).1);
    assert!(server.is_running() && std::path::Path::new(&folder).is_dir());
    server.kill();
    assert!(!server.is_running());
    assert!(client.get_connection().is_err_and(|error| error.is_connection_refusal()));
    drop(server);
    assert!(!std::path::Path::new(&folder).exists(), "{folder} was left");
}

#[test]
fn a_server_ends_with_a_test_that_panics() {
    let (say, hear) = std::sync::mpsc::channel();
    let test = std::thread::spawn(move || {
        let server = Server::start();
        say.send(server.client()).unwrap();
        std::panic::resume_unwind(Box::new("without a message"));
    });
    assert!(test.join().is_err());
    let client: Client = hear.recv().unwrap();
    assert!(client.get_connection().is_err_and(|error| error.is_connection_refusal()));
}

#[test]
fn a_stopped_server_answers_nothing_and_then_everything() {
    on_each_server(async |server| {
        let mut connection = server.client().get_multiplexed_async_connection().await.unwrap();
        server.stop();
        let asked = redis::cmd("INCR").arg("hits").to_owned();
        assert!(is_silent(Duration::from_millis(100), asked.query_async::<i64>(&mut connection)).await);
        server.resume();
        // The server executed the request, even though the caller had stopped waiting.
        assert_eq!(asked.query_async::<i64>(&mut connection).await.unwrap(), 2);
    });
}

#[test]
fn a_server_is_asked_for_its_keys_its_memory_its_work_and_its_time() {
    on_each_server(async |server| {
        assert_eq!(server.keys_with_ttl(), []);
        server.command(&["SET", "key-0000", "1"]);
        // There are so many keys that a scan of a thousand keys per step needs several steps.
        let many = "for i = 1, 2499 do redis.call('SET', string.format('key-%04d', i), '1', 'PX', 60000) end";
        server.command(&["EVAL", many, "0"]);
        let keys = server.keys_with_ttl();
        assert_eq!(keys.len(), 2500);
        assert_eq!(keys[0], ("key-0000".to_owned(), -1));
        assert!(keys[2499].0 == "key-2499" && (1..=60_000).contains(&keys[2499].1), "{:?}", keys[2499]);
        assert!(server.memory_usage("key-0000").is_some_and(|bytes| (16..200).contains(&bytes)));
        assert_eq!(server.memory_usage("no such key"), None);
        assert_eq!((server.calls("eval"), server.calls("evalsha"), server.calls("set")), (1, 0, 2500));
        let before = server.cpu_time();
        server.command(&["EVAL", "for i = 1, 3000000 do math.sqrt(i) end", "0"]);
        assert!(server.cpu_time() > before);
        // Closed connections are counted until the server notices.
        until("nobody else is there", || server.clients() == 0);
        let _held = server.client().get_connection().unwrap();
        assert_eq!(server.clients(), 1);
    });
}

#[test]
fn the_debug_command_puts_a_server_to_sleep() {
    on_each_server(async |server| {
        let mut connection = server.client().get_multiplexed_async_connection().await.unwrap();
        let sleep = redis::cmd("DEBUG").arg("SLEEP").arg("0.5").to_owned();
        assert!(is_silent(Duration::from_millis(50), sleep.query_async::<()>(&mut connection)).await);
        // A request waits until the server wakes.
        let begun = Instant::now();
        assert_eq!(server.ask::<i64>(&["INCR", "hits"]), 1);
        assert!(begun.elapsed() > Duration::from_millis(50), "{:?}", begun.elapsed());
    });
}

#[test]
fn a_password_is_asked_for_and_a_line_of_configuration_is_obeyed() {
    for_each_server(async |program| {
        let server = Setup::new(program).password("sesame").line("maxmemory 3mb").start();
        assert_eq!(server.ask::<(String, u64)>(&["CONFIG", "GET", "maxmemory"]).1, 3 << 20);
        let without = Client::open(server.url().replace(":sesame@", "")).unwrap();
        let refused = redis::cmd("PING").query::<()>(&mut without.get_connection().unwrap()).unwrap_err();
        assert_eq!(refused.code(), Some("NOAUTH"));
    });
}

#[test]
fn a_client_by_tls_trusts_the_authority_it_was_given_and_no_other() {
    // The test runs with Redis only, because some builds of Valkey have no TLS.
    run(async {
        let authority = Authority::new();
        let server = Setup::new(Program::Redis).tls(&authority).start();
        assert!(server.url().starts_with("rediss://"));
        assert_eq!(server.command(&["PING"]), Value::SimpleString("PONG".to_owned()));
        let mut connection = server.client().get_multiplexed_async_connection().await.unwrap();
        redis::cmd("PING").query_async::<()>(&mut connection).await.unwrap();

        let stranger = Client::build_with_tls(server.url(), Authority::new().trusted()).unwrap();
        let system = Client::open(server.url()).unwrap();
        for client in [stranger, system] {
            let refused = client.get_multiplexed_async_connection().await.map(drop).unwrap_err();
            assert!(refused.to_string().contains("certificate"), "{refused}");
        }
        // A client without TLS is rejected.
        let plain = Client::open(server.url().replace("rediss:", "redis:")).unwrap();
        assert!(plain.get_connection_with_timeout(Duration::from_secs(1)).is_err());
    });
}
