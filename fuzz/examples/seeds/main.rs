//! Writes the first inputs of each target into FOLDER/TARGET/: `seeds FOLDER`. They are generated
//! and not stored, so that they always fit the targets. What fuzzing finds becomes a test of the
//! package.

mod compiled;

use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;

// This example, too, is built with calls into libFuzzer. The linker takes libFuzzer's `main` only
// where there is no other.
use flate2::read::GzDecoder;
use libfuzzer_sys as _;
use sampletop::capture::event_ring::encode;
use sampletop::config::Format;
use sampletop::formats;
use sampletop::formats::saved;
use sampletop::model::projection::settings::Settings;
use sampletop::model::vocabulary::event::{
    Counters, Event, Losses, Observation, Seen, Syscall, Tick,
};
use sampletop::model::vocabulary::frame::{RawFrame, RawName, ThreadKey};
use sampletop_fuzz::image::{self, CODE, Function, IMAGE, STACK};
use sampletop_fuzz::{ALTERNATE, DWARF_SECTIONS, TABLES, piece, sessions, token};

use compiled::{CPP, sections};

fn main() {
    let Some(folder) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: seeds FOLDER");
        std::process::exit(2);
    };
    let mut seeds = Seeds { folder };
    seeds.text();
    seeds.records();
    seeds.stacks();
    seeds.blockers();
    seeds.sockets();
    seeds.notes();
    seeds.programs();
    for layout in 0..2 {
        seeds.add("pclntab", &format!("go{layout}"), sampletop_fuzz::pclntab::made_up(layout));
    }
    for version in 0..4 {
        // Where it is looked up, the length of the table, a table, bytecode.
        let table = [version, 40, 8, 2, 0xc8, 0x03, 6, 0x81, 0x01, 20, 30, 200, 1];
        seeds.add("v8", &format!("table{version}"), [&table[..], &[13, 0, 5, 1, 1, 5, 9]].concat());
    }
    for version in 0..11 {
        // Reads, also tasks, changes a word, reads again; a line table of 3.13.
        let table = [8, 3, 4, 0, 4, 0, 0x80, 0x11, 0xe7, 0x21];
        let steps = [version, 5, 9, 6, 1, 0, 2, 0, 3, 7, 0, 3, 9, 0, 4, 8, 0, 5, 7];
        let input = [&steps[..], &table].concat();
        seeds.add("cpython", &format!("python{version}"), input);
    }
    for program in [0, 1, 2, 3, 0x80, 0x83] {
        // Reads all, and those that wait; changes words; reads again.
        let steps = [5, 6, 9, 8, 0, 0, 1, 9, 3, 0, 9, 3, 8, 5, 7, 6, 9, 4, 12, 50, 0, 9, 9, 9];
        let input = [&[program][..], &steps, &[7; 8], &[5, 6, 3, 6, 9]].concat();
        seeds.add("go", &format!("program{program}"), input);
    }
    seeds.machines();
    seeds.waits();
    seeds.maps_of_code();
    seeds.source_maps();
    seeds.jars();
    seeds.profiles();
    seeds.stacks_of_others();
}

struct Seeds {
    folder: PathBuf,
}

impl Seeds {
    fn add(&mut self, target: &str, name: &str, bytes: impl AsRef<[u8]>) {
        let folder = self.folder.join(target);
        fs::create_dir_all(&folder)
            .and_then(|()| fs::write(folder.join(name), bytes))
            .unwrap_or_else(|error| {
                panic!("{}: {error}", folder.display());
            });
    }

