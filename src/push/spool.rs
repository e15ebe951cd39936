//! The queue of requests: files of one folder, one request each, oldest first. Bounded; used by one
//! sampletop at a time.
//!
//! Each file is written whole or not at all and flushed to the disk, so it survives a crash. It
//! holds the request's text after the `?`, a line end, and its body. Other files in the folder are
//! left alone. Where the disk accepts no files, some requests are kept in memory.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use crate::sinks::file;

/// Maximum bytes of requests in memory where the disk accepts no files.
const MEMORY_MAX: u64 = 8 << 20;

/// Maximum bytes of the first line that are read.
const QUERY_MAX: usize = 16 << 10;

const EXTENSION: &str = ".ingest";
const DIGITS: usize = 16;

/// A request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    pub query: String,
    pub body: Vec<u8>,
}

impl Request {
    fn bytes(&self) -> Vec<u8> {
        [self.query.as_bytes(), b"\n", &self.body].concat()
    }

    /// Parses a request. `None`: these bytes are none.
    fn of(bytes: &[u8]) -> Option<Request> {
        let end = bytes.iter().take(QUERY_MAX).position(|byte| *byte == b'\n')?;
        let (query, body) = (&bytes[..end], &bytes[end + 1..]);
        let sound = query.starts_with(b"name=")
            && query.iter().all(u8::is_ascii_graphic)
            && body.starts_with(&[0x1f, 0x8b]);
        let query = String::from_utf8(query.to_vec()).ok().filter(|_| sound)?;
        Some(Request { query, body: body.to_vec() })
    }
}

pub struct Spool {
    path: PathBuf,
    /// Locked while it is open.
    _directory: File,
    bytes_max: u64,
    waiting: VecDeque<Waiting>,
    next: u64,
    /// Requests dropped to make room.
    displaced: u64,
    /// Requests that the server will never accept, or that are unreadable.
    unfit: u64,
}

struct Waiting {
    number: u64,
    bytes: u64,
    /// The request, if it is not on the disk.
    in_memory: Option<Request>,
}

