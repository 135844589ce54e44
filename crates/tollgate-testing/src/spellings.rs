//! Spellings of requests by which a client may try to evade a limit. The layer, the proxy and the
//! module for Envoy limit or refuse each of them.

/// A limit of one request per hour, a request that uses it up, and other spellings of that request.
pub struct Spelled {
    /// The limit without its name and quota, such as `by ip for POST /login`.
    pub limit: &'static str,
    /// The request that uses the quota up.
    pub plain: Sent,
    /// The requests that are limited or refused afterwards.
    pub others: &'static [Sent],
}

/// A request as a client sends it.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// The method.
    pub method: &'static str,
    /// The target.
    pub target: &'static str,
    /// The fields. A request without `host` is for `api.example.com`.
    pub fields: &'static [(&'static str, &'static str)],
    /// The address of the client.
    pub client: &'static str,
}

impl Sent {
    /// Returns the lines of `Host`.
    pub fn hosts(&self) -> Vec<&'static str> {
        let hosts: Vec<&str> =
            self.fields.iter().filter(|(name, _)| *name == "host").map(|(_, value)| *value).collect();
        if hosts.is_empty() { vec!["api.example.com"] } else { hosts }
    }

    /// Returns the fields other than `Host`.
    pub fn others(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.fields.iter().copied().filter(|(name, _)| *name != "host")
    }
}

const fn sent(
    method: &'static str,
    target: &'static str,
    fields: &'static [(&'static str, &'static str)],
) -> Sent {
    Sent { method, target, fields, client: "192.0.2.1" }
}

const fn post(target: &'static str) -> Sent {
    sent("POST", target, &[])
}

const fn host(host: &'static [(&'static str, &'static str)]) -> Sent {
    sent("GET", "/", host)
}

const fn with(fields: &'static [(&'static str, &'static str)]) -> Sent {
    sent("GET", "/", fields)
}

const fn get(target: &'static str) -> Sent {
    sent("GET", target, &[])
}

const fn client(client: &'static str) -> Sent {
    Sent { client, ..with(&[]) }
}

/// The spellings of paths.
const LOGINS: &[Sent] = &[
    post("/login"),
    post("//login"),
    post("/./login"),
    post("/a/../login"),
    post("/../login"),
    post("/%2e/login"),
    post("/a/%2E%2e/login"),
    post("/%6cogin"),
    post("/l%6Fgin?x"),
    post("/login/"),
    post("/login//"),
    post("/login/."),
    post("/login;x"),
    post("/login;x=1?y"),
    post("/login/;x"),
    post("/;x/login"),
    post("/login%3Bx"),
    post("/%2Flogin"),
    post("/%2flogin"),
    post("/a%2F..%2Flogin"),
    post("/a/..%2Flogin"),
    post("/a/..;/login"),
    post("/login%2F"),
    post("/%5Clogin"),
    post("/a%5c..%5clogin"),
    post("http://api.example.com/login"),
    sent("post", "/login", &[]),
    sent("Post", "/login", &[]),
];

/// The known value of a key in [`SPELLED`].
pub const KNOWN: &str = "k-7f3a";

