//! Files that are not regular, and the flow of requests and answers.

use std::io::Write;

use sampletop::model::vocabulary::frame::Marker;

use super::*;

#[test]
fn a_file_is_named_after_it_and_its_process_are_gone() {
    let path = common::build("sym_inline.c", "gone", &["-g", "-O2"]);
    let (address, _) = function(&path, "outermost");
    let at = address.wrapping_add(code_shift(&path));
    let files = Files::default();
    let mut symbols = Symbols::with_search_path(files.clone(), nowhere());
    let id = files.register(mapped(&path)).expect("room");
    // Nothing was requested yet; the worker opens the file all the same.
    let open = || {
        let descriptors = std::fs::read_dir("/proc/self/fd").expect("our descriptors");
        descriptors.flatten().any(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| to == path))
    };
    let began = Instant::now();
    while !open() {
        assert!(began.elapsed() < Duration::from_secs(10), "it is not opened");
        std::thread::sleep(Duration::from_millis(1));
    }
    std::fs::remove_file(&path).expect("it was there");
    let frame = frame(id, at, true);
    assert_eq!(&*wait(&mut symbols, &[frame])[&frame.bits()][0].function, "outermost");
}

#[test]
fn another_file_in_the_place_of_the_mapped_one_is_not_read() {
    let path = common::build("sym_inline.c", "replaced", &["-g", "-O2"]);
    let (address, _) = function(&path, "outermost");
    let at = address.wrapping_add(code_shift(&path));
    let was = mapped(&path);
    let other = path.with_extension("new");
    std::fs::copy(&path, &other).expect("room");
    std::fs::rename(&other, &path).expect("replaced");
    let files = Files::default();
    let id = files.register(was).expect("room");
    let mut symbols = Symbols::with_search_path(files, nowhere());
    let frame = frame(id, at, true);
    let module = path.file_name().and_then(|n| n.to_str()).expect("a name");
    assert_eq!(
        &*wait(&mut symbols, &[frame])[&frame.bits()][0].function,
        format!("{module}!{at:#x}")
    );
}

#[test]
fn the_vdso_is_named() {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("our maps");
    let line = maps.lines().find(|l| l.ends_with("[vdso]")).expect("a vDSO");
    let (start, end) =
        line.split_whitespace().next().and_then(|r| r.split_once('-')).expect("a range");
    let (start, end) =
        (u64::from_str_radix(start, 16).expect("hex"), u64::from_str_radix(end, 16).expect("hex"));
    let mut image = vec![0; (end - start) as usize];
    let memory = std::fs::File::open("/proc/self/mem").expect("our memory");
    std::os::unix::fs::FileExt::read_exact_at(&memory, &mut image, start).expect("the image");
    let mut copy = tempfile::NamedTempFile::new().expect("a file");
    copy.write_all(&image).expect("room");
    let files = Files::default();
    let vdso = MappedFile {
        kind: FileKind::Vdso,
        path: "[vdso]".into(),
        start,
        end,
        ..mapped(copy.path())
    };
    let id = files.register(vdso).expect("room");
    let mut symbols = Symbols::with_search_path(files, nowhere());
    let all = functions(copy.path(), true);
    let shift = code_shift(copy.path());
    let (address, ..) =
        all.iter().find(|(.., n)| n.contains("clock_gettime")).expect("every vDSO has that");
    let frame = frame(id, address.wrapping_add(shift), true);
    let named = &wait(&mut symbols, &[frame])[&frame.bits()];
    let aliases: Vec<&str> = all
        .iter()
        .filter(|(a, ..)| a == address)
        .map(|(.., name)| name.split('@').next().expect("a name"))
        .collect();
    assert!(aliases.contains(&&*named[0].function), "{named:?} and {aliases:?}");
    assert_eq!((&*named[0].module, named[0].kind), ("[vdso]", FrameKind::Native));
}

#[test]
fn code_without_a_file_is_one_row_for_each_region() {
    let dir = tempfile::tempdir().expect("a directory");
    let generated = dir.path().join("generated code");
    std::fs::write(&generated, vec![0x90; 8192]).expect("room");
    let files = Files::default();
    let anonymous = |start: u64| MappedFile {
        kind: FileKind::Anonymous,
        path: PathBuf::new(),
        start,
        end: start + 0x1000,
        ..mapped(&generated)
    };
    let first = files.register(anonymous(0x7f00_0000_0000)).expect("room");
    let second = files.register(anonymous(0x7f00_0001_0000)).expect("room");
    let file = files.register(mapped(&generated)).expect("room");
    let mut symbols = Symbols::with_search_path(files, nowhere());
    let places = [(first, 8), (first, 99), (second, 8), (file, 8), (file, 99)];
    let frames = places.map(|(id, at)| frame(id, at, true));
    let named = wait(&mut symbols, &frames);
    let functions: Vec<&str> =
        frames.iter().map(|frame| &*named[&frame.bits()][0].function).collect();
    let want = [
        "[jit]!7f0000000000",
        "[jit]!7f0000000000",
        "[jit]!7f0000010000",
        "[jit]!generated code",
        "[jit]!generated code",
    ];
    assert_eq!(functions, want);
    assert!(named.values().all(|named| named.len() == 1 && named[0].kind == FrameKind::Jit));
}

