//! Names the objects with the programs for the kernel. And for the cargo feature `libunwind`:
//! Debian's libunwind needs symbols of liblzma that it finds when it is loaded, but that a linker
//! which insists on seeing them at link time (lld, Rust's default) does not look for.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The programs for the kernel are checked in, compiled: assets/build-bpf. Another object can be
    // built in, to test it.
    for (variable, file) in [
        ("SAMPLETOP_BPF_OBJECT", "sampletop.bpf.o"),
        ("SAMPLETOP_ENDPOINTS_OBJECT", "endpoints.bpf.o"),
        ("SAMPLETOP_WAKEUPS_OBJECT", "wakeups.bpf.o"),
    ] {
        println!("cargo::rerun-if-env-changed={variable}");
        let root = std::env::var("CARGO_MANIFEST_DIR").expect("cargo says where the package is");
        let object = std::env::var(variable).unwrap_or_else(|_| format!("{root}/assets/{file}"));
        println!("cargo::rustc-env={variable}={object}");
    }
    println!("cargo::rerun-if-env-changed=LIBUNWIND_PTRACE_STATIC");
    if std::env::var_os("CARGO_FEATURE_LIBUNWIND").is_some() {
        println!("cargo::rustc-link-arg=-Wl,--allow-shlib-undefined");
    }
}
