//! The structure of the source: floors, the one file of atomics, and the notes at every atomic
//! operation.
//!
//! A file imports lower floors, files of its own room and its own children. It never imports its
//! parent, or a file that leads back to it. The compiler ensures that the other crates reach only
//! the public items of the core.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The floors, starting with the lowest. A floor may import the floors below it, but not those
/// beside or above it.
const FLOORS: [&[&str]; 11] = [
    &["sync", "time", "algorithm", "stats", "state_file"],
    &["error", "reclaim", "forgetting", "growth"],
    &["quota", "clock"],
    &["grain", "settings"],
    &["decision", "by_text"],
    &["rule"],
    &["log"],
    &["state"],
    &["table", "exact"],
    &["limiter"],
    // This is a page about all floors.
    &["design"],
];

/// Each crate except the core, and the crates of this repository that it may depend on.
const CRATES: [(&str, &[&str]); 6] = [
    ("tollgate-c", &["tollgate"]),
    ("tollgate-http", &["tollgate"]),
    ("tollgate-wait", &["tollgate"]),
    ("tollgate-redis", &["tollgate", "tollgate-http", "tollgate-wait"]),
    ("tollgate-cli", &["tollgate", "tollgate-http", "tollgate-redis"]),
    ("tollgate-envoy", &["tollgate", "tollgate-http", "tollgate-redis"]),
];

struct Source {
    path: PathBuf,
    /// The modules from the crate's root: `["rule", "grain"]`.
    modules: Vec<String>,
    /// The lines before the unit tests.
    lines: Vec<String>,
}

impl Source {
    /// Returns the lines that are code, with their numbers.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.lines.iter().enumerate();
        lines
            .map(|(i, line)| (i + 1, line.trim()))
            .filter(|(_, line)| !line.is_empty() && !line.starts_with("//"))
    }

    fn at(&self, line: usize) -> String {
        format!("{}:{line}", self.path.display())
    }
}

fn sources(folder: &str) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut found = Vec::new();
    let mut folders = vec![root.clone()];
    while let Some(inner) = folders.pop() {
        for entry in fs::read_dir(&inner).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                let tests =
                    |line: &&str| !line.starts_with("#[cfg(test)]") && !line.starts_with("#[cfg(all(test");
                let lines = text.lines().take_while(tests).map(str::to_owned).collect();
                let relative = path.strip_prefix(&root).unwrap().with_extension("");
                let modules = relative.iter().map(|part| part.to_str().unwrap().to_owned()).collect();
                found.push(Source {
                    path: Path::new(folder).join(path.strip_prefix(&root).unwrap()),
                    modules,
                    lines,
                });
            }
        }
    }
    assert!(!found.is_empty(), "no sources in {folder}");
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// Returns whether a file contains unit tests only.
fn is_tests(source: &Source) -> bool {
    source.modules.last().is_some_and(|last| last == "tests")
}

/// Returns the files of a crate, except its root, the program's main file, and the files of unit
/// tests.
fn files_of(folder: &str) -> Vec<Source> {
    let is_root = |source: &Source| ["lib", "main"].contains(&&*source.modules[0]);
    sources(folder).into_iter().filter(|source| !is_root(source) && !is_tests(source)).collect()
}

/// Returns the files of the core.
fn library() -> Vec<Source> {
    files_of("src")
}

fn folder_of(name: &str) -> String {
    format!("crates/{name}/src")
}

/// Returns the files of the libraries, which may have atomics.
fn libraries() -> Vec<Source> {
    let mut files = library();
    files.extend(files_of(&folder_of("tollgate-http")));
    files.extend(files_of(&folder_of("tollgate-wait")));
    files.extend(files_of(&folder_of("tollgate-redis")));
    files.extend(files_of(&folder_of("tollgate-c")));
    files
}

fn floor(module: &str) -> Option<usize> {
    FLOORS.iter().position(|floor| floor.contains(&module))
}