impl Spool {
    /// Opens `path` with what earlier runs queued there. Fails with one sentence if it cannot be
    /// used.
    pub fn open(path: &Path, bytes_max: u64) -> Result<Spool, String> {
        let directory = file::own_directory(path)?;
        let shown = file::shown(path);
        rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            rustix::io::Errno::WOULDBLOCK => format!(
                "another sampletop pushes the same service to the same server, from `{shown}`; give one of them another `--push-label service_name=...` or `--push-spool DIR`"
            ),
            error => format!("cannot lock `{shown}`: {}", file::why(&error.into())),
        })?;
        let unreadable = |error: io::Error| format!("cannot read `{shown}`: {}", file::why(&error));
        let mut waiting: Vec<Waiting> = Vec::new();
        for entry in std::fs::read_dir(path).map_err(unreadable)? {
            let entry = entry.map_err(unreadable)?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            if name.starts_with(".sampletop-") && name.ends_with(".tmp") {
                // Left by a run that was killed; we hold the lock, so no other process writes it
                // now.
                let _ = std::fs::remove_file(entry.path());
                continue;
            }
            let number = name
                .strip_suffix(EXTENSION)
                .filter(|stem| stem.len() == DIGITS)
                .and_then(|stem| stem.parse().ok());
            let length =
                entry.metadata().ok().filter(std::fs::Metadata::is_file).map(|of| of.len());
            waiting.extend(number.zip(length).map(|(number, bytes)| Waiting {
                number,
                bytes,
                in_memory: None,
            }));
        }
        waiting.sort_by_key(|waiting| waiting.number);
        let next = waiting.last().map_or(1, |last| last.number.saturating_add(1));
        let mut spool = Spool {
            path: path.into(),
            _directory: directory,
            bytes_max,
            waiting: waiting.into(),
            next,
            displaced: 0,
            unfit: 0,
        };
        spool.make_room(0);
        Ok(spool)
    }

    /// Appends a request; drops the oldest ones where there is no room. Where the disk does not
    /// accept it, holds it in memory and returns a sentence that says why.
    pub fn add(&mut self, request: Request) -> Result<(), String> {
        let bytes = request.query.len() as u64 + 1 + request.body.len() as u64;
        self.make_room(bytes);
        if bytes > self.bytes_max {
            self.displaced += 1;
            return Ok(());
        }
        let number = self.next;
        self.next += 1;
        self.waiting.push_back(Waiting { number, bytes, in_memory: Some(request) });
        let written = self.write_from_memory();
        while self.memory_bytes() > MEMORY_MAX
            && let Some(at) = self.waiting.iter().position(|waiting| waiting.in_memory.is_some())
        {
            self.waiting.remove(at);
            self.displaced += 1;
        }
        written
    }

    /// Returns the oldest request and its number. Skips what is unreadable or no request; such
    /// files stay.
    pub fn oldest(&mut self) -> Option<(u64, Request)> {
        self.readable(|waiting| waiting.front())
    }

    /// Returns the newest request in the same form.
    pub fn newest(&mut self) -> Option<(u64, Request)> {
        self.readable(|waiting| waiting.back())
    }

    fn readable(
        &mut self,
        which: fn(&VecDeque<Waiting>) -> Option<&Waiting>,
    ) -> Option<(u64, Request)> {
        while let Some(waiting) = which(&self.waiting) {
            let number = waiting.number;
            let request = match &waiting.in_memory {
                Some(request) => Some(request.clone()),
                None => self.read(number, waiting.bytes),
            };
            match request {
                Some(request) => return Some((number, request)),
                None => {
                    self.waiting.retain(|waiting| waiting.number != number);
                    self.unfit += 1;
                }
            }
        }
        None
    }

    /// Removes a request that was sent.
    pub fn sent(&mut self, number: u64) {
        match self.forget(number) {
            true => {}
            // It was dropped for room meanwhile, but it was sent, so nothing was lost.
            false => self.displaced = self.displaced.saturating_sub(1),
        }
    }

    /// Drops a request that the server will never accept.
    pub fn unfit(&mut self, number: u64) {
        self.unfit += u64::from(self.forget(number));
    }

    pub fn waiting(&self) -> u64 {
        self.waiting.len() as u64
    }

    /// Returns how many queued requests are in memory only.
    pub fn in_memory(&self) -> u64 {
        self.waiting.iter().filter(|waiting| waiting.in_memory.is_some()).count() as u64
    }

    pub fn dropped(&self) -> u64 {
        self.displaced + self.unfit
    }

    pub fn displaced(&self) -> u64 {
        self.displaced
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    fn file(&self, number: u64) -> PathBuf {
        self.path.join(format!("{number:0DIGITS$}{EXTENSION}"))
    }

    fn read(&self, number: u64, bytes: u64) -> Option<Request> {
        let mut content = Vec::new();
        let file = file::open_own(&self.file(number)).ok()?;
        // It may have grown since it was counted.
        file.take(bytes.saturating_add(1)).read_to_end(&mut content).ok()?;
        Request::of(&content).filter(|_| content.len() as u64 == bytes)
    }

    fn write_from_memory(&mut self) -> Result<(), String> {
        for at in 0..self.waiting.len() {
            if let Some(request) = &self.waiting[at].in_memory {
                file::save(&self.file(self.waiting[at].number), &request.bytes())?;
                self.waiting[at].in_memory = None;
            }
        }
        Ok(())
    }

    fn memory_bytes(&self) -> u64 {
        self.waiting
            .iter()
            .filter(|waiting| waiting.in_memory.is_some())
            .map(|waiting| waiting.bytes)
            .sum()
    }

    fn make_room(&mut self, more: u64) {
        let mut bytes: u64 =
            self.waiting.iter().map(|waiting| waiting.bytes).sum::<u64>().saturating_add(more);
        while bytes > self.bytes_max
            && let Some(oldest) = self.waiting.front()
        {
            bytes = bytes.saturating_sub(oldest.bytes);
            let number = oldest.number;
            self.displaced += u64::from(self.forget(number));
        }
    }

    /// Removes a request; returns whether it was queued.
    fn forget(&mut self, number: u64) -> bool {
        let Some(at) = self.waiting.iter().position(|waiting| waiting.number == number) else {
            return false;
        };
        if self.waiting.remove(at).is_some_and(|waiting| waiting.in_memory.is_none()) {
            // If it cannot be removed, the next run sends it again.
            let _ = std::fs::remove_file(self.file(number));
        }
        true
    }
}

#[cfg(test)]
mod tests;
