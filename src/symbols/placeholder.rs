//! Names that need no file: markers, kernel addresses without kallsyms, and placeholders of pending
//! names.

use std::path::Path;
use std::sync::Arc;

use super::kernel::Kernel;
use crate::model::facts::tables::{FrameKind, Location, Named};
use crate::model::vocabulary::frame::{FileId, FrameCode, RawFrame};
use crate::model::vocabulary::text::{NAME_CAP, clean_bytes};
use crate::process::mapped_files::{FileKind, Files, MappedFile};

/// See [`super::Symbols::placeholder`].
pub fn named(files: &Files, kernel: &Kernel, frame: RawFrame) -> Named {
    match frame.decode() {
        FrameCode::Code { file: id, offset, .. } => match files.get(id) {
            Some(file) => {
                let module = module(files, id, &file);
                pending(format!("{module}!{offset:#x}"), &module, kind(&file))
            }
            None => pending(format!("[unknown]!{offset:#x}"), "[unknown]", FrameKind::Native),
        },
        FrameCode::Kernel { address } => match kernel.name(address) {
            (function, module, true) => {
                let build_id = kernel.build_id(&module);
                Named { build_id, ..last(function, &module, FrameKind::Kernel) }
            }
            (function, module, false) => pending(function, &module, FrameKind::Kernel),
        },
        FrameCode::Runtime { id } => {
            pending(format!("[runtime]!{id:#x}"), "[runtime]", FrameKind::Jit)
        }
        FrameCode::Marker { file, .. } => {
            let module = file.and_then(|id| Some(module(files, id, &*files.get(id)?)));
            last(
                frame.marker_text(module.as_deref()).unwrap_or_default(),
                module.as_deref().unwrap_or(""),
                FrameKind::Marker,
            )
        }
    }
}

/// Returns the module name of a mapped file. For the program it is the name its process was started
/// by, otherwise the base name, cleaned. Others are `[vdso]` and `[anon]`, or the name that
/// `prctl(PR_SET_VMA_ANON_NAME)` gave the region.
pub fn module(files: &Files, id: FileId, file: &MappedFile) -> String {
    use std::os::unix::ffi::OsStrExt;
    if let Some(name) = files.called(id) {
        return name.to_string();
    }
    let text = match file.kind {
        FileKind::Vdso => return "[vdso]".into(),
        FileKind::Regular => {
            let path: &Path = &file.path;
            clean_bytes(path.file_name().unwrap_or(path.as_os_str()).as_bytes(), NAME_CAP)
        }
        FileKind::Anonymous => clean_bytes(file.path.as_os_str().as_bytes(), NAME_CAP),
    };
    match text.as_str() {
        "" => "[anon]".into(),
        _ => text,
    }
}

/// Returns the one name of all code in a region without symbols: `[jit]!7f0012340000` by its start,
/// `[jit]!memfd:code` for generated code in a file, `[vsyscall]` for a region named by the kernel.
pub fn region(files: &Files, id: FileId, file: &MappedFile) -> Named {
    let module = module(files, id, file);
    let function = match file.kind {
        FileKind::Anonymous if module == "[vsyscall]" => {
            return last(module.clone(), &module, FrameKind::Kernel);
        }
        FileKind::Anonymous => format!("[jit]!{:x}", file.start),
        FileKind::Regular | FileKind::Vdso => format!("[jit]!{module}"),
    };
    last(function, &module, FrameKind::Jit)
}

/// Returns the kind of frames with code of this file.
pub fn kind(file: &MappedFile) -> FrameKind {
    match file.kind {
        FileKind::Regular | FileKind::Vdso => FrameKind::Native,
        FileKind::Anonymous => FrameKind::Jit,
    }
}

fn pending(function: String, module: &str, kind: FrameKind) -> Named {
    Named { pending: true, ..Named::known(one(function, module, kind)) }
}

fn last(function: String, module: &str, kind: FrameKind) -> Named {
    Named::known(one(function, module, kind))
}

fn one(function: String, module: &str, kind: FrameKind) -> Arc<[Location]> {
    Arc::new([Location {
        function: function.into(),
        module: module.into(),
        file: None,
        line: None,
        kind,
        tier: None,
    }])
}
