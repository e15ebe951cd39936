//! The registry of all executable mappings, present and past. It gives out [`FileId`]s that are
//! never reused.
//!
//! The sampler registers files; the symbol worker looks them up and opens them. Both hold a clone.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use crate::model::vocabulary::frame::FileId;

/// The kind of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FileKind {
    /// A regular file; frames carry file offsets.
    Regular,
    /// The vDSO; frames carry offsets from its start.
    Vdso,
    /// Executable memory without a file (JIT), and the vsyscall page; frames carry offsets from the
    /// region's start.
    Anonymous,
}

/// One mapped file, with its properties when first seen.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct MappedFile {
    pub kind: FileKind,
    /// The process it was first seen in, for `/proc/PID/map_files` and `/proc/PID/root`.
    pub pid: u32,
    /// As /proc/PID/maps shows it, without ` (deleted)`.
    pub path: PathBuf,
    pub deleted: bool,
    pub device: (u32, u32),
    pub inode: u64,
    /// The executable mapping it was first seen at: for map_files, and for reading its image from
    /// memory.
    pub start: u64,
    pub end: u64,
    /// File offset of `start`.
    pub offset: u64,
}

/// Identity of a mapping: equal keys get the same id.
#[derive(PartialEq, Eq, Hash)]
enum Key {
    Regular {
        device: (u32, u32),
        inode: u64,
        path: PathBuf,
    },
    /// There is one vDSO per kernel.
    Vdso,
    Anonymous {
        pid: u32,
        start: u64,
        end: u64,
    },
}

impl Key {
    fn of(file: &MappedFile) -> Key {
        match file.kind {
            FileKind::Regular => {
                Key::Regular { device: file.device, inode: file.inode, path: file.path.clone() }
            }
            FileKind::Vdso => Key::Vdso,
            FileKind::Anonymous => {
                Key::Anonymous { pid: file.pid, start: file.start, end: file.end }
            }
        }
    }
}

/// Maximum memory of the registry, bytes. A target could map new files with long names for ever.
const BYTES_MAX: usize = 64 << 20;

#[derive(Default)]
struct Inner {
    list: Vec<Arc<MappedFile>>,
    ids: HashMap<Key, FileId>,
    /// Display names of files that are not named by their path.
    called: HashMap<FileId, Arc<str>>,
    bytes: usize,
}

/// A registry shared by reference counting. The same (device, inode, path), the vDSO, and the same
/// anonymous (pid, start, end) get the same id.
#[derive(Clone, Default)]
pub struct Files {
    inner: Arc<RwLock<Inner>>,
}

impl Files {
    /// Returns the id of `file`; `None` when 2^20 files have been seen, or when their names fill 64
    /// MB.
    pub fn register(&self, file: MappedFile) -> Option<FileId> {
        let key = Key::of(&file);
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(id) = inner.ids.get(&key) {
            return Some(*id);
        }
        let id = FileId(u32::try_from(inner.list.len()).ok().filter(|id| *id <= FileId::MAX)?);
        // The name is stored twice: in the list and in the key.
        inner.bytes +=
            size_of::<MappedFile>() + size_of::<Key>() + 64 + 2 * file.path.as_os_str().len();
        if inner.bytes > BYTES_MAX {
            return None;
        }
        inner.list.push(Arc::new(file));
        inner.ids.insert(key, id);
        Some(id)
    }

    pub fn get(&self, id: FileId) -> Option<Arc<MappedFile>> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner).list.get(id.0 as usize).cloned()
    }

    /// Gives a file another display name than its path's.
    pub fn call(&self, id: FileId, name: &str) {
        self.inner.write().unwrap_or_else(PoisonError::into_inner).called.insert(id, name.into());
    }

    /// Returns the display name of a file, if it is not named by its path.
    pub fn called(&self, id: FileId) -> Option<Arc<str>> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner).called.get(&id).cloned()
    }

    pub fn len(&self) -> usize {
        self.inner.read().unwrap_or_else(PoisonError::into_inner).list.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(kind: FileKind, pid: u32, path: &str, inode: u64, start: u64) -> MappedFile {
        MappedFile {
            kind,
            pid,
            path: path.into(),
            deleted: false,
            device: (8, 1),
            inode,
            start,
            end: start + 0x1000,
            offset: 0,
        }
    }

    #[test]
    fn the_same_thing_gets_the_same_id() {
        let files = Files::default();
        let libc = files.register(file(FileKind::Regular, 1, "/lib/libc.so.6", 7, 0x1000));
        assert_eq!(files.register(file(FileKind::Regular, 2, "/lib/libc.so.6", 7, 0x9000)), libc);
        assert_ne!(
            files.register(file(FileKind::Regular, 1, "/lib/libc.so.6", 8, 0x1000)),
            libc,
            "replaced by an upgrade"
        );
        assert_ne!(files.register(file(FileKind::Regular, 1, "/other", 7, 0x1000)), libc);
        let vdso = files.register(file(FileKind::Vdso, 1, "[vdso]", 0, 0x5000));
        assert_eq!(files.register(file(FileKind::Vdso, 2, "[vdso]", 0, 0x7000)), vdso);
        let jit = files.register(file(FileKind::Anonymous, 1, "", 0, 0x5000));
        assert_ne!(files.register(file(FileKind::Anonymous, 2, "", 0, 0x5000)), jit);
        assert_ne!(files.register(file(FileKind::Anonymous, 1, "", 0, 0x6000)), jit);
        assert_eq!(files.register(file(FileKind::Anonymous, 1, "", 0, 0x5000)), jit);
        assert_eq!(files.len(), 7);
        assert_eq!(files.get(libc.unwrap()).unwrap().start, 0x1000, "as it was when first seen");
        assert_eq!(files.get(FileId(7)), None);
    }

    #[test]
    fn long_names_do_not_fill_the_memory() {
        let files = Files::default();
        let name = "/long".repeat(800);
        let given = (0..20_000)
            .filter(|i| files.register(file(FileKind::Regular, 1, &name, *i, 0)).is_some())
            .count();
        assert!((4_000..16_000).contains(&given), "{given}");
        assert!(
            files.register(file(FileKind::Regular, 1, &name, 0, 0)).is_some(),
            "a known one stays known"
        );
    }
}
