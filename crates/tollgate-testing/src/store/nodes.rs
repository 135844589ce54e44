//! Several processes that share a server. Each node is another process of this test binary.
//!
//! A node runs an ignored test, which its parent names. If this test is run by hand, it does
//! nothing:
//!
//! ```ignore
//! #[test]
//! #[ignore = "a node that other tests start"]
//! fn counting_node() {
//!     node(|node| {
//!         let url = node.var("URL");
//!         node.ready();
//!         // ... after all nodes were told to go ...
//!         node.say(json!({ "allowed": 17 }));
//!     });
//! }
//!
//! let mut nodes = Nodes::start(4, "selftest::nodes::counting_node", &[("URL", &server.url())]);
//! nodes.go();
//! for said in nodes.finish() { /* said["allowed"] */ }
//! ```

use super::process;
use super::wait::TEST;
use serde_json::Value;
use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

/// The environment variable that turns a process into a node. It contains the node's number.
const NUMBER: &str = "TOLLGATE_NODE";
/// The name prefix of the variables that the parent passes.
const VARIABLE: &str = "TOLLGATE_NODE_";
/// The prefix of a node's messages. The test harness writes to the same pipe without this prefix.
const MARK: &str = "node: ";
const READY: &str = "ready";
const GO: &str = "go";

/// The nodes, as their parent sees them. Dropping this value kills the nodes.
pub struct Nodes(Vec<Node>);

struct Node {
    child: Child,
    input: ChildStdin,
    said: Receiver<String>,
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Nodes {
    /// Starts `count` processes that run the ignored test `entry` with these variables. The name
    /// `entry` must be spelled as the test harness prints it. Waits until each process is
    /// [ready](Me::ready).
    #[track_caller]
    pub fn start(count: usize, entry: &str, variables: &[(&str, &str)]) -> Self {
        let mut nodes = Self((0..count).map(|number| Node::start(number, entry, variables)).collect());
        for number in 0..count {
            let said = nodes.hear_line(number);
            assert_eq!(said, READY, "what node {number} says first");
        }
        nodes
    }

    /// Tells all nodes to start.
    pub fn go(&mut self) {
        self.tell_all(GO);
    }

    pub fn tell_all(&mut self, line: &str) {
        (0..self.0.len()).for_each(|number| self.tell(number, line));
    }

    /// Sends a line to a node. [`Me::hear`] returns the line there.
    pub fn tell(&mut self, number: usize, line: &str) {
        // A killed node receives nothing.
        let _ = writeln!(self.0[number].input, "{line}");
    }

    /// Returns the next message of this node.
    #[track_caller]
    pub fn hear(&mut self, number: usize) -> Value {
        let line = self.hear_line(number);
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    /// Returns this node's next message, or `None` if no message arrives in time.
    #[track_caller]
    pub fn heard_within(&mut self, number: usize, time: Duration) -> Option<Value> {
        let line = self.0[number].said.recv_timeout(time).ok()?;
        Some(serde_json::from_str(&line).expect("a line of JSON"))
    }

    #[track_caller]
    fn hear_line(&mut self, number: usize) -> String {
        let heard = self.0[number].said.recv_timeout(TEST);
        heard.unwrap_or_else(|_| panic!("node {number} ended or was silent too long"))
    }

    /// Returns the next message from each node. This must be the last one, after which the node
    /// must end successfully.
    #[track_caller]
    pub fn finish(mut self) -> Vec<Value> {
        let said = (0..self.0.len()).map(|number| self.hear(number)).collect();
        for (number, node) in self.0.iter_mut().enumerate() {
            // A node closes its output last.
            while node.said.recv_timeout(TEST).is_ok() {}
            let status = node.child.wait().expect("it is our child");
            assert!(status.success(), "node {number}: {status}");
        }
        said
    }

    /// Kills a node immediately (SIGKILL).
    pub fn kill(&mut self, number: usize) {
        let child = &mut self.0[number].child;
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Stops a node (SIGSTOP), so that it resembles a machine that hangs.
    pub fn stop(&self, number: usize) {
        process::stop(&self.0[number].child);
    }

    /// Resumes a stopped node.
    pub fn resume(&self, number: usize) {
        process::resume(&self.0[number].child);
    }
}

impl Node {
    fn start(number: usize, entry: &str, variables: &[(&str, &str)]) -> Self {
        let mut child = Command::new(env::current_exe().expect("this binary"))
            .args(["--exact", entry, "--ignored", "--nocapture"])
            .env(NUMBER, number.to_string())
            .envs(variables.iter().map(|(name, value)| (format!("{VARIABLE}{name}"), value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this binary starts again");
        let input = child.stdin.take().expect("it is a pipe");
        let output = BufReader::new(child.stdout.take().expect("it is a pipe"));
        let (say, said) = channel();
        thread::spawn(move || {
            let lines = output.lines().map_while(Result::ok);
            let marked = lines.filter_map(|line| line.strip_prefix(MARK).map(str::to_owned));
            marked.for_each(|line| drop(say.send(line)));
        });
        Self { child, input, said }
    }
}

/// A node, as it sees itself.
pub struct Me {
    number: usize,
    told: Receiver<String>,
}

/// Runs the body of a node. Does nothing if this process was not started as a node.
pub fn node(run: impl FnOnce(&Me)) {
    let Ok(number) = env::var(NUMBER) else { return };
    let (tell, told) = channel();
    thread::spawn(move || {
        std::io::stdin().lines().map_while(Result::ok).for_each(|line| drop(tell.send(line)));
        // The parent has ended for some reason, so the node must end as well.
        std::process::exit(1);
    });
    run(&Me { number: number.parse().expect("a number"), told });
}

impl Me {
    /// Returns the number of the node, starting from 0.
    pub fn number(&self) -> usize {
        self.number
    }

    /// Returns the value of a variable that the parent passed.
    #[track_caller]
    pub fn var(&self, name: &str) -> String {
        env::var(format!("{VARIABLE}{name}")).unwrap_or_else(|_| panic!("the parent gave no {name}"))
    }

    /// Reports that this node is prepared. Waits until the parent tells all nodes to start.
    pub fn ready(&self) {
        say_line(READY);
        assert_eq!(self.hear(), GO);
    }

    /// Waits for the next line from the parent.
    pub fn hear(&self) -> String {
        self.told.recv().expect("the parent is there")
    }

    /// Returns the next line from the parent, or `None` if no line has arrived yet.
    pub fn heard(&self) -> Option<String> {
        self.told.try_recv().ok()
    }

    #[expect(clippy::needless_pass_by_value, reason = "so that `json!` can be written in its place")]
    pub fn say(&self, value: Value) {
        say_line(&value.to_string());
    }
}

fn say_line(line: &str) {
    // The test harness may have written an incomplete line, so the message starts on a new one.
    let mut output = std::io::stdout().lock();
    write!(output, "\n{MARK}{line}\n").and_then(|()| output.flush()).expect("the parent listens");
}
