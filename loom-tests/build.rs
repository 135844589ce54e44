//! Replaces the library's atomics with loom's: see `src/sync.rs`.

fn main() {
    println!("cargo:rustc-cfg=tollgate_loom");
    println!("cargo:rerun-if-changed=build.rs");
}
