//! What threads in recorded memory wait for, as jstack printed it. Shared by the test, the recorder
//! (tests/java_blockers) and a fuzz target.

#![allow(dead_code)] // each of them uses a part

use sampletop::model::vocabulary::blocker::{BlockerKind, RawHolder};

use crate::recording::Pieces;

macro_rules! recorded {
    ($name:literal) => {
        (
            $name,
            include_bytes!(concat!("waits-", $name, ".gz")),
            include_str!(concat!("waits-", $name, ".txt")),
        )
    };
}

/// The recording of each version and way of locking (`LockingMode`).
pub const WAITS: [(&str, &[u8], &str); 9] = [
    recorded!("8"),
    recorded!("11"),
    recorded!("17"),
    recorded!("21-0"),
    recorded!("21-1"),
    recorded!("21-2"),
    recorded!("25-1"),
    recorded!("25-2"),
    recorded!("26"),
];

/// The process id that holders are named with.
pub const PID: u32 = 7;

/// One of them, unpacked.
pub struct Recorded {
    pub version: &'static str,
    pub pieces: Pieces,
    pub waits: Waits,
}

impl Recorded {
    pub fn load((version, bytes, text): &(&'static str, &[u8], &str)) -> Recorded {
        Recorded { version, pieces: Pieces::load(bytes), waits: Waits::load(text) }
    }
}

/// What the recorded memory must yield. As text:
///
/// ```text
/// jdk VERSION
/// image ADDRESS                                   where libjvm.so is mapped
/// wait TID SP KIND OBJECT HOLDER CLASS NAME       a thread that waits
/// none TID SP NAME                                one that waits for nothing of Java
/// ```
///
/// HOLDER is `free`, `unmounted`, `unknown`, `readers:COUNT` or `thread:TID`. Objects, classes and
/// owners are those of `jstack -l`; it does not know who is joined or runs a task, which the
/// program's names say. Addresses are hexadecimal.
#[derive(Default, PartialEq, Debug)]
pub struct Waits {
    pub version: String,
    pub image: u64,
    pub threads: Vec<Thread>,
}

#[derive(PartialEq, Debug)]
pub struct Thread {
    pub tid: u32,
    pub sp: u64,
    pub name: String,
    pub wait: Option<Wait>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Wait {
    pub kind: BlockerKind,
    pub object: u64,
    pub holder: RawHolder,
    pub class: String,
}

impl Waits {
    pub fn load(text: &str) -> Waits {
        let mut waits = Waits::default();
        let hexadecimal = |word: &str| u64::from_str_radix(word, 16).expect("an address");
        let decimal = |word: &str| word.parse().expect("a number");
        for line in text.lines() {
            let (kind, rest) = line.split_once(' ').expect("two words");
            let words: Vec<&str> = rest.split(' ').collect();
            let (tid, sp, name, wait) = match (kind, &words[..]) {
                ("jdk", _) => {
                    waits.version = rest.into();
                    continue;
                }
                ("image", [image]) => {
                    waits.image = hexadecimal(image);
                    continue;
                }
                ("wait", [tid, sp, kind, object, holder, class, name]) => {
                    let mut kinds = BlockerKind::ALL.into_iter();
                    let kind = kinds.find(|of| word(*of) == *kind).expect("a kind");
                    let holder = match holder.split_once(':') {
                        Some(("thread", tid)) => RawHolder::Thread { pid: PID, tid: decimal(tid) },
                        Some(("readers", count)) => RawHolder::Readers(decimal(count)),
                        _ if *holder == "free" => RawHolder::Free,
                        _ if *holder == "unmounted" => RawHolder::Unmounted,
                        _ if *holder == "unknown" => RawHolder::Unknown,
                        _ => panic!("{line}"),
                    };
                    let (object, class) = (hexadecimal(object), (*class).into());
                    (tid, sp, name, Some(Wait { kind, object, holder, class }))
                }
                ("none", [tid, sp, name]) => (tid, sp, name, None),
                _ => panic!("{line}"),
            };
            let (tid, sp, name) = (decimal(tid), hexadecimal(sp), (*name).into());
            waits.threads.push(Thread { tid, sp, name, wait });
        }
        waits
    }

    pub fn text(&self) -> String {
        let mut lines = vec![format!("jdk {}", self.version), format!("image {:x}", self.image)];
        for Thread { tid, sp, name, wait } in &self.threads {
            lines.push(match wait {
                Some(Wait { kind, object, holder, class }) => {
                    let holder = match holder {
                        RawHolder::Thread { tid, .. } => format!("thread:{tid}"),
                        RawHolder::Readers(count) => format!("readers:{count}"),
                        RawHolder::Free => "free".into(),
                        RawHolder::Unmounted => "unmounted".into(),
                        RawHolder::Unknown => "unknown".into(),
                    };
                    let kind = word(*kind);
                    format!("wait {tid} {sp:x} {kind} {object:x} {holder} {class} {name}")
                }
                None => format!("none {tid} {sp:x} {name}"),
            });
        }
        lines.join("\n") + "\n"
    }
}

fn word(kind: BlockerKind) -> String {
    kind.word().replace(' ', "-")
}
