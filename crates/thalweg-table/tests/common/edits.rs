//! Statements that change what a table has, each done to the model first: the model has it whole, whatever comes of it.

use super::{Model, Row, Times, Trial, deletes, to_batch};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, UInt64Type};
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use std::sync::Arc;
use thalweg_table::{
    AddedKeys, Alteration, Constant, Durability, Engine, KeyRange, Numbered, OnDuplicate, Result,
    ScanRequest, Table, constant_of,
};

const DISK: Option<Durability> = Some(Durability::Disk);
const PRODUCER: &str = "gateway";

/// Of the rows between two parts of 255 of the keys one in so many.
#[derive(Clone, Copy, Debug)]
pub(super) struct Picked {
    pub(super) from: u8,
    pub(super) to: u8,
    pub(super) one_in: u8,
}

/// The whole of a table: the default of a column that came later, with its name, and all rows in order.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Whole {
    added: Option<(String, Option<Constant>)>,
    pub(super) rows: Vec<Cells>,
}

/// A row, so that equal floats are those with equal bits.
pub(super) type Cells = (i64, u64, Option<u64>, Option<String>, bool, Option<i64>);

fn cells(row: &Row) -> Cells {
    let value = row.value.map(f64::to_bits);
    (
        row.ts,
        row.number,
        value,
        row.text.clone(),
        row.flag,
        row.extra,
    )
}

fn constant(value: i64) -> Option<Constant> {
    let array: ArrayRef = Arc::new(Int64Array::from(vec![value]));
    constant_of("extra", &array, &DataType::Int64).unwrap()
}

impl Whole {
    /// The rows that a model has.
    pub(super) fn of_model(model: &Model) -> Self {
        let sorted = model.sorted(KeyRange::ALL);
        Self {
            added: { model.added }.map(|(name, default)| (name.to_owned(), constant(default))),
            rows: sorted.into_iter().map(cells).collect(),
        }
    }

    /// The rows that a database has.
    pub(super) fn read(engine: &Engine) -> Result<Self> {
        let view = engine.table("Events")?.view()?;
        let added = { view.definition().columns().get(5) }
            .map(|column| (column.name.clone(), column.default.clone()));
        let mut rows = Vec::new();
        for batch in view.scan(&ScanRequest::default())? {
            rows.extend(cells_of(&batch?));
        }
        Ok(Self { added, rows })
    }
}

fn cells_of(batch: &RecordBatch) -> Vec<Cells> {
    let columns = batch.columns();
    let ts = columns[0].as_primitive::<Int64Type>();
    let number = columns[1].as_primitive::<UInt64Type>();
    let value = columns[2].as_primitive::<Float64Type>();
    let text = columns[3].as_string::<i32>();
    let flag = columns[4].as_boolean();
    let extra = columns
        .get(5)
        .map(|column| column.as_primitive::<Int64Type>());
    let row = |row: usize| {
        (
            ts.value(row),
            number.value(row),
            value.is_valid(row).then(|| value.value(row).to_bits()),
            text.is_valid(row).then(|| text.value(row).to_owned()),
            flag.value(row),
            extra.and_then(|extra| extra.is_valid(row).then(|| extra.value(row))),
        )
    };
    (0..batch.num_rows()).map(row).collect()
}

impl Model {
    /// Rows with all columns that the table has.
    fn batch_of(&self, rows: &[Row]) -> RecordBatch {
        let batch = to_batch(rows);
        let Some((name, _)) = self.added else {
            return batch;
        };
        let schema = batch.schema();
        let mut fields: Vec<_> = schema.fields().iter().map(Arc::clone).collect();
        fields.push(Arc::new(Field::new(name, DataType::Int64, true)));
        let mut columns = batch.columns().to_vec();
        let extra = rows.iter().map(|row| row.extra);
        columns.push(Arc::new(extra.collect::<Int64Array>()));
        RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap()
    }
}

