//! The registry of everything that is or was mapped executable: gives out [`FileId`]s that are never reused.
//!
//! The sampler registers, the symbol worker looks up and opens; both hold a clone.

use std::path::PathBuf;
use std::sync::{Arc, RwLock};

use crate::model::frame::FileId;

/// What kind of thing is mapped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FileKind {
    /// A regular file; frames carry file offsets.
    Regular,
    /// The vDSO; frames carry offsets from its start.
    Vdso,
    /// Executable memory without a file (JIT); frames carry offsets from the region's start.
    Anonymous,
}

/// One mapped file, as it was when first seen.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct MappedFile {
    pub kind: FileKind,
    /// Process it was seen in first; where to look for `/proc/PID/map_files` and `/proc/PID/root`.
    pub pid: u32,
    /// As /proc/PID/maps shows it, without ` (deleted)`.
    pub path: PathBuf,
    pub deleted: bool,
    pub device: (u32, u32),
    pub inode: u64,
    /// The executable mapping it was seen at: for map_files, and for reading its image from memory.
    pub start: u64,
    pub end: u64,
    /// File offset of `start`.
    pub offset: u64,
}

/// Shared by reference counting; the same (kind, pid for non-regular, device, inode, path) gives the same id.
#[derive(Clone, Default)]
pub struct Files {
    inner: Arc<RwLock<Vec<Arc<MappedFile>>>>,
}

impl Files {
    /// `None` when 2^20 files have been seen.
    pub fn register(&self, file: MappedFile) -> Option<FileId> {
        let mut files = self.inner.write().unwrap_or_else(|e| e.into_inner());
        let id = u32::try_from(files.len()).ok().filter(|id| *id <= FileId::MAX)?;
        files.push(Arc::new(file));
        Some(FileId(id))
    }

    pub fn get(&self, id: FileId) -> Option<Arc<MappedFile>> {
        self.inner.read().unwrap_or_else(|e| e.into_inner()).get(id.0 as usize).cloned()
    }

    pub fn len(&self) -> usize {
        self.inner.read().unwrap_or_else(|e| e.into_inner()).len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
