//! With any target: no panic, bounded work, and an end with a marker.

use std::sync::OnceLock;

use proptest::prelude::*;

use super::image::{CODE, Fake, IMAGE, MAPS, SP, STACK, STACK_END};
use super::{check, elf_of_all};
use crate::process::mapped_files::Files;
use crate::process::maps::{Backing, Maps};
use crate::process::memory::{Memory, ReadMemory};
use crate::unwinder::framehop::FramehopUnwinder;
use crate::unwinder::framehop::unwind_tables::Tables;
use crate::unwinder::{Registers, StackBytes, Unwinder};

/// A word of a stack: any value, but often an address that leads on.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        0..64u64,
        STACK..STACK_END,
        (STACK / 8..STACK_END / 8).prop_map(|a| a * 8),
        IMAGE..IMAGE + 0x1_1000,
        (0..6u64, 0..0x100u64).prop_map(|(f, o)| CODE + 0x100 * f + o),
    ]
}

fn walk(memory: Fake, registers: Registers, stack: &[u64]) {
    let bytes: Vec<u8> = stack.iter().flat_map(|w| w.to_le_bytes()).collect();
    let source = Box::new(|| Ok(Maps::parse(MAPS.as_bytes())));
    let mut unwinder = FramehopUnwinder::with_maps(memory, Files::default(), 1, source);
    for _ in 0..2 {
        let mut out = Vec::new();
        let walk = unwinder.walk(&registers, StackBytes { base: SP, bytes: &bytes }, &mut out);
        check(&out, walk);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn random_registers_and_stacks(
        rip in word(), rsp in prop_oneof![Just(SP), word()], rbp in proptest::option::of(word()),
        stack in proptest::collection::vec(word(), 0..200),
    ) {
        let memory = Fake::default();
        memory.put(IMAGE, elf_of_all());
        memory.put(SP, &stack.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>());
        walk(memory, Registers { rip, rsp, rbp, ..Registers::default() }, &stack);
    }

    /// Damaged headers, tables and programs.
    #[test]
    fn damaged_images(
        hits in proptest::collection::vec((0..0x800usize, any::<u8>()), 1..60),
        rip in 0..0x600u64, rbp in proptest::option::of(word()), stack in proptest::collection::vec(word(), 64),
    ) {
        let mut image = elf_of_all().to_vec();
        for (at, byte) in hits {
            image[at] = byte;
        }
        let memory = Fake::default();
        memory.put(IMAGE, &image);
        memory.put_words(SP, &stack);
        walk(memory, Registers { rip: CODE + rip, rsp: SP, rbp, ..Registers::default() }, &stack);
    }

    /// A damaged real table (the vDSO's).
    #[test]
    fn damaged_real_tables(
        hits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40), rip in 0..0x1000u64,
        stack in proptest::collection::vec(word(), 64),
    ) {
        let mut image = vdso().to_vec();
        for (at, byte) in hits {
            let at = at.index(image.len());
            image[at] = byte;
        }
        let memory = Fake::default();
        memory.put(IMAGE, &image);
        let maps = "400000-402000 r-xp 00000000 00:00 0 [vdso]\n7f0000000000-7f0000010000 rw-p 00000000 00:00 0\n";
        let source = Box::new(move || Ok(Maps::parse(maps.as_bytes())));
        let mut unwinder = FramehopUnwinder::with_maps(memory, Files::default(), 1, source);
        let bytes: Vec<u8> = stack.iter().flat_map(|w| w.to_le_bytes()).collect();
        let registers = Registers { rip: IMAGE + 0x400 + rip, rsp: SP, rbp: Some(SP), ..Registers::default() };
        let mut out = Vec::new();
        let walk = unwinder.walk(&registers, StackBytes { base: SP, bytes: &bytes }, &mut out);
        check(&out, walk);
    }

    #[test]
    fn random_tables(
        hdr in proptest::collection::vec(any::<u8>(), 0..256), eh_frame in proptest::collection::vec(any::<u8>(), 0..2048),
        version in proptest::bool::ANY, address in 0..0x3000u64,
    ) {
        let mut hdr = hdr;
        if version && hdr.len() > 4 {
            hdr[..4].copy_from_slice(&[1, 0x1b, 0x03, 0x3b]);
        }
        let mut context = Box::default();
        let given = eh_frame.clone();
        let tables = [
            Tables::from_hdr(0x1000, &hdr, 0x1000, move |_, _| Some(given)),
            Tables::from_eh_frame(0x1000, eh_frame, 0x2000),
        ];
        for tables in tables.into_iter().flatten() {
            for address in [0, 0x1000, 0x1000 + address, u64::MAX] {
                let _ = (tables.rule(address, &mut context), tables.function(address));
            }
            let _ = (tables.for_framehop(), tables.framehop_reaches(), tables.size());
        }
    }
}

fn vdso() -> &'static [u8] {
    static VDSO: OnceLock<Vec<u8>> = OnceLock::new();
    VDSO.get_or_init(|| {
        let pid = std::process::id();
        let maps = Maps::read(pid).unwrap();
        let mapping =
            maps.iter().find(|m| m.backing == Backing::Vdso).expect("every Linux process has one");
        let mut image = vec![0; (mapping.end - mapping.start) as usize];
        assert_eq!(Memory::new(pid).read(mapping.start, &mut image), image.len());
        image
    })
}

#[test]
fn the_undamaged_vdso_has_tables() {
    let memory = Fake::default();
    memory.put(IMAGE, vdso());
    let maps = Maps::parse(b"400000-402000 r-xp 00000000 00:00 0 [vdso]\n");
    let mapping = maps.find(IMAGE).unwrap();
    let image =
        crate::unwinder::framehop::images::Image::load(&memory, &maps, mapping, 1, usize::MAX);
    assert!(image.tables.expect("found").size() > 100);
}

/// A program that takes as long as its length allows: one row after the other.
#[test]
fn a_table_of_one_endless_program_is_left_alone() {
    let mut eh_frame = super::elf_of_all()[0x400..0x800].to_vec();
    let cie = u32::from_le_bytes(eh_frame[..4].try_into().unwrap()) as usize + 4;
    eh_frame.truncate(cie);
    let start = eh_frame.len();
    // DW_CFA_advance_loc 0, sixteen million times.
    let length = 16 << 20;
    eh_frame.extend_from_slice(&(length as u32).to_le_bytes());
    eh_frame.extend_from_slice(&((start + 4) as u32).to_le_bytes());
    eh_frame.extend_from_slice(&(0x1000i64 - (0x2000 + start as i64 + 8)).to_le_bytes());
    eh_frame.extend_from_slice(&0x1000u64.to_le_bytes());
    eh_frame.push(0);
    eh_frame.resize(start + 4 + length, 0x40);
    let tables = Tables::from_eh_frame(0x1000, eh_frame, 0x2000).unwrap();
    assert_eq!(tables.function(0x1010), None);
    assert_eq!(tables.rule(0x1010, &mut Box::default()), None);
}
