//! Where a mapped file comes from, by its path: the program itself, the system, a runtime.

use std::path::Path;

use crate::model::vocabulary::role::Origin;

/// Directories whose shared objects are the system's or of other packages on it.
const SYSTEM: &[&str] = &[
    "/lib/",
    "/lib32/",
    "/lib64/",
    "/libx32/",
    "/usr/",
    "/bin/",
    "/sbin/",
    "/nix/store/",
    "/gnu/store/",
    "/snap/",
    "/run/host/usr/",
];

/// Directories, anywhere in a path, into which package managers of languages install what others
/// wrote.
const PACKAGES: &[&str] = &[
    "/site-packages/",
    "/dist-packages/",
    "/lib-dynload/",
    "/node_modules/",
    "/gems/",
    "/.cargo/",
];

/// Programs that run programs of another language. A version may follow: `python3.11`. Those of
/// PHP, Ruby, Perl and Lua are not in it: no frames of their languages are known, so the
/// interpreter's own functions are all that can be shown of a program.
const RUNTIME_PROGRAMS: &[&str] = &[
    "java", "python", "pypy", "node", "nodejs", "deno", "bun", "dotnet", "mono", "beam.smp",
    "luajit", "bash", "dash", "sh",
];

/// Shared objects of these interpreters, without their versions.
const INTERPRETER_LIBRARIES: &[&str] = &["libruby", "libperl", "libphp"];

/// Shared objects of such runtimes, without their versions.
const RUNTIME_LIBRARIES: &[&str] = &[
    "libjvm",
    "libjli",
    "libjava",
    "libnio",
    "libnet",
    "libzip",
    "libjimage",
    "libverify",
    "libinstrument",
    "libmanagement",
    "libmanagement_ext",
    "libextnet",
    "libjdwp",
    "libpython",
    "libnode",
    "libcoreclr",
    "libclrjit",
    "libmonosgen",
    "libv8",
];

/// Returns the origin of a file's code. `is_program`: it is an executable and no shared object.
pub fn of(path: &Path, is_program: bool) -> Origin {
    let text = path.to_string_lossy();
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    if is_program {
        let version = |rest: &str| rest.bytes().all(|b| b.is_ascii_digit() || b".-_".contains(&b));
        let is_runtime = |runtime: &&str| name.strip_prefix(*runtime).is_some_and(version);
        return match RUNTIME_PROGRAMS.iter().any(is_runtime) {
            true => Origin::Runtime,
            // A `redis-server` in /usr/bin is what the user watches.
            false => Origin::App,
        };
    }
    let base = name.split(".so").next().unwrap_or(&name);
    let base = base.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    if RUNTIME_LIBRARIES.contains(&base) {
        Origin::Runtime
    } else if INTERPRETER_LIBRARIES.contains(&base) {
        Origin::App
    } else if ["[vdso]", "[vsyscall]"].contains(&&*text)
        || SYSTEM.iter().any(|directory| text.starts_with(directory))
        || PACKAGES.iter().any(|directory| text.contains(directory))
    {
        Origin::Library
    } else {
        Origin::App
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_and_what_is_beside_it_are_the_users() {
        for (path, is_program, origin) in [
            ("/usr/bin/redis-server", true, Origin::App),
            ("/usr/lib/postgresql/15/bin/postgres", true, Origin::App),
            ("/opt/shop/bin/shop", true, Origin::App),
            ("/opt/shop/lib/libcart.so.2", false, Origin::App),
            ("/home/ann/shop/libcart.so", false, Origin::App),
            ("/usr/lib/x86_64-linux-gnu/libc.so.6", false, Origin::Library),
            ("/usr/lib/postgresql/15/lib/plpgsql.so", false, Origin::Library),
            ("/usr/local/lib/libuv.so.1.0.0", false, Origin::Library),
            ("/lib64/ld-linux-x86-64.so.2", false, Origin::Library),
            // What the kernel maps into each process.
            ("[vdso]", false, Origin::Library),
            ("[vsyscall]", false, Origin::Library),
            ("/srv/app/venv/lib/python3.11/site-packages/x/_x.so", false, Origin::Library),
            ("/srv/app/node_modules/bcrypt/bcrypt.node", false, Origin::Library),
            ("/usr/lib/jvm/java-17/bin/java", true, Origin::Runtime),
            ("/opt/jdk/lib/server/libjvm.so", false, Origin::Runtime),
            ("/opt/jdk/lib/libnio.so", false, Origin::Runtime),
            ("/usr/bin/python3.11", true, Origin::Runtime),
            ("/opt/py/lib/libpython3.12.so.1.0", false, Origin::Runtime),
            ("/usr/bin/node", true, Origin::Runtime),
            ("/usr/sbin/php-fpm8.2", true, Origin::App),
            ("/usr/lib/x86_64-linux-gnu/libruby-3.1.so.3.1.2", false, Origin::App),
            ("/usr/lib/apache2/modules/libphp8.2.so", false, Origin::App),
            ("/usr/lib/php/20220829/phar.so", false, Origin::Library),
            ("/usr/bin/perl", true, Origin::App),
            ("/usr/bin/dash", true, Origin::Runtime),
            ("/usr/lib/x86_64-linux-gnu/liblua5.3.so.0", false, Origin::Library),
            ("/usr/bin/javaws-like", true, Origin::App),
            ("/usr/bin/nodexporter", true, Origin::App),
            ("/usr/bin/shop", true, Origin::App),
        ] {
            assert_eq!(of(Path::new(path), is_program), origin, "{path}");
        }
    }
}
