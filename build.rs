//! Only for the cargo feature `libunwind`: Debian's libunwind needs symbols of liblzma that it finds when it is loaded,
//! but that a linker which insists on seeing them at link time (lld, Rust's default) does not look for.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=LIBUNWIND_PTRACE_STATIC");
    if std::env::var_os("CARGO_FEATURE_LIBUNWIND").is_some() {
        println!("cargo::rustc-link-arg=-Wl,--allow-shlib-undefined");
    }
}
