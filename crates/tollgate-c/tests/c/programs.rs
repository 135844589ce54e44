//! Compiles, links and runs each C program in this folder and in `examples`.
//!
//! The tests need a C compiler, a C++ compiler and valgrind. A missing program is reported; in CI
//! it fails the test.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The libraries that the linker needs in addition to the static library.
const SYSTEM: [&str; 5] = ["-lgcc_s", "-lpthread", "-lm", "-ldl", "-lc"];

/// Returns the path of one of this crate's libraries. Cargo builds them next to this program,
/// because the tests use the crate.
pub(crate) fn here(library: &str) -> PathBuf {
    let library = env::current_exe().unwrap().with_file_name(library);
    assert!(library.exists(), "{} was not built", library.display());
    library
}

pub(crate) fn of_crate(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Runs a program that must succeed, and returns its output.
pub(crate) fn run(command: &mut Command) -> String {
    let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{command:?}: {}\n{out}\n{err}", done.status);
    out.into_owned()
}

/// Returns whether `program` is installed. In CI it must be.
pub(crate) fn is_here(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    assert!(found || env::var_os("CI").is_none(), "{program} is missing");
    if !found {
        eprintln!("NOT DONE: {program} is missing");
    }
    found
}

/// A compiler and its arguments. `name` becomes a part of each program's name.
struct Language {
    name: &'static str,
    compiler: &'static str,
    arguments: &'static [&'static str],
}

const C99: Language = Language { name: "c99", compiler: "cc", arguments: &["-std=c99"] };
const C11: Language = Language { name: "c11", compiler: "cc", arguments: &["-std=c11"] };
const CXX17: Language = Language { name: "c++17", compiler: "c++", arguments: &["-std=c++17", "-xc++"] };
const SANITIZED: Language = Language {
    name: "sanitized",
    compiler: "cc",
    arguments: &["-std=c11", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
};

/// Builds a program from a source, linked with the static library. Returns `None` if there is no
/// compiler.
fn built(source: &str, language: &Language) -> Option<PathBuf> {
    linked(source, language, &[here("libtollgate_c.a").to_str().unwrap()])
}

/// Builds a program from a source, linked with libraries.
fn linked(source: &str, language: &Language, libraries: &[&str]) -> Option<PathBuf> {
    if !is_here(language.compiler) {
        return None;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let name = Path::new(source).file_stem().unwrap().to_str().unwrap();
    let program = folder.join(format!("{name}-{}", language.name));
    let mut compile = Command::new(language.compiler);
    compile.args(language.arguments).args(["-Wall", "-Wextra", "-Wpedantic", "-Werror"]);
    compile.arg("-I").arg(of_crate("include")).arg(of_crate(source)).arg("-o").arg(&program);
    // The language applies to the source, not to the libraries.
    run(compile.arg("-xnone").args(libraries).args(SYSTEM));
    Some(program)
}

fn runs(source: &str, language: &Language) {
    if let Some(program) = built(source, language) {
        run(&mut Command::new(program));
    }
}

#[test]
fn the_interface_does_as_the_header_says_in_c99() {
    runs("tests/c/interface.c", &C99);
}

#[test]
fn the_interface_does_as_the_header_says_in_c11() {
    runs("tests/c/interface.c", &C11);
}

#[test]
fn the_interface_does_as_the_header_says_in_cpp17() {
    runs("tests/c/interface.c", &CXX17);
}

#[test]
fn many_threads_on_one_key_admit_exactly_the_quota() {
    for language in [&C99, &C11, &CXX17] {
        runs("tests/c/threads.c", language);
    }
}

#[test]
fn a_thread_ends_well_after_the_library_was_closed() {
    for language in [&C99, &C11, &CXX17] {
        // The program is not linked with the library, so that the loaded copy is the only one.
        if let Some(program) = linked("tests/c/unload.c", language, &[]) {
            run(Command::new(program).arg(here("libtollgate_c.so")));
        }
    }
}

#[test]
fn the_address_sanitizer_finds_nothing() {
    runs("tests/c/interface.c", &SANITIZED);
    runs("tests/c/threads.c", &SANITIZED);
}

#[test]
fn valgrind_finds_nothing() {
    if !is_here("valgrind") {
        return;
    }
    let valgrind = |program: PathBuf| {
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["--quiet", "--error-exitcode=99", "--leak-check=full", "--trace-children=yes"]);
        run(valgrind.args(["--errors-for-leak-kinds=definite", "--fair-sched=yes"]).arg(program));
    };
    for source in ["tests/c/interface.c", "tests/c/threads.c", "examples/limiter.c"] {
        let checked = Language { name: "valgrind", arguments: &["-std=c11", "-g"], ..C11 };
        built(source, &checked).into_iter().for_each(valgrind);
    }
}

/// Asserts that `said` is the example's expected output.
pub(crate) fn said_as_expected(said: &str) {
    let expected = [
        "alice: go ahead, 2 more may follow at once",
        "alice: go ahead, 1 more may follow at once",
        "alice: go ahead, 0 more may follow at once",
        // 36 s, minus the time that has passed.
        "alice: come back in ",
        "bob: go ahead, 2 more may follow at once",
        "user 42: a cost of 4 is refused",
    ];
    let said: Vec<_> = said.lines().collect();
    assert_eq!(said.len(), expected.len(), "{said:#?}");
    let is_expected = |(said, expected): (&&str, &str)| said.starts_with(expected);
    assert!(said.iter().zip(expected).all(is_expected), "{said:#?}");
}

#[test]
fn the_example_is_short_and_says_what_its_comments_say() {
    let example = fs::read_to_string(of_crate("examples/limiter.c")).unwrap();
    assert!(example.lines().count() <= 60);
    if let Some(program) = built("examples/limiter.c", &C99) {
        said_as_expected(&run(&mut Command::new(program)));
    }
}

#[test]
fn the_first_lines_of_the_readme_compile() {
    let readme = fs::read_to_string(of_crate("README.md")).unwrap();
    let lines = readme.split("```c\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let source = folder.join("readme.c");
    let includes = "#include <stdio.h>\n#include <string.h>\n#include <tollgate.h>\n";
    fs::write(&source, format!("{includes}int ask(const char *user)\n{{\n{lines}return 0;\n}}\n")).unwrap();
    let mut compile = Command::new("cc");
    compile.args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I"]);
    run(compile.arg(of_crate("include")).arg(source));
}
