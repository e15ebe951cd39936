//! `report --push`: a server gets exactly the contents of the reports; servers that are down, slow,
//! or have a wrong identity.

#![cfg(feature = "push")]

mod common;
#[path = "push/server.rs"]
mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Arc, Mutex};

use common::{Running, build, wait_until};
use prost::Message;
use rustix::process::{Pid, Signal, kill_process};
use sampletop::formats::pprof::proto::{Function, Profile};
use serde_json::Value;
use server::{Got, Mode, Server, certified};

/// A `report --push` that runs; ended when this goes.
struct Pushing {
    child: Child,
    /// Its lines on standard error.
    said: Arc<Mutex<Vec<String>>>,
    reader: Option<std::thread::JoinHandle<()>>,
}

impl Pushing {
    /// Starts it with its state in `state`, and removes what could misdirect it from this test's
    /// environment.
    fn start(
        target: &Running,
        server: &Server,
        state: &Path,
        args: &[&str],
        env: &[(&str, &str)],
    ) -> Pushing {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
        let (pid, address) = (target.pid().to_string(), server.address());
        command.args(["report", "-p", &pid, "--every", "1s", "--push", &address]).args(args);
        for name in [
            "HTTPS_PROXY",
            "https_proxy",
            "ALL_PROXY",
            "all_proxy",
            "SSL_CERT_FILE",
            "SSL_CERT_DIR",
        ] {
            command.env_remove(name);
        }
        command
            .env_remove("SAMPLETOP_PUSH_TOKEN")
            .env("XDG_STATE_HOME", state)
            .envs(env.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("sampletop starts");
        let said = Arc::new(Mutex::new(Vec::new()));
        let reader = read_lines(child.stderr.take().expect("piped"), Arc::clone(&said));
        Pushing { child, said, reader: Some(reader) }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it is there");
    }

    fn said(&self) -> Vec<String> {
        self.said.lock().expect("readable").clone()
    }

    fn wait_until_it_says(&self, words: &str) {
        wait_until(words, || self.said().iter().any(|line| line.contains(words)));
    }

    /// Ends it by SIGTERM. Returns its standard output, and its last line on standard error.
    fn end(self) -> (String, String) {
        self.signal(Signal::TERM);
        self.ended()
    }

    /// Waits until it ends by itself.
    fn ended(mut self) -> (String, String) {
        let mut out = String::new();
        self.child.stdout.take().expect("piped").read_to_string(&mut out).expect("text");
        assert_eq!(self.child.wait().expect("it ends").code(), Some(0), "{:?}", self.said());
        self.reader.take().expect("once").join().expect("read");
        (out, self.said().pop().unwrap_or_default())
    }
}

impl Drop for Pushing {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_lines(from: ChildStderr, to: Arc<Mutex<Vec<String>>>) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            to.lock().expect("no reader failed").push(line);
        }
    })
}

fn target() -> Running {
    Running::start(&build("../../demos/work.c", "push", &["-O2"]), &[])
}

fn unpack(bytes: &[u8]) -> Profile {
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut plain).expect("packed");
    Profile::decode(&plain[..]).expect("a profile")
}

