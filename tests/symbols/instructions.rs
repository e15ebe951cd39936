//! Instructions of compiled functions, compared with `objdump`.

use super::*;
use sampletop::symbols::{Disassembly, INSTRUCTIONS_MAX, disassemble_mapped};

/// An instruction as objdump shows it.
#[derive(Debug)]
struct Shown {
    address: u64,
    bytes: usize,
    text: String,
}

fn objdump(path: &Path, (start, size): (u64, u64)) -> Vec<Shown> {
    let from = format!("--start-address={start:#x}");
    let till = format!("--stop-address={:#x}", start + size);
    let printed = run("objdump", &["-d", "-w", "-C", &from, &till, text(path)]);
    let instruction = |line: &str| {
        let mut fields = line.split('\t');
        let address = fields.next()?.trim().strip_suffix(':')?;
        let bytes = fields.next()?.split_whitespace().count();
        let text = fields.next().unwrap_or_default().trim().to_owned();
        Some(Shown { address: u64::from_str_radix(address, 16).ok()?, bytes, text })
    };
    printed.lines().filter_map(instruction).collect()
}

fn disassembled(path: &Path, address: u64) -> Result<Disassembly, String> {
    disassemble_mapped(&mapped(path), address.wrapping_add(code_shift(path)))
}

/// Returns the mnemonic without the letter of a size, which is optional.
fn mnemonic(text: &str) -> &str {
    let words = text
        .split_whitespace()
        .find(|word| !["bnd", "notrack", "data16", "cs", "rep", "repz", "lock"].contains(word));
    words.unwrap_or("").trim_end_matches(['b', 'w', 'l', 'q'])
}

/// Returns the name between `<` and the last `>`, without what stands behind it.
fn target(text: &str) -> Option<&str> {
    let (_, name) = text.split_once(" <")?;
    let name = name.strip_suffix('>')?;
    Some(name.split_once('(').map_or(name, |(name, _)| name))
}

#[test]
fn instructions_and_what_they_call_agree_with_objdump() {
    for (source, flags, names) in [
        ("sym_inline.c", &["-O2"][..], &["outermost", "main"][..]),
        ("sym_inline.c", &["-O0", "-g"], &["outermost", "hidden", "main"]),
        ("sym_inline.c", &["-O3", "-no-pie", "-mavx2"], &["outermost", "main"]),
        ("locks.c", &["-O2"], &["main"]),
    ] {
        let program = common::build(source, &format!("dis{}", flags.concat()), flags);
        for name in names {
            let range = function(&program, name);
            let expected = objdump(&program, range);
            // Any place in the function means all of it.
            for address in [range.0, range.0 + range.1 / 2, range.0 + range.1 - 1] {
                let found = disassembled(&program, address).expect("it is there");
                assert_eq!((&*found.function, found.is_cut), (*name, false));
                assert_eq!(found.list.len(), expected.len(), "{found:#?}\n{expected:#?}");
                for (found, expected) in found.list.iter().zip(&expected) {
                    let place = (found.address, usize::from(found.len));
                    assert_eq!(place, (expected.address, expected.bytes), "{}", expected.text);
                    let offset = found.address.wrapping_add(code_shift(&program));
                    assert_eq!(found.offset, offset);
                    let (ours, theirs) = (mnemonic(&found.text), mnemonic(&expected.text));
                    assert_eq!(ours, theirs, "{} is not {}", found.text, expected.text);
                    if ours == "cal"
                        && let Some(wanted) = target(&expected.text)
                    {
                        assert_eq!(target(&found.text), Some(wanted), "{}", expected.text);
                    }
                }
            }
        }
    }
}

#[test]
fn a_stripped_function_ends_where_its_unwind_entry_does() {
    let program = common::build("sym_inline.c", "dis-stripped", &["-O2"]);
    let range = function(&program, "outermost");
    let expected = objdump(&program, range);
    run("strip", &[text(&program)]);
    let found = disassembled(&program, range.0 + 1).expect("it is there");
    assert_eq!(found.function, "");
    assert_eq!(found.list.len(), expected.len(), "{found:#?}");
}

