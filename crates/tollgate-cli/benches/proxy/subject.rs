//! The subjects of the measurement: proxies, and the server behind them.

use crate::process::Process;
use crate::wrk::Run;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

/// A subject of the measurement, at an address.
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    pub(crate) url: String,
    /// Whether the subject refuses the requests.
    pub(crate) refuses: bool,
    /// Whether each request has a header `x-key` with one of a million keys.
    pub(crate) has_keys: bool,
    pub(crate) runs: Vec<Run>,
    pub(crate) process: Option<Process>,
    /// The store or the service that the subject asks.
    helper: Option<Process>,
}

impl Subject {
    pub(crate) fn new(name: &'static str, url: String, process: Option<Process>) -> Self {
        Self { name, url, refuses: false, has_keys: false, runs: Vec::new(), process, helper: None }
    }

    /// Starts `tollgate proxy` in front of the server with this URL.
    pub(crate) fn tollgate(name: &'static str, upstream: &str, args: &[&str]) -> Result<Self, String> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.args(["proxy", "--listen", "127.0.0.1:0", "--upstream", upstream]).args(args);
        let mut process = Process::start(command.stderr(Stdio::piped()))?;
        let said = BufReader::new(process.stderr()?);
        let mut heard = String::new();
        for line in said.lines().map_while(Result::ok) {
            heard.push_str(&line);
            if let Some((_, rest)) = line.split_once("listening on ") {
                let url = rest.split(' ').next().unwrap_or_default().to_owned();
                return Ok(Self::new(name, url, Some(process)));
            }
        }
        Err(format!("the proxy ended: {heard}"))
    }

    pub(crate) fn refusing(self) -> Self {
        Self { refuses: true, ..self }
    }

    pub(crate) fn with_helper(self, helper: Option<Process>) -> Self {
        Self { helper, ..self }
    }

    pub(crate) fn with_keys(self) -> Self {
        Self { has_keys: true, ..self }
    }

    /// Returns the processor time that the subject and its helper have used so far, in
    /// microseconds.
    pub(crate) fn processor_time(&self) -> f64 {
        self.process.iter().chain(&self.helper).map(Process::processor_time).sum()
    }
}
