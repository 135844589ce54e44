//! The models, in a copy of the tree in which the library can be changed.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A test that takes longer counts as unfinished. The limit is wall-clock time on a machine that
/// may be busy.
const LIMIT: Duration = Duration::from_secs(600);

/// How a test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    Failed,
    TimedOut,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::TimedOut => "timed out",
        })
    }
}

/// The copy of the tree, and the programs built from it.
pub struct Models {
    folder: PathBuf,
    /// The file that contains each test, such as `turnover`.
    files: BTreeMap<String, String>,
    /// The most recently built program of each of these files.
    programs: BTreeMap<String, PathBuf>,
}

impl Models {
    /// Copies the library and its models from `root`, and builds them.
    pub fn copy(root: &Path) -> Result<Self, Box<dyn Error>> {
        let program = std::env::current_exe()?;
        // The copy is in `release/weaken` of the target directory.
        let target = program.ancestors().nth(2).ok_or("there is a target directory")?;
        let folder = target.join("weaken");
        let _ = fs::remove_dir_all(folder.join("tree"));
        for part in ["src", "loom-tests", "crates/tollgate-redis/src", "crates/tollgate-testing/src/oracle"] {
            copy(&root.join(part), &folder.join("tree").join(part))?;
        }
        let mut models = Self { folder, files: BTreeMap::new(), programs: BTreeMap::new() };
        models.build_files(["*"].into())?;
        for (file, program) in &models.programs {
            let listed = Command::new(program).arg("--list").output()?;
            let listed = String::from_utf8(listed.stdout)?;
            for test in listed.lines().filter_map(|line| line.strip_suffix(": test")) {
                if let Some(other) = models.files.insert(test.to_owned(), file.clone()) {
                    return Err(format!("{test} is in {other} and in {file}").into());
                }
            }
        }
        Ok(models)
    }

    /// Returns whether there is a test of that name.
    pub fn has(&self, test: &str) -> bool {
        self.files.contains_key(test)
    }

    /// Changes a file of the copy.
    pub fn write(&self, name: &str, text: &str) -> io::Result<()> {
        fs::write(self.folder.join("tree").join(name), text)
    }

    /// Builds the programs of some tests.
    pub fn build(&mut self, tests: &[&str]) -> Result<(), Box<dyn Error>> {
        let files: BTreeSet<String> = tests.iter().map(|test| self.files[*test].clone()).collect();
        self.build_files(files.iter().map(String::as_str).collect())
    }

    fn build_files(&mut self, files: BTreeSet<&str>) -> Result<(), Box<dyn Error>> {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        cargo.current_dir(self.loom_tests()).env("CARGO_TARGET_DIR", self.folder.join("build"));
        // Each change is a single word, so nearly all of the previous build is reused.
        cargo.env("CARGO_PROFILE_RELEASE_INCREMENTAL", "true");
        cargo.args(["test", "--release", "--locked", "--no-run", "--quiet", "--message-format=json"]);
        for file in files {
            cargo.args(["--test", file]);
        }
        let built = cargo.stderr(Stdio::inherit()).output()?;
        if !built.status.success() {
            return Err("it does not build".into());
        }
        let messages = String::from_utf8(built.stdout)?;
        for message in messages.lines().filter(|line| line.contains(r#""kind":["test"]"#)) {
            let Some((_, rest)) = message.split_once(r#""executable":""#) else { continue };
            let program = PathBuf::from(rest.split('"').next().unwrap_or_default());
            let name = program.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
            // Cargo appends a hash to the name.
            let file = name.rsplit_once('-').map_or(name, |(file, _)| file);
            self.programs.insert(file.to_owned(), program);
        }
        Ok(())
    }

    /// Runs one test, and returns its result and its duration.
    pub fn run(&self, test: &str) -> Result<(Outcome, Duration), Box<dyn Error>> {
        let log = self.folder.join("test.log");
        let file = File::create(&log)?;
        let start = Instant::now();
        let mut program = Command::new(&self.programs[&self.files[test]])
            .args(["--exact", "--include-ignored", test])
            .current_dir(self.loom_tests())
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()?;
        let outcome = loop {
            if let Some(status) = program.try_wait()? {
                break if status.success() { Outcome::Passed } else { Outcome::Failed };
            }
            if start.elapsed() > LIMIT {
                program.kill()?;
                program.wait()?;
                break Outcome::TimedOut;
            }
            thread::sleep(Duration::from_millis(10));
        };
        if outcome == Outcome::Passed && !fs::read_to_string(log)?.contains("1 passed") {
            return Err(format!("{test} was not run").into());
        }
        Ok((outcome, start.elapsed()))
    }

    fn loom_tests(&self) -> PathBuf {
        self.folder.join("tree/loom-tests")
    }
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        if !path.is_dir() {
            fs::copy(path, to)?;
        } else if entry.file_name() != "target" {
            copy(&path, &to)?;
        }
    }
    Ok(())
}
