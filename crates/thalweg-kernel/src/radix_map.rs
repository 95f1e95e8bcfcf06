//! A persistent map from `u32` keys: a clone is one reference count, and a change copies only the nodes on the way to
//! its key that a clone still shares.
//!
//! Invariants
//! - A map that was cloned is never changed by what happens to the other one.
//! - A node has at least two slots in use, so a map has fewer nodes than entries; all keys of a node agree in the bits
//!   above `shift + BITS`, and each slot holds those whose next bits are its index. So a walk yields ascending keys,
//!   dense keys and hashes alike are found in about log8(entries) steps, and no depth depends on how keys are chosen.
//!
//! Rejected: `rpds` (its ordered map is a binary tree, 17 steps for 100,000 keys on the path of every commit; its hash map
//! has no order) and `imbl` (its licence is none that `deny.toml` allows).

use std::sync::Arc;

/// Bits of a key that a node decides by. A copied node counts a reference for each of its slots, twice with those of the
/// node that goes: few slots make changes cheap, and 100,000 keys are six steps deep.
const BITS: u32 = 3;
const SLOTS: usize = 1 << BITS;

#[derive(Clone, Debug)]
pub(crate) struct RadixMap<T> {
    root: Slot<T>,
    len: usize,
}

#[derive(Clone, Debug)]
enum Slot<T> {
    Empty,
    Entry(u32, T),
    Node(Arc<Node<T>>),
}

#[derive(Clone, Debug)]
struct Node<T> {
    /// Any of its keys: what lies above the bits of this node is the same in all of them.
    key: u32,
    shift: u32,
    slots: [Slot<T>; SLOTS],
}

impl<T> Default for RadixMap<T> {
    fn default() -> Self {
        Self {
            root: Slot::Empty,
            len: 0,
        }
    }
}

impl<T> RadixMap<T> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, key: u32) -> Option<&T> {
        let mut slot = &self.root;
        loop {
            match slot {
                Slot::Empty => return None,
                Slot::Entry(at, value) => return (*at == key).then_some(value),
                Slot::Node(node) => slot = &node.slots[node.index(key)],
            }
        }
    }

    /// The entries, by ascending keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let mut open = vec![std::slice::from_ref(&self.root).iter()];
        std::iter::from_fn(move || {
            loop {
                match open.last_mut()?.next() {
                    None => _ = open.pop(),
                    Some(Slot::Empty) => {}
                    Some(Slot::Entry(key, value)) => return Some((*key, value)),
                    Some(Slot::Node(node)) => open.push(node.slots.iter()),
                }
            }
        })
    }
}

impl<T: Clone> RadixMap<T> {
    /// Returns the value that it replaces.
    pub(crate) fn insert(&mut self, key: u32, value: T) -> Option<T> {
        let before = self.root.insert(key, value);
        self.len += usize::from(before.is_none());
        before
    }

    pub(crate) fn remove(&mut self, key: u32) -> Option<T> {
        // Nothing is copied for a key that is not there.
        self.get(key)?;
        self.len -= 1;
        self.root.remove(key)
    }
}

impl<T> Node<T> {
    fn index(&self, key: u32) -> usize {
        (key >> self.shift) as usize % SLOTS
    }

    /// Whether the key has a place below this node.
    fn leads_to(&self, key: u32) -> bool {
        (u64::from(self.key ^ key)) >> (self.shift + BITS) == 0
    }

    /// A node over two slots whose keys differ.
    fn over(first: (u32, Slot<T>), second: (u32, Slot<T>)) -> Self {
        let differs = first.0 ^ second.0;
        assert!(differs != 0, "equal keys share a slot");
        let mut node = Self {
            key: first.0,
            shift: differs.ilog2() / BITS * BITS,
            slots: [const { Slot::Empty }; SLOTS],
        };
        for (key, slot) in [first, second] {
            let index = node.index(key);
            node.slots[index] = slot;
        }
        node
    }
}

impl<T: Clone> Slot<T> {
    fn insert(&mut self, key: u32, value: T) -> Option<T> {
        let own = match self {
            Self::Empty => {
                *self = Self::Entry(key, value);
                return None;
            }
            Self::Entry(at, here) if *at == key => return Some(std::mem::replace(here, value)),
            Self::Node(node) if node.leads_to(key) => {
                let node = Arc::make_mut(node);
                let index = node.index(key);
                return node.slots[index].insert(key, value);
            }
            Self::Entry(at, _) => *at,
            Self::Node(node) => node.key,
        };
        let here = std::mem::replace(self, Self::Empty);
        let node = Node::over((own, here), (key, Self::Entry(key, value)));
        *self = Self::Node(Arc::new(node));
        None
    }

