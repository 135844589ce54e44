//! Replaces the library's atomics with loom's: see `src/sync.rs`.

fn main() {
    println!("cargo:rustc-cfg=tollgate_loom");
    // Every package with this script has this file. If the file did not exist, cargo would compile
    // all models again for every command.
    println!("cargo:rerun-if-changed=Cargo.toml");
}
