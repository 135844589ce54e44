//! Spellings of paths, each with the normal form under which the layer, the proxy and the replay
//! count it.

/// Request targets that a client may send, each with its normal form.
pub const PATHS: [(&str, &str); 45] = [
    // All of these targets are one path.
    ("/login", "/login"),
    ("//login", "/login"),
    ("/./login", "/login"),
    ("/%6cogin", "/login"),
    ("/%6Cogin", "/login"),
    ("/b/../login", "/login"),
    ("/%2e/login", "/login"),
    ("/b/%2e%2E/login", "/login"),
    ("/b/.%2e//./%6c%6fgin", "/login"),
    ("/../../login", "/login"),
    ("/a/b/../..//login", "/login"),
    ("/login?next=/home", "/login"),
    ("/login?a=../..//b", "/login"),
    ("http://example.org/login", "/login"),
    ("http://example.org//b/../login?x", "/login"),
    // Each of these targets is a different path.
    ("/login/", "/login/"),
    ("/login/.", "/login/"),
    ("/login/b/..", "/login/"),
    ("/login//", "/login/"),
    ("/Login", "/Login"),
    ("/LOGIN", "/LOGIN"),
    ("/login;x", "/login;x"),
    ("/login;x=1/../login;y", "/login;y"),
    ("/login%3Bx", "/login%3Bx"),
    ("/b%2Flogin", "/b%2Flogin"),
    ("/b%2flogin", "/b%2Flogin"),
    ("/b%2f..%2flogin", "/b%2F..%2Flogin"),
    ("/b\\login", "/b%5Clogin"),
    ("/b%5clogin", "/b%5Clogin"),
    ("/b\\..\\login", "/b%5C..%5Clogin"),
    ("/...", "/..."),
    ("/.login", "/.login"),
    ("/a..b", "/a..b"),
    ("/a%2520b", "/a%2520b"),
    ("/%252e%252e/login", "/%252e%252e/login"),
    ("/100%", "/100%25"),
    ("/%zz", "/%25zz"),
    ("/%%32e/login", "/%252e/login"),
    ("/%c3%a9", "/%C3%A9"),
    ("/a\"b", "/a%22b"),
    ("/@me:start!$&'()*+,=~-_.", "/@me:start!$&'()*+,=~-_."),
    // These targets are the root, or contain no path.
    ("/", "/"),
    ("/..", "/"),
    ("http://example.org", "/"),
    ("http://example.org?x=/a", "/"),
];

/// Targets with bytes that are not ASCII or that `http::Uri` refuses. Each row contains the target
/// that a client sends, the target that the proxy forwards, and the path's normal form.
pub const RAW_PATHS: [(&[u8], &str, &str); 12] = [
    (b"/a<b", "/a%3Cb", "/a%3Cb"),
    (b"/a%3cb", "/a%3cb", "/a%3Cb"),
    (b"/a>b", "/a%3Eb", "/a%3Eb"),
    (b"/a`b", "/a%60b", "/a%60b"),
    (b"/caf\xe9", "/caf%E9", "/caf%E9"),
    (b"/caf%e9", "/caf%e9", "/caf%E9"),
    (b"/caf\xc3\xa9", "/caf\u{e9}", "/caf%C3%A9"),
    (b"/\xe2\x82\xac\xe2\x82<", "/\u{20ac}%E2%82%3C", "/%E2%82%AC%E2%82%3C"),
    (b"/<x>/../login?next=<\"\xe9\">", "/%3Cx%3E/../login?next=%3C%22%E9%22%3E", "/login"),
    (b"http://example.org/a<b", "/a%3Cb", "/a%3Cb"),
    (b"/{\"a\":[1|2]}\\^", "/{\"a\":[1|2]}\\^", "/%7B%22a%22:%5B1%7C2%5D%7D%5C%5E"),
    (b"/<#?\xe9\"<", "/%3C", "/%3C"),
];
