//! What the names of functions in Node's own file say about whose code they are.
//!
//! Node's executable, or its shared library, has V8 and libuv in it, and also the libraries that
//! programs use through Node: OpenSSL, zlib, ICU, SQLite, nghttp2. V8 and Node are in C++, and each
//! name says so. libuv has a prefix. What is none of them is a library's, as it would be in a
//! `libcrypto.so`.

use std::sync::LazyLock;

use regex::Regex;

use crate::model::facts::tables::{FrameKind, Location};
use crate::model::vocabulary::qualified::segments;
use crate::model::vocabulary::role::Role;

/// Outermost namespaces of V8, of Node, and of what both use for themselves: containers, formats
/// of the inspector, a disassembler.
const OF_RUNTIME: &[&str] = &[
    "v8",
    "v8_inspector",
    "v8_crdtp",
    "v8impl",
    "crdtp",
    "cppgc",
    "heap",
    "unibrow",
    "disasm",
    "node",
    "node_napi_env__",
    "napi_env__",
    "std",
    "__gnu_cxx",
    "absl",
];

/// Functions without a namespace: libuv's, those of Node's interface for addons, what starts the
/// program, built-in code, and C++'s operators. Static functions of libuv's pool have no prefix.
const RUNTIME_NAMES: &str = r"(?x)^(
    uv_ | napi_ | node_api_ | Absl | (Builtins|Builtin:|Stub:) | operator\b | \(anonymous
    | (main | _start | worker | init_once | init_threads | reset_once | post)(\.\w+)*$
    )";

static RUNTIME: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(RUNTIME_NAMES).expect("the shipped lists are regular expressions"));

/// Returns whether it is Node's executable, also one with a version in its name, or its library.
pub(super) fn is_node(module: &str) -> bool {
    let base = module.rsplit('/').next().unwrap_or(module);
    let version = |rest: &str| rest.bytes().all(|b| b.is_ascii_digit() || b"._-".contains(&b));
    base.starts_with("libnode.so")
        || ["nodejs", "node"].iter().any(|name| base.strip_prefix(name).is_some_and(version))
}

/// Returns the role of a native function of Node's file. A function without a name says nothing, so
/// it is the runtime's.
pub(super) fn role_by_name(location: &Location) -> Option<Role> {
    if location.kind != FrameKind::Native || !is_node(&location.module) {
        return None;
    }
    let name = &*location.function;
    let is_unnamed = name.contains('!') || name.starts_with("0x");
    let is_runtimes = || {
        RUNTIME.is_match(name)
            || segments(name).first().is_some_and(|first| OF_RUNTIME.contains(first))
    };
    Some(if is_unnamed || is_runtimes() { Role::Runtime } else { Role::Library })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role_in(module: &str, name: &str) -> Option<Role> {
        role_by_name(&Location {
            module: module.into(),
            ..Location::named(name, FrameKind::Native)
        })
    }

    #[test]
    fn libraries_in_nodes_file_are_libraries() {
        for name in [
            "PKCS5_PBKDF2_HMAC",
            "sha256_block_data_order_avx2",
            "deflate",
            "longest_match",
            "inflate_fast",
            "icu_78::RegexMatcher::MatchAt",
            "ucol_strcoll",
            "sqlite3VdbeExec",
            "ncrypto::pbkdf2",
            "nghttp2_session_mem_recv2",
            "simdjson::fallback::implementation::minify",
            "ada::parse",
            "BrotliEncoderCompressStream",
            "worker_thread_of_zstd",
            "temporal_rs::iso::IsoDate::balance",
        ] {
            assert_eq!(role_in("node", name), Some(Role::Library), "{name}");
        }
    }

    #[test]
    fn v8_node_and_libuv_are_the_runtime() {
        for name in [
            "v8::internal::Runtime_CompileLazy",
            "v8::internal::(anonymous namespace)::Invoke",
            "node::SpinEventLoopInternal",
            "node::(anonymous namespace)::PlatformWorkerThread",
            "std::_Function_handler<void (), node::Worker::StartThread()::{lambda()#1}>::_M_invoke",
            "v8_inspector::V8InspectorImpl::idle",
            "cppgc::internal::Marker::Advance",
            "uv_run",
            "uv__io_poll",
            "uv__work_submit.constprop.0",
            "worker",
            "worker.part.0",
            "init_once.cold",
            "main",
            "operator new",
            "AbslInternalPerThreadSemWait",
            "Builtins_ArrayMap",
            "napi_call_function",
            "node!fn_1a40",
            "0x7f00",
        ] {
            assert_eq!(role_in("node", name), Some(Role::Runtime), "{name}");
        }
    }

    #[test]
    fn nodes_file_has_a_known_name() {
        for module in ["node", "nodejs", "/usr/bin/node", "node-22.1", "node22", "libnode.so.115"] {
            assert_eq!(role_in(module, "deflate"), Some(Role::Library), "{module}");
        }
        for module in ["", "shop", "nodexporter", "node_exporter", "libz.so.1", "bcrypt.node"] {
            assert_eq!(role_in(module, "deflate"), None, "{module}");
        }
    }
}