/// The one sample type, as `type:unit of period`.
fn kind(profile: &Profile) -> String {
    let text = |at: i64| profile.string_table[at as usize].as_str();
    let [only] = profile.sample_type[..] else { panic!("one type: {:?}", profile.sample_type) };
    let period = profile.period_type.expect("a period");
    format!(
        "{}:{}:{}:{}",
        text(only.r#type),
        text(only.unit),
        text(period.r#type),
        text(period.unit)
    )
}

/// Returns ms of each group, by the labels of samples.
fn groups(profile: &Profile) -> BTreeMap<String, f64> {
    let text = |at: i64| profile.string_table[at as usize].as_str();
    let mut groups = BTreeMap::new();
    for sample in &profile.sample {
        let labels: Vec<&str> = sample.label.iter().map(|label| text(label.key)).collect();
        assert!(labels == ["group"] || labels == ["group", "idle"], "{labels:?}");
        *groups.entry(text(sample.label[0].str).to_owned()).or_default() +=
            sample.value[0] as f64 / 1e6;
    }
    groups
}

/// Returns ms of each group of a report, by `wall_ms` or `cpu_ms`.
fn groups_of(report: &Value, figure: &str) -> BTreeMap<String, f64> {
    let groups = report["groups"].as_array().expect("groups").iter();
    let groups = groups.map(|group| {
        (group["name"].as_str().expect("a name").into(), group[figure].as_f64().expect("ms"))
    });
    groups.filter(|(_, ms)| *ms > 0.0).collect()
}

/// Returns the figures that are not zero in a report; a profile without time is not sent.
fn figures(report: &Value) -> impl Iterator<Item = &'static str> {
    ["cpu_ms", "wall_ms"].into_iter().filter(|figure| !groups_of(report, figure).is_empty())
}

/// Names of all frames of a group.
fn frames(group: &Value, found: &mut BTreeSet<String>) {
    let nodes = group["nodes"].as_array().expect("nodes").iter();
    found.extend(nodes.map(|node| node["frame"].as_str().expect("a name").to_owned()));
}

fn unix_ms(time: &Value) -> i64 {
    time.as_str().expect("a time").parse::<jiff::Timestamp>().expect("RFC 3339").as_millisecond()
}

fn reports(folder: &Path) -> Vec<Value> {
    let entries = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .map(|entry| entry.expect("readable").path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|of| of == "json")).collect();
    files.sort();
    files
        .iter()
        .map(|path| serde_json::from_slice(&std::fs::read(path).expect("whole")).expect("json"))
        .collect()
}

/// Returns the files that wait, in any folder.
fn waiting(state: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for folder in std::fs::read_dir(state.join("sampletop/push")).into_iter().flatten().flatten() {
        files.extend(
            std::fs::read_dir(folder.path())
                .expect("a folder")
                .map(|entry| entry.expect("readable").path()),
        );
    }
    files.retain(|path| path.extension().is_some_and(|of| of == "ingest"));
    files.sort();
    files
}

#[test]
fn the_server_gets_what_the_reports_say() {
    let (target, dir) = (target(), tempfile::tempdir().expect("a folder"));
    let server = Server::start(Mode::Answers(200), None);
    let (folder, state) = (dir.path().join("reports"), dir.path().join("state"));
    let place = format!("{}/", folder.display());
    let args = [
        "-o",
        &place,
        "--format",
        "json",
        "--push-label",
        "service_name=shop",
        "--push-label",
        "region=eu west",
    ];
    let args = [&args[..], &["--push-tenant", "t1"]].concat();
    let token = "a-token-that-nobody-may-see";
    let pushing =
        Pushing::start(&target, &server, &state, &args, &[("SAMPLETOP_PUSH_TOKEN", token)]);
    wait_until("three reports", || reports(&folder).len() >= 3);
    let command_line =
        std::fs::read(format!("/proc/{}/cmdline", pushing.child.id())).expect("it runs");
    let said = Arc::clone(&pushing.said);
    let (out, last) = pushing.end();
    let (reports, got) = (reports(&folder), server.got());
    assert_eq!(
        (out.as_str(), last),
        ("", format!("sampletop: {} profiles were pushed", got.len()))
    );
    assert_eq!(waiting(&state), Vec::<PathBuf>::new());
    assert!(got.len() >= 4, "two whole seconds at least");

    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let mut rest = got.iter();
    for (report, figure) in
        reports.iter().flat_map(|report| figures(report).map(move |figure| (report, figure)))
    {
        let got = rest.next().expect("each has its own");
        let profile = unpack(&got.body);
        let metric = figure.trim_end_matches("_ms");
        assert_eq!(kind(&profile), format!("{metric}:nanoseconds:{metric}:nanoseconds"));
        // Dates of reports are cut to the ms.
        let (from, till) = (unix_ms(&report["from"]), unix_ms(&report["till"]));
        let end = profile.time_nanos + profile.duration_nanos;
        assert!((end / 1_000_000 - till).abs() <= 1 && profile.time_nanos / 1_000_000 == from);
        assert!(
            got.line.starts_with("POST /ingest?name=shop%7B") && got.line.ends_with(" HTTP/1.1"),
            "{}",
            got.line
        );
        let expected = [
            ("name", format!("shop{{region=eu west,host={host}}}")),
            ("from", (from / 1000).to_string()),
            ("until", ((end - 1) / 1_000_000_000 + 1).to_string()),
            ("format", "pprof".into()),
            ("spyName", "sampletop".into()),
        ];
        for (key, value) in expected {
            assert_eq!(got.query(key), Some(value), "{}", got.line);
        }
        assert_eq!(got.header("content-type"), Some("application/octet-stream"));
        assert_eq!(got.header("authorization"), Some("Bearer a-token-that-nobody-may-see"));
        assert_eq!(got.header("x-scope-orgid"), Some("t1"));
        let (pushed, reported) = (groups(&profile), groups_of(report, figure));
        assert!(pushed.keys().eq(reported.keys()), "{pushed:?} {reported:?}");
        for (name, ms) in &reported {
            assert!(
                (pushed[name] - ms).abs() < 0.01,
                "{figure} of {name}: {} and {ms}",
                pushed[name]
            );
        }
        if metric == "wall" {
            let mut reported = BTreeSet::new();
            report["groups"]
                .as_array()
                .expect("groups")
                .iter()
                .for_each(|group| frames(group, &mut reported));
            let name = |of: &Function| profile.string_table[of.name as usize].clone();
            assert_eq!(profile.function.iter().map(name).collect::<BTreeSet<_>>(), reported);
        }
    }
    assert!(rest.next().is_none(), "and nothing else is sent");
    // The token is in that header alone.
    let mut bytes = [command_line, said.lock().expect("readable").concat().into_bytes()].concat();
    for got in &got {
        bytes.extend(got.line.as_bytes());
        bytes.extend(unpack(&got.body).string_table.concat().into_bytes());
    }
    bytes.extend(reports.iter().flat_map(|report| report.to_string().into_bytes()));
    assert!(!String::from_utf8_lossy(&bytes).contains(token));
}

