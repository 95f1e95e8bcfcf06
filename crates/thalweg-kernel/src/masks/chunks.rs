//! An ordered map that is cheap to copy: states of a database share what they have not changed.
//!
//! Invariants: chunks are not empty, ascend, and have at most [`MAX_ENTRIES`] entries; a change copies the list of chunks and
//! one chunk.

use std::ops::Range;
use std::sync::Arc;

/// Most entries of a chunk. (Small in this crate's unit tests, so that few entries make several.)
const MAX_ENTRIES: usize = if cfg!(test) { 4 } else { 128 };

/// The map.
#[derive(Clone, Debug)]
pub(super) struct ChunkMap<K, V> {
    chunks: Vec<Arc<Vec<(K, V)>>>,
}

impl<K, V> Default for ChunkMap<K, V> {
    fn default() -> Self {
        Self { chunks: Vec::new() }
    }
}

impl<K: Ord + PartialEq, V: PartialEq> PartialEq for ChunkMap<K, V> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<K: Ord + Eq, V: Eq> Eq for ChunkMap<K, V> {}

impl<K, V> ChunkMap<K, V> {
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.len()).sum()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        let entries = self.chunks.iter().flat_map(|chunk| chunk.iter());
        entries.map(|(key, value)| (key, value))
    }

    pub(super) fn first(&self) -> Option<(&K, &V)> {
        let (key, value) = self.chunks.first()?.first()?;
        Some((key, value))
    }

    pub(super) fn last(&self) -> Option<(&K, &V)> {
        let (key, value) = self.chunks.last()?.last()?;
        Some((key, value))
    }
}

impl<K: Ord + Clone, V: Clone> ChunkMap<K, V> {
    /// The chunk in which a key is or belongs, and its place there.
    fn find(&self, key: &K) -> (usize, Result<usize, usize>) {
        let behind = self.chunks.partition_point(|chunk| chunk[0].0 <= *key);
        let at = behind.saturating_sub(1);
        let place = match self.chunks.get(at) {
            Some(chunk) => chunk.binary_search_by(|(other, _)| other.cmp(key)),
            None => Err(0),
        };
        (at, place)
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        let (chunk, Ok(place)) = self.find(key) else {
            return None;
        };
        Some(&self.chunks[chunk][place].1)
    }

    /// Gives a key a value; returns the one that it had.
    pub(super) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let (at, place) = self.find(&key);
        let Some(chunk) = self.chunks.get_mut(at) else {
            self.chunks.push(Arc::new(vec![(key, value)]));
            return None;
        };
        let entries = Arc::make_mut(chunk);
        match place {
            Ok(place) => Some(std::mem::replace(&mut entries[place].1, value)),
            Err(place) => {
                entries.insert(place, (key, value));
                if entries.len() > MAX_ENTRIES {
                    let behind = entries.split_off(entries.len() / 2);
                    self.chunks.insert(at + 1, Arc::new(behind));
                }
                None
            }
        }
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        let (at, Ok(place)) = self.find(key) else {
            return None;
        };
        let entries = Arc::make_mut(&mut self.chunks[at]);
        let (_, value) = entries.remove(place);
        if entries.is_empty() {
            self.chunks.remove(at);
        }
        Some(value)
    }

    /// The last entry with a key up to one, that one included.
    pub(super) fn up_to(&self, key: &K) -> Option<(&K, &V)> {
        let behind = self.chunks.partition_point(|chunk| chunk[0].0 <= *key);
        let chunk = self.chunks.get(behind.checked_sub(1)?)?;
        let behind = chunk.partition_point(|(other, _)| other <= key);
        let (key, value) = &chunk[behind.checked_sub(1)?];
        Some((key, value))
    }

    /// The entries with keys from one on.
    pub(super) fn from(&self, key: &K) -> impl Iterator<Item = (&K, &V)> + use<'_, K, V> {
        let (at, place) = self.find(key);
        let first = place.unwrap_or_else(|place| place);
        let chunks = self.chunks.iter().skip(at);
        let entries = chunks.flat_map(|chunk| chunk.iter()).skip(first);
        entries.map(|(key, value)| (key, value))
    }

    /// The entries with keys from one up to, and without, another one.
    pub(super) fn range(&self, keys: Range<K>) -> impl Iterator<Item = (&K, &V)> {
        let entries = self.from(&keys.start);
        entries.take_while(move |(key, _)| **key < keys.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn it_does_what_a_plain_map_does() {
        let mut dice = 9_u64;
        let mut draw = |below: u64| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (dice >> 33) % below
        };
        let mut map: ChunkMap<u64, u64> = ChunkMap::default();
        let mut model = BTreeMap::new();
        let mut copies = Vec::new();
        for round in 0..3_000 {
            let key = draw(60);
            match draw(3) {
                0 => assert_eq!(map.remove(&key), model.remove(&key)),
                _ => assert_eq!(map.insert(key, round), model.insert(key, round)),
            }
            let (start, end) = (draw(60), draw(60));
            let found = map.range(start..end).map(|(key, value)| (*key, *value));
            let wanted = { start..end }.filter_map(|key| Some((key, *model.get(&key)?)));
            assert!(found.eq(wanted), "{start}..{end}");
            assert_eq!(map.len(), model.len());
            assert_eq!(map.is_empty(), model.is_empty());
            assert_eq!(map.first(), model.first_key_value());
            assert_eq!(map.last(), model.last_key_value());
            assert_eq!(map.up_to(&start), model.range(..=start).next_back());
            if draw(100) == 0 {
                copies.push((map.clone(), model.clone()));
            }
        }
        for (map, model) in copies {
            assert!(map.iter().eq(model.iter()), "a copy changed");
        }
    }
}
