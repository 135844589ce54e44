//! Runs Envoy as a process with a given configuration.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use std::{fs, iter, thread};

use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate_testing::store::process;

/// Returns the paths of all Envoy versions, newest first.
pub(super) fn programs() -> Vec<PathBuf> {
    let paths = std::env::var("TOLLGATE_ENVOY").expect("TOLLGATE_ENVOY names the programs: run `make envoy`");
    paths.split(':').map(PathBuf::from).collect()
}

/// Returns the path of the newest Envoy.
pub(super) fn newest() -> PathBuf {
    programs().swap_remove(0)
}

/// Returns a port that was free a moment ago, and that no call returned before.
///
/// The kernel offers a port again as soon as the port's listener is closed. Envoy refuses two
/// listeners with the same port, and two Envoys would even share the port.
pub(super) fn free_port() -> u16 {
    static RETURNED: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let ports = iter::repeat_with(|| {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.local_addr().unwrap().port()
    });
    let mut returned = RETURNED.lock().unwrap();
    ports.take(1_000).find(|&port| returned.insert(port)).expect("the kernel has a port that is new")
}

/// Polls until an answer is available.
#[track_caller]
pub(super) fn found<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(answer) = look() {
            return answer;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "it took too long until {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A listener that uses the module.
#[derive(Clone)]
pub(super) struct Front {
    pub(super) port: u16,
    pub(super) filter: String,
    pub(super) config: String,
    /// The file to which Envoy writes a line for each request: the time of day at which the request
    /// arrived, the microseconds until Envoy sent it to the upstream (`-` if it did not), and the
    /// status.
    pub(super) access_log: Option<PathBuf>,
}

impl Front {
    pub(super) fn new(filter: &str, config: &str) -> Self {
        let (filter, config) = (filter.to_owned(), config.to_owned());
        Self { port: free_port(), filter, config, access_log: None }
    }

    fn listener(&self) -> Value {
        // In Envoy's configuration, users write JSON as a `Struct`.
        let config = match serde_json::from_str::<Value>(&self.config) {
            Ok(value) => json!({"@type": "type.googleapis.com/google.protobuf.Struct", "value": value}),
            Err(_) => {
                json!({"@type": "type.googleapis.com/google.protobuf.StringValue", "value": self.config})
            }
        };
        let access_log = self.access_log.iter().map(|path| {
            json!({
                "name": "file",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog",
                    "path": path,
                    "log_format": {"text_format_source": {"inline_string":
                        "%START_TIME(%s.%6f)% %COMMON_DURATION(DS_RX_BEG:US_TX_BEG:us)% %RESPONSE_CODE%\n",
                    }},
                },
            })
        });
        let to_upstream = json!({"cluster": "upstream", "timeout": "0s"});
        json!({
            "@type": "type.googleapis.com/envoy.config.listener.v3.Listener",
            "name": format!("front-{}", self.port),
            "address": address(self.port),
            "filter_chains": [{"filters": [{
                "name": "envoy.filters.network.http_connection_manager",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
                    "stat_prefix": "front",
                    "access_log": access_log.collect::<Vec<_>>(),
                    "use_remote_address": true,
                    "xff_num_trusted_hops": 1,
                    "route_config": {"response_headers_to_add": [{"header": {
                        "key": "x-limit-a",
                        "value": "%DYNAMIC_METADATA(tollgate.test:a.outcome)%/%DYNAMIC_METADATA(tollgate.test:a.remaining)%",
                    }}], "virtual_hosts": [{
                        "name": "all",
                        "domains": ["*"],
                        "routes": [
                            {
                                "match": {"prefix": "/tenant"},
                                "route": to_upstream,
                                "metadata": {"filter_metadata": {"com.example": {"tenant": "t1"}}},
                            },
                            {
                                "match": {"prefix": "/off"},
                                "route": to_upstream,
                                "typed_per_filter_config": {"tollgate": {
                                    "@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig",
                                    "disabled": true,
                                }},
                            },
                            {"match": {"prefix": "/"}, "route": to_upstream},
                        ],
                    }]},
                    "http_filters": [
                        {
                            "name": "tollgate",
                            "typed_config": {
                                "@type": "type.googleapis.com/envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter",
                                "dynamic_module_config": {"name": "tollgate_envoy"},
                                "filter_name": self.filter,
                                "filter_config": config,
                            },
                        },
                        {
                            "name": "envoy.filters.http.router",
                            "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
                        },
                    ],
                },
            }]}],
        })
    }
}

fn address(port: u16) -> Value {
    json!({"socket_address": {"address": "127.0.0.1", "port_value": port}})
}

