//! Places of functions of Go, for [`super::thread_base`]: by whose code it is, and by names that
//! programs use for functions which serve or start others. A goroutine that waits at its own base
//! waits for work: in libraries only, or directly in the function that it was started with.

use crate::model::facts::tables::{FrameKind, Location};
use crate::model::vocabulary::frame::SELECT_SENDS;
use crate::model::vocabulary::go_functions::{is_go, is_wrapper, package};
use crate::model::vocabulary::role::Role;

/// Functions of libraries that wait for a client, for its request, or for a signal.
const SERVES: &[&str] = &[
    "internal/poll.(*FD).Accept",
    "net/http.(*conn).readRequest",
    "net/http.(*connReader).backgroundRead",
    "net/http.(*http2serverConn).serve",
    "net/http.(*http2serverConn).readFrames",
    "golang.org/x/net/http2.(*serverConn).serve",
    "golang.org/x/net/http2.(*serverConn).readFrames",
    "google.golang.org/grpc/internal/transport.(*http2Server).HandleStreams",
    "google.golang.org/grpc/internal/transport.(*loopyWriter).run",
    "os/signal.loop",
];

/// Functions of libraries that handle a request.
const HANDLES: &[&str] = &[
    "net/http.serverHandler.ServeHTTP",
    "net/http.(*http2serverConn).runHandler",
    "golang.org/x/net/http2.(*serverConn).runHandler",
    "google.golang.org/grpc.(*Server).handleStream",
    "net/rpc.(*service).call",
];

/// Functions that wait for another: of libraries for the answer of a server, of the runtime until
/// what the goroutine has made is taken. Where that is done, the goroutine has work.
const ASKS: &[&str] = &[
    "runtime.chansend",
    "net/http.(*Client).do",
    "net/http.(*Transport).RoundTrip",
    "net.(*Dialer).DialContext",
    "net.(*Resolver).lookupIPAddr",
    "golang.org/x/net/http2.(*Transport).RoundTrip",
    "google.golang.org/grpc.(*ClientConn).Invoke",
    "database/sql.(*DB).conn",
];

/// Beginnings of names of functions whose closures are goroutines that live long.
const STARTERS: &[&str] =
    &["main", "init", "new", "start", "run", "serve", "listen", "open", "setup", "launch", "loop"];

/// What a function of Go says about the place of those further in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place<'n> {
    /// The first one of a goroutine.
    Starts,
    /// The first one of the main goroutine.
    StartsMain,
    /// It waits for other goroutines to end.
    Joins,
    Neutral,
    /// It waits for another, and has work.
    Asks,
    Serves,
    Job,
    Library,
    /// A closure of a function that starts goroutines.
    Closure,
    /// Another closure.
    InnerClosure,
    /// A function of the user: its own name, without package and type.
    Own(&'n str),
}

/// Returns the place of a function of Go; `None` for any other.
pub(super) fn place(location: &Location, role: Role) -> Option<Place<'_>> {
    let (name, file) = (&*location.function, location.file.as_deref());
    if name == SELECT_SENDS && location.kind == FrameKind::Marker {
        return Some(Place::Asks);
    }
    if !is_go(name, file) {
        return None;
    }
    Some(match name {
        "runtime.goexit" | "runtime.goexit.abi0" => Place::Starts,
        "runtime.main" => Place::StartsMain,
        "sync.(*WaitGroup).Wait" | "golang.org/x/sync/errgroup.(*Group).Wait" => Place::Joins,
        _ if ASKS.contains(&name) => Place::Asks,
        _ if package(name) == "runtime" || is_wrapper(name, file) => Place::Neutral,
        _ if SERVES.contains(&name) => Place::Serves,
        _ if HANDLES.contains(&name) => Place::Job,
        _ => match role {
            Role::App => own(name),
            Role::Library => Place::Library,
            Role::Runtime | Role::Wait | Role::Kernel => Place::Neutral,
            Role::Marker => Place::Job,
        },
    })
}

fn own(name: &str) -> Place<'_> {
    let inside = &name[package(name).len()..];
    let parts: Vec<&str> = inside.split('.').filter(|part| !part.is_empty()).collect();
    let is_closure = |part: &str| {
        let number = part.strip_prefix("func").unwrap_or(part);
        number.bytes().all(|byte| byte.is_ascii_digit())
    };
    let own = parts.iter().rev().find(|part| !is_closure(part)).copied().unwrap_or("");
    if !parts.last().is_some_and(|last| is_closure(last)) {
        return Place::Own(own);
    }
    let own = own.to_ascii_lowercase();
    match STARTERS.iter().any(|start| own.starts_with(start)) {
        true => Place::Closure,
        false => Place::InnerClosure,
    }
}
