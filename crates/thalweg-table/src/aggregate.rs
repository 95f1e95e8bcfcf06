//! Aggregates over ranges and buckets of the order key: from summaries where all rows below an entry of the index lie
//! inside one bucket and none of them is deleted, from summaries of the rows that are left of items and blocks where they are known, from
//! rows elsewhere. The same for every layout with an order key.
//!
//! Invariants: counts, minima, maxima and integer sums equal those of the rows; float sums differ by less than 1e-12 of the
//! sum of the magnitudes, because summaries carry their rounding error along. Results are merged in the order of the
//! index, whatever threads worked on them, so the same snapshot gives the same bits.

use crate::deleted_rows::{Block, step_into};
use crate::error::invalid;
use crate::left_rows::{AllLeftRows, BlockName, LeftRows, MaskedItem};
use crate::order::gallop;
use crate::pool::Ticket;
use crate::range::KeyRange;
use crate::reader::Reader;
use crate::scan::merge::Sorted;
use crate::scan::{Counter, ScanMetrics};
use crate::summarise::{summarise, summary_kind};
use crate::table::TableView;
use arrow_array::RecordBatch;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use thalweg_kernel::index::{Entry, ItemName, Place, Step};
use thalweg_kernel::masks::BlockMask;
use thalweg_kernel::summary::ColumnSummary;
use thalweg_kernel::{Error, ErrorKind, Result};

/// Blocks that one job reads.
const JOB_BLOCKS: usize = 8;
/// Items whose rows are summed up apart: each may hold the entries of as many blocks as a job reads.
const MAX_ITEMS: usize = 1_000;

/// Which rows are aggregated, and how they are grouped.
#[derive(Clone, Debug, Default)]
pub struct AggregateRequest {
    /// Exactly the rows with these order keys.
    pub keys: KeyRange,
    /// Groups of equal width along the key; `None` makes one group of all rows.
    pub bucket: Option<Bucket>,
    /// Places in the schema of the columns to aggregate; none at all just counts rows. A column of a type that has no
    /// sum (strings, binary) gets counts and the bytes of its values, one of decimals bounds and, where they fit 64 bits, a sum.
    pub columns: Vec<usize>,
}

/// Groups along the order key: group `n` holds the keys from `origin + n * width` up to the next group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Keys of one group; positive.
    pub width: i64,
    /// Where one of the groups begins.
    pub origin: i64,
}

/// The result of an aggregate.
#[derive(Clone, Debug)]
pub struct AggregateResult {
    /// Groups with at least one row, by ascending key. Without buckets exactly one, even of no rows.
    pub groups: Vec<Group>,
    /// Counters of the work that it took.
    pub metrics: Arc<ScanMetrics>,
}

/// One group of rows.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The first key of the bucket, or of the requested range without buckets. It may lie before the range.
    pub bucket_start: i64,
    /// Its rows.
    pub rows: u64,
    /// Count, nulls, NaNs, minimum, maximum, sum and squared distances of each requested column, in order of request.
    pub columns: Vec<ColumnSummary>,
}

impl Bucket {
    /// The number of the group that a key lies in.
    fn number(self, key: i64) -> i128 {
        (i128::from(key) - i128::from(self.origin)).div_euclid(i128::from(self.width))
    }

    /// The first key of a group; `None` if that is before all keys.
    fn start(self, number: i128) -> Option<i64> {
        let start = i128::from(self.origin) + number * i128::from(self.width);
        i64::try_from(start).ok()
    }

    /// The first key of the group of a key; `None` if that is before all keys.
    ///
    /// ```
    /// # use thalweg_table::Bucket;
    /// let tens = Bucket { width: 10, origin: 3 };
    /// assert_eq!(tens.start_of(-1), Some(-7));
    /// assert_eq!(tens.start_of(i64::MIN), None);
    /// ```
    #[must_use]
    pub fn start_of(self, key: i64) -> Option<i64> {
        self.start(self.number(key))
    }