/// Of a function with more instructions than are shown, those around the place are.
#[test]
fn a_long_function_is_shown_around_the_place() {
    let folder = tempfile::tempdir().expect("a directory");
    let (source, program) = (folder.path().join("long.s"), folder.path().join("long"));
    let count = 3 * INSTRUCTIONS_MAX;
    let code = "incq %rax\n".repeat(count);
    let function = format!(
        ".globl long\n.type long,@function\nlong:\n{code}ret\n.size long,.-long\n.globl main\nmain: ret\n"
    );
    std::fs::write(&source, function).expect("written");
    run("cc", &[text(&source), "-o", text(&program)]);
    let (start, size) = judge::function(&program, "long");
    for (place, first) in [(0, 0), (size / 2, count / 2 - INSTRUCTIONS_MAX / 2), (size - 1, 0)] {
        let found = disassembled(&program, start + place).expect("it is there");
        assert!(found.is_cut && found.list.len() <= INSTRUCTIONS_MAX);
        let holds = |at: &sampletop::symbols::Listed| {
            (at.address..at.address + u64::from(at.len)).contains(&(start + place))
        };
        assert!(found.list.iter().any(holds), "{place}");
        if first > 0 {
            let begun = (found.list[0].address - start) / 3;
            assert!(begun.abs_diff(first as u64) <= 1, "{begun}");
        }
    }
}

#[test]
fn where_there_is_no_code_one_sentence_says_why() {
    let program = common::build("sym_inline.c", "dis-none", &["-O2"]);
    assert!(disassemble_mapped(&mapped(&program), 1 << 40).unwrap_err().contains("no code"));
    let anonymous = MappedFile { kind: FileKind::Anonymous, ..mapped(&program) };
    assert!(disassemble_mapped(&anonymous, 0).unwrap_err().contains("made at run time"));
    let gone = MappedFile { inode: 1, path: "/no/such/file".into(), ..mapped(&program) };
    assert!(disassemble_mapped(&gone, 0).unwrap_err().contains("/no/such/file"));
    let folder = tempfile::tempdir().expect("a directory");
    let arm = folder.path().join("arm");
    let mut bytes = std::fs::read(&program).expect("read");
    bytes[18] = 183; // EM_AARCH64
    std::fs::write(&arm, bytes).expect("written");
    let (start, _) = judge::function(&program, "outermost");
    let offset = start.wrapping_add(code_shift(&program));
    assert!(disassemble_mapped(&mapped(&arm), offset).unwrap_err().contains("x86-64"));
}

/// Calls of functions without a name are named as their rows are: by their unwind entry.
#[test]
fn calls_of_functions_without_a_name_have_the_start_of_their_unwind_entry() {
    let program = common::build("sym_inline.c", "dis-stripped-calls", &["-O0"]);
    let (main, hidden) = (function(&program, "main"), function(&program, "outermost"));
    run("strip", &[text(&program)]);
    let found = disassembled(&program, main.0).expect("it is there");
    let wanted = format!("<fn_{:x}>", hidden.0);
    assert!(found.list.iter().any(|at| at.text.ends_with(&wanted)), "{wanted}: {found:#?}");
}

#[test]
fn code_of_which_only_its_neighbours_are_known_is_called_that() {
    let folder = tempfile::tempdir().expect("a directory");
    let (source, library) = (folder.path().join("gap.s"), folder.path().join("gap.so"));
    let code = ".globl one\n.type one,@function\none:\nret\n.size one,.-one\nnop\nnop\nnop\n\
                .globl two\n.type two,@function\ntwo:\nret\n.size two,.-two\n";
    std::fs::write(&source, code).expect("written");
    run("cc", &["-shared", "-nostdlib", text(&source), "-o", text(&library)]);
    let (start, _) = function(&library, "one");
    let found = disassembled(&library, start + 2).expect("it is there");
    assert_eq!(found.function, "code between known functions", "{found:#?}");
    assert_eq!(disassembled(&library, start).expect("it is there").function, "one");
}

/// The names of a stripped library are in its debug file.
#[test]
fn a_separate_debug_file_names_the_function_and_what_it_calls() {
    let program = common::build("sym_inline.c", "dis-debug-file", &["-O0"]);
    let range = function(&program, "main");
    let debug = program.with_extension("debug");
    run("objcopy", &["--only-keep-debug", text(&program), text(&debug)]);
    run("strip", &[text(&program)]);
    run("objcopy", &[&format!("--add-gnu-debuglink={}", text(&debug)), text(&program)]);
    let found = disassembled(&program, range.0).expect("it is there");
    assert_eq!(found.function, "main");
    assert!(found.list.iter().any(|at| at.text.ends_with("<outermost>")), "{found:#?}");
}
