//! Runs the example as a process, with clients on sockets.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

const QUOTA: usize = 100;
const CLIENTS: usize = 8;
const REQUESTS: usize = 50;

/// Kills a process at the end of the test.
struct Proxy(Child);

impl Drop for Proxy {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A server that answers each connection once.
fn server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || {
                let mut stream = stream.unwrap();
                let lines = BufReader::new(stream.try_clone().unwrap()).lines();
                lines.map_while(Result::ok).find(|line| line.is_empty());
                let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi";
                drop(stream.write_all(answer.as_bytes()));
            });
        }
    });
    address
}

/// Sends a request and returns the head of the response.
fn ask(proxy: SocketAddr) -> String {
    let mut stream = TcpStream::connect(proxy).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: example.com\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.split("\r\n\r\n").next().unwrap().to_ascii_lowercase()
}

#[test]
fn the_threads_of_pingora_share_one_limit_of_a_client() {
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate-pingora"));
    // The next token is available after 14 minutes.
    command.args([proxy.to_string(), server().to_string(), format!("{QUOTA}/d")]);
    let _process = Proxy(command.spawn().unwrap());
    let begin = Instant::now();
    while TcpStream::connect(proxy).is_err() {
        assert!(begin.elapsed() < Duration::from_secs(30), "nobody listens on {proxy}");
        thread::sleep(Duration::from_millis(20));
    }
    let answers: Vec<String> = thread::scope(|scope| {
        let clients = [(); CLIENTS]
            .map(|()| scope.spawn(move || (0..REQUESTS).map(|_| ask(proxy)).collect::<Vec<_>>()));
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    let (passed, denied): (Vec<_>, Vec<_>) =
        answers.iter().partition(|answer| answer.starts_with("http/1.1 200 "));
    assert_eq!((passed.len(), denied.len()), (QUOTA, CLIENTS * REQUESTS - QUOTA));
    for answer in denied {
        assert!(answer.starts_with("http/1.1 429 ") && answer.contains("\r\nretry-after: "), "{answer}");
    }
}
