//! Each fault is visible to a client of a real server.

use crate::load::on_server;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo, RedisResult};
use std::time::{Duration, Instant};
use tokio::time::timeout;
use tollgate_testing::store::faults::{FaultProxy, Mode};
use tollgate_testing::store::server::Server;
use tollgate_testing::store::wait::{is_silent, run, until, until_async};

/// A time that is longer than any expected event takes. Tests also wait this long to see that an
/// event does not happen.
const SHORT: Duration = Duration::from_millis(100);

async fn connect(server: &Server, proxy: &FaultProxy) -> RedisResult<MultiplexedConnection> {
    // Only the tests have timeouts.
    let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    server.client_at(proxy.address()).get_multiplexed_async_connection_with_config(&config).await
}

async fn incr(connection: &mut MultiplexedConnection) -> RedisResult<i64> {
    redis::cmd("INCR").arg("hits").query_async(connection).await
}

/// Returns a server, a proxy in front of the server, and a connection through both that has been
/// used once.
async fn connected() -> (Server, FaultProxy, MultiplexedConnection) {
    let server = Server::start();
    let proxy = FaultProxy::start(server.address()).await;
    let mut connection = connect(&server, &proxy).await.unwrap();
    assert_eq!(incr(&mut connection).await.unwrap(), 1);
    (server, proxy, connection)
}

/// Returns the server's count. The query bypasses the proxy.
fn hits(server: &Server) -> i64 {
    server.ask(&["GET", "hits"])
}

#[test]
fn what_passes_is_counted() {
    run(async {
        let (server, proxy, mut connection) = connected().await;
        let before = proxy.passed();
        assert_eq!(before.connections, 1);
        assert_eq!(incr(&mut connection).await.unwrap(), 2);
        let now = proxy.passed();
        // The request is "*2\r\n$4\r\nINCR\r\n$4\r\nhits\r\n", and the reply is ":2\r\n". A reply
        // is counted after it has been written.
        assert_eq!(now.requests - before.requests, 24);
        until("the reply is counted", || proxy.passed().replies - before.replies == 4);
        let _second = connect(&server, &proxy).await.unwrap();
        assert_eq!(proxy.passed().connections, 2);
    });
}

#[test]
fn a_delay_is_taken_each_way_and_does_not_add_up() {
    run(async {
        let (_server, proxy, mut connection) = connected().await;
        proxy.set(Mode::Delay(SHORT / 2));
        let begun = Instant::now();
        assert_eq!(incr(&mut connection).await.unwrap(), 2);
        assert!(begun.elapsed() >= SHORT, "{:?}", begun.elapsed());
        // Twenty concurrent requests take little more time than one.
        let begun = Instant::now();
        let all = (0..20).map(|_| {
            let mut connection = connection.clone();
            tokio::spawn(async move { incr(&mut connection).await.unwrap() })
        });
        for one in all.collect::<Vec<_>>() {
            one.await.unwrap();
        }
        assert!((SHORT..10 * SHORT).contains(&begun.elapsed()), "{:?}", begun.elapsed());
    });
}

#[test]
fn what_was_held_arrives_when_the_network_heals() {
    run(async {
        let (server, proxy, mut connection) = connected().await;
        proxy.set(Mode::Hold);
        assert!(is_silent(SHORT, incr(&mut connection)).await);
        assert_eq!(hits(&server), 1);
        proxy.set(Mode::Pass);
        // The caller gave up on the first request, but the server has executed it.
        assert_eq!(incr(&mut connection).await.unwrap(), 3);
    });
}

#[test]
fn in_a_black_hole_connections_are_made_and_nothing_is_answered() {
    run(async {
        let (server, proxy, mut connection) = connected().await;
        proxy.set(Mode::BlackHole);
        assert!(is_silent(SHORT, incr(&mut connection)).await);
        assert!(is_silent(SHORT, async { connect(&server, &proxy).await.is_ok() }).await);
        assert_eq!(proxy.passed().connections, 2);
        assert_eq!(hits(&server), 1);
        // A connection that has lost bytes never recovers its framing. A new connection works.
        proxy.set(Mode::Pass);
        assert!(is_silent(SHORT, incr(&mut connection)).await);
        let mut new = connect(&server, &proxy).await.unwrap();
        assert_eq!(incr(&mut new).await.unwrap(), 2);
    });
}

#[test]
fn a_half_open_connection_is_silent_for_ever_and_new_ones_work() {
    run(async {
        let (server, proxy, mut connection) = connected().await;
        proxy.set(Mode::HalfOpen);
        let mut new = connect(&server, &proxy).await.unwrap();
        assert_eq!(incr(&mut new).await.unwrap(), 2);
        assert!(is_silent(SHORT, incr(&mut connection)).await);
        // Frozen connections stay frozen. New connections are frozen when the mode is set again.
        proxy.set(Mode::Pass);
        assert!(is_silent(SHORT, incr(&mut connection)).await);
        assert_eq!(incr(&mut new).await.unwrap(), 3);
        proxy.set(Mode::HalfOpen);
        proxy.set(Mode::Pass);
        assert!(is_silent(SHORT, incr(&mut new)).await);
    });
}

