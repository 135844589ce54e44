//! Linker options of the shared library.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let system = std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    if system == "linux" {
        // Programs linked with the library search for this name. Until 1.0, a minor version may
        // break them.
        let version = |part: &str| std::env::var(format!("CARGO_PKG_VERSION_{part}")).unwrap_or_default();
        let name = format!("libtollgate.so.{}.{}", version("MAJOR"), version("MINOR"));
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,{name}");
        // A `dlclose` must not unload the library, because threads that have used it run its code
        // when they end. Moreover, loading it again would create new statics, and the memory of the
        // first load would remain allocated.
        println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    }
}
