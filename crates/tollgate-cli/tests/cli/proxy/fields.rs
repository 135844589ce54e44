//! Tests which fields of a message the proxy removes, adds and preserves (RFC 9110, 7.6).

use super::running::{Proxy, within};
use super::upstream::{Upstream, full, hello, status};
use super::wire::{asking, get, read_until, send};
use http::{Response, StatusCode};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

#[tokio::test]
async fn what_belongs_to_one_hop_ends_there() {
    let upstream = Upstream::echo().await;
    let proxy = Proxy::start(upstream.address, &[]);
    let fields = "Connection: X-Secret, keep-alive\r\nX-Secret: 1\r\nKeep-Alive: 5\r\nTE: gzip\r\n\
                  Proxy-Authorization: Basic eA==\r\nProxy-Connection: close\r\nUpgrade: h2c\r\n\
                  Authorization: Bearer x\r\nX-Kept: 2\r\n";
    let reply = get(proxy.address, "/", fields).await;
    for name in
        ["x-secret", "keep-alive", "te", "proxy-authorization", "proxy-connection", "upgrade", "connection"]
    {
        assert_eq!(reply.echoed(name), [""; 0], "{name}: {reply:?}");
    }
    assert_eq!((reply.echoed("authorization"), reply.echoed("x-kept")), (vec!["Bearer x"], vec!["2"]));
    assert_eq!((reply.echoed("via"), reply.field("via")), (vec!["1.1 tollgate"], Some("1.1 tollgate")));
}

#[tokio::test]
async fn nobody_names_away_or_forges_what_the_proxy_adds() {
    let upstream = Upstream::echo().await;
    let proxy = Proxy::start(upstream.address, &[]);
    let fields = "Connection: x-forwarded-for, X-Forwarded-Host, x-forwarded-proto, via, host, forwarded\r\n\
                  X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Host: evil.example\r\nX-Forwarded-Proto: https\r\n\
                  X-Real-IP: 192.0.2.1\r\nForwarded: for=192.0.2.1\r\n";
    let reply = get(proxy.address, "/", fields).await;
    let expected = [
        ("x-forwarded-for", vec!["127.0.0.1"]),
        ("x-forwarded-host", vec!["example.org"]),
        ("x-forwarded-proto", vec!["http"]),
        ("host", vec!["example.org"]),
        ("via", vec!["1.1 tollgate"]),
        ("x-real-ip", vec![]),
        ("forwarded", vec![]),
    ];
    for (name, values) in expected {
        assert_eq!(reply.echoed(name), values, "{name}: {reply:?}");
    }
}

#[tokio::test]
async fn a_trusted_proxys_word_is_passed_on_on_one_line_even_if_connection_names_it() {
    let upstream = Upstream::echo().await;
    let proxy = Proxy::start(upstream.address, &["--trust", "127.0.0.1"]);
    let fields = "Connection: x-forwarded-for\r\nX-Forwarded-For: 192.0.2.1\r\nX-Forwarded-For: 192.0.2.2\r\n\
                  X-Forwarded-Proto: https\r\nVia: 1.1 front\r\n";
    let reply = get(proxy.address, "/", fields).await;
    assert_eq!(reply.echoed("x-forwarded-for"), ["192.0.2.1, 192.0.2.2, 127.0.0.1"]);
    assert_eq!(reply.echoed("via"), ["1.1 front, 1.1 tollgate"]);
    assert_eq!(reply.echoed("x-forwarded-proto"), ["https"]);
}

#[tokio::test]
async fn forwarded_is_written_if_it_was_chosen() {
    let upstream = Upstream::echo().await;
    let proxy = Proxy::start(upstream.address, &["--forwarded-field", "forwarded"]);
    let reply = get(proxy.address, "/", "X-Forwarded-For: 192.0.2.1\r\n").await;
    assert_eq!(reply.echoed("forwarded"), ["for=127.0.0.1;proto=http;host=\"example.org\""]);
    assert_eq!(reply.echoed("x-forwarded-for"), [""; 0]);
}

#[tokio::test]
async fn a_field_with_one_address_names_the_client_to_the_upstream() {
    let upstream = Upstream::echo().await;
    let field = ["--forwarded-field", "x-client-ip"];
    let trusting = Proxy::start(upstream.address, &[&field[..], &["--trust", "127.0.0.1"]].concat());
    let fields = "X-Client-IP: 192.0.2.1\r\nX-Forwarded-For: 198.51.100.7\r\nX-Real-IP: 198.51.100.7\r\n";
    let reply = get(trusting.address, "/", fields).await;
    assert_eq!(reply.echoed("x-client-ip"), ["192.0.2.1"]);
    assert_eq!(reply.echoed("x-forwarded-for"), ["192.0.2.1, 127.0.0.1"]);
    assert_eq!(reply.echoed("x-real-ip"), [""; 0]);
    let reply = get(Proxy::start(upstream.address, &field).address, "/", fields).await;
    assert_eq!(reply.echoed("x-client-ip"), ["127.0.0.1"]);
    assert_eq!(reply.echoed("x-forwarded-for"), ["127.0.0.1"]);
}

