//! A server process. A test can kill, stop and resume it. The process never outlives the test, no
//! matter how the test ends.

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::env;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A folder that is removed with its contents when this value is dropped.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        // A test binary is the file `debug/deps/name` in the target folder.
        let program = env::current_exe().expect("a test is a file");
        let target = program.ancestors().nth(3).expect("a test is in the target folder");
        let path = target.join("tmp").join(name);
        // A machine crash may have left a folder with this name behind.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("the target directory can be written");
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub struct Process {
    child: Child,
    /// A shell that kills the server when the shell's input ends. The input ends together with this
    /// test process, even if the process is killed.
    guard: Child,
}

impl Process {
    /// Starts a process, and writes its output to `server.log` in the folder.
    pub fn start(command: &mut Command, folder: &Path) -> io::Result<Self> {
        let log = File::options().create(true).append(true).open(folder.join("server.log"))?;
        let mut child =
            command.current_dir(folder).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
        let script = r#"trap "" HUP INT TERM; read -r _; kill -9 "$1"; rm -rf "$2""#;
        let guard = Command::new("sh")
            .args(["-c", script, "sh", &child.id().to_string()])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        match guard {
            Ok(guard) => Ok(Self { child, guard }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("it is our child").is_some()
    }

    pub fn stop(&self) {
        stop(&self.child);
    }

    pub fn resume(&self) {
        resume(&self.child);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The guard must be killed first. Otherwise, it might kill an unrelated process that has
        // reused the server's process id.
        for child in [&mut self.guard, &mut self.child] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Stops a process (SIGSTOP). Waits until all threads of the process have stopped.
pub fn stop(child: &Child) {
    let id = Pid::from_child(child);
    kill_process(id, Signal::STOP).expect("it runs");
    waitid(WaitId::Pid(id), WaitIdOptions::STOPPED).expect("it stops");
}

pub fn resume(child: &Child) {
    kill_process(Pid::from_child(child), Signal::CONT).expect("it runs");
}