    fn remove(&mut self, key: u32) -> Option<T> {
        let node = match self {
            Self::Entry(at, _) if *at == key => {
                let Self::Entry(_, removed) = std::mem::replace(self, Self::Empty) else {
                    return None;
                };
                return Some(removed);
            }
            Self::Node(node) if node.leads_to(key) => Arc::make_mut(node),
            _ => return None,
        };
        let index = node.index(key);
        let removed = node.slots[index].remove(key)?;
        let mut used = node.slots.iter_mut().filter(|slot| !slot.is_empty());
        if let (Some(only), None) = (used.next(), used.next()) {
            *self = std::mem::replace(only, Self::Empty);
        }
        Some(removed)
    }

    fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, HashSet};

    /// Nodes that the two maps do not share, of the first one.
    fn own_nodes<T>(map: &RadixMap<T>, other: &RadixMap<T>) -> usize {
        fn nodes<T>(slot: &Slot<T>, found: &mut Vec<*const Node<T>>) {
            if let Slot::Node(node) = slot {
                found.push(Arc::as_ptr(node));
                node.slots.iter().for_each(|slot| nodes(slot, found));
            }
        }
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        nodes(&map.root, &mut ours);
        nodes(&other.root, &mut theirs);
        let theirs: HashSet<_> = theirs.into_iter().collect();
        ours.iter().filter(|node| !theirs.contains(node)).count()
    }

    fn check<T: Clone + PartialEq + std::fmt::Debug>(map: &RadixMap<T>, model: &BTreeMap<u32, T>) {
        let entries: Vec<_> = map
            .iter()
            .map(|(key, value)| (key, value.clone()))
            .collect();
        let expected: Vec<_> = model
            .iter()
            .map(|(key, value)| (*key, value.clone()))
            .collect();
        assert_eq!(entries, expected);
        assert_eq!(map.len(), model.len());
        fn full_nodes<T>(slot: &Slot<T>) {
            if let Slot::Node(node) = slot {
                let used = node
                    .slots
                    .iter()
                    .filter(|slot| !matches!(slot, Slot::Empty));
                assert!(used.count() >= 2, "a node with one way on");
                node.slots.iter().for_each(full_nodes);
            }
        }
        full_nodes(&map.root);
    }

    fn key() -> impl Strategy<Value = u32> {
        prop_oneof![
            0..40_u32,
            any::<u32>(),
            (0..8_u32).prop_map(|n| u32::MAX - n),
            (0..32_u32).prop_map(|n| 1 << n)
        ]
    }

    proptest! {
        #[test]
        fn is_a_map_whose_clones_stay_as_they_were(
            steps in prop::collection::vec((key(), prop::option::weighted(0.6, any::<u8>()), prop::bool::weighted(0.1)), 0..200),
        ) {
            let mut map = RadixMap::default();
            let mut model = BTreeMap::new();
            let mut clones = Vec::new();
            for (key, value, clones_it) in steps {
                if clones_it {
                    clones.push((map.clone(), model.clone()));
                }
                let (before, expected) = match value {
                    Some(value) => (map.insert(key, value), model.insert(key, value)),
                    None => (map.remove(key), model.remove(&key)),
                };
                prop_assert_eq!(before, expected);
                prop_assert_eq!(map.get(key), model.get(&key));
            }
            clones.push((map, model));
            for (map, model) in &clones {
                check(map, model);
                for (key, value) in model {
                    prop_assert_eq!(map.get(*key), Some(value));
                }
            }
        }
    }

    #[test]
    fn a_change_copies_the_path_to_its_key_alone() {
        let mut map: RadixMap<u32> = RadixMap::default();
        (1..=100_000).for_each(|key| _ = map.insert(key, key));
        let before = map.clone();
        map.insert(50_000, 0);
        assert_eq!(own_nodes(&map, &before), 6, "8^6 is above 100,000");
        // Nobody shares them now: nothing is copied.
        let copied = own_nodes(&map, &before);
        map.insert(50_001, 0);
        assert_eq!(own_nodes(&map, &before), copied);
        let unchanged = before.clone();
        assert_eq!(map.remove(200_000), None);
        assert_eq!(own_nodes(&before, &unchanged), 0);
        assert_eq!(before.get(50_000), Some(&50_000));
    }
}