impl Trial {
    pub(super) fn append_some(
        &mut self,
        table: &Table,
        (rows, times): (u16, Times),
        durability: Durability,
    ) -> Result<()> {
        let batch = self.batch(rows.into(), times);
        table.append([Ok(batch)], Some(durability)).map(|_| ())
    }

    pub(super) fn delete_all_of(&mut self, table: &Table, keys: KeyRange) -> Result<()> {
        let before = self.model.rows.len();
        let model = self.model.clone();
        self.model.rows.retain(|row| !keys.contains(model.key(row)));
        let deleted = table.delete_range(keys, DISK)?;
        assert_eq!(deleted, (before - self.model.rows.len()) as u64);
        Ok(())
    }

    pub(super) fn delete_some(&mut self, table: &Table, some: Picked) -> Result<()> {
        let (keys, victims) = self.victims(some.from, some.to, some.one_in);
        self.model.rows.retain(|row| !victims.contains(&row.number));
        let mut pick = || deletes::picked(&table.view()?, keys, &victims);
        let deleted = table.delete_picked(DISK, &mut pick)?;
        assert_eq!(deleted, victims.len() as u64);
        Ok(())
    }

    /// Changes the values of rows, and their keys to these if they are to move. They keep their numbers.
    pub(super) fn update_some(
        &mut self,
        table: &Table,
        some: Picked,
        moves: Option<Times>,
    ) -> Result<()> {
        let (keys, victims) = self.victims(some.from, some.to, some.one_in);
        let rows = std::mem::take(&mut self.model.rows);
        let is_hit = |row: &Row| victims.contains(&row.number);
        let (mut changed, kept): (Vec<Row>, Vec<Row>) = rows.into_iter().partition(is_hit);
        self.model.rows = kept;
        for row in &mut changed {
            let (number, extra) = (self.number, row.extra);
            let other = self.row(moves.unwrap_or(Times::Equal));
            self.number = number;
            row.value = other.value;
            row.extra = extra.map(|extra| extra + 1);
            if moves.is_some() {
                row.ts = other.ts;
                row.text = other.text;
            }
        }
        let others = self.model.batch_of(&changed);
        self.model.rows.extend(changed);
        let added = match moves {
            Some(_) => AddedKeys::Any,
            None => AddedKeys::None,
        };
        let edited = table.edit_rows(DISK, added, &mut |stored| {
            let half = others.num_rows() / 2;
            stored.push(&others.slice(0, half))?;
            stored.push(&others.slice(half, others.num_rows() - half))?;
            deletes::picked(&table.view()?, keys, &victims)
        })?;
        assert_eq!(edited, victims.len() as u64);
        Ok(())
    }

    /// Stores rows of which every other one replaces a row that is there, which may have another time.
    pub(super) fn upsert(
        &mut self,
        (rows, times): (u16, Times),
        moves: bool,
        durability: Durability,
    ) -> Result<()> {
        let known: Vec<(u64, i64)> = { self.model.rows.iter() }
            .map(|row| (row.number, row.ts))
            .collect();
        let mut new: Vec<Row> = Vec::new();
        for at in 0..rows {
            let mut row = self.row(times);
            if at % 2 == 0 && !known.is_empty() {
                let place = usize::try_from(self.random(known.len() as u64)).unwrap();
                row.number = known[place].0;
                if !moves {
                    row.ts = known[place].1;
                }
            }
            new.push(row);
        }
        let batch = to_batch(&new);
        // Of rows with one key the last one is kept.
        let mut seen = std::collections::HashSet::new();
        new.reverse();
        new.retain(|row| seen.insert(row.number));
        new.reverse();
        self.model.rows.retain(|row| !seen.contains(&row.number));
        let expected = new.len() as u64;
        self.model.rows.extend(new);
        let stored = self.table.append_with_rule(
            [Ok(batch)],
            OnDuplicate::Last,
            Some(durability),
            &|| true,
        )?;
        assert_eq!(stored, expected);
        Ok(())
    }