    /// Adds a mutex, two rwlocks, a thread's descriptor, and a table of file locks.
    fn blockers(&mut self) {
        let mut add = |name: &str, at: u16, operation: u16, value: u64, words: &[u32]| {
            let mut bytes =
                [&at.to_le_bytes()[..], &operation.to_le_bytes(), &value.to_le_bytes(), &[0]]
                    .concat();
            bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
            self.add("blockers", name, bytes);
        };
        add("mutex", 0, 0x80, 2, &[2, 0, 3, 1, 0]);
        add("robust", 0, 0, 0x8000_0003, &[0x8000_0003, 1, 3, 1, 0x10]);
        add("inheriting", 0, 0x86, 0, &[0x8000_0003, 0, 3, 1, 0x20]);
        add("written", 8, 0x89, 3, &[11, 0, 3, 3, 0, 0, 3, 0, 0, 0, 0, 0, 0]);
        add("read", 8, 0x89, 2, &[26, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let mut descriptor = vec![0; 181];
        (descriptor[5], descriptor[180]) = (0x7000, 3);
        add("joined", 0x2d0, 0x109, 3, &descriptor);
        self.add(
            "blockers",
            "locks",
            "1: FLOCK  ADVISORY  WRITE 100 fe:00:7 0 EOF\n\
             1: -> FLOCK  ADVISORY  WRITE 101 fe:00:7 0 EOF\n\
             2: POSIX  ADVISORY  WRITE 200 fe:00:8 0 9\n\
             2: -> OFDLCK ADVISORY  READ  -1 fe:00:8 0 9\n",
        );
    }

    /// Adds tables of sockets, an answer about a unix socket, addresses, and a command line.
    fn sockets(&mut self) {
        let mut lines = String::new();
        let of_tcp6 = "0000000000000000FFFF00000100007F";
        for (nth, ends, state, received, inode) in [
            (0, "0100007F:64B1 00000000:0000", "0A", 3, 986_888),
            (2, "0100007F:64B1 0100007F:DB70", "01", 7, 0),
            (4, "0100007F:DB70 0100007F:64B1", "01", 0, 986_890),
            (6, "0100007F:DB7E 0100007F:64B1", "02", 0, 986_892),
            (7, &format!("{of_tcp6}:DB7F {of_tcp6}:64B1"), "02", 0, 986_893),
        ] {
            lines += &format!(
                "{nth:>4}: {ends} {state} 00000000:{received:08X} 00:00000000 00000000     0        0 {inode} 1 0 20 4 30 10 -1\n"
            );
        }
        lines += "0000000000000000: 00000002 00000000 00010000 0001 01 4242 /run/x.sock\n";
        self.add("sockets", "tables", lines);
        let attributes = [&[10, 0, 0, 0][..], b"/run/x\0\0", &[8, 0, 2, 0, 9, 0, 0, 0]].concat();
        let mut answer = vec![0; 32];
        answer[0] = (32 + attributes.len()) as u8;
        (answer[4], answer[20]) = (20, 7);
        self.add("sockets", "answer", [answer, attributes].concat());
        self.add("sockets", "inet", [2, 0, 0x15, 0x38, 10, 0, 3, 9]);
        let inet6 = [&[10, 0, 1, 0xbb, 0, 0, 0, 0][..], &[0; 15], &[1]].concat();
        self.add("sockets", "inet6", inet6);
        self.add("sockets", "unix", b"\x01\0/run/x.sock\0rest");
        self.add("sockets", "command", b"sh\0-c\0a b\0");
        self.add("sockets", "children", b"12 345 ");
    }

    /// Adds a plain jar, and one with another in it.
    fn jars(&mut self) {
        let archive = |files: &[(&str, &[u8])]| {
            let mut bytes = Vec::new();
            let mut archive = rawzip::ZipArchiveWriter::new(&mut bytes);
            for (name, content) in files {
                let file = archive.new_file(name);
                let (mut file, config) = file
                    .compression_method(rawzip::CompressionMethod::STORE)
                    .start()
                    .expect("begun");
                let mut writer = config.wrap(&mut file);
                writer.write_all(content).expect("written");
                let (_, written) = writer.finish().expect("written");
                file.finish(written).expect("written");
            }
            archive.finish().expect("written");
            bytes
        };
        let plain = archive(&[
            ("META-INF/MANIFEST.MF", b"Main-Class: a.B\nStart-Class: a.\n C\n"),
            ("a/B.class", b"x"),
            ("META-INF/versions/9/a/B$C.class", b""),
        ]);
        let nested =
            archive(&[("BOOT-INF/lib/a.jar", &plain), ("BOOT-INF/classes/a/D.class", b"")]);
        self.add("jar", "plain", plain);
        self.add("jar", "nested", nested);
    }

    /// Adds folded stacks and pprof profiles as other tools write them.
    fn stacks_of_others(&mut self) {
        self.add(
            "folded",
            "kinds",
            "# x\njava;a/B.c_[j];a/B.d_[i];entry_[k] 12\njava;[torn];f (libc.so) 1.5\n\n;;x; 0\n",
        );
        self.add("folded", "difference", "a;b 1 2\na 3 4\n");
    }

    /// Adds small sessions, each as a file, and as the contents of its blocks.
    fn profiles(&mut self) {
        for (name, scan, hours) in [("empty", 0, false), ("short", 12, false), ("long", 40, true)] {
            let mut file = Vec::new();
            let snapshot = sessions::session(7, scan, hours);
            saved::write(&snapshot, &Settings::default(), &mut file).expect("a vector takes it");
            let mut content = vec![1];
            for block in saved::block::blocks(&file) {
                content.push(block.kind as u8);
                content.extend(piece(&block.unpack().expect("just written")));
            }
            for format in [Format::Pprof, Format::Folded] {
                let mut file = Vec::new();
                formats::write(format, &snapshot, &Settings::default(), &mut file)
                    .expect("a vector takes it");
                self.add(format.word(), name, &file);
                if format == Format::Pprof {
                    let mut unpacked = Vec::new();
                    GzDecoder::new(&file[..]).read_to_end(&mut unpacked).expect("just packed");
                    self.add("pprof", &format!("{name}-unpacked"), &unpacked);
                }
            }
            self.add("saved", name, &file);
            self.add("saved", &format!("{name}-content"), &content);
        }
    }

    fn text(&mut self) {
        let read = |path: &str| fs::read(path).unwrap_or_else(|error| panic!("{path}: {error}"));
        self.add("maps", "own", read("/proc/self/maps"));
        self.add(
            "maps",
            "odd",
            "400000-401000 r-xp 00000000 fd:01 393 /usr/bin/ba sh\n401000-402000 rwxs 00001000 00:01 77 /memfd:jit (deleted)\n\
             403000-404000 r--p 00000000 fd:01 400 /tmp/a\\012b (deleted)\n7ffd10000000-7ffd10021000 rw-p 00000000 00:00 0 [stack]\n\
             ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\n",
        );
        for file in ["stat", "status", "schedstat"] {
            self.add("proc_files", file, read(&format!("/proc/self/{file}")));
        }
        self.add(
            "proc_files",
            "name",
            "12 (a) R (b\\n\\\\) S 1 2 3 4 5 6 7 8 9 10 100 23 14 15 20 0 7 0 4242 17",
        );
        self.add(
            "proc_files",
            "blocked",
            "232 0x5 0x7f00 0x10 0xffffffffffffffff 0x0 0x8 0x7ffc10 0x401000\n",
        );
        self.add("proc_files", "faulting", "-1 0x7ffc10 0x401000\n");
        self.add("proc_files", "running", "running\n");
        self.add(
            "text",
            "escape",
            "\u{ff}\u{1b}[2Jevil\u{7}\u{202e}nimda\u{2066} 漢字 e\u{301} two\nlines",
        );
        self.add("text", "short", "\u{8}ääääää\u{200b}x");
        for (name, raw) in [
            ("c", "__GI___libc_read"),
            ("clone", "burn.constprop.12.isra.3.cold"),
            ("cpp", "_ZNK2ns4TypeIiSaIS0_IcEEE6methodERKNS_1AES2_"),
            ("lambda", "_ZZ4mainENKUlvE_clEv"),
            ("abi", "_ZN3foo3barB5cxx11Ev"),
            ("template", "_Z3runIPFviEEvT_"),
            ("pack", "_Z1fIJiJcdEJEEEvDpT_"),
            (
                "legacy",
                "_ZN71_$LT$Test$u20$$u2b$$u20$$u27$static$u20$as$u20$foo..Bar$LT$Test$GT$$GT$3bar17h930b740aa94f1d3aE",
            ),
            ("v0", "_RNCNCNgCs6DXkGYLi8lr_2cc5spawn00B5_"),
            ("generic", "_RINvNtC3std3mem8align_ofdNtB4_3FooKj8_E"),
        ] {
            self.add("demangle", name, raw);
        }
        for (name, rule) in [
            ("plain", "s/a/b/g\nbanana"),
            ("groups", "s/(\\w+)-(?<n>\\d+)/$2 ${n}$$/\npool-17"),
            ("escaped", "s|a\\|b|x|\na|b ab"),
            ("wrong", "s/(a/$name/"),
            ("frame", "frame:^handle_(get|put)"),
        ] {
            self.add("rules", name, rule);
        }
    }

    fn records(&mut self) {
        let thread = ThreadKey { pid: 1, tid: 2, start: 3 };
        let observation = Observation {
            counters: Some(Counters { run_ns: 7, delay_ns: 8, runs: 9 }),
            stack: vec![RawFrame::from_bits(10), RawFrame::from_bits(11)],
            recovered: true,
            ..Observation::new(
                5,
                thread,
                RawName::new(b"worker"),
                Seen::Blocked(Syscall { number: 232, args: [1, 2, 3, 4, 5, 6] }),
            )
        };
        let tick = Tick {
            late_ns: 3,
            process_cpu_ns: Some(4),
            interval_ns: 5,
            losses: Losses { samples: 6, ..Losses::default() },
            ..Tick::new(1, 2)
        };
        for (name, event) in [
            ("blocked", Event::Observation(observation.clone())),
            (
                "disk",
                Event::Observation(Observation {
                    seen: Seen::Disk(None),
                    counters: None,
                    ..observation
                }),
            ),
            ("tick", Event::Tick(tick)),
            ("ended", Event::ThreadEnded { at: 1, thread, counters: None }),
            ("exec", Event::Exec { at: 1, pid: 2 }),
            ("gone", Event::ProcessEnded { at: 1, pid: 2 }),
            ("gap", Event::Gap { from: 1, at: 2 }),
        ] {
            let mut words = Vec::new();
            encode(&event, &mut words);
            self.add("ring", name, bytes(&words));
        }
        // id, pid and tid, time, call chain, registers' ABI and values, room for the stack, its
        // bytes, bytes filled.
        let text = 0xffff_ffff_8100_0000;
        let mut sample =
            vec![77, 10 | 20 << 32, 30, 4, -128i64 as u64, text, text + 0x100, text + 0x200, 2];
        sample.extend(100..117);
        sample.extend([16, 1, 2, 8]);
        let mut deep = vec![77, 10 | 20 << 32, 30, 131, -128i64 as u64];
        deep.extend((0..130).map(|n| text + n * 16));
        deep.extend([0, 0]);
        let lost = [&[2, 0, 0, 0, 0, 0, 24, 0][..], &bytes(&[1, 42])].concat();
        let throttled = [&[5, 0, 0, 0, 0, 0, 32, 0][..], &bytes(&[1, 2, 3])].concat();
        let mut commands = vec![0];
        for _ in 0..18 {
            commands.extend([&[4][..], &piece(&bytes(&sample))].concat());
        }
        commands.extend([&[4][..], &piece(&bytes(&deep))].concat());
        for record in [&lost, &throttled] {
            commands.extend([&[0][..], &piece(record)].concat());
        }
        commands.push(7);
        self.add("kernel_ring", "records", &commands);
        // One row of each kind: by state, exit state and flags.
        let kinds = [
            (1u32, 0u32, 0u32),
            (2, 0, 2),
            (0, 0, 1),
            (0x80, 0x20, 0),
            (0x2001, 0, 4),
            (0x402, 0, 16),
        ];
        let mut rows = 0u64.to_ne_bytes().to_vec();
        for (state, exit, flags) in kinds {
            rows.extend(bytes(&[1_000, 20_000_000, 3, 4, 5]));
            rows.extend([7u32, 8, state, exit, flags, 2, 4096, 0].map(u32::to_ne_bytes).concat());
            rows.extend(b"worker\0\0\0\0\0\0\0\0\0\0");
            rows.extend(bytes(&(100..119).collect::<Vec<u64>>()));
        }
        self.add("bpf_rows", "kinds", &rows);
        // Both ends of a TCP connection, of a pair of unix sockets, of a pipe.
        let mut ends = 1_000u16.to_ne_bytes().to_vec();
        for (kind, nth) in [1u8, 2, 3].into_iter().flat_map(|kind| [(kind, 0u8), (kind, 1)]) {
            let inode = if kind == 3 { 30 } else { u64::from(10 * kind + nth) };
            ends.extend(bytes(&[inode, u64::from(10 * kind + 1 - nth)]));
            ends.extend([127; 32]);
            ends.extend([1u32, 100 + u32::from(nth), 3].map(u32::to_ne_bytes).concat());
            let ports = if nth == 0 { [5432u16, 999] } else { [999, 5432] };
            ends.extend(ports.map(u16::to_ne_bytes).concat());
            ends.extend([kind, 6, 1 + nth, 0, 0, 0, 0, 0]);
        }
        self.add("endpoints", "pairs", &ends);
        // A thread, a kernel thread, an interrupt, and a thread that has no number here.
        let mut counts = Vec::new();
        for (pid, call) in [(7, 202), (0, -2), (0, -1), (0, 1)] {
            counts.extend([pid, pid + 1, 9, 10, call, 0].map(i32::to_ne_bytes).concat());
            counts.extend(bytes(&[3]));
            counts.extend(b"work-\xc3\xb6\0\0\0\0\0\0\0\0\0java\0\0\0\0\0\0\0\0\0\0\0\0");
        }
        self.add("wakeups", "wakers", &counts);
        commands.extend(
            [&[6, 8, 0][..], &piece(&lost), &[5], &bytes(&[1 << 40]), &[0], &piece(&lost)].concat(),
        );
        self.add("kernel_ring", "wild", &commands);
    }

    fn stacks(&mut self) {
        let functions = [
            (0, image::root()),
            (1, image::sp_plus(16)),
            (2, image::frame_pointer()),
            (4, image::sp_plus(16)),
            (5, image::frame_pointer()),
            (6, image::expression(&[0x77, 8, 0x06])),
            (7, image::expression(&[0x7c, 16])),
            // CFA = rsp: the return address lies below, and unwinding from it leads nowhere.
            (8, image::expression(&[0x77, 0])),
        ]
        .map(|(number, program)| Function { number, program });
        let at = image::at;
        let mut code = vec![0; 0xa00];
        // Each function ends in a call of another and keeps a frame; 3 is the return from a signal
        // handler.
        for (caller, callee) in [(0, 2), (1, 4), (2, 5), (4, 1), (5, 2), (6, 1), (7, 2), (8, 8)] {
            let place = (at(caller) - CODE) as usize;
            code[place..place + 8]
                .copy_from_slice(&[0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x10]);
            code[place + 0x7b] = 0xe8;
            let distance = at(callee).wrapping_sub(at(caller) + 0x80) as u32;
            code[place + 0x7c..place + 0x80].copy_from_slice(&distance.to_le_bytes());
        }
        let trampoline = (at(3) - CODE) as usize;
        code[trampoline..trampoline + 9]
            .copy_from_slice(&[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05]);
        let behind = |number| at(number) + 0x80;
        let sp = |word: u64| STACK + 8 * word;
        let mut signal = vec![7, at(3), 0, 0, 0, 0, 0];
        signal.extend([0; 17]);
        signal[7 + 10] = sp(30);
        signal[7 + 15] = sp(26);
        signal[7 + 16] = at(2) + 0x40;
        signal.extend([0, 0, 0, 0, 0, 0, 0, behind(0)]);
        let mut elsewhere = signal.clone();
        elsewhere[7 + 10] = ALTERNATE + 8 * 30;
        elsewhere[7 + 15] = ALTERNATE + 8 * 26;
        let image = image::elf(&functions);
        let stacks: [(&str, u8, u64, u64, Vec<u64>); 9] = [
            ("steps", 1, at(4) + 8, 0, vec![7, behind(1), 7, behind(0)]),
            (
                "records",
                1,
                at(2) + 8,
                sp(2),
                vec![0, 0, sp(6), behind(5), 0, 0, sp(8), behind(2), 0, behind(0), 0, 0],
            ),
            (
                "recovered",
                0,
                at(4),
                0,
                vec![7, behind(2), 0, 0, sp(8), behind(5), 0, 0, 0, behind(0), 0, 0],
            ),
            (
                "unknown",
                1,
                at(3) + 32,
                sp(2),
                vec![0, 0, sp(6), behind(2), 0, 0, sp(10), behind(5), 0, 0, 0, behind(0)],
            ),
            ("expression", 3, at(6), 0, vec![0, sp(4), 0, behind(7), 0, behind(0), 0, 0]),
            ("null", 1, 0, 0, vec![behind(1), 7, behind(0)]),
            ("signal", 1, at(4), 0, signal),
            ("alternate", 1, at(4), 0, elsewhere),
            ("standing", 0, at(8), 0, vec![behind(8); 16]),
        ];
        for (name, flags, rip, rbp, words) in stacks {
            let seed = |flags: u8, from: usize| {
                let mut seed = vec![flags, 40];
                let rsp = if name == "standing" { sp(8) } else { STACK };
                seed.extend([rip, rsp, rbp].into_iter().flat_map(token));
                seed.extend(piece(&image[from..(CODE - IMAGE) as usize]));
                seed.extend(piece(&code));
                seed.extend(words.iter().copied().flat_map(token));
                seed
            };
            self.add("unwind", name, seed(flags, TABLES));
            self.add("unwind", &format!("{name}-whole"), seed(flags | 4, 0));
        }
    }

    fn notes(&mut self) {
        let mut note = [4u32, 3, 3].map(u32::to_le_bytes).concat();
        note.extend(b"GNU\0\xab\xcd\xef\0");
        for (name, link) in
            [("plain", &b"x.debug\0\x01\x02\x03\x04"[..]), ("out", b"../x\0\0\0\0\x01\x02\x03\x04")]
        {
            self.add(
                "debug_file",
                name,
                [&piece(&note), &piece(link), &b"/opt/bin/x"[..]].concat(),
            );
        }
    }

    /// Adds small programs, with debug info of both versions in use.
    fn programs(&mut self) {
        let c = fs::read_to_string(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../tests/targets/sym_inline.c"
        ))
        .expect("a source file of the tests");
        for (name, language, source, flags) in [
            ("c5", "c", &c[..], &["-gdwarf-5"][..]),
            ("c4", "c", &c, &["-gdwarf-4", "-Wl,--build-id"]),
            ("c-packed", "c", &c, &["-gdwarf-5", "-gz"]),
            ("c-sections", "c", &c, &["-gdwarf-5", "-ffunction-sections"]),
            ("stripped", "c", &c, &["-s"]),
            ("cpp5", "c++", CPP, &["-gdwarf-5"]),
            ("cpp4", "c++", CPP, &["-gdwarf-4"]),
        ] {
            let file = self.compile(language, source, flags);
            self.add("symbols", name, &file);
            let sections = sections(&file);
            let pieces = DWARF_SECTIONS.map(|wanted| {
                let found = sections.iter().find(|(name, _)| name == wanted);
                piece(found.map_or(&[], |(_, bytes)| bytes))
            });
            self.add("dwarf", name, pieces.concat());
        }
    }

    /// Adds recorded virtual machines as they are, with the pc in several places, and with one
    /// change.
    fn machines(&mut self) {
        for version in 0..4 {
            for flags in [0, 4, 8, 12, 24, 28] {
                for (segment, off) in [(0, 0), (2, 0xfb), (5, 7), (9, 0xe0), (14, 40), (20, 1)] {
                    let input = [&[version, flags, segment, off, 0][..], &[0; 9]].concat();
                    self.add("jvm", &format!("{version}-{flags}-{segment}"), input);
                }
            }
            for flags in [0, 1, 3] {
                // The word to change: a piece, and its index there; then its new value, the address
                // of another.
                let change = [0x10, 5, 3, 2, 1, 0x20, 6, 2];
                let input = [&[version, flags, 3, 0, 0][..], &[0; 9], &change].concat();
                self.add("jvm", &format!("{version}-changed-{flags}"), input);
            }
        }
    }

    /// Adds recorded threads that wait, as they are and with one change.
    fn waits(&mut self) {
        for recording in 0..9 {
            for first in [0, 6, 12, 18, 24] {
                let input = [recording, 0, first];
                self.add("jvm_waits", &format!("{recording}-{first}"), input);
                // The word to change: a piece, and its index there; then its new value, the
                // address of another.
                let changed = [recording, 1, first, 0x10, 5, 3, 2, 1, 0x20, 6, 2];
                self.add("jvm_waits", &format!("{recording}-{first}-changed"), changed);
            }
        }
    }

    /// Adds steps as in `fuzz_targets/perf_map.rs`.
    fn maps_of_code(&mut self) {
        let step = |which: u8, bytes: &[u8]| [&[which], bytes].concat();
        let lines = "1000 100 JS:*inner /srv/a.js:4:15\n2000 80 Builtin:ArrayMap\n0x3000 10 void Program::Main()[Tier0]\n";
        let observation =
            [0x1010u16, 0x2010, 0x3008, 0x9010].map(|pc| step(5, &pc.to_le_bytes())).concat();
        let grows = [
            step(0, &piece(lines.as_bytes())),
            observation,
            step(0, &piece(b"1080 200 JS:~f a.js:1\n4000 1")),
        ];
        self.add(
            "perf_map",
            "grows",
            [&grows.concat()[..], &step(3, &[200, 0]), &step(0, &piece(b"0 x\n"))].concat(),
        );
        let maps = "1000-3000 r-xp 00005000 fd:01 7 /node\n9000-a000 r-xp 00006000 fd:01 7 /node\n";
        let again = [
            step(4, &piece(maps.as_bytes())),
            grows.concat(),
            step(1, &[9, 0]),
            step(2, &[&[16, 0][..], &piece(b" 1 y\n")].concat()),
        ];
        self.add("perf_map", "mapped_again", again.concat());
        let high = step(6, &0x7f00_1234_5678u64.to_le_bytes());
        self.add(
            "perf_map",
            "high",
            [step(0, &piece(b"7f0012345600 400000 jit\n")), high].concat(),
        );
    }

    /// Adds scripts and maps as in `fuzz_targets/source_map.rs`.
    fn source_maps(&mut self) {
        let map = br#"{"version":3,"sourceRoot":"../src","sources":["a.ts","b.ts"],"mappings":"AAAA,EACA;ACCA,YAAY;;ADFZ"}"#;
        let index = [
            &br#"{"version":3,"sections":[{"offset":{"line":1,"column":4},"map":"#[..],
            map,
            b"}]}",
        ];
        let beside = b"f();\n//# sourceMappingURL=a.js.map\n";
        let inside = b"f();\n//# sourceMappingURL=data:application/json;base64,e30=\n";
        self.add("source_map", "beside", [&beside[..], &[0], map].concat());
        self.add("source_map", "inside", inside);
        self.add("source_map", "sections", [&beside[..], &[0], &index.concat()].concat());
    }
}

fn bytes(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}
