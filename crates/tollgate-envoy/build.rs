//! Keeps the library loaded in Envoy. Envoy's threads have destructors in the library, so the
//! library must not be unmapped when the last filter is destroyed.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let target = std::env::var("CARGO_CFG_TARGET_OS");
    if target.is_ok_and(|target| target == "linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