    /// Sends the same rows twice, with one number: they are stored once.
    pub(super) fn resend(&mut self, rows: u16, times: Times) -> Result<()> {
        let batch = self.batch(rows.into(), times);
        self.model.sequence += 1;
        for _ in 0..2 {
            self.send(&batch)?;
        }
        Ok(())
    }

    fn send(&self, batch: &RecordBatch) -> Result<()> {
        let number = Numbered {
            producer: PRODUCER,
            sequence: self.model.sequence,
        };
        let batches = [Ok(batch.clone())];
        self.table
            .append_once(batches, number, DISK, &|| true)
            .map(|_| ())
    }

    /// Sends a row with the number of the last append that had one. It is stored if that one may be lost and is.
    pub(super) fn send_again(&mut self, may_be_lost: bool) {
        if self.model.sequence == 0 {
            return;
        }
        let before = self.table.view().unwrap().row_count();
        let batch = self.batch(1, Times::Rising);
        self.send(&batch).unwrap();
        if self.table.view().unwrap().row_count() == before {
            self.model.rows.pop();
        } else {
            assert!(
                may_be_lost,
                "the number of an append was lost, its rows not"
            );
        }
    }

    /// Several statements that are one commit, or nothing.
    pub(super) fn transact(&mut self, rows: u16, some: Picked, commits: bool) -> Result<()> {
        let before = self.model.clone();
        let mut act = || {
            let transaction = self.engine.transaction()?;
            let inside = transaction.table("Events")?;
            self.append_some(&inside, (rows, Times::Late), Durability::Disk)?;
            self.delete_some(&inside, some)?;
            let others = Picked {
                one_in: some.one_in + 1,
                ..some
            };
            self.update_some(
                &inside,
                others,
                Some(Times::Late).filter(|_| rows.is_multiple_of(2)),
            )?;
            let keys = self
                .model
                .range(some.to, some.to.saturating_add(some.one_in));
            self.delete_all_of(&inside, keys)?;
            // There is something to be stored in any case.
            self.append_some(&inside, (2, Times::Rising), Durability::Disk)?;
            Ok(transaction)
        };
        match act() {
            Ok(transaction) if commits => transaction.commit(DISK),
            done => {
                self.model = before;
                done.map(|transaction| transaction.rollback())
            }
        }
    }

    /// Adds a column with a default, gives it another name or default, or drops it.
    pub(super) fn alter(&mut self) -> Result<()> {
        let default = i64::try_from(self.random(1_000)).unwrap();
        let of = |name: &'static str| name.to_owned();
        let (alteration, added) = match (self.model.added, self.random(4)) {
            (None, _) => {
                let name = "extra";
                let alteration = Alteration::AddColumn {
                    field: Field::new(name, DataType::Int64, true),
                    default: constant(default),
                    if_not_exists: false,
                };
                self.set_extra(Some(default));
                (alteration, Some((name, default)))
            }
            (Some((name, _)), 0) => {
                let (name, if_exists) = (of(name), false);
                self.set_extra(None);
                (Alteration::DropColumn { name, if_exists }, None)
            }
            (Some((name, _)), 1) => {
                let alteration = Alteration::SetDefault {
                    name: of(name),
                    default: constant(default),
                    data_type: DataType::Int64,
                };
                (alteration, Some((name, default)))
            }
            (Some((name, default)), _) => {
                let to = if name == "extra" { "more" } else { "extra" };
                let alteration = Alteration::RenameColumn {
                    name: of(name),
                    to: of(to),
                };
                (alteration, Some((to, default)))
            }
        };
        self.model.added = added;
        self.table.alter(&[alteration])
    }

    fn set_extra(&mut self, value: Option<i64>) {
        self.model.rows.iter_mut().for_each(|row| row.extra = value);
    }
}