/// Returns the name that follows each occurrence of `prefix` in a line: `rule` and `time` in
/// `use crate::rule; crate::time::T`.
fn names_after<'l>(line: &'l str, prefix: &str) -> Vec<&'l str> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let after = line.match_indices(prefix).map(|(at, _)| &line[at + prefix.len()..]);
    after.map(|rest| &rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())]).collect()
}

#[test]
fn every_file_stands_on_a_floor_and_imports_lower_ones_only() {
    for source in library() {
        let own = &source.modules[0];
        let height = floor(own).unwrap_or_else(|| panic!("{own} stands on no floor"));
        for (number, line) in source.code() {
            for name in names_after(line, "crate::") {
                let imported = floor(name);
                // The files of one room may import each other. Another test finds cycles.
                assert!(
                    name == own || imported.is_some_and(|imported| imported < height),
                    "{} imports crate::{name}, which is no lower floor: {line}",
                    source.at(number)
                );
            }
        }
    }
}

#[test]
fn a_crate_depends_on_lower_ones_only() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let core = [("", &[][..])];
    for (name, allowed) in core.into_iter().chain(CRATES) {
        let folder = if name.is_empty() { root.to_owned() } else { root.join("crates").join(name) };
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let found = dependencies(&manifest);
        assert_eq!(found, allowed.iter().map(|name| (*name).to_owned()).collect(), "of {name:?}");
    }
}

/// Returns the dependencies of this repository that a manifest names, except those of its tests.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let mut section = "";
    let mut found = BTreeSet::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        }
        let counts = section.ends_with("dependencies]") && !section.contains("dev-");
        let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
        if counts && section != "[workspace.dependencies]" && name.starts_with("tollgate") {
            found.insert(name.to_owned());
        }
    }
    found
}

#[test]
fn dependencies_are_read_from_a_manifest() {
    let manifest = "[workspace.dependencies]\ntollgate-a = 1\n[dependencies]\ntollgate.workspace = true\nhttp = 1\n\
        [target.'cfg(unix)'.dependencies]\ntollgate-b = { path = \"b\" }\n[dev-dependencies]\ntollgate-c = 1\n";
    assert_eq!(dependencies(manifest), ["tollgate", "tollgate-b"].map(str::to_owned).into());
}

/// Returns the imports and declarations of each module of a crate, by full name. Fails if a file
/// imports from a module that contains the file.
fn imports(sources: &[Source], root: &[&str]) -> BTreeMap<String, BTreeSet<String>> {
    let own = |source: &Source| {
        let mut own = source.modules.clone();
        own.pop_if(|last| last == "mod" || last == "main");
        own.join("::")
    };
    let known: BTreeSet<String> = sources.iter().map(own).collect();
    let mut imports: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in sources {
        let own = own(source);
        let parent = own.rsplit_once("::").map_or("", |(parent, _)| parent);
        for (number, line) in source.code() {
            for name in names_after(line, "super::") {
                let is_module = name.chars().next().is_some_and(|c| c.is_lowercase()) && name != "super";
                assert!(is_module, "{} imports from its parent: {line}", source.at(number));
                let sibling = if parent.is_empty() { name.to_owned() } else { format!("{parent}::{name}") };
                imports.entry(own.clone()).or_default().insert(sibling);
            }
            for (at, prefix) in line.match_indices("crate::") {
                let mut module = root.join("::");
                for name in line[at + prefix.len()..].split("::") {
                    let inner = if module.is_empty() { name.to_owned() } else { format!("{module}::{name}") };
                    if !known.contains(&inner) {
                        break;
                    }
                    module = inner;
                }
                let around = own == module || own.starts_with(&format!("{module}::"));
                assert!(!around, "{} imports from around itself: {line}", source.at(number));
                imports.entry(own.clone()).or_default().insert(module);
            }
            let declared = line.trim_start_matches("pub").trim_start_matches("(crate)").trim_start();
            if let Some(name) = declared.strip_prefix("mod ").and_then(|rest| rest.strip_suffix(';')) {
                imports.entry(own.clone()).or_default().insert(format!("{own}::{name}"));
            }
        }
    }
    imports
}