    /// The last key of a group.
    fn last(self, number: i128) -> i64 {
        let next = i128::from(self.origin) + (number + 1) * i128::from(self.width);
        i64::try_from(next - 1).unwrap_or(i64::MAX)
    }
}

impl TableView {
    /// Aggregates rows by ranges of the order key.
    ///
    /// ```
    /// # use thalweg_table::{self as thalweg, CreateOptions, Engine, EngineOptions, schema::schema_of_names};
    /// # fn main() -> thalweg::Result<()> {
    /// # let db = Engine::in_memory(EngineOptions::default())?;
    /// # let schema = schema_of_names([("ts", "bigint"), ("temp", "double")])?;
    /// # let room = db.create_table("room", &schema, &CreateOptions::stream("ts"))?;
    /// use thalweg::{AggregateRequest, Bucket, KeyRange, Value};
    ///
    /// for (second, temp) in [(0, 20.0), (30, 22.0), (60, 25.0), (90, f64::NAN)] {
    ///     room.put(&[Value::Int(second), Value::Float(temp)], None)?;
    /// }
    /// let by_minute = AggregateRequest {
    ///     keys: KeyRange::ALL,
    ///     bucket: Some(Bucket { width: 60, origin: 0 }),
    ///     columns: vec![1],
    /// };
    /// let groups = room.view()?.aggregate(&by_minute)?.groups;
    /// assert_eq!((groups[0].bucket_start, groups[0].rows), (0, 2));
    /// assert_eq!(groups[0].columns[0].mean(), Some(21.0));
    /// assert_eq!(groups[1].columns[0].float_range(), Some((25.0, 25.0))); // NaN is counted apart
    /// assert_eq!(groups[1].columns[0].nan_rows, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Invalid` for columns that do not exist and buckets without width.
    pub fn aggregate(&self, request: &AggregateRequest) -> Result<AggregateResult> {
        let result = aggregate(self, request);
        result.map_err(|error| self.named().in_words(error))
    }
}

/// Aggregates the rows of a view.
fn aggregate(view: &TableView, request: &AggregateRequest) -> Result<AggregateResult> {
    if let Some(bucket) = request.bucket
        && bucket.width <= 0
    {
        return Err(invalid(format!(
            "a bucket has a width of {}; it must be positive",
            bucket.width
        )));
    }
    let reader = Arc::new(Reader::new(view, Some(&request.columns), request.keys)?);
    let mut groups = Groups::new(&reader, request.bucket);
    if !request.keys.is_empty() {
        walk(view, &reader, &mut groups)?;
        for open in reader.open_rows()? {
            groups.add_rows(reader.ids(), &open);
        }
    }
    Ok(AggregateResult {
        groups: groups.into_groups(request)?,
        metrics: Arc::clone(reader.metrics()),
    })
}

