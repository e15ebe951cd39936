//! Resolves server names where sampletop must not need shared libraries.

#![allow(unsafe_code, reason = "tells the C library where to look up hosts")]

/// Restricts glibc to two modules that it contains itself. glibc queries and loads the modules that
/// /etc/nsswitch.conf names for hosts. So a statically linked program gets the machine's libraries,
/// made for another glibc, into its process. Measured with strace: without this call `hosts: files
/// myhostname resolve dns` searches for libnss_myhostname.so.2 and libnss_resolve.so.2. With it no
/// library is loaded and no daemon is asked.
#[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
pub fn load_no_modules() {
    use std::ffi::{c_char, c_int};
    unsafe extern "C" {
        /// <nss.h>; `libc` does not declare it.
        fn __nss_configure_lookup(database: *const c_char, services: *const c_char) -> c_int;
    }
    static ONCE: std::sync::Once = std::sync::Once::new();
    // SAFETY: two strings that end in zero and live for ever. It runs before the first lookup; no
    // other code looks up hosts.
    ONCE.call_once(|| unsafe {
        __nss_configure_lookup(c"hosts".as_ptr(), c"files dns".as_ptr());
    });
}

#[cfg(not(all(target_env = "gnu", target_feature = "crt-static")))]
pub fn load_no_modules() {}
