//! A small table, for the tests here and as a first input of the fuzz target.

/// Returns a table of three functions from 0x1000 on: `f` (0x40 bytes), `g` (0x10) and `top`
/// (0x10).
pub fn made_up(layout: usize) -> Vec<u8> {
    named(layout, 0x1000, [b"f", b"g", b"runtime.top"])
}

/// The function that is inlined into `f` at 0x1020; its call is at 0x1008.
const INLINED: &[u8] = b"inner";

/// Returns the trees of inlined functions of such a table.
pub fn trees(layout: usize) -> Vec<u8> {
    trees_of(layout, [b"f", b"g", b"runtime.top"])
}

fn trees_of(layout: usize, functions_named: [&[u8]; 3]) -> Vec<u8> {
    let name = 1 + functions_named.iter().map(|name| name.len() + 1).sum::<usize>();
    let name = (name as u32).to_le_bytes();
    let call = 8u32.to_le_bytes();
    match layout {
        0 => [&[0xff, 0xff, 0, 0xff][..], &[0xff; 8], &name, &call].concat(),
        _ => [&[0; 4][..], &name, &call, &[0; 4]].concat(),
    }
}

/// Returns the same with functions of these names, from `text` on.
pub fn named(layout: usize, text: u64, functions_named: [&[u8]; 3]) -> Vec<u8> {
    let mut names = vec![0];
    let named_at = functions_named.map(|name| {
        let at = names.len() as u32;
        names.extend_from_slice(name);
        names.push(0);
        at
    });
    names.extend_from_slice(INLINED);
    names.push(0);
    let files = b"/src/a.go\0";
    // Frame sizes of f: 0 bytes until 4, then 0x18 until 0x3c, then 0 again. Lines 10, 11. One
    // file. g and top push nothing.
    let sizes = [2, 4, 0x30, 0x38, 0x2f, 4, 0];
    let whole = [2, 0x40, 0];
    let lines = [22, 8, 2, 0x38, 0];
    let inlined = [0, 0x20, 2, 0x20, 0];
    let empty = [2, 0x10, 0];
    let mut values = vec![0];
    let mut place = |steps: &[u8]| {
        let at = values.len() as u32;
        values.extend_from_slice(steps);
        at
    };
    let (sizes, whole, lines, inlined, empty) =
        (place(&sizes), place(&whole), place(&lines), place(&inlined), place(&empty));
    let fixed = if layout == 0 { 40 } else { 44 };
    let mut index = Vec::new();
    let mut functions = Vec::new();
    let index_size = 8 * 3 + 4;
    for (number, (start, steps)) in
        [(0u32, [sizes, whole, lines]), (0x40, [empty; 3]), (0x50, [0; 3])].into_iter().enumerate()
    {
        index.extend(start.to_le_bytes());
        index.extend(((index_size + functions.len()) as u32).to_le_bytes());
        let mut function = vec![0; fixed];
        let mut put =
            |at: usize, value: u32| function[at..at + 4].copy_from_slice(&value.to_le_bytes());
        put(0, start);
        put(4, named_at[number]);
        put(16, steps[0]);
        put(20, steps[1]);
        put(24, steps[2]);
        put(28, 3);
        function[fixed - 3] = if number == 2 { 1 } else { 0 };
        function[fixed - 1] = if number == 0 { 4 } else { 0 };
        functions.extend(function);
        for value in [0, 0, if number == 0 { inlined } else { 0 }] {
            functions.extend(u32::to_le_bytes(value));
        }
        if number == 0 {
            // Its tree is the first one.
            for value in [u32::MAX, u32::MAX, u32::MAX, 0] {
                functions.extend(value.to_le_bytes());
            }
        }
    }
    index.extend(0x60u32.to_le_bytes());
    let mut table = vec![[0xf0, 0xf1][layout], 0xff, 0xff, 0xff, 0, 0, 1, 8];
    let mut offset = 72u64;
    let parts: [&[u8]; 5] = [&names, &[0; 4], files, &values, &[]];
    for word in [3, 1, text] {
        table.extend(u64::to_le_bytes(word));
    }
    for part in parts {
        table.extend(offset.to_le_bytes());
        offset += part.len() as u64;
    }
    parts.iter().for_each(|part| table.extend_from_slice(part));
    table.extend(index);
    table.extend(functions);
    table
}