/// Fails if a module leads back to itself.
fn assert_no_circles(imports: &BTreeMap<String, BTreeSet<String>>) {
    for start in imports.keys() {
        let mut reached = BTreeSet::new();
        let mut open: Vec<_> = imports[start].iter().collect();
        while let Some(next) = open.pop() {
            assert_ne!(next, start, "{start} leads back to itself");
            if reached.insert(next) {
                open.extend(imports.get(next).into_iter().flatten());
            }
        }
    }
}

#[test]
fn no_file_imports_its_parent_or_a_file_that_leads_back_to_it() {
    assert_no_circles(&imports(&library(), &[]));
}

#[test]
fn the_other_crates_have_no_circles_either() {
    for (name, seen) in [
        ("tollgate-c", ("functions", "pointers")),
        ("tollgate-http", ("check::limit_set", "response::policy")),
        ("tollgate-redis", ("client", "connection::network")),
        ("tollgate-cli", ("replay", "replay::report")),
        ("tollgate-envoy", ("hooks", "filter")),
    ] {
        let imports = imports(&files_of(&folder_of(name)), &[]);
        let (from, to) = seen;
        assert!(imports[from].contains(to), "{from} of {name} imports {:?}", imports[from]);
        assert_no_circles(&imports);
    }
}

#[test]
#[should_panic(expected = "leads back to itself")]
fn a_circle_is_seen() {
    let edges = [("a", "b"), ("b", "c"), ("c", "b")];
    assert_no_circles(&edges.map(|(from, to)| (from.to_owned(), [to.to_owned()].into())).into());
}

#[test]
fn only_sync_names_atomics_threads_or_the_model_checker_and_nothing_locks() {
    // Other crates can't use `sync`, so each crate that has atomics has them in one file.
    let is_of_core = |source: &Source| source.path.starts_with("src");
    let is_sync = |source: &Source| {
        is_of_core(source) && source.modules[0] == "sync"
            || source.path.ends_with("tollgate-redis/src/words/atomics.rs")
            || source.path.ends_with("tollgate-http/src/atomics.rs")
    };
    // The models replace reclamation with a list behind a lock.
    let is_model = |source: &Source| source.path.ends_with("reclaim/model/bag.rs");
    // The callers of this crate wait anyway, and checks never use this crate.
    let is_waiting = |source: &Source| source.path.starts_with(folder_of("tollgate-wait"));
    // Threads that write a state file take turns, and wait for the disk anyway.
    let is_file = |source: &Source| source.path.ends_with("src/state_file.rs");
    // The thread of a client's runtime, and threads that wait for the store. Checks that this
    // machine decides use neither.
    let is_runtime = |source: &Source| source.path.ends_with("tollgate-redis/src/runtime.rs");
    let exempt = |source: &Source| {
        is_sync(source) || is_model(source) || is_waiting(source) || is_file(source) || is_runtime(source)
    };
    for source in libraries().iter().filter(|source| !exempt(source)) {
        for (number, line) in source.code() {
            for waits in
                ["Mutex", "RwLock", "Condvar", "OnceLock", "LazyLock", "spin_loop", "thread::yield_now"]
            {
                assert!(!line.contains(waits), "{} waits for other threads: {line}", source.at(number));
            }
            for named in
                ["sync::atomic", "std::thread", "loom::", "atomic::Atomic", "AtomicU64", "AtomicUsize"]
            {
                let is_in = |path: &str| is_of_core(source) && source.path.ends_with(path);
                // Reclamation has fences, and its statics are loom's in place of std's.
                if is_in("reclaim/barrier.rs") || is_in("reclaim/guard.rs") && named == "loom::" {
                    continue;
                }
                if named == "AtomicU64" && !is_of_core(source) {
                    continue;
                }
                assert!(!line.contains(named), "{} names {named}: {line}", source.at(number));
            }
        }
    }
}