fn cluster(upstream: u16) -> Value {
    json!({
        "name": "upstream",
        "type": "STATIC",
        "circuit_breakers": {"thresholds": [{"max_connections": 10_000, "max_pending_requests": 10_000, "max_requests": 10_000}]},
        "load_assignment": {"cluster_name": "upstream", "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address(upstream)}}]}]},
    })
}

/// Returns an Envoy with access to the module.
fn command(program: &Path) -> Command {
    let mut envoy = Command::new(program);
    envoy.env("ENVOY_DYNAMIC_MODULES_SEARCH_PATH", std::env::var_os("TOLLGATE_ENVOY_MODULE").unwrap());
    envoy
}

/// Lets Envoy validate a configuration with this listener, and returns what Envoy logs.
pub(super) fn validated(program: &Path, front: &Front) -> String {
    let mut listener = front.listener();
    listener.as_object_mut().unwrap().remove("@type");
    let bootstrap = json!({"static_resources": {"listeners": [listener], "clusters": [cluster(1)]}});
    let mut envoy = command(program);
    let output =
        envoy.args(["--mode", "validate", "--config-yaml", &bootstrap.to_string()]).output().unwrap();
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{log}");
    log
}

/// An Envoy process with two workers.
pub(super) struct Envoy {
    child: Child,
    folder: TempDir,
    pub(super) admin: u16,
    version: u32,
}

impl Envoy {
    /// Starts Envoy with listeners in front of the upstream at this port, and waits until Envoy
    /// serves requests.
    pub(super) fn start(program: &Path, upstream: u16, fronts: &[Front]) -> Self {
        Self::start_with(|envoy| envoy.arg("--disable-hot-restart"), program, upstream, fronts)
    }

    /// Starts Envoy with additional arguments or variables; see [`start`](Self::start).
    pub(super) fn start_with(
        prepare: impl FnOnce(&mut Command) -> &mut Command,
        program: &Path,
        upstream: u16,
        fronts: &[Front],
    ) -> Self {
        let admin = free_port();
        let folder = tempfile::tempdir().unwrap();
        let listeners = folder.path().join("listeners.json");
        let bootstrap = json!({
            "node": {"id": "test", "cluster": "test"},
            "admin": {"address": address(admin)},
            "dynamic_resources": {"lds_config": {"path_config_source": {"path": listeners}}},
            "static_resources": {"clusters": [cluster(upstream)]},
        });
        let config = folder.path().join("envoy.json");
        fs::write(&config, bootstrap.to_string()).unwrap();
        let log = folder.path().join("log");
        let mut envoy = command(program);
        envoy.arg("-c").arg(&config);
        prepare(&mut envoy);
        envoy.args(["--concurrency", "2", "--log-level", "warning"]);
        envoy.args(["--component-log-level", "dynamic_modules:info,config:info"]);
        // The test does not use `--log-path`, because Envoy writes to that file only every ten
        // seconds.
        envoy.stdout(Stdio::null()).stderr(fs::File::create(log).unwrap());
        write(&listeners, fronts, 0);
        let child = envoy.spawn().unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let envoy = Self { child, folder, admin, version: 0 };
        found("Envoy has an interface for administrators", || {
            std::net::TcpStream::connect(("127.0.0.1", admin)).ok()
        });
        found("Envoy serves", || get(admin, "/ready").contains("LIVE").then_some(()));
        for front in fronts {
            found("Envoy listens", || std::net::TcpStream::connect(("127.0.0.1", front.port)).ok());
        }
        envoy
    }

    /// Moves a new file with listeners into place. Waits until Envoy has accepted or refused the
    /// listeners.
    pub(super) fn reload(&mut self, fronts: &[Front]) {
        let done = |envoy: &Self| {
            envoy.stat("listener_manager.lds.update_success")
                + envoy.stat("listener_manager.lds.update_rejected")
        };
        let before = done(self);
        self.version += 1;
        write(&self.folder.path().join("listeners.json"), fronts, self.version);
        found("Envoy has read its listeners", || (done(self) > before).then_some(()));
    }

    /// Stops the process (SIGSTOP), so that it resembles a machine that hangs.
    pub(super) fn stop(&self) {
        process::stop(&self.child);
    }

    /// Resumes the process after [`stop`](Self::stop).
    pub(super) fn resume(&self) {
        process::resume(&self.child);
    }

    /// Sends a signal, and returns the status with which Envoy ends, and its log.
    pub(super) fn end(mut self, signal: &str) -> (ExitStatus, String) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &id]).status().unwrap().success());
        self.ended()
    }

    /// Waits until Envoy ends by itself, and returns its status and its log.
    pub(super) fn ended(&mut self) -> (ExitStatus, String) {
        (found("Envoy ends", || self.child.try_wait().unwrap()), self.log())
    }

    /// Returns the value of a counter, or 0 if the counter does not exist.
    pub(super) fn stat(&self, name: &str) -> u64 {
        let text = get(self.admin, &format!("/stats?filter={name}"));
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        value.map_or(0, |value| value.trim().parse().unwrap())
    }

    /// Returns a counter of the module.
    pub(super) fn counter(&self, name: &str) -> u64 {
        self.stat(&format!("dynamicmodulescustom.tollgate.{name}"))
    }

    /// Returns a counter of the module, if it exists and is not 0.
    pub(super) fn counted(&self, name: &str) -> Option<u64> {
        Some(self.counter(name)).filter(|&count| count > 0)
    }

    /// Returns the lines that Envoy has logged.
    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// Returns the memory usage of the process, in KiB.
    pub(super) fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        // A failed test shows Envoy's log.
        if thread::panicking() {
            eprintln!("{}", self.log());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes listeners to a file in the same folder, and then moves this file into place.
fn write(file: &Path, fronts: &[Front], version: u32) {
    let resources: Vec<Value> = fronts.iter().map(Front::listener).collect();
    let text = json!({"version_info": version.to_string(), "resources": resources}).to_string();
    let beside = file.with_extension("new");
    fs::write(&beside, text).unwrap();
    fs::rename(beside, file).unwrap();
}

/// Sends a request without changing its target, and returns the response.
pub(super) fn get(port: u16, path: &str) -> String {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}
