//! The parsed definitions of tables in use.
//!
//! Invariants: while anybody holds a parsed definition, every table with the same bytes gets that one: tables of one shape
//! share it, and all batches of a table have one schema pointer. What is kept for the next caller alone is bounded, however
//! many tables are used once.

use crate::definition::TableDefinition;
use crate::layouts::Layouts;
use bytes::Bytes;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use thalweg_env::sync::Mutex;
use thalweg_kernel::{Result, TableState};

/// Encoded bytes of the definitions that are kept for tables that nobody holds; parsed they take about ten times as much.
const KEPT_BYTES: u64 = 2 << 20;
/// About how large a definition is.
const USUAL_BYTES: u64 = 512;
/// Fewer definitions than this are not looked through for unused ones.
const MIN_SWEPT: usize = 256;

#[derive(Debug)]
pub(crate) struct Definitions {
    /// By where the encoded bytes lie in memory. The kernel shares those of equal definitions, so this finds the one of any
    /// number of tables without reading it.
    kept: Cache<Place, Kept, Weigh>,
    layouts: Layouts,
    parsed: Mutex<Parsed>,
}

/// Address and length of bytes that are not freed for as long as this is in use.
type Place = (usize, usize);

#[derive(Clone, Debug)]
struct Kept {
    /// Held, so that nothing else can get this place.
    encoded: Bytes,
    definition: Arc<TableDefinition>,
}

#[derive(Clone, Debug)]
struct Weigh;

impl Weighter<Place, Kept> for Weigh {
    fn weight(&self, _place: &Place, kept: &Kept) -> u64 {
        kept.encoded.len().max(1) as u64
    }
}

/// All that somebody holds, by their encoded bytes.
#[derive(Debug, Default)]
struct Parsed {
    by_bytes: HashMap<Bytes, Weak<TableDefinition>>,
    sweep_at: usize,
}

impl Definitions {
    /// Definitions of tables in these layouts.
    pub(crate) fn new(layouts: Layouts) -> Self {
        let items = usize::try_from(KEPT_BYTES / USUAL_BYTES).unwrap_or(usize::MAX);
        Self {
            kept: Cache::with_weighter(items, KEPT_BYTES, Weigh),
            layouts,
            parsed: Mutex::default(),
        }
    }

    /// The definition of a table in one of its states.
    pub(crate) fn of(&self, table: &TableState) -> Result<Arc<TableDefinition>> {
        let encoded = &table.definition;
        let place = (encoded.as_ptr().addr(), encoded.len());
        if let Some(kept) = self.kept.get(&place) {
            return Ok(kept.definition);
        }
        let definition = self.parsed.lock().of(&self.layouts, encoded)?;
        let kept = Kept {
            encoded: encoded.clone(),
            definition: Arc::clone(&definition),
        };
        self.kept.insert(place, kept);
        Ok(definition)
    }
}

impl Parsed {
    fn of(&mut self, layouts: &Layouts, encoded: &Bytes) -> Result<Arc<TableDefinition>> {
        if let Some(known) = self.by_bytes.get(encoded).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let parsed = Arc::new(TableDefinition::decode(layouts, encoded)?);
        if self.by_bytes.len() >= self.sweep_at.max(MIN_SWEPT) {
            self.by_bytes.retain(|_, parsed| parsed.strong_count() > 0);
            self.sweep_at = self.by_bytes.len() * 2;
        }
        self.by_bytes
            .insert(encoded.clone(), Arc::downgrade(&parsed));
        Ok(parsed)
    }
}

#[cfg(test)]
mod tests {
    use crate::{CreateOptions, Engine, EngineOptions};
    use arrow_schema::{DataType, Field, Schema};
    use std::sync::Arc;

    fn schema(column: &str) -> Schema {
        Schema::new(vec![
            Field::new("ts", DataType::Int64, false),
            Field::new(column, DataType::Float64, true),
        ])
    }

    #[test]
    fn tables_of_one_shape_share_a_definition_and_unused_ones_go() {
        let options = EngineOptions {
            background: false,
            ..EngineOptions::default()
        };
        let engine = Engine::in_memory(options).unwrap();
        let stream = CreateOptions::stream("ts");
        let first = engine.create_table("first", &schema("a"), &stream).unwrap();
        let second = engine
            .create_table("second", &schema("a"), &stream)
            .unwrap();
        assert!(Arc::ptr_eq(&first.definition(), &second.definition()));
        let bytes = |name| {
            engine
                .kernel()
                .snapshot()
                .unwrap()
                .table_named(name)
                .unwrap()
                .definition
                .as_ptr()
        };
        assert_eq!(
            bytes("first"),
            bytes("second"),
            "its encoded form is shared as well"
        );
        for n in 0..12_000 {
            engine
                .create_table(&format!("t{n}"), &schema(&format!("column_{n}")), &stream)
                .unwrap();
        }
        let definitions = engine.definitions();
        assert!(definitions.kept.weight() <= super::KEPT_BYTES);
        let parsed = definitions.parsed.lock();
        let alive = parsed
            .by_bytes
            .values()
            .filter(|p| p.strong_count() > 0)
            .count();
        assert!(alive < 12_000, "{alive} of 12,002 definitions are kept");
        assert!(parsed.by_bytes.len() <= 2 * alive.max(super::MIN_SWEPT) + 1);
        drop(parsed);
        assert!(Arc::ptr_eq(
            &engine.table("FIRST").unwrap().definition(),
            &first.definition()
        ));
    }
}