/// Takes what summaries answer and reads the other blocks.
fn walk(view: &TableView, reader: &Arc<Reader>, groups: &mut Groups) -> Result<()> {
    let engine = view.engine();
    let metrics = reader.metrics();
    let table = view.snapshot();
    let tree = &table.tree;
    let total = tree.total().map_or(0, |total| total.blocks);
    metrics.add(Counter::blocks_total, total);
    let KeyRange { first, last } = reader.keys();
    let mut walk = tree.walk(Some(first..=last), Arc::clone(reader.store()));
    let mut reading = Reading {
        view,
        reader,
        jobs: VecDeque::new(),
        parts: VecDeque::new(),
        submitted: false,
    };
    let (mut answered, mut read) = (0, 0);
    let mut parts = Parts::new(groups);
    while let Some(edge) = walk.next_at(|entry, place| {
        if !parts.add_entry(view, entry, place) {
            return step_into(table, entry, place);
        }
        answered += entry.blocks;
        Step::Skip
    })? {
        let place = walk.place();
        let edge = Edge::found(view, groups, Block::found(table, edge, place), place);
        match edge.left {
            Some(_) => answered += 1,
            None => read += 1,
        }
        let number = parts.number_at(place);
        let edges = &mut parts.all[number].edges;
        edges.push(edge);
        if edges.len() == JOB_BLOCKS {
            reading.start(std::mem::take(edges), number, groups);
            if reading.jobs.len() > 2 * engine.options().threads {
                reading.settle(&mut parts)?;
            }
        }
    }
    metrics.add(Counter::pages_loaded, walk.pages());
    metrics.add(Counter::blocks_from_summary, answered);
    metrics.add(
        Counter::blocks_pruned_by_time,
        total.saturating_sub(answered + read),
    );
    for (number, part) in parts.all.iter_mut().enumerate() {
        if !part.edges.is_empty() {
            reading.start(std::mem::take(&mut part.edges), number, groups);
        }
    }
    while !reading.jobs.is_empty() {
        reading.settle(&mut parts)?;
    }
    parts.add_to(groups, engine.left_rows());
    Ok(())
}

/// All rows of an aggregate: those of each item with deleted rows apart, for what is left of it is kept for later aggregates. In each
/// part summaries and blocks are put together in their order, and so are the parts, whatever was known and read when: so that the
/// result has the same bits.
struct Parts {
    /// The first one is of the rows that are in none of these items.
    all: Vec<Part>,
    /// Where the parts of items are that the walk has gone into. It goes from one to another and back where their keys overlap.
    unknown: HashMap<ItemName, usize>,
}

struct Part {
    /// The rows that are left of it are all in one group.
    item: Option<MaskedItem>,
    is_known: bool,
    from_summaries: Groups,
    from_blocks: Groups,
    /// Blocks that no job reads yet.
    edges: Vec<Edge>,
}

impl Part {
    fn new(nothing: &Groups, item: Option<MaskedItem>) -> Self {
        Self {
            item,
            is_known: false,
            from_summaries: nothing.empty(),
            from_blocks: nothing.empty(),
            edges: Vec::new(),
        }
    }
}

impl Parts {
    fn new(nothing: &Groups) -> Self {
        Self {
            all: vec![Part::new(nothing, None)],
            unknown: HashMap::new(),
        }
    }

    /// The number of the part that an entry belongs to.
    fn number_at(&self, place: Option<Place>) -> usize {
        let number = place.and_then(|place| self.unknown.get(&place.item));
        number.copied().unwrap_or(0)
    }

    /// Adds all rows below an entry if they are known; returns whether they are.
    fn add_entry(&mut self, view: &TableView, entry: &Entry, place: Option<Place>) -> bool {
        let table = view.snapshot();
        // Its summaries count deleted rows as well.
        if !table.hides_below(entry, place.as_ref()) {
            let number = self.number_at(place);
            return self.all[number].from_summaries.add_entry(entry);
        }
        if self.all.len() > MAX_ITEMS {
            return false;
        }
        let Some(item) = MaskedItem::found(table, entry, place) else {
            return false;
        };
        let nothing = &self.all[0].from_summaries;
        let Some(group) = nothing.group_of_all(entry) else {
            return false;
        };
        let left = view.engine().left_rows();
        let left = left.of_item(&item, &nothing.nothing);
        let name = item.name();
        let mut part = Part::new(nothing, Some(item));
        part.is_known = left.is_some();
        match left {
            Some((rows, columns)) => part.from_summaries.add(group, rows, columns.into_iter()),
            None => _ = self.unknown.insert(name, self.all.len()),
        }
        let is_known = part.is_known;
        self.all.push(part);
        is_known
    }

