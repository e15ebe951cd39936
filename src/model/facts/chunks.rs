//! A growing array in fixed-size shared chunks. Cloning costs one pointer per chunk, and changing a
//! shared chunk copies only that chunk. So the contents of a published snapshot never change.

use std::sync::Arc;

/// `N` elements per chunk.
#[derive(Debug)]
pub struct Chunks<T, const N: usize> {
    chunks: Vec<Arc<Vec<T>>>,
    len: usize,
}

impl<T, const N: usize> Clone for Chunks<T, N> {
    fn clone(&self) -> Self {
        Chunks { chunks: self.chunks.clone(), len: self.len }
    }
}

impl<T, const N: usize> Default for Chunks<T, N> {
    fn default() -> Self {
        Chunks { chunks: Vec::new(), len: 0 }
    }
}

impl<T, const N: usize> Chunks<T, N> {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn get(&self, index: usize) -> Option<&T> {
        self.chunks.get(index / N)?.get(index % N)
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flat_map(|chunk| chunk.iter())
    }

    /// Returns the memory of the elements, bytes.
    pub fn bytes(&self) -> usize {
        self.chunks.len() * N * size_of::<T>()
    }
}

impl<T: Clone, const N: usize> Chunks<T, N> {
    /// Returns an element to change. Copies its chunk first if a snapshot shares it.
    pub fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        own(self.chunks.get_mut(index / N)?, N).get_mut(index % N)
    }

    pub fn push(&mut self, value: T) {
        if self.len.is_multiple_of(N) {
            self.chunks.push(Arc::new(Vec::with_capacity(N)));
        }
        if let Some(last) = self.chunks.last_mut() {
            own(last, N).push(value);
            self.len += 1;
        }
    }

    /// Removes the element and moves the last one to its place.
    pub fn swap_remove(&mut self, index: usize) -> Option<T> {
        let last_chunk = self.chunks.last_mut()?;
        if index >= self.len {
            return None;
        }
        let last = own(last_chunk, N).pop()?;
        self.len -= 1;
        if self.len.is_multiple_of(N) {
            self.chunks.pop();
        }
        if index == self.len {
            return Some(last);
        }
        self.get_mut(index).map(|place| std::mem::replace(place, last))
    }
}

/// Returns the chunk unshared, copied if necessary. The copy has room for `capacity` elements; a
/// plain clone would be exactly full.
fn own<T: Clone>(chunk: &mut Arc<Vec<T>>, capacity: usize) -> &mut Vec<T> {
    // There are no weak pointers.
    if Arc::strong_count(chunk) > 1 {
        let mut copy = Vec::with_capacity(capacity);
        copy.extend_from_slice(chunk);
        *chunk = Arc::new(copy);
    }
    Arc::make_mut(chunk)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_keeps_what_it_saw() {
        let mut chunks: Chunks<u32, 4> = Chunks::default();
        for n in 0..10 {
            chunks.push(n);
        }
        let seen = chunks.clone();
        chunks.push(10);
        *chunks.get_mut(3).unwrap() = 99;
        chunks.swap_remove(0);
        assert_eq!(seen.iter().copied().collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
        assert_eq!(chunks.iter().copied().collect::<Vec<_>>(), [10, 1, 2, 99, 4, 5, 6, 7, 8, 9]);
        assert_eq!((seen.len(), chunks.len()), (10, 10));
    }

    #[test]
    fn removing_to_nothing_and_growing_again() {
        let mut chunks: Chunks<u32, 2> = Chunks::default();
        for n in 0..5 {
            chunks.push(n);
        }
        while chunks.swap_remove(0).is_some() {}
        assert!(chunks.is_empty());
        chunks.push(7);
        assert_eq!(chunks.get(0), Some(&7));
        assert_eq!(chunks.get(1), None);
    }
}
