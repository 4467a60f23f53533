//! Link options of libsoftring.so. What it exports is decided by `#[no_mangle]` alone (rustc hides
//! the rest from the linker) and checked against `src/symbols.rs` by a test.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Patched text jumps into this library: it must outlive any dlclose.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libsoftring.so");
}