    fn add_to(self, groups: &mut Groups, left: &AllLeftRows) {
        for mut part in self.all {
            part.from_summaries.merge(part.from_blocks);
            let found = part.from_summaries.found.values().next();
            if let Some(item) = part.item.filter(|_| !part.is_known)
                && let Some((rows, columns)) = found
            {
                left.keep_item(item, *rows, columns.clone());
            }
            groups.merge(part.from_summaries);
        }
    }
}

/// A block that the index does not answer for.
struct Edge {
    block: Block,
    /// The group that all of its rows are in, where some of them are deleted, and its name.
    whole: Option<(i128, BlockName)>,
    /// The summaries of the rows that are left of it, if they are known.
    left: Option<Arc<LeftRows>>,
}

impl Edge {
    fn found(view: &TableView, groups: &Groups, block: Block, place: Option<Place>) -> Self {
        let name = place.map(|place| BlockName::new(view.snapshot().id, place));
        let whole = match &block.mask {
            Some(_) => groups.group_of_all(&block.entry).zip(name),
            None => None,
        };
        let left = match (&whole, &block.mask) {
            (Some((_, name)), Some(BlockMask::Rows(hidden))) => {
                let left = view.engine().left_rows().get(name, hidden);
                left.filter(|left| left.columns(&groups.nothing).is_some())
            }
            _ => None,
        };
        Self { block, whole, left }
    }

    /// Adds its rows to groups, from what is known of them or by reading them.
    fn add_to(&self, groups: &mut Groups, reader: &Reader, all: &AllLeftRows) -> Result<()> {
        if let (Some((number, _)), Some(left)) = (&self.whole, &self.left)
            && let Some(columns) = left.columns(&groups.nothing)
        {
            groups.add(*number, left.rows, columns.into_iter());
            return Ok(());
        }
        let rows = reader.sorted_block(&self.block)?;
        let (Some((number, name)), Some(hidden)) = (&self.whole, self.block.hidden()?) else {
            groups.add_rows(reader.ids(), &rows);
            return Ok(());
        };
        let columns = reader.ids().iter().zip(rows.batch.columns());
        let columns: Vec<_> = columns.map(|(id, array)| summarise(*id, array)).collect();
        let count = rows.keys.len() as u64;
        groups.add(*number, count, columns.iter().copied());
        all.keep(*name, hidden, count, columns);
        Ok(())
    }
}

/// Blocks that are being read.
struct Reading<'a> {
    view: &'a TableView,
    reader: &'a Arc<Reader>,
    jobs: VecDeque<Ticket<Result<Groups>>>,
    /// Of each job the number of the part that its blocks are of.
    parts: VecDeque<usize>,
    submitted: bool,
}

impl Reading<'_> {
    fn start(&mut self, edges: Vec<Edge>, number: usize, groups: &Groups) {
        let mut part = groups.empty();
        let reader = Arc::clone(self.reader);
        let all = Arc::clone(self.view.engine().left_rows());
        let reads = edges.iter().any(|edge| edge.left.is_none());
        let ticket = Ticket::new(move || {
            { edges.iter() }.try_for_each(|edge| edge.add_to(&mut part, &reader, &all))?;
            Ok(part)
        });
        // The first job is needed at once: waking a worker for it takes longer than most aggregates.
        if reads && (self.submitted || !self.jobs.is_empty()) {
            self.view.engine().pool().submit(&ticket);
            self.submitted = true;
        }
        self.jobs.push_back(ticket);
        self.parts.push_back(number);
    }

    fn settle(&mut self, parts: &mut Parts) -> Result<()> {
        if let Some((ticket, number)) = self.jobs.pop_front().zip(self.parts.pop_front()) {
            let found = ticket.wait_helping(&self.jobs)?;
            parts.all[number].from_blocks.merge(found);
        }
        Ok(())
    }
}

/// The groups found so far, by the number of the bucket.
struct Groups {
    keys: KeyRange,
    bucket: Option<Bucket>,
    /// Summaries of no rows, one for each column.
    nothing: Arc<[ColumnSummary]>,
    found: BTreeMap<i128, (u64, Vec<ColumnSummary>)>,
}