#[test]
fn every_atomic_operation_says_why_its_ordering_is_right() {
    let operations = [".load(", ".store(", ".swap(", ".compare_exchange", ".fetch_", "fence("];
    let orderings = ["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"];
    let mut counted = 0;
    for source in libraries().iter().filter(|source| source.modules[0] != "sync") {
        for (number, line) in source.code() {
            let atomic = operations.iter().any(|operation| line.contains(operation))
                && orderings.iter().any(|ordering| line.contains(ordering));
            if atomic {
                counted += 1;
                let near = &source.lines[number.saturating_sub(5)..number];
                let noted = near.iter().any(|line| line.contains("// ORDERING:"));
                assert!(noted, "{} has no ORDERING note: {line}", source.at(number));
                let is_fence = line.contains("fence(");
                assert!(is_fence || !line.contains("SeqCst"), "{}: fences only", source.at(number));
            }
        }
    }
    assert!(
        counted >= 10,
        "only {counted} atomic operations were found: does this test still read the code?"
    );
}

/// Returns the names of the types that a file declares, except those of associated types, which
/// their traits declare. Each name is returned with the number of its line.
fn types_of(source: &Source) -> impl Iterator<Item = (&str, usize)> {
    source.code().filter_map(|(number, line)| {
        let line = line.trim_start_matches("pub(crate) ").trim_start_matches("pub(super) ");
        let line = line.trim_start_matches("pub ");
        let is_associated = line.starts_with("type ") && source.lines[number - 1].starts_with(' ');
        let kinds = ["struct ", "enum ", "trait ", "type "];
        let rest = kinds.iter().find_map(|kind| line.strip_prefix(kind)).filter(|_| !is_associated)?;
        // A stand-in replaces the type of the same name where a feature is not enabled.
        let attributes = source.lines[..number - 1].iter().rev().map(|line| line.trim_start());
        let mut attributes = attributes.take_while(|line| line.starts_with(['#', '/']));
        let is_stand_in = attributes.any(|line| line.starts_with("#[cfg(not(feature"));
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        (!is_stand_in).then(|| (&rest[..end], number))
    })
}

/// A name that stands for two things sends a reader to the wrong file.
#[test]
fn each_type_has_a_name_of_its_own_in_its_crate() {
    // Stand-ins have the names of the types that they replace on other platforms, without a
    // feature, or in models.
    let stand_ins = [
        "clock/instant.rs",
        "clock/no_counter.rs",
        "table/no_pages.rs",
        "src/sync.rs",
        "connection/no_tls.rs",
    ];
    let is_stand_in = |source: &Source| {
        stand_ins.iter().any(|path| source.path.ends_with(path)) || source.modules.contains(&"model".into())
    };
    let crates = CRATES.map(|(name, _)| folder_of(name));
    let mut counted = 0;
    let mut twice = Vec::new();
    for folder in ["src".to_owned(), folder_of("tollgate-testing")].iter().chain(&crates) {
        let mut seen: BTreeMap<String, String> = BTreeMap::new();
        for source in sources(folder).iter().filter(|source| !is_tests(source) && !is_stand_in(source)) {
            for (name, number) in types_of(source) {
                counted += 1;
                let here = source.at(number);
                if let Some(first) = seen.insert(name.to_owned(), here.clone()) {
                    twice.push(format!("{name} is a type in {first} and in {here}"));
                }
            }
        }
    }
    assert!(twice.is_empty(), "{twice:#?}");
    assert!(counted > 600, "only {counted} types were found: does this test still read the code?");
}

