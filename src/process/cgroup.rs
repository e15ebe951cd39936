//! The control groups of a process: its systemd unit and the number of cores it may use.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::model::vocabulary::text;

/// Maximum bytes read of a file of /proc or a cgroup; normally far shorter.
const FILE_MAX: u64 = 64 << 10;
/// Maximum bytes kept of a unit's name.
const UNIT_MAX: usize = 256;
/// Maximum depth of nested groups.
const DEPTH_MAX: usize = 64;
/// Maximum groups visited within a group, and maximum processes in all of them.
const GROUPS_MAX: usize = 1_000;
const MEMBERS_MAX: usize = 10_000;
/// Maximum groups searched for a unit.
const UNITS_MAX: usize = 10_000;
/// Maximum bytes read of a list of processes.
const MEMBERS_FILE_MAX: u64 = 128 << 10;

/// Returns the systemd unit of `pid` (the innermost `.service` or `.scope`), else its cgroup's
/// path; `None` at the root.
pub fn unit_of(pid: u32) -> Option<String> {
    let groups = read(&format!("/proc/{pid}/cgroup"))?;
    let path = path_of(&groups, None).or_else(|| path_of(&groups, Some("name=systemd")))?;
    unit_in(path).map(|unit| text::clean(unit, UNIT_MAX).into_owned())
}

fn unit_in(path: &str) -> Option<&str> {
    let unit = path.rsplit('/').find(|part| part.ends_with(".service") || part.ends_with(".scope"));
    unit.or_else(|| (path != "/" && !path.is_empty()).then_some(path))
}

/// Characters of a container's id that are shown, as by `docker ps`.
const ID_SHOWN: usize = 12;
/// Length of a container's id: a SHA-256 in hexadecimal.
const ID_LENGTH: usize = 64;

/// Returns the container of `pid` as `docker:1a2b3c4d5e6f`, else its systemd unit; empty if it is
/// in none.
pub fn place_of(pid: u32) -> String {
    let Some(groups) = read(&format!("/proc/{pid}/cgroup")) else { return String::new() };
    let unified = path_of(&groups, None).filter(|path| *path != "/");
    let path = unified.or_else(|| path_of(&groups, Some("name=systemd")));
    path.map_or_else(String::new, place_in)
}

fn place_in(path: &str) -> String {
    if let Some(container) = container_in(path) {
        return container;
    }
    match unit_in(path) {
        Some(unit) if unit.ends_with(".service") || unit.ends_with(".scope") => {
            text::clean(unit, UNIT_MAX).into_owned()
        }
        _ => String::new(),
    }
}

/// Returns the innermost part that is a container's: `docker-ID.scope`, `/docker/ID`,
/// `/kubepods/.../ID`.
fn container_in(path: &str) -> Option<String> {
    let id = |part: &str| {
        let part = part.strip_suffix(".scope").unwrap_or(part);
        let start = part.len().checked_sub(ID_LENGTH)?;
        let id = part.get(start..)?;
        id.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| id[..ID_SHOWN].to_owned())
    };
    let id = path.rsplit('/').find_map(id)?;
    let by = [("kubepods", "k8s"), ("docker", "docker"), ("libpod", "podman"), ("lxc", "lxc")];
    let kind =
        by.iter().find(|(word, _)| path.contains(word)).map_or("container", |(_, kind)| kind);
    Some(format!("{kind}:{id}"))
}

/// Returns the smallest CPU quota of `pid`'s group and those around it, in thousandths of a core;
/// `None` without a quota.
pub fn quota_of(pid: u32) -> Option<u64> {
    let groups = read(&format!("/proc/{pid}/cgroup"))?;
    let unified = path_of(&groups, None).and_then(|path| {
        around(path)
            .filter_map(|path| quota_v2(&read(&format!("/sys/fs/cgroup{path}/cpu.max"))?))
            .min()
    });
    let old = path_of(&groups, Some("cpu")).and_then(|path| {
        around(path)
            .filter_map(|path| {
                let number = |name| {
                    read(&format!("/sys/fs/cgroup/cpu{path}/{name}"))?.trim().parse::<i64>().ok()
                };
                thousandths(number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?)
            })
            .min()
    });
    unified.into_iter().chain(old).min()
}

/// The periods of a CPU quota: all so far, and those in which the group was stopped at its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Periods {
    pub throttled: u64,
    pub all: u64,
}

/// Returns the periods of `pid`'s group or of that around it that was stopped most often; `None`
/// without a quota.
pub fn periods_of(pid: u32) -> Option<Periods> {
    let groups = read(&format!("/proc/{pid}/cgroup"))?;
    let unified = path_of(&groups, None).map(|path| ("/sys/fs/cgroup", path));
    let old = path_of(&groups, Some("cpu")).map(|path| ("/sys/fs/cgroup/cpu", path));
    let stat = |(root, path): (&str, &str)| periods(&read(&format!("{root}{path}/cpu.stat"))?);
    unified
        .into_iter()
        .chain(old)
        .flat_map(|(root, path)| around(path).map(move |path| (root, path)))
        .filter_map(stat)
        .filter(|periods| periods.all > 0)
        .max_by_key(|periods| periods.throttled)
}