impl Groups {
    fn new(reader: &Reader, bucket: Option<Bucket>) -> Self {
        let kinds = reader
            .schema()
            .fields()
            .iter()
            .map(|field| summary_kind(field.data_type()));
        let nothing = reader
            .ids()
            .iter()
            .zip(kinds)
            .map(|(id, kind)| ColumnSummary::empty(*id, kind))
            .collect();
        Self {
            keys: reader.keys(),
            bucket,
            nothing,
            found: BTreeMap::new(),
        }
    }

    fn empty(&self) -> Self {
        Self {
            keys: self.keys,
            bucket: self.bucket,
            nothing: Arc::clone(&self.nothing),
            found: BTreeMap::new(),
        }
    }

    fn number(&self, key: i64) -> i128 {
        self.bucket.map_or(0, |bucket| bucket.number(key))
    }

    fn add(&mut self, number: i128, rows: u64, columns: impl Iterator<Item = ColumnSummary>) {
        let nothing = &self.nothing;
        let (known_rows, known) = self
            .found
            .entry(number)
            .or_insert_with(|| (0, nothing.to_vec()));
        *known_rows += rows;
        known
            .iter_mut()
            .zip(columns)
            .for_each(|(known, column)| *known = known.merge(&column));
    }

    /// The group that all rows below an entry are in; `None`: some are in another one, or not wanted.
    fn group_of_all(&self, entry: &Entry) -> Option<i128> {
        let number = self.number(entry.key_min);
        let within =
            self.keys.covers(entry.key_min, entry.key_max) && number == self.number(entry.key_max);
        within.then_some(number)
    }

    /// Adds all rows below an entry if its summaries hold all that is wanted; returns whether they do.
    fn add_entry(&mut self, entry: &Entry) -> bool {
        let Some(number) = self.group_of_all(entry) else {
            return false;
        };
        let known = |nothing: &ColumnSummary| {
            entry
                .covering_summary(nothing.column_id)
                .filter(|summary| summary.kind == nothing.kind)
        };
        let nothing = Arc::clone(&self.nothing);
        if !nothing.iter().all(|column| known(column).is_some()) {
            return false;
        }
        self.add(
            number,
            entry.rows,
            nothing.iter().filter_map(|column| known(column).copied()),
        );
        true
    }

    /// Adds rows, which are in key order.
    fn add_rows(&mut self, ids: &[u32], rows: &Sorted) {
        let mut start = 0;
        while let Some(key) = rows.keys.get(start) {
            let number = self.number(*key);
            let length = match self.bucket {
                Some(bucket) => gallop(&rows.keys[start..], |key| *key <= bucket.last(number)),
                None => rows.keys.len(),
            };
            let part: RecordBatch = rows.batch.slice(start, length);
            let columns = ids
                .iter()
                .zip(part.columns())
                .map(|(id, array)| summarise(*id, array));
            self.add(number, length as u64, columns);
            start += length;
        }
    }

    fn merge(&mut self, other: Self) {
        for (number, (rows, columns)) in other.found {
            self.add(number, rows, columns.into_iter());
        }
    }

    fn into_groups(mut self, request: &AggregateRequest) -> Result<Vec<Group>> {
        if self.bucket.is_none() && self.found.is_empty() {
            self.found.insert(0, (0, self.nothing.to_vec()));
        }
        let start = |number| match request.bucket {
            None => Ok(request.keys.first),
            Some(bucket) => bucket.start(number).ok_or_else(|| {
                let message = "a group begins before all times that the column can hold";
                Error::new(ErrorKind::OutOfDomain, message)
            }),
        };
        let group = |(number, (rows, columns))| {
            Ok(Group {
                bucket_start: start(number)?,
                rows,
                columns,
            })
        };
        self.found.into_iter().map(group).collect()
    }
}
