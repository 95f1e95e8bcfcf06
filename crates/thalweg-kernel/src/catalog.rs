//! All tables of one state, by id and by name.
//!
//! Invariants: no two tables have the same id or, without regard to case, the same name. A catalog that was cloned stays
//! as it was, and cloning it costs the same however many tables there are: that is what publishing a state does.

use crate::ids::TableId;
use crate::radix_map::RadixMap;
use crate::table_state::TableState;
use bytes::Bytes;
use std::borrow::Cow;
use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

/// A persistent collection of tables.
#[derive(Clone, Debug, Default)]
pub(crate) struct Catalog {
    tables: RadixMap<Arc<TableState>>,
    /// By the hash of the folded name. The names themselves are those of the tables.
    names: RadixMap<Named>,
    hasher: RandomState,
}

/// The tables whose names have one hash: hardly ever more than one.
#[derive(Clone, Debug)]
enum Named {
    One(TableId),
    Several(Arc<[TableId]>),
}

impl Named {
    fn ids(&self) -> &[TableId] {
        match self {
            Self::One(id) => std::slice::from_ref(id),
            Self::Several(ids) => ids,
        }
    }

    /// `None` without ids.
    fn of(ids: &[TableId]) -> Option<Self> {
        match ids {
            [] => None,
            [id] => Some(Self::One(*id)),
            ids => Some(Self::Several(ids.into())),
        }
    }
}

/// A table that cannot be found by its name yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Unnamed {
    hash: u32,
    id: TableId,
}

impl Catalog {
    pub(crate) fn len(&self) -> usize {
        self.tables.len()
    }

    /// The tables, by ascending ids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<TableState>> {
        self.tables.iter().map(|(_, table)| table)
    }

    pub(crate) fn get(&self, id: TableId) -> Option<&Arc<TableState>> {
        self.tables.get(id.0)
    }

    /// The table with a name, without regard to case.
    pub(crate) fn named(&self, name: &str) -> Option<&Arc<TableState>> {
        let folded = fold_name(name);
        let named = self.names.get(self.hash(&folded))?;
        let mut tables = named.ids().iter().filter_map(|id| self.get(*id));
        tables.find(|table| fold_name(&table.name) == folded)
    }

    /// Adds a table, or puts a new state in the place of the one with its id.
    pub(crate) fn insert(&mut self, table: Arc<TableState>) {
        let (id, name) = (table.id, Arc::clone(&table.name));
        match self.tables.insert(id.0, table) {
            Some(before) if Arc::ptr_eq(&before.name, &name) => return,
            Some(before) => self.forget_name(&before.name, id),
            None => {}
        }
        let hash = self.hash(&fold_name(&name));
        self.learn_name(hash, id);
    }

    /// Adds a table that can be found by its name only after [`Catalog::learn_names`] got what this returns; `None`:
    /// there is already a table with its id.
    pub(crate) fn insert_unnamed(&mut self, table: Arc<TableState>) -> Option<Unnamed> {
        // The hash is computed now, while the name is in the caches of the processor: of 100,000 tables few names
        // still are there once all tables were added.
        let unnamed = Unnamed {
            hash: self.hash(&fold_name(&table.name)),
            id: table.id,
        };
        let before = self.tables.insert(table.id.0, table);
        before.is_none().then_some(unnamed)
    }

    /// Lets tables be found by their names; `false`: two tables of the catalog have the same name.
    ///
    /// In the order of the hashes, so that each insertion finds the nodes of the one before in the caches of the processor:
    /// of 100,000 tables this takes a third of the time.
    pub(crate) fn learn_names(&mut self, mut tables: Vec<Unnamed>) -> bool {
        tables.sort_unstable();
        tables.into_iter().all(|Unnamed { hash, id }| {
            let is_taken = self.names.get(hash).is_some_and(|others| {
                let name_of = |id: &TableId| self.get(*id).map(|table| fold_name(&table.name));
                let own = name_of(&id);
                others.ids().iter().any(|other| name_of(other) == own)
            });
            self.learn_name(hash, id);
            !is_taken
        })
    }

    fn learn_name(&mut self, hash: u32, id: TableId) {
        let named = match self.names.get(hash) {
            None => Named::One(id),
            Some(others) => Named::Several([others.ids(), &[id]].concat().into()),
        };
        self.names.insert(hash, named);
    }

    pub(crate) fn remove(&mut self, id: TableId) -> Option<Arc<TableState>> {
        let removed = self.tables.remove(id.0)?;
        self.forget_name(&removed.name, id);
        Some(removed)
    }

    fn forget_name(&mut self, name: &str, id: TableId) {
        let hash = self.hash(&fold_name(name));
        let ids = self.names.get(hash).map_or(&[][..], Named::ids);
        let others: Vec<TableId> = ids.iter().copied().filter(|other| *other != id).collect();
        match Named::of(&others) {
            Some(named) => _ = self.names.insert(hash, named),
            None => _ = self.names.remove(hash),
        }
    }

    fn hash(&self, folded: &str) -> u32 {
        let hash = self.hasher.hash_one(folded);
        u32::try_from(hash >> 32).unwrap_or_default()
    }
}

/// Names are compared without regard to case.
pub(crate) fn fold_name(name: &str) -> Cow<'_, str> {
    let is_folded = |byte: u8| byte.is_ascii() && !byte.is_ascii_uppercase();
    if name.bytes().all(is_folded) {
        Cow::Borrowed(name)
    } else {
        Cow::Owned(name.to_lowercase())
    }
}

