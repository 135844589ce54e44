//! Replaces the library's atomics with shuttle's, through the switch that exists for loom: see
//! `src/sync.rs`.

fn main() {
    println!("cargo:rustc-cfg=tollgate_loom");
    println!("cargo:rerun-if-changed=build.rs");
}