/// Returns whether `pid`'s group or one around it is frozen, as by `docker pause`.
pub fn is_frozen(pid: u32) -> bool {
    let Some(groups) = read(&format!("/proc/{pid}/cgroup")) else { return false };
    let unified = path_of(&groups, None).and_then(|path| {
        let events = read(&format!("{}{path}/cgroup.events", unified().display()))?;
        Some(is_frozen_v2(&events))
    });
    // Of a group within one that is frozen it says the same.
    let old = path_of(&groups, Some("freezer")).and_then(|path| {
        let state = read(&format!("/sys/fs/cgroup/freezer{path}/freezer.state"))?;
        Some(is_frozen_v1(&state))
    });
    unified.unwrap_or(false) || old.unwrap_or(false)
}

/// Reads cgroup.events.
fn is_frozen_v2(events: &str) -> bool {
    events.lines().any(|line| line == "frozen 1")
}

/// Reads freezer.state: `THAWED`, `FREEZING` or `FROZEN`.
fn is_frozen_v1(state: &str) -> bool {
    state.trim() == "FROZEN"
}

/// Reads cpu.stat: `nr_periods 12`, `nr_throttled 3`, in both versions of control groups.
fn periods(stat: &str) -> Option<Periods> {
    let number = |key: &str| {
        let mut lines = stat.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(name, _)| *name == key)?.1.trim().parse().ok()
    };
    Some(Periods { throttled: number("nr_throttled")?, all: number("nr_periods")? })
}

/// Returns the root of the unified hierarchy (version 2). On machines with both versions it is next
/// to the version 1 hierarchies.
fn unified() -> &'static Path {
    let [own, beside] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
    if !own.join("cgroup.procs").exists() && beside.join("cgroup.procs").exists() {
        beside
    } else {
        own
    }
}

/// Returns the directory of a group. `path` is such a directory, or a path as /proc/PID/cgroup
/// shows it.
pub fn directory(path: &Path) -> PathBuf {
    if path.is_absolute() && path.join("cgroup.procs").exists() {
        return path.to_owned();
    }
    let root = unified();
    match path.strip_prefix(root) {
        Ok(_) => path.to_owned(),
        Err(_) => root.join(path.strip_prefix("/").unwrap_or(path)),
    }
}

/// Returns the group of a systemd unit: the directory of that name, the outermost first.
pub fn unit(name: &str) -> Option<PathBuf> {
    if name.contains('/') || name.is_empty() {
        return None;
    }
    let old = Path::new("/sys/fs/cgroup/systemd");
    [unified(), old].into_iter().find_map(|root| {
        let mut groups = VecDeque::from([(root.to_owned(), 0)]);
        let mut seen = 0;
        while let Some((group, depth)) = groups.pop_front() {
            seen += 1;
            let here = group.join(name);
            if here.join("cgroup.procs").exists() {
                return Some(here);
            }
            if seen == UNITS_MAX {
                return None;
            }
            let within = std::fs::read_dir(&group).into_iter().flatten().flatten();
            let within = within.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            groups.extend(
                within
                    .take(GROUPS_MAX)
                    .map(|entry| (entry.path(), depth + 1))
                    .filter(|_| depth < DEPTH_MAX),
            );
        }
        None
    })
}

/// Returns the processes of the group `path` (see [`directory`]) and its subgroups, in our pid
/// namespace.
pub fn members(path: &Path) -> Vec<u32> {
    let mut groups = VecDeque::from([(directory(path), 0)]);
    let (mut members, mut seen) = (Vec::new(), 0);
    while let Some((group, depth)) = groups.pop_front() {
        seen += 1;
        if let Some(text) = read_some(&group.join("cgroup.procs"), MEMBERS_FILE_MAX) {
            // 0: a process of another pid namespace.
            let numbers = text
                .split_ascii_whitespace()
                .filter_map(|word| word.parse::<u32>().ok())
                .filter(|pid| *pid != 0);
            members.extend(numbers.take(MEMBERS_MAX - members.len()));
        }
        if seen == GROUPS_MAX || members.len() == MEMBERS_MAX {
            break;
        }
        let within = std::fs::read_dir(&group).into_iter().flatten().flatten();
        let within = within.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        groups.extend(
            within
                .take(GROUPS_MAX)
                .map(|entry| (entry.path(), depth + 1))
                .filter(|_| depth < DEPTH_MAX),
        );
    }
    members
}

