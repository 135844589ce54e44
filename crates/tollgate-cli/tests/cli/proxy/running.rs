//! Runs the proxy as a process on free ports, and kills it at the end of the test.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// How long a test waits for an event, which must happen within this time even on a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Waits for a future that must be ready in time.
#[track_caller]
pub(crate) fn within<F: Future>(future: F) -> impl Future<Output = F::Output> {
    let from = std::panic::Location::caller();
    async move {
        let waited = tokio::time::timeout(DEADLINE, future).await;
        waited.unwrap_or_else(|_| panic!("{from}: nothing happened for {DEADLINE:?}"))
    }
}

/// Polls until a condition holds.
#[track_caller]
pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < DEADLINE, "it took too long until {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) struct Proxy {
    child: Child,
    pub(crate) address: SocketAddr,
    pub(crate) metrics: SocketAddr,
    said: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    /// Starts a proxy with a metrics address in front of an upstream, and waits until the proxy
    /// listens.
    pub(crate) fn start(upstream: SocketAddr, args: &[&str]) -> Self {
        let url = format!("http://{upstream}");
        let own = ["--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--upstream", &url];
        Self::spawn(upstream, &[&own, args].concat())
    }

    /// Starts a proxy with only these arguments, and waits until the proxy listens.
    pub(crate) fn spawn(upstream: SocketAddr, args: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .arg("proxy")
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program was built");
        let said = Arc::new(Mutex::new(Vec::new()));
        let lines = BufReader::new(child.stderr.take().expect("it is a pipe")).lines();
        let heard = Arc::clone(&said);
        thread::spawn(move || lines.map_while(Result::ok).for_each(|line| heard.lock().unwrap().push(line)));
        let mut proxy = Self { child, address: upstream, metrics: upstream, said };
        until("the proxy listens", || {
            assert_eq!(proxy.child.try_wait().unwrap(), None, "it ended: {}", proxy.said());
            proxy.said().contains("listening on ")
        });
        let address = |before: &str| {
            let said = proxy.said();
            let rest = &said[said.find(before).expect("it says so") + before.len()..];
            let end = rest.find(|c: char| c != ':' && c != '.' && !c.is_ascii_digit()).unwrap_or(rest.len());
            rest[..end].parse().expect("an address")
        };
        (proxy.metrics, proxy.address) = (address("metrics at http://"), address("listening on http://"));
        proxy
    }

    /// Returns the text that the proxy has written to standard error so far.
    pub(crate) fn said(&self) -> String {
        self.said.lock().unwrap().join("\n")
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("sh").args(["-c", &format!("kill -{name} {id}")]).status().expect("a shell");
        assert!(sent.success());
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits until the proxy has ended.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        until("the proxy ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// Returns the peak memory of the proxy in bytes.
    pub(crate) fn peak_memory(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1024)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