/// Asserts that the requests are in order, each once.
fn assert_in_order(taken: &[Got]) {
    let starts: Vec<i64> = taken.iter().map(|got| unpack(&got.body).time_nanos).collect();
    assert!(starts.is_sorted(), "{starts:?}");
    let distinct: BTreeSet<(String, Vec<u8>)> =
        taken.iter().map(|got| (got.line.clone(), got.body.clone())).collect();
    assert_eq!(distinct.len(), taken.len(), "nothing comes twice");
}

#[test]
fn a_server_that_was_down_gets_all_in_order_also_from_the_run_before() {
    let (target, dir) = (target(), tempfile::tempdir().expect("a folder"));
    let server = Server::start(Mode::Answers(503), None);
    let pushing = Pushing::start(&target, &server, dir.path(), &[], &[]);
    wait_until("two intervals", || waiting(dir.path()).len() >= 4);
    let said = pushing.said();
    let (out, last) = pushing.end();
    let before = waiting(dir.path());
    assert_eq!(
        last,
        format!("sampletop: 0 profiles were pushed, {} wait for the next run", before.len())
    );
    assert_eq!(out, "", "what is pushed is not written, too");
    let [only] = &said[..] else { panic!("it is told once: {said:?}") };
    assert!(only.contains("it answers 503: not today; profiles wait in `"), "{only}");

    // The server is down once more, and comes back while sampletop runs.
    let pushing = Pushing::start(&target, &server, dir.path(), &[], &[]);
    wait_until("an interval more", || waiting(dir.path()).len() >= before.len() + 2);
    pushing.signal(Signal::HUP);
    server.set(Mode::Answers(200));
    pushing.wait_until_it_says("profiles are pushed again");
    wait_until("all are sent", || waiting(dir.path()).is_empty());
    let (_, last) = pushing.end();
    let taken = server.taken();
    assert_eq!(last, format!("sampletop: {} profiles were pushed", taken.len()));
    assert!(taken.len() >= before.len() + 4);
    assert_in_order(&taken);
}

#[test]
fn what_waits_has_a_bound() {
    let (target, dir) = (target(), tempfile::tempdir().expect("a folder"));
    let server = Server::start(Mode::Answers(503), None);
    let bound = 4000;
    let pushing = Pushing::start(
        &target,
        &server,
        dir.path(),
        &["--push-spool-bytes", &bound.to_string()],
        &[],
    );
    pushing.wait_until_it_says("is full: the oldest of its");
    let (_, last) = pushing.end();
    let bytes: u64 =
        waiting(dir.path()).iter().map(|path| path.metadata().expect("there").len()).sum();
    assert!(bytes <= bound && bytes > 0, "{bytes}");
    assert!(last.contains("wait for the next run, ") && last.ends_with(" were dropped"), "{last}");
}

