//! Link options of libsoftring.so. `#[no_mangle]` alone decides what the library exports (rustc
//! hides the rest from the linker), and a test checks the exports against `src/symbols.rs`.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Patched text jumps into this library: it must outlive any dlclose.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libsoftring.so");
}
