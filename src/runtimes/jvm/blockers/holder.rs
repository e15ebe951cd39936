//! From a `java.lang.Thread` to its native thread.

use crate::model::vocabulary::blocker::RawHolder;
use crate::process::memory::ReadMemory;
use crate::runtimes::jvm::Jvm;
use crate::runtimes::jvm::blockers::Reference;
use crate::runtimes::jvm::blockers::proof::Proof;
use crate::runtimes::jvm::blockers::waiter::{CARRIER, EETOP};

/// The native side of a `java.lang.Thread`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NativeThread {
    At(u64),
    /// A virtual thread on no carrier.
    Unmounted,
    /// It has ended, or has not started.
    None,
}

impl<M: ReadMemory> Jvm<M> {
    /// Returns the native thread of a `java.lang.Thread`, and of the carrier of a mounted virtual
    /// thread.
    pub fn native_thread(&mut self, object: u64, proof: &mut Proof) -> Option<NativeThread> {
        let mut object = object;
        if let Some(carrier) = self.object_field(object, CARRIER) {
            match proof.field(self, carrier)? {
                Reference::Null => return Some(NativeThread::Unmounted),
                Reference::Stale(_) => return None,
                Reference::Object(carrier) => object = carrier,
            }
        }
        let eetop = self.object_field(object, EETOP)?;
        match proof.word(self, eetop)? {
            0 => Some(NativeThread::None),
            thread => self.is_thread(thread).then_some(NativeThread::At(thread)),
        }
    }

    /// Returns the holder with this `java.lang.Thread`; `ended`: the holder if that has ended.
    pub fn holder(
        &mut self,
        object: Reference,
        ended: RawHolder,
        proof: &mut Proof,
    ) -> Option<RawHolder> {
        let Reference::Object(object) = object else { return None };
        match self.native_thread(object, proof)? {
            NativeThread::At(thread) => self.thread_holder(thread, proof),
            NativeThread::Unmounted => Some(RawHolder::Unmounted),
            NativeThread::None => Some(ended),
        }
    }

    /// Returns the holder that is this native thread. That it has this id belongs to the proof: at
    /// the address of a thread that ended there may be another.
    pub fn thread_holder(&self, thread: u64, proof: &mut Proof) -> Option<RawHolder> {
        let l = &self.layout.threads;
        let os_thread = proof.word(self, thread.checked_add(l.os_thread)?)?;
        if os_thread == 0 {
            return None;
        }
        let tid = proof.number(self, os_thread.checked_add(l.thread_id)?, 4)?;
        let tid = u32::try_from(tid).ok()?;
        (tid != 0).then_some(RawHolder::Thread { pid: self.pid.unwrap_or(0), tid })
    }

    /// Whether a Java thread is at this address: its object refers to it, or it is in the list of
    /// threads.
    pub fn is_thread(&mut self, thread: u64) -> bool {
        if thread == 0 || !thread.is_multiple_of(8) {
            return false;
        }
        self.object_refers_back(thread) == Some(true) || self.thread_pointers().contains(&thread)
    }

    fn object_refers_back(&mut self, thread: u64) -> Option<bool> {
        let l = &self.layout.threads;
        let mut object = self.memory.read_u64(thread.checked_add(l.object)?)?;
        if l.object_is_handle {
            object = self.memory.read_u64(object)?;
        }
        let object = self.objects.as_ref().ok()?.plain(object);
        let eetop = self.object_field(object, EETOP)?;
        Some(self.memory.read_u64(eetop)? == thread)
    }

    /// Returns where a field of this object is.
    pub fn object_field(
        &mut self,
        object: u64,
        field: (&'static str, &'static str),
    ) -> Option<u64> {
        self.objects.as_mut().ok()?.field(&self.memory, &self.layout, object, field)
    }
}