#[test]
fn kernel_addresses_are_named_where_the_kernel_shows_them() {
    let list = std::fs::read_to_string("/proc/kallsyms").expect("every kernel has it");
    let symbol = list.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        let address = u64::from_str_radix(fields.next()?, 16).ok()?;
        (fields.next()? == "T" && address >> 63 == 1)
            .then_some((address, fields.next()?.to_owned()))
    });
    let mut symbols = Symbols::with_search_path(Files::default(), nowhere());
    let (address, want) = symbol.clone().unwrap_or((0xffff_ffff_8100_0000, "[kernel]".into()));
    let frame = RawFrame::new(FrameCode::Kernel { address });
    assert!(symbols.placeholder(frame).pending);
    let named = wait(&mut symbols, &[frame])[&frame.bits()].clone();
    let module = if symbol.is_some() { "vmlinux" } else { "[kernel]" };
    assert_eq!((named[0].kind, &*named[0].module), (FrameKind::Kernel, module));
    assert_eq!(symbols.kernel_is_nameless(), symbol.is_none());
    let same_place = |name: &str| {
        list.lines().any(|l| {
            let mut fields = l.split_whitespace();
            let here = fields.next().and_then(|a| u64::from_str_radix(a, 16).ok()) == Some(address);
            here && fields.nth(1) == Some(name)
        })
    };
    assert!(
        *named[0].function == *want || same_place(&named[0].function),
        "{named:?}, wanted {want}"
    );
    let placeholder = symbols.placeholder(frame);
    assert_eq!((placeholder.pending, &*placeholder.locations), (false, &*named));
}

#[test]
fn placeholders_are_there_at_once_and_markers_are_final() {
    let path = common::build("sym_inline.c", "placeholder", &["-O2"]);
    let module = path.file_name().and_then(|n| n.to_str()).expect("a name").to_owned();
    let files = Files::default();
    let id = files.register(mapped(&path)).expect("room");
    let symbols = Symbols::with_search_path(files, nowhere());
    let code = symbols.placeholder(frame(id, 0x1a40, true));
    assert!(code.pending);
    assert_eq!(&*code.locations[0].function, format!("{module}!0x1a40"));
    assert_eq!((&*code.locations[0].module, code.locations[0].kind), (&*module, FrameKind::Native));
    let marker = symbols.placeholder(RawFrame::marker_in(Marker::NoUnwindInfo, id));
    assert!(!marker.pending);
    assert_eq!(&*marker.locations[0].function, format!("[no unwind info: {module}]"));
    assert_eq!(marker.locations[0].kind, FrameKind::Marker);
    assert!(symbols.placeholder(frame(FileId(77), 1, true)).pending);
}

#[test]
fn every_frame_is_answered_once_and_the_first_names_come_before_the_last() {
    let path = common::build("sym_inline.c", "many", &["-g", "-O2"]);
    let files = Files::default();
    let id = files.register(mapped(&path)).expect("room");
    let mut symbols = Symbols::with_search_path(files, nowhere());
    let frames: Vec<RawFrame> = (0..10_000).map(|n| frame(id, n, true)).collect();
    symbols.request(&frames);
    symbols.request(&frames[..500]);
    assert!(symbols.pending() <= frames.len());
    let (mut answers, mut most) = (BTreeMap::new(), 0);
    let began = Instant::now();
    while symbols.pending() > 0 {
        assert!(began.elapsed() < Duration::from_secs(60));
        let found = symbols.take();
        most = most.max(found.len());
        for resolved in found {
            *answers.entry(resolved.frame.bits()).or_insert(0) += 1;
        }
    }
    assert_eq!(answers.len(), frames.len());
    assert!(answers.values().all(|times| *times == 1));
    assert!(most < frames.len(), "all at once");
    // A repeated request causes no second lookup.
    symbols.request(&frames);
    assert_eq!(symbols.pending(), 0);
}
