//! How names of servers become addresses where sampletop needs no shared library.

#![allow(unsafe_code, reason = "tells the C library where to look up hosts")]

/// glibc asks the modules that /etc/nsswitch.conf names for hosts, and loads them: a program that
/// is linked statically gets the machine's libraries, made for another glibc than its own, into its
/// process. These two are within it. Measured with strace: without this `hosts: files myhostname
/// resolve dns` looks for libnss_myhostname.so.2 and libnss_resolve.so.2, with it no library and no
/// daemon is asked.
#[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
pub fn load_no_modules() {
    use std::ffi::{c_char, c_int};
    unsafe extern "C" {
        /// <nss.h>; `libc` does not have it.
        fn __nss_configure_lookup(database: *const c_char, services: *const c_char) -> c_int;
    }
    static ONCE: std::sync::Once = std::sync::Once::new();
    // SAFETY: two strings that end in zero and live for ever. It comes before the first lookup:
    // nobody else looks up hosts.
    ONCE.call_once(|| unsafe {
        __nss_configure_lookup(c"hosts".as_ptr(), c"files dns".as_ptr());
    });
}

#[cfg(not(all(target_env = "gnu", target_feature = "crt-static")))]
pub fn load_no_modules() {}
