//! Ports for servers that are told theirs, and must get it back when they are started again.

use std::net::{Ipv4Addr, TcpListener};
use std::process;
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the ports that systems give to outgoing connections: none of those takes a port while its server is down.
const FIRST: u16 = 12_000;
const COUNT: u16 = 20_000;

/// A port of 127.0.0.1 that nobody listened on just now, and that this process never gets again until it has had all.
pub fn free() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Test binaries that run at a time begin at different places.
    let begin = process::id().wrapping_mul(7919) % u32::from(COUNT);
    for _ in 0..COUNT {
        // Relaxed: each caller gets another number, and nothing else hangs on it.
        let number = (begin + u32::from(NEXT.fetch_add(1, Ordering::Relaxed))) % u32::from(COUNT);
        let port = FIRST + u16::try_from(number).expect("less than COUNT");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("none of {COUNT} ports from {FIRST} on is free");
}