/// A program often imports several of the crates, so their public types must not share names.
#[test]
fn no_public_type_of_a_crate_has_the_name_of_another() {
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    for name in ["tollgate", "tollgate_http", "tollgate_wait", "tollgate_redis"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("docs/api/{name}.txt"));
        let listing = fs::read_to_string(path).unwrap();
        for path in listing.lines().filter_map(|line| line.strip_prefix("# ")) {
            let (_, last) = path.rsplit_once("::").unwrap();
            if last.starts_with(char::is_uppercase)
                && let Some(first) = seen.insert(last.to_owned(), path.to_owned())
            {
                panic!("{first} and {path} have the same name");
            }
        }
    }
    assert!(seen.len() > 100, "only {} types were found: are the listings complete?", seen.len());
}

#[test]
fn unsafe_code_stands_in_few_files_and_says_why_it_is_sound() {
    let allowed = [
        "clock/counter.rs",
        "clock/system.rs",
        "reclaim/bag.rs",
        "reclaim/barrier.rs",
        "reclaim/chain.rs",
        "reclaim/guard.rs",
        "reclaim/link.rs",
        "reclaim/model/bag.rs",
        "reclaim/model/link.rs",
        "reclaim/once.rs",
        "rule/word.rs",
        "sync/index.rs",
        "table/chunks.rs",
        "table/memory.rs",
        "table/pages.rs",
        "table/space.rs",
    ];
    // The functions that C calls, and the code that reads values from C.
    let of_c = ["tollgate-c/src/functions.rs", "tollgate-c/src/pointers.rs"];
    let allowed = [&allowed[..], &of_c].concat();
    let mut seen = BTreeSet::new();
    for source in library().into_iter().chain(files_of(&folder_of("tollgate-c"))) {
        for (number, line) in source.code() {
            // `unsafe fn(` is the type of a function that is defined elsewhere.
            let is_type = line.contains("unsafe fn(");
            if names_after(line, "unsafe ").is_empty() || is_type || line.contains("unsafe_code") {
                continue;
            }
            let file = allowed.iter().find(|allowed| source.path.ends_with(allowed));
            seen.insert(*file.unwrap_or_else(|| panic!("{}: unsafe here?", source.at(number))));
            let near = &source.lines[number.saturating_sub(6)..number];
            let is_function = line.contains("unsafe fn") || line.contains("unsafe extern");
            let note = if is_function { "/// # Safety" } else { "// SAFETY:" };
            assert!(near.iter().any(|line| line.contains(note)), "{}: no {note}", source.at(number));
        }
    }
    assert_eq!(seen.len(), allowed.len(), "the list names a file without unsafe code");
}

#[test]
fn every_file_says_what_it_is_for() {
    let crates = CRATES.map(|(name, _)| folder_of(name));
    let files = crates.iter().flat_map(|folder| sources(folder));
    for source in sources("src").into_iter().chain(files) {
        assert!(
            source.lines.first().is_some_and(|line| line.starts_with("//!")),
            "{} does not begin by saying what it is for",
            source.path.display()
        );
    }
}

/// If no call tidies a bag, the bag keeps its retired values until its limiter is dropped.
#[test]
fn each_bag_of_retired_values_is_tidied_where_it_is_made() {
    // `tests/allocations/quota_memory.rs` and `tests/allocations/parked.rs` measure the memory of
    // each.
    let known = ["exact/quotas.rs", "exact/store.rs", "state/standalone.rs", "table/turnover.rs"];
    let is_of_bags = |source: &Source| source.modules[0] == "reclaim" || source.path.ends_with("model.rs");
    let mut makers = BTreeSet::new();
    for source in library().iter().filter(|source| !is_of_bags(source)) {
        // The lines do not include unit tests within files.
        let code: Vec<_> = source.code().map(|(_, line)| line).collect();
        if code.iter().any(|line| line.contains("Bag::new()")) {
            let is_tidied =
                |line: &&str| line.contains("retired.tidy()") || line.contains("retired.collect()");
            assert!(code.iter().any(is_tidied), "{} tidies no bag", source.path.display());
            makers.insert(source.path.strip_prefix("src").unwrap().to_str().unwrap().to_owned());
        }
    }
    assert_eq!(makers, known.map(str::to_owned).into());
}