/// Definitions in memory, each once: tables of one shape share its bytes.
#[derive(Debug, Default)]
pub(crate) struct SharedDefinitions {
    shared: HashSet<Bytes>,
    /// Of all of them, used or not.
    bytes: u64,
    /// Those that no table has any more go when there are so many.
    sweep_at: usize,
}

/// Fewer definitions than this are not looked through for unused ones.
const MIN_SWEPT: usize = 64;

impl SharedDefinitions {
    /// Bytes of all of them, those included that no table has any more.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of those that tables have; walks through all of them.
    pub(crate) fn bytes_in_use(&self) -> u64 {
        let in_use = self.shared.iter().filter(|bytes| !bytes.is_unique());
        in_use.map(|bytes| bytes.len() as u64).sum()
    }

    /// The definition with these bytes, which are copied if no table has it yet.
    pub(crate) fn share(&mut self, definition: &[u8]) -> Bytes {
        if let Some(shared) = self.shared.get(definition) {
            return shared.clone();
        }
        if self.shared.len() >= self.sweep_at.max(MIN_SWEPT) {
            self.shared.retain(|definition| !definition.is_unique());
            self.bytes = self.bytes_in_use();
            self.sweep_at = self.shared.len() * 2;
        }
        let definition = Bytes::copy_from_slice(definition);
        self.bytes += definition.len() as u64;
        self.shared.insert(definition.clone());
        definition
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::CommitNo;
    use crate::index::Tree;
    use crate::open_rows::OpenList;

    fn table(id: u32, name: &str) -> Arc<TableState> {
        Arc::new(TableState {
            id: TableId(id),
            name: name.into(),
            definition: Bytes::new(),
            definition_version: 1,
            created: CommitNo(1),
            tree: Tree::empty(TableId(id)),
            uses: crate::file_uses::OrderUses::Unknown,
            orders: None,
            masks: None,
            open: OpenList::default(),
        })
    }

    fn id_of(catalog: &Catalog, name: &str) -> Option<u32> {
        catalog.named(name).map(|table| table.id.0)
    }

    #[test]
    fn tables_are_found_by_their_newest_names_in_any_case() {
        let mut catalog = Catalog::default();
        catalog.insert(table(1, "Boiler"));
        catalog.insert(table(2, "pump"));
        let before = catalog.clone();
        catalog.insert(table(1, "Kessel"));
        catalog.insert(table(3, "boiler"));
        assert_eq!(
            (id_of(&catalog, "KESSEL"), id_of(&catalog, "boileR")),
            (Some(1), Some(3))
        );
        assert_eq!(
            (id_of(&before, "kessel"), id_of(&before, "boiler")),
            (None, Some(1))
        );
        assert_eq!(catalog.remove(TableId(1)).map(|t| t.id), Some(TableId(1)));
        assert_eq!(
            (id_of(&catalog, "kessel"), id_of(&catalog, "PUMP")),
            (None, Some(2))
        );
        assert!(catalog.remove(TableId(1)).is_none());
        let ids: Vec<u32> = catalog.iter().map(|table| table.id.0).collect();
        assert_eq!((ids, catalog.len()), (vec![2, 3], 2));
    }

    #[test]
    fn names_that_are_learnt_together_are_checked() {
        let mut catalog = Catalog::default();
        catalog.insert(table(1, "boiler"));
        assert!(catalog.insert_unnamed(table(1, "again")).is_none());
        catalog.insert(table(1, "boiler"));
        let tables = (2..500).map(|n| catalog.insert_unnamed(table(n, &format!("T{n}"))));
        let tables: Vec<Unnamed> = tables.map(|unnamed| unnamed.expect("a new id")).collect();
        assert!(catalog.learn_names(tables));
        assert!((2..500).all(|n| id_of(&catalog, &format!("t{n}")) == Some(n)));
        for taken in ["Boiler", "t77"] {
            let mut catalog = catalog.clone();
            let unnamed = catalog.insert_unnamed(table(1_000, taken));
            assert!(!catalog.learn_names(unnamed.into_iter().collect()));
        }
    }

    #[test]
    fn names_of_one_hash_are_told_apart() {
        let mut catalog = Catalog::default();
        for (id, name) in [(1, "a"), (2, "b"), (3, "c")] {
            catalog.insert(table(id, name));
        }
        // As if the hashes of all three were the same.
        let all = Named::of(&[TableId(1), TableId(2), TableId(3)]);
        for name in ["a", "b", "c"] {
            let hash = catalog.hash(name);
            catalog.names.insert(hash, all.clone().unwrap());
        }
        assert_eq!(
            ["A", "b", "C"].map(|name| id_of(&catalog, name)),
            [Some(1), Some(2), Some(3)]
        );
        catalog.remove(TableId(2));
        assert_eq!(id_of(&catalog, "b"), None);
        assert_eq!(
            catalog.names.get(catalog.hash("b")).unwrap().ids(),
            [TableId(1), TableId(3)]
        );
    }

    #[test]
    fn equal_definitions_take_their_memory_once_and_unused_ones_none() {
        let mut definitions = SharedDefinitions::default();
        let first = definitions.share(b"time, value");
        let copy = b"time, value".to_vec();
        let second = definitions.share(&copy);
        assert_eq!(first.as_ptr(), second.as_ptr());
        for n in 0..10 * MIN_SWEPT {
            definitions.share(n.to_string().as_bytes());
        }
        assert!(definitions.shared.len() <= MIN_SWEPT + 1);
        assert_eq!(definitions.bytes_in_use(), 11);
        let all: usize = definitions.shared.iter().map(Bytes::len).sum();
        assert_eq!(definitions.bytes(), all as u64);
        assert_eq!(definitions.share(b"time, value").as_ptr(), first.as_ptr());
    }
}