#[cfg(target_os = "linux")]
#[test]
fn the_packets_of_a_half_open_connection_are_lost_so_the_systems_own_timeout_sees_it() {
    on_server(async |server| {
        let proxy = FaultProxy::start(server.address()).await;
        let settings = TcpSettings::default().set_user_timeout(3 * SHORT);
        let info = server.url_at(proxy.address()).into_connection_info().unwrap().set_tcp_settings(settings);
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let client = Client::open(info).unwrap();
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await.unwrap();
        incr(&mut connection).await.unwrap();
        // A black hole acknowledges the bytes that it swallows, but a half-open connection does
        // not.
        proxy.set(Mode::HalfOpen);
        let failed = timeout(Duration::from_secs(10), incr(&mut connection)).await.expect("it is noticed");
        let error = failed.unwrap_err();
        assert!(error.is_io_error() && error.is_timeout(), "{error:?}");
    });
}

#[test]
fn a_reset_breaks_what_is_connected_and_what_connects() {
    run(async {
        let (server, proxy, mut connection) = connected().await;
        let mut raw = tokio::net::TcpStream::connect(proxy.address()).await.unwrap();
        until("it was taken", || server.clients() == 2);
        proxy.set(Mode::Reset);
        let broken = incr(&mut connection).await.unwrap_err();
        assert!(broken.is_connection_dropped() || broken.is_io_error(), "{broken}");
        let mut buffer = [0];
        let read = tokio::io::AsyncReadExt::read(&mut raw, &mut buffer).await.unwrap_err();
        assert_eq!(read.kind(), std::io::ErrorKind::ConnectionReset);
        assert!(connect(&server, &proxy).await.is_err());
        // However short the mode was, it affects all connections.
        proxy.set(Mode::Pass);
        let mut connection = connect(&server, &proxy).await.unwrap();
        assert_eq!(incr(&mut connection).await.unwrap(), 2);
        proxy.set(Mode::Reset);
        proxy.set(Mode::Pass);
        assert!(incr(&mut connection).await.is_err());
    });
}

#[test]
fn a_half_closed_connection_ends_for_the_client_and_still_reaches_the_server() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    run(async {
        let (server, proxy, _connection) = connected().await;
        let mut raw = tokio::net::TcpStream::connect(proxy.address()).await.unwrap();
        raw.write_all(b"INCR hits\r\n").await.unwrap();
        let mut reply = [0; 4];
        raw.read_exact(&mut reply).await.unwrap();
        assert_eq!(&reply, b":2\r\n");
        proxy.set(Mode::HalfClose);
        assert_eq!(raw.read(&mut reply).await.unwrap(), 0);
        raw.write_all(b"INCR hits\r\n").await.unwrap();
        until("it was done", || hits(&server) == 3);
    });
}

#[test]
fn slow_bytes_come_one_by_one() {
    run(async {
        let (_server, proxy, mut connection) = connected().await;
        let interval = Duration::from_millis(5);
        proxy.set(Mode::SlowBytes(interval));
        let begun = Instant::now();
        assert_eq!(incr(&mut connection).await.unwrap(), 2);
        // The request has 24 bytes, and the reply has 4.
        assert!(begun.elapsed() >= 28 * interval, "{:?}", begun.elapsed());
    });
}

#[test]
fn a_dropped_reply_is_of_a_request_that_was_done() {
    run(async {
        let (server, proxy, mut connection) = connected().await;
        proxy.set(Mode::DropReplies);
        assert!(is_silent(SHORT, incr(&mut connection)).await);
        assert_eq!(hits(&server), 2);
        // The connection receives no more replies, so a later reply can't be mistaken for the lost
        // one.
        proxy.set(Mode::Pass);
        assert!(is_silent(SHORT, incr(&mut connection)).await);
        assert_eq!(hits(&server), 3);
        assert_eq!(incr(&mut connect(&server, &proxy).await.unwrap()).await.unwrap(), 4);
    });
}

#[test]
fn a_server_that_ends_and_a_proxy_that_is_dropped_end_the_connections() {
    run(async {
        let (server, proxy, mut connection) = connected().await;
        server.kill();
        assert!(incr(&mut connection).await.is_err());
        assert!(connect(&server, &proxy).await.is_err());
        server.restart();
        let mut connection = connect(&server, &proxy).await.unwrap();
        assert_eq!(incr(&mut connection).await.unwrap(), 1);
        drop(proxy);
        until_async("the connection has ended", async || incr(&mut connection).await.is_err()).await;
        until("the server sees it", || server.clients() == 0);
    });
}