#[test]
fn a_server_that_never_answers_holds_nothing_up() {
    let (target, dir) = (target(), tempfile::tempdir().expect("a folder"));
    let server = Server::start(Mode::Hangs, None);
    let (folder, state) = (dir.path().join("reports"), dir.path().join("state"));
    let place = format!("{}/", folder.display());
    let pushing =
        Pushing::start(&target, &server, &state, &["-o", &place, "--format", "json"], &[]);
    wait_until("it hangs", || server.hanging() == 1);
    let before = reports(&folder).len();
    wait_until("three reports more", || reports(&folder).len() >= before + 3);
    let (_, last) = pushing.end();
    let reports = reports(&folder);
    let ticks: Vec<u64> =
        reports.iter().map(|report| report["health"]["ticks"].as_u64().expect("a count")).collect();
    assert!(ticks[1..ticks.len() - 1].iter().all(|ticks| *ticks > 0), "{ticks:?}");
    for pair in reports.windows(2) {
        assert_eq!(pair[0]["till"], pair[1]["from"]);
    }
    let profiles: usize = reports.iter().map(|report| figures(report).count()).sum();
    assert_eq!(waiting(&state).len(), profiles, "nothing is lost");
    assert!(last.contains("sampletop: 0 profiles were pushed, "), "{last}");
}

#[test]
fn a_certificate_has_to_be_trusted_and_to_be_the_servers() {
    let (target, dir) = (target(), tempfile::tempdir().expect("a folder"));
    let (authority, tls) = certified("127.0.0.1");
    let (another, other_tls) = certified("elsewhere.example");
    let file = |name: &str, pem: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, pem).expect("written");
        path.to_str().expect("text").to_owned()
    };
    let (authority, another) = (file("authority.pem", &authority), file("another.pem", &another));
    let server = Server::start(Mode::Answers(200), Some(tls));
    let impostor = Server::start(Mode::Answers(200), Some(other_tls));
    let run = |server: &Server, trusted: &str, state: &str| {
        let state = dir.path().join(state);
        let env = [("SSL_CERT_FILE", trusted), ("SAMPLETOP_PUSH_TOKEN", "t0k3n")];
        // The first report may be too short to contain a sample.
        let pushing = Pushing::start(&target, server, &state, &["--count", "2"], &env);
        let said = Arc::clone(&pushing.said);
        let (_, last) = pushing.ended();
        (said.lock().expect("readable").concat(), last, waiting(&state).len())
    };
    let (said, last, waits) = run(&server, &another, "a");
    assert!(
        said.contains("its certificate is not trusted") && said.contains("SSL_CERT_FILE"),
        "{said}"
    );
    assert!(waits >= 2);
    assert_eq!(last, format!("sampletop: 0 profiles were pushed, {waits} wait for the next run"));
    let (said, ..) = run(&impostor, &another, "b");
    assert!(said.contains("its certificate is not trusted"), "for another name: {said}");
    assert!(server.got().is_empty() && impostor.got().is_empty(), "no token was sent");
    let (_, last, still) = run(&server, &authority, "a");
    let taken = server.taken();
    assert_eq!((last, still), (format!("sampletop: {} profiles were pushed", taken.len()), 0));
    assert!(taken.len() >= waits + 2, "with those that waited");
    assert_in_order(&taken);
    assert!(taken.iter().all(|got| got.header("authorization") == Some("Bearer t0k3n")));
    // A missing file is reported at once.
    let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
    let (pid, address) = (target.pid().to_string(), server.address());
    command
        .args(["report", "-p", &pid, "--push", &address, "--push-spool"])
        .arg(dir.path().join("c"));
    let output = command
        .env("SSL_CERT_FILE", dir.path().join("none"))
        .env_remove("SSL_CERT_DIR")
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("no certificate authorities are found")
    );
}