#[tokio::test]
async fn the_host_is_the_clients_or_the_upstreams() {
    let upstream = Upstream::echo().await;
    for (args, host) in [(&[][..], "example.org"), (&["--host", "upstream"], &upstream.address.to_string())] {
        let proxy = Proxy::start(upstream.address, args);
        let reply = get(proxy.address, "/", "").await;
        assert_eq!(reply.echoed("host"), [host]);
        // The host in the target overrides the field `Host`.
        let request = "GET http://other.example/x HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\n\r\n";
        let reply = send(proxy.address, request).await;
        assert!(reply.body.starts_with("GET /x HTTP/1.1\n"), "{reply:?}");
        assert_eq!(reply.echoed("x-forwarded-host"), ["other.example"]);
    }
}

#[tokio::test]
async fn requests_that_are_none_are_refused() {
    let upstream = Upstream::echo().await;
    let proxy = Proxy::start(upstream.address, &[]);
    let table = [
        ("GET / HTTP/1.1\r\nConnection: close\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\nConnection: close\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: a b/c\r\nConnection: close\r\n\r\n", 400),
        ("CONNECT example.org:443 HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\n\r\n", 501),
        ("GET / HTTP/1.0\r\n\r\n", 200),
        ("OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 200),
        ("nonsense\r\n\r\n", 400),
    ];
    for (request, status) in table {
        assert_eq!(send(proxy.address, request).await.status, status, "{request}");
    }
    assert_eq!(upstream.requests(), 2);
}

#[tokio::test]
async fn what_looks_like_two_requests_reaches_the_upstream_as_one_or_not_at_all() {
    let upstream = Upstream::echo().await;
    let proxy = Proxy::start(upstream.address, &[]);
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    // The body is chunked and also has a length, which must be ignored.
    let length = 5 + smuggled.len();
    let request = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {length}\r\n\
         Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n{smuggled}"
    );
    let reply = send(proxy.address, &request).await;
    assert!(reply.status == 400 || reply.echoed("content-length").is_empty(), "{reply:?}");
    assert!(upstream.requests() <= 1);
}

#[tokio::test]
async fn responses_keep_what_is_theirs_and_lose_what_was_for_the_proxy() {
    let upstream = Upstream::start(async |_| {
        let response = Response::builder()
            .status(404)
            .header("connection", "x-inner")
            .header("x-inner", "1")
            .header("set-cookie", "a=1")
            .header("set-cookie", "b=2")
            .header("via", "1.0 inner");
        response.body(full("nothing here")).unwrap()
    })
    .await;
    let proxy = Proxy::start(upstream.address, &[]);
    let reply = get(proxy.address, "/", "").await;
    assert_eq!((reply.status, reply.body.as_str()), (404, "nothing here"));
    assert_eq!((reply.field("x-inner"), reply.all("set-cookie")), (None, vec!["a=1", "b=2"]));
    assert_eq!(reply.all("via"), ["1.0 inner, 1.1 tollgate"]);
    assert_eq!(reply.all("date").len(), 1);
}

#[tokio::test]
async fn responses_without_a_body_have_none_and_keep_their_length() {
    let upstream = Upstream::start(async |request| match request.uri().path() {
        "/304" => status(StatusCode::NOT_MODIFIED),
        "/204" => status(StatusCode::NO_CONTENT),
        _ => hello(request).await,
    })
    .await;
    let proxy = Proxy::start(upstream.address, &[]);
    let reply = send(proxy.address, "HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
    assert_eq!((reply.status, reply.field("content-length"), reply.body.as_str()), (200, Some("5"), ""));
    for (path, status) in [("/304", 304), ("/204", 204)] {
        let reply = get(proxy.address, path, "").await;
        assert_eq!((reply.status, reply.body.as_str()), (status, ""));
    }
}

#[tokio::test]
async fn a_client_that_asks_first_is_told_to_continue() {
    let upstream = Upstream::echo().await;
    let proxy = Proxy::start(upstream.address, &[]);
    let mut stream = TcpStream::connect(proxy.address).await.unwrap();
    let head = "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(read_until(&mut stream, "\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(b"hello").await.unwrap();
    let reply = read_until(&mut stream, "\n\nhello").await;
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
}

#[tokio::test]
async fn a_web_socket_is_passed_on_byte_by_byte() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy::start(listener.local_addr().unwrap(), &["--limit", "a=1/h by ip"]);
    let asked = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
                 TE: trailers\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n\r\n";
    let mut client = asking(proxy.address, asked).await;
    let (mut server, _) = within(listener.accept()).await.unwrap();
    let head = read_until(&mut server, "\r\n\r\n").await.to_lowercase();
    for line in
        ["get /chat http/1.1", "upgrade: websocket", "connection: te, upgrade", "sec-websocket-key: x"]
    {
        assert!(head.contains(line), "{head}");
    }
    let switched = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                    Sec-WebSocket-Accept: y\r\n\r\nfirst;";
    server.write_all(switched.as_bytes()).await.unwrap();
    let head = read_until(&mut client, "\r\n\r\n").await.to_lowercase();
    assert!(head.starts_with("http/1.1 101") && head.contains("sec-websocket-accept: y"), "{head}");
    assert_eq!(read_until(&mut client, ";").await, "first;");
    client.write_all(b"ping;").await.unwrap();
    assert_eq!(read_until(&mut server, ";").await, "ping;");
    server.write_all(b"pong;").await.unwrap();
    assert_eq!(read_until(&mut client, ";").await, "pong;");
    // When one side closes its connection, the proxy closes the connection to the other side.
    drop(client);
    assert!(within(tokio::io::AsyncReadExt::read_u8(&mut server)).await.is_err());
    // The limit counts the WebSocket as one request.
    let refused = send(proxy.address, &asked.replace("keep-alive", "close")).await;
    assert_eq!(refused.status, 429);
}
