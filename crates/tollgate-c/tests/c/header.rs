//! `include/tollgate.h` is generated from the source. `make api` writes it.

use cbindgen::{Builder, Config, DocumentationStyle, Language, Style};
use std::path::Path;
use std::{env, fs};

/// The first comment of the header: the rules for all functions.
const RULES: &str = "\
/* tollgate: a lock-free, keyed rate limiter. Written by `make api`: don't edit it.
 *
 * Results. A function that decides about a request returns TOLLGATE_ADMITTED (0) or TOLLGATE_DENIED
 * (1); other functions return 0 for success. A negative number is an error. After an error, nothing
 * was charged, and nothing was written except the message, unless the error is TOLLGATE_ERR_PANIC.
 * To refuse a request after an error, too, compare the result with TOLLGATE_ADMITTED.
 * tollgate_strerror describes each number. Functions may change errno.
 *
 * Threads. The comment of each function states which threads may call it. No function waits for
 * another thread, except for tollgate_limiter_save, and the library starts no thread. Call no
 * function in a signal handler, because a check may allocate, and do not cancel a thread
 * (pthread_cancel) during a call.
 *
 * Keys. A key may be any bytes, including 0. A key of length 0 is a key like any other, and its
 * pointer may be NULL; use it for a limit on a single resource. Equal bytes are the same key, in C
 * and in Rust.
 *
 * Ownership. The library keeps no pointer that it is passed. The only pointers that it returns are
 * limiters, which tollgate_limiter_free frees, and static texts.
 *
 * Structs. If a struct has a field `size`, the caller sets it to the sizeof of the struct. A later
 * version may append fields, for which zero means the behaviour of this version.
 *
 * Panics of the library do not unwind into C. The function returns TOLLGATE_ERR_PANIC, and its work
 * may be half done. If the system refuses memory for a table of keys, the function returns an error.
 * If it refuses any other memory, such as that of a list of quotas, the process is aborted.
 *
 * fork. In a child process, a limiter continues as an independent copy, whatever other threads of
 * the parent were doing, except for tollgate_limiter_save. From then on, parent and child each count
 * only their own admissions.
 *
 * Unloading. dlclose leaves the shared library in memory, because threads that have used it run its
 * code when they end. */";

fn header() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let part = |name: &str| env::var(format!("CARGO_PKG_VERSION_{name}")).unwrap();
    let version = format!(
        "/**\n * The version of this header. It is compatible with a library of the same major and minor \
         version.\n */\n#define TOLLGATE_VERSION \"{}\"\n#define TOLLGATE_VERSION_MAJOR {}\n\
         #define TOLLGATE_VERSION_MINOR {}\n#define TOLLGATE_VERSION_PATCH {}\n",
        env!("CARGO_PKG_VERSION"),
        part("MAJOR"),
        part("MINOR"),
        part("PATCH"),
    );
    let config = Config {
        header: Some(RULES.to_owned()),
        include_guard: Some("TOLLGATE_H".to_owned()),
        sys_includes: vec!["stddef.h".to_owned(), "stdint.h".to_owned()],
        no_includes: true,
        after_includes: Some(version),
        language: Language::C,
        cpp_compat: true,
        style: Style::Both,
        documentation_style: DocumentationStyle::Doxy,
        tab_width: 4,
        line_length: 100,
        usize_is_size_t: true,
        ..Config::default()
    };
    let mut builder = Builder::new().with_config(config);
    for file in ["results", "types", "functions"] {
        builder = builder.with_src(root.join(format!("src/{file}.rs")));
    }
    let mut written = Vec::new();
    builder.generate().unwrap().write(&mut written);
    // Preconditions have the heading `Safety` in Rust.
    String::from_utf8(written).unwrap().replace(" * # Safety\n *\n", " * Preconditions:\n")
}

#[test]
fn the_header_is_of_this_source() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("include/tollgate.h");
    let now = header();
    if env::var_os("TOLLGATE_API").is_some_and(|what| what == "write") {
        fs::write(file, now).unwrap();
        return;
    }
    let there = fs::read_to_string(file).unwrap_or_default();
    let new: Vec<_> = now.lines().filter(|line| !there.lines().any(|one| one == *line)).take(20).collect();
    assert!(there == now, "include/tollgate.h is stale: run `make api`. Only in the source: {new:#?}");
}
