//! The processes that the measurement starts, and their processor time.

use std::fs;
use std::process::{Child, Command, Stdio};

/// The length of a `/proc/*/stat` tick in microseconds. Linux reports 100 ticks per second to every
/// program.
const TICK: f64 = 10_000.0;

/// A process that ends when this value is dropped.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn start(command: &mut Command) -> Result<Self, String> {
        let started = command.stdin(Stdio::null()).spawn();
        started.map(Self).map_err(|error| format!("{command:?} does not start: {error}"))
    }

    /// Returns the standard error of the process, if it is a pipe.
    pub(crate) fn stderr(&mut self) -> Result<std::process::ChildStderr, String> {
        self.0.stderr.take().ok_or_else(|| "expected its standard error to be a pipe".to_owned())
    }

    /// Returns how the process ended, or `None` if it still runs.
    pub(crate) fn ended(&mut self) -> Option<String> {
        self.0.try_wait().ok().flatten().map(|status| status.to_string())
    }

    /// Returns the processor time that the process and its children have used so far, in
    /// microseconds.
    pub(crate) fn processor_time(&self) -> f64 {
        let family = [self.0.id()].into_iter().chain(children(self.0.id()));
        family.filter_map(|id| Stat::read(id).map(|stat| stat.ticks)).sum::<f64>() * TICK
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let id = self.0.id();
        // Workers do not always end with their parent. Errors are ignored, because a process may
        // already have ended.
        for id in children(id).chain([id]) {
            let _ = Command::new("kill").arg(id.to_string()).stderr(Stdio::null()).status();
        }
        let _ = self.0.wait();
    }
}

/// The facts about a process in `/proc/ID/stat`.
struct Stat {
    parent: u32,
    ticks: f64,
}

impl Stat {
    fn read(id: u32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        // The process name is in parentheses, and may contain any text. After the name, the 12th
        // field is the time in user space, and the 13th the time in the kernel.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = |index: usize| fields.get(index)?.parse::<f64>().ok();
        Some(Self { parent: fields.get(1)?.parse().ok()?, ticks: ticks(11)? + ticks(12)? })
    }
}

/// Returns the processes that `parent` has started and that are alive.
fn children(parent: u32) -> impl Iterator<Item = u32> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(move |&id| Stat::read(id).is_some_and(|stat| stat.parent == parent))
}
