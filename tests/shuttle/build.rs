//! Replaces the library's atomics with shuttle's, through the switch that exists for loom: see
//! `src/sync.rs`.

fn main() {
    println!("cargo:rustc-cfg=tollgate_loom");
    // Every package with this script has this file. If the file did not exist, cargo would compile
    // all models again for every command.
    println!("cargo:rerun-if-changed=Cargo.toml");
}