#[test]
fn a_token_of_a_file_may_change_and_may_be_a_password() {
    let (target, dir) = (target(), tempfile::tempdir().expect("a folder"));
    // `me:pass word`? No blank: `me:s3cret`.
    let server = Server::start(Mode::Wants("Basic bWU6czNjcmV0"), None);
    let token = dir.path().join("token");
    std::fs::write(&token, "me:wrong\n").expect("written");
    let path = token.to_str().expect("text");
    let env = [("SAMPLETOP_PUSH_TOKEN", "the-environment-counts-less")];
    let pushing = Pushing::start(&target, &server, dir.path(), &["--push-token-file", path], &env);
    pushing.wait_until_it_says("takes no profiles: it answers 401: not today; see to the token");
    assert_eq!(server.got()[0].header("authorization"), Some("Basic bWU6d3Jvbmc="));
    std::fs::write(&token, "me:s3cret\n").expect("written");
    let said = Arc::clone(&pushing.said);
    let (_, last) = pushing.end();
    assert!(last.ends_with(" profiles were pushed") && waiting(dir.path()).is_empty(), "{last}");
    let said = said.lock().expect("readable").concat();
    assert!(!said.contains("s3cret") && !said.contains("me:wrong"), "{said}");
}

#[test]
fn a_token_is_for_the_server_that_was_named() {
    let (target, dir) = (target(), tempfile::tempdir().expect("a folder"));
    let another = Server::start(Mode::Answers(200), None);
    let server = Server::start(Mode::Moved(another.port()), None);
    let pushing =
        Pushing::start(&target, &server, dir.path(), &[], &[("SAMPLETOP_PUSH_TOKEN", "t0k3n")]);
    let moved = format!(
        "it answers 307: it is at http://127.0.0.1:{}/ingest; see to the address",
        another.port()
    );
    pushing.wait_until_it_says(&moved);
    let (_, last) = pushing.end();
    assert!(
        another.got().is_empty() && last.starts_with("sampletop: 0 profiles were pushed"),
        "{last}"
    );
}

#[test]
fn two_runs_do_not_share_what_waits() {
    let (target, dir) = (target(), tempfile::tempdir().expect("a folder"));
    let server = Server::start(Mode::Answers(503), None);
    let first = Pushing::start(&target, &server, dir.path(), &[], &[]);
    wait_until("it pushes", || !server.got().is_empty());
    let second = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sampletop"));
        let (pid, address) = (target.pid().to_string(), server.address());
        command
            .args(["report", "-p", &pid, "--every", "1s", "--count", "2", "--push", &address])
            .args(args);
        let output = command.env("XDG_STATE_HOME", dir.path()).output().expect("it runs");
        (output.status.code(), String::from_utf8(output.stderr).expect("text"))
    };
    let (code, said) = second(&[]);
    assert!(
        code == Some(1) && said.contains("another sampletop pushes the same service"),
        "{code:?} {said}"
    );
    let (code, said) = second(&["--push-label", "service_name=another"]);
    assert_eq!(code, Some(0), "{said}");
    first.end();
}

#[test]
fn names_that_are_replaced_in_reports_are_replaced_here() {
    const SECRETS: &[&str] = &["zebra", "quagga", "okapi", "gnusecret", "secret.c", "secret-"];
    let dir = tempfile::tempdir().expect("a folder");
    let program = build("secret.c", "push-okapi", &["-O1", "-g", "-fno-omit-frame-pointer"]);
    let fifo = dir.path().join("okapi.fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
    let target = Running::start(&program, &[fifo.to_str().expect("plain"), "--gnusecret"]);
    let server = Server::start(Mode::Answers(200), None);
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let bytes = |redact: &[&str], state: &str| {
        let before = server.got().len();
        Pushing::start(
            &target,
            &server,
            &dir.path().join(state),
            &[redact, &["--count", "2"]].concat(),
            &[],
        )
        .ended();
        let got = &server.got()[before..];
        let text = got.iter().map(|got| {
            format!(
                "{} {}",
                got.query("name").expect("a name"),
                unpack(&got.body).string_table.concat()
            )
        });
        text.collect::<String>().to_lowercase()
    };
    let plain = bytes(&[], "plain");
    let host = format!("host={}}}", host.to_lowercase());
    assert!(
        plain.contains("zebra") && plain.contains(&host),
        "they are there to be found: {plain}"
    );
    let redacted = bytes(&["--redact"], "redacted");
    for secret in SECRETS.iter().copied().chain([&*host]) {
        assert!(!redacted.contains(secret), "{secret}: {redacted}");
    }
}