/// Returns the path in the unified hierarchy (`0::PATH`), or in the one with this controller
/// (`N:cpu,cpuacct:PATH`).
fn path_of<'a>(groups: &'a str, controller: Option<&str>) -> Option<&'a str> {
    groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let found = match controller {
            None => number == "0" && controllers.is_empty(),
            Some(name) => controllers.split(',').any(|c| c == name),
        };
        // A path above the root of our own cgroup namespace (`/../..`) leads to nothing readable.
        (found && !path.contains("/..")).then_some(path)
    })
}

/// Iterates over `path` and the groups around it, outward.
fn around(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path.trim_end_matches('/')), |path| Some(&path[..path.rfind('/')?]))
        .take(DEPTH_MAX)
}

/// Parses `MAX PERIOD` or `max PERIOD`, microseconds.
fn quota_v2(text: &str) -> Option<u64> {
    let mut words = text.split_ascii_whitespace();
    thousandths(words.next()?.parse().ok()?, words.next()?.parse().ok()?)
}

fn thousandths(quota: i64, period: i64) -> Option<u64> {
    let (quota, period) = (u64::try_from(quota).ok()?, u64::try_from(period).ok()?);
    quota.checked_mul(1000)?.checked_div(period)
}

fn read(path: &str) -> Option<String> {
    read_some(Path::new(path), FILE_MAX)
}

fn read_some(path: &Path, max: u64) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(max).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_and_units_are_places() {
        let id = "1a2b3c4d5e6f".to_owned() + &"0".repeat(52);
        for (path, place) in [
            (format!("/system.slice/docker-{id}.scope"), "docker:1a2b3c4d5e6f"),
            (format!("/docker/{id}"), "docker:1a2b3c4d5e6f"),
            (format!("/machine.slice/libpod-{id}.scope/container"), "podman:1a2b3c4d5e6f"),
            (
                format!("/kubepods.slice/kubepods-pod7.slice/cri-containerd-{id}.scope"),
                "k8s:1a2b3c4d5e6f",
            ),
            (format!("/garden/{id}"), "container:1a2b3c4d5e6f"),
            ("/system.slice/nginx.service".into(), "nginx.service"),
            ("/user.slice/user-7.slice/session-3.scope".into(), "session-3.scope"),
            ("/docker/é".into(), ""),
            ("/my/own/group".into(), ""),
            ("/".into(), ""),
            (String::new(), ""),
        ] {
            assert_eq!(place_in(&path), place, "{path}");
        }
    }

    #[test]
    fn units_and_paths() {
        let hybrid = "12:cpu,cpuacct:/a\n1:name=systemd:/system.slice/x.service\n0::/system.slice/y.service/inner\n";
        assert_eq!(path_of(hybrid, None), Some("/system.slice/y.service/inner"));
        assert_eq!(path_of(hybrid, Some("cpu")), Some("/a"));
        assert_eq!(path_of(hybrid, Some("cp")), None);
        assert_eq!(path_of("0::/../../other", None), None);
        assert_eq!(unit_in("/system.slice/y.service/inner"), Some("y.service"));
        assert_eq!(unit_in("/user.slice/app.slice/run-1.scope"), Some("run-1.scope"));
        assert_eq!(unit_in("/docker/0123"), Some("/docker/0123"));
        assert_eq!(unit_in("/"), None);
    }

    #[test]
    fn periods_of_both_versions() {
        assert!(is_frozen_v2("populated 1\nfrozen 1\n") && is_frozen_v1("FROZEN\n"));
        assert!(!is_frozen_v2("populated 1\nfrozen 0\n") && !is_frozen_v1("THAWED\n"));
        let second = "usage_usec 5\nnr_periods 40\nnr_throttled 7\nthrottled_usec 9\nnr_bursts 0\n";
        assert_eq!(periods(second), Some(Periods { throttled: 7, all: 40 }));
        let first = "nr_periods 4\nnr_throttled 1\nthrottled_time 9000\n";
        assert_eq!(periods(first), Some(Periods { throttled: 1, all: 4 }));
        // The root of version 2, and a group without the controller.
        assert_eq!(periods("usage_usec 5\nuser_usec 5\nsystem_usec 0\n"), None);
    }

    #[test]
    fn quotas() {
        assert_eq!(quota_v2("max 100000\n"), None);
        assert_eq!(quota_v2("150000 100000\n"), Some(1500));
        assert_eq!(quota_v2("1 0"), None);
        assert_eq!(quota_v2(""), None);
        assert_eq!(thousandths(-1, 100_000), None, "version 1 writes -1 for none");
        assert_eq!(around("/a/b").collect::<Vec<_>>(), ["/a/b", "/a", ""]);
        assert_eq!(around("/").collect::<Vec<_>>(), [""]);
    }
}
