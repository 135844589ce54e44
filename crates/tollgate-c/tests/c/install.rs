//! The library as `make install-c` installs it and pkg-config finds it.

use crate::programs::{here, is_here, of_crate, run, said_as_expected};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Returns the files and links below a folder.
fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<String> = entries
        .flat_map(|path| if path.is_dir() { files(&path) } else { vec![path.to_str().unwrap().to_owned()] })
        .collect();
    found.sort();
    found
}

/// Returns a fresh folder with this name. `make install-c` has installed the tests' library in it,
/// below `/opt/tollgate`.
pub(crate) fn installed(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    drop(fs::remove_dir_all(&folder));
    let built = here("libtollgate_c.so");
    let mut install = Command::new(of_crate("../../scripts/install-c.sh"));
    run(install.arg(built.parent().unwrap()).env("DESTDIR", &folder).env("PREFIX", "/opt/tollgate"));
    folder
}

/// Returns the output of pkg-config for a library installed by `installed`.
pub(crate) fn pkg_config(folder: &Path, arguments: &[&str]) -> String {
    let mut ask = Command::new("pkg-config");
    ask.env("PKG_CONFIG_PATH", folder.join("opt/tollgate/lib/pkgconfig"));
    run(ask.env("PKG_CONFIG_SYSROOT_DIR", folder).args(arguments).arg("tollgate"))
}

#[test]
fn an_installed_library_is_found_by_pkg_config() {
    if !is_here("pkg-config") || !is_here("cc") {
        return;
    }
    let folder = installed("installed");
    let root = folder.to_str().unwrap();
    let version = env!("CARGO_PKG_VERSION");
    let soname = version.rsplit_once('.').unwrap().0;
    assert_eq!(
        files(&folder),
        [
            format!("{root}/opt/tollgate/include/tollgate.h"),
            format!("{root}/opt/tollgate/lib/libtollgate.a"),
            format!("{root}/opt/tollgate/lib/libtollgate.so"),
            format!("{root}/opt/tollgate/lib/libtollgate.so.{soname}"),
            format!("{root}/opt/tollgate/lib/libtollgate.so.{version}"),
            format!("{root}/opt/tollgate/lib/pkgconfig/tollgate.pc"),
        ]
    );
    let lib = folder.join("opt/tollgate/lib");
    let described = fs::read_to_string(lib.join("pkgconfig/tollgate.pc")).unwrap();
    assert!(described.starts_with("prefix=/opt/tollgate\n") && !described.contains('@'), "{described}");

    let ask = |arguments: &[&str]| pkg_config(&folder, arguments);
    assert_eq!(ask(&["--modversion"]).trim(), version);
    let (shared, all) = (ask(&["--cflags", "--libs"]), ask(&["--cflags", "--libs", "--static"]));
    for (name, flags, only_static) in [("shared", &shared, false), ("static", &all, true)] {
        let program = folder.join(name);
        let mut compile = Command::new("cc");
        compile.arg(of_crate("examples/limiter.c")).arg("-o").arg(&program);
        // The linker uses the static library if no shared library is next to it.
        if only_static {
            for name in ["libtollgate.so".to_owned(), format!("libtollgate.so.{soname}")] {
                fs::remove_file(lib.join(name)).unwrap();
            }
        }
        run(compile.args(flags.split_whitespace()));
        let mut example = Command::new(&program);
        if !only_static {
            let needed = run(Command::new("readelf").arg("--dynamic").arg(&program));
            assert!(needed.contains(&format!("[libtollgate.so.{soname}]")), "{needed}");
            example.env("LD_LIBRARY_PATH", &lib);
        }
        said_as_expected(&run(&mut example));
    }
}

#[test]
fn a_relative_prefix_is_refused_with_a_reason() {
    let install = of_crate("../../scripts/install-c.sh");
    let done = Command::new(install).arg("target").env("PREFIX", "here").output().unwrap();
    assert!(!done.status.success());
    assert_eq!(String::from_utf8_lossy(&done.stdout), "PREFIX is here; allowed: a path that begins with /\n");
}