/// All spellings. `KNOWN` stands for a file that contains only [`KNOWN`].
pub const SPELLED: &[Spelled] = &[
    Spelled { limit: "by ip for POST /login", plain: post("/login"), others: LOGINS },
    Spelled { limit: "by ip+path for POST", plain: post("/login"), others: LOGINS },
    Spelled { limit: "by ip+method for /login", plain: post("/login"), others: LOGINS },
    Spelled {
        limit: "by ip for POST /login",
        plain: post("/login"),
        others: &[post("/LOGIN"), post("/Login/"), post("/l%4Fgin")],
    },
    Spelled {
        limit: "by ip for /files/{name}",
        plain: get("/files/a"),
        others: &[get("/files/a/"), get("/files//b"), get("/files/a;x"), get("/Files/a"), get("/files%2Fa")],
    },
    Spelled {
        limit: "by ip for /admin/{*path}",
        plain: get("/admin/a"),
        others: &[
            get("/admin"),
            get("/admin/"),
            get("/admin;x"),
            get("/admin/a/b"),
            get("/admin%2Fa"),
            get("/a/..;/admin/a"),
            get("/Admin"),
        ],
    },
    Spelled {
        limit: "by ip for /keys:rotate",
        plain: get("/keys:rotate"),
        others: &[get("/keys%3Arotate"), get("/keys%3arotate")],
    },
    Spelled {
        limit: "by ip except /health",
        plain: get("/"),
        others: &[get("/health/"), get("/health;x"), get("/health%2F"), get("/login%2F..%2Fhealth")],
    },
    Spelled {
        limit: "by ip for host api.example.com",
        plain: host(&[("host", "api.example.com")]),
        others: &[
            host(&[("host", "api.example.com:8443")]),
            host(&[("host", "api.example.com:80")]),
            host(&[("host", "api.example.com:")]),
            host(&[("host", "api.example.com:08443")]),
            host(&[("host", "API.Example.COM")]),
            host(&[("host", "api.example.com.")]),
            host(&[("host", "api.example.com.:8443")]),
            host(&[("host", "Api.example.com.:443")]),
            host(&[("host", "me@api.example.com")]),
            host(&[("host", "api.example.com:port")]),
            host(&[("host", "api%2Eexample.com")]),
            host(&[("host", "api.example.com"), ("host", "other.example.com")]),
            host(&[("host", "other.example.com"), ("host", "api.example.com")]),
            get("http://api.example.com/"),
            get("http://api.example.com:8443/"),
            sent("GET", "http://api.example.com/", &[("host", "other.example.com")]),
            sent("GET", "http://other.example.com/", &[("host", "api.example.com")]),
        ],
    },
    Spelled {
        limit: "by ip for host [2001:db8::1]",
        plain: host(&[("host", "[2001:db8::1]")]),
        others: &[
            host(&[("host", "[2001:db8::1]:8443")]),
            host(&[("host", "[2001:DB8::1]")]),
            host(&[("host", "[2001:db8:0::1]")]),
        ],
    },
    Spelled {
        limit: "by ip for host *.example.com",
        plain: host(&[("host", "a.example.com")]),
        others: &[host(&[("host", "b.example.com:81")]), host(&[("host", "A.EXAMPLE.COM.")])],
    },
    Spelled {
        limit: "by header x-api-key known KNOWN else allow",
        plain: with(&[("x-api-key", KNOWN)]),
        others: &[
            with(&[("x-api-key", KNOWN), ("x-api-key", "other")]),
            with(&[("x-api-key", "other"), ("x-api-key", KNOWN)]),
            with(&[("x-api-key", KNOWN), ("x-api-key", KNOWN)]),
            with(&[("x-api-key", KNOWN), ("x-api-key", "")]),
            with(&[("x-api-key", " k-7f3a ")]),
            with(&[("X-Api-Key", KNOWN)]),
        ],
    },
    Spelled {
        limit: "by header x-api-key known KNOWN or ip",
        plain: with(&[("x-api-key", KNOWN)]),
        others: &[with(&[("x-api-key", KNOWN), ("x-api-key", "other")])],
    },
    Spelled {
        limit: "by query api_key known KNOWN else allow",
        plain: get("/?api_key=k-7f3a"),
        others: &[
            get("/?api_key=k%2D7f3a"),
            get("/?api%5Fkey=k-7f3a"),
            get("/?x=1&api_key=k-7f3a"),
            get("/?api_key=k-7f3a&api_key=other"),
            get("/?api_key=other&api_key=k-7f3a"),
            get("/?api_key=&api_key=k-7f3a"),
            get("/?api_key&api_key=k-7f3a"),
            get("/?api_key=k-7f3a&api%5fkey=x"),
        ],
    },
    Spelled {
        limit: "by query q",
        plain: get("/?q=a+b"),
        others: &[get("/?q=a%20b"), get("/?q=%61+b"), get("/?q=a+b&q=c"), get("/?q="), get("/")],
    },
    Spelled {
        limit: "by header cookie known KNOWN else deny",
        plain: with(&[("cookie", KNOWN)]),
        others: &[with(&[("cookie", "\"k-7f3a\"")]), with(&[("cookie", KNOWN), ("cookie", "x=1")])],
    },
    Spelled {
        limit: "by ip for header x-plan=free",
        plain: with(&[("x-plan", "free")]),
        others: &[
            with(&[("x-plan", "free"), ("x-plan", "paid")]),
            with(&[("x-plan", "paid"), ("x-plan", "free")]),
            with(&[("x-plan", " free ")]),
        ],
    },
    Spelled {
        limit: "by ip except header x-plan=paid",
        plain: with(&[]),
        others: &[with(&[("x-plan", "paid"), ("x-plan", "free")])],
    },
    Spelled {
        limit: "by ip",
        plain: client("192.0.2.1"),
        others: &[client("::ffff:192.0.2.1"), client("::ffff:c000:201")],
    },
    Spelled {
        limit: "by nothing for from 192.0.2.0/24",
        plain: client("192.0.2.1"),
        others: &[client("::ffff:192.0.2.9"), client("::ffff:c000:2ff")],
    },
];
