//! Turns the library's atomics into shuttle's, by the switch that is there for loom: see
//! `src/sync.rs`.

fn main() {
    println!("cargo:rustc-cfg=tollgate_loom");
    println!("cargo:rerun-if-changed=build.rs");
}
