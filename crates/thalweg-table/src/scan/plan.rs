//! Planning a scan: which blocks and open rows hold the wanted keys, in the order of their smallest key.
//!
//! Invariants: sources come in ascending (key, arrival) of their first rows, as [`Sweep`] wants them. A source is alone
//! exactly if all rows before it end before it begins and it ends before the next one begins, compared by key and, where
//! keys are equal, by arrival. Open rows are cut where the next block begins, so that one late row makes one block
//! overlap and not all that follow.

use crate::block_list::Place;
use crate::definition::TableDefinition;
use crate::deleted_rows::Block;
use crate::engine::Engine;
use crate::pool::Ticket;
use crate::range::{ColumnRange, KeyRange};
use crate::reader::{Reader, column_id};
use crate::scan::index_walk::IndexWalk;
use crate::scan::merge::Sorted;
use crate::scan::sweep::{Content, Plan, Source, Sweep};
use crate::scan::{DEFAULT_BATCH_ROWS, NamedTable, Scan, ScanRequest};
use crate::table::TableView;
use std::collections::VecDeque;
use std::sync::Arc;
use thalweg_kernel::Result;
use thalweg_kernel::index::{Entry, Step};
use thalweg_kernel::summary::ValueRange;

/// Rows of the first batch: it should come at once.
const FIRST_ROWS: usize = 4_096;
/// A batch of wide rows takes no more than about this.
const BATCH_BYTES: usize = 4 << 20;
/// More parts than any machine has threads, and few enough that their number times that of rows does not overflow.
const MAX_PARTITIONS: usize = 1 << 16;
/// Bytes of a value whose type has no width.
const TYPICAL_VALUE_BYTES: usize = 16;

impl TableView {
    /// Starts a scan. Nothing is read before the first batch is asked for.
    ///
    /// # Errors
    /// `Invalid` for columns that do not exist.
    pub fn scan(&self, request: &ScanRequest) -> Result<Scan> {
        scan(self, request).map_err(|error| self.named().in_words(error))
    }

    /// Up to `count` scans that together return what one scan would: each a range of keys after the one before, with
    /// about as many rows. A limit holds for each of them.
    ///
    /// # Errors
    /// As [`Self::scan`].
    pub fn scan_partitions(&self, request: &ScanRequest, count: usize) -> Result<Vec<Scan>> {
        let ranges = partitions(self, request.keys, count)?;
        ranges
            .into_iter()
            .map(|keys| {
                self.scan(&ScanRequest {
                    keys,
                    ..request.clone()
                })
            })
            .collect()
    }
}

/// Starts a scan.
fn scan(view: &TableView, request: &ScanRequest) -> Result<Scan> {
    let (engine, definition) = (view.engine(), view.definition());
    let keys = wanted_keys(definition, request);
    let reader = Reader::new(view, request.projection.as_deref(), keys)?;
    let reader = Arc::new(with_wishes(reader, definition, request)?);
    let rows = Rows::of_index(IndexWalk::new(view.snapshot().clone(), &reader));
    Ok(start_scan(engine, view.named(), reader, rows, request))
}

/// The rows of some blocks with some keys, in order. The blocks are all that have such keys, in the order of the index;
/// open rows are left out.
pub(crate) fn scan_blocks(view: &TableView, blocks: Vec<Block>, keys: KeyRange) -> Result<Scan> {
    let reader = Arc::new(Reader::new(view, None, keys)?);
    let rows = Rows {
        open: Some(Vec::new()),
        ..Rows::of_blocks(blocks)
    };
    let request = ScanRequest::default();
    Ok(start_scan(
        view.engine(),
        view.named(),
        reader,
        rows,
        &request,
    ))
}

/// The reader with what a request wants beside columns and keys.
pub(super) fn with_wishes(
    reader: Reader,
    definition: &TableDefinition,
    request: &ScanRequest,
) -> Result<Reader> {
    let range =
        |wanted: &ColumnRange| Ok((column_id(definition, wanted.column)?, wanted.range.clone()));
    let ranges: Vec<(u32, ValueRange)> = request.ranges.iter().map(range).collect::<Result<_>>()?;
    Ok(reader.with_one_nan(request.one_nan).with_ranges(ranges))
}

/// Starts a scan over these rows.
pub(super) fn start_scan(
    engine: &Engine,
    table: NamedTable,
    reader: Arc<Reader>,
    rows: Rows,
    request: &ScanRequest,
) -> Scan {
    let threads = match request.threads {
        0 => engine.options().threads,
        given => given,
    };
    let batch_rows = match request.batch_rows {
        0 => DEFAULT_BATCH_ROWS,
        given => given,
    };
    let limit = request.limit.unwrap_or(usize::MAX);
    let run_rows = batch_rows
        .min(BATCH_BYTES / row_bytes(&reader))
        .min(limit)
        .max(1);
    // A scan that ends after a few rows should not read what follows them.
    let ahead_rows = if threads > 1 && limit > run_rows {
        2 * threads * run_rows
    } else {
        0
    };
    let schema = Arc::clone(reader.schema());
    let metrics = Arc::clone(reader.metrics());
    let pool = Arc::clone(engine.pool());
    let planner = Planner::new(reader, rows, run_rows);
    let fair_rows = run_rows.div_ceil(4);
    let sweep = Sweep::new(planner, Arc::clone(&schema), pool, ahead_rows, fair_rows);
    let closed = engine.closed().clone();
    let batches = Box::new(sweep);
    Scan::new(
        schema,
        metrics,
        request.limit,
        batch_rows,
        batches,
        closed,
        table,
    )
}

/// The keys of the rows that a scan wants, as far as rows with the values that it looks for can have them.
pub(crate) fn wanted_keys(definition: &TableDefinition, request: &ScanRequest) -> KeyRange {
    let arrangement = definition.arrangement();
    let of_values = request
        .ranges
        .iter()
        .filter_map(|wanted| arrangement.keys_of_values(wanted.column, &wanted.range));
    of_values.fold(request.keys, KeyRange::intersect)
}

/// The approximate bytes of a row of the result.
fn row_bytes(reader: &Reader) -> usize {
    let width = |field: &Arc<arrow_schema::Field>| {
        field
            .data_type()
            .primitive_width()
            .unwrap_or(TYPICAL_VALUE_BYTES)
    };
    reader
        .schema()
        .fields()
        .iter()
        .map(width)
        .sum::<usize>()
        .max(1)
}

/// Where the rows of a scan lie.
#[derive(Default)]
pub(super) struct Rows {
    /// The first blocks, in order.
    blocks: VecDeque<Block>,
    /// Finds those after them; `None` where there are no more.
    walk: Option<IndexWalk>,
    /// Sections of open rows; `None` before they are needed.
    open: Option<Vec<OpenSection>>,
}

impl Rows {
    /// In what an index leads to, and in the open rows of the reader.
    fn of_index(walk: Option<IndexWalk>) -> Self {
        Self {
            walk,
            ..Self::default()
        }
    }

    /// In these blocks, and in the open rows of the reader.
    pub(super) fn of_blocks(blocks: Vec<Block>) -> Self {
        Self {
            blocks: blocks.into(),
            ..Self::default()
        }
    }
}

/// Finds the sources of a scan.
struct Planner {
    reader: Arc<Reader>,
    rows: Rows,
    /// The end of the rows that reach furthest.
    reach: Option<Place>,
    /// Rows to decode in one go: few at first.
    run_rows: usize,
    max_run_rows: usize,
}

struct OpenSection {
    rows: Sorted,
    done: usize,
}

impl OpenSection {
    fn start(&self) -> Option<Place> {
        self.rows
            .keys
            .get(self.done)
            .map(|key| (*key, self.rows.arrival))
    }
}

impl Planner {
    fn new(reader: Arc<Reader>, rows: Rows, max_run_rows: usize) -> Self {
        Self {
            reader,
            rows,
            reach: None,
            run_rows: FIRST_ROWS.min(max_run_rows),
            max_run_rows,
        }
    }

    /// The block `ahead` blocks after the next one.
    fn peek(&mut self, ahead: usize) -> Result<Option<&Block>> {
        let Rows { blocks, walk, .. } = &mut self.rows;
        while blocks.len() <= ahead {
            let Some(finding) = walk else {
                return Ok(None);
            };
            match finding.next()? {
                Some(block) => blocks.push_back(block),
                None => *walk = None,
            }
        }
        Ok(blocks.get(ahead))
    }

    /// The open rows that come first.
    fn next_open(&mut self) -> Result<Option<(Place, usize)>> {
        let sections = match &mut self.rows.open {
            Some(sections) => sections,
            none => {
                let sections = if self.reader.keys().is_empty() {
                    Vec::new()
                } else {
                    self.reader.open_rows()?
                };
                none.insert(
                    sections
                        .into_iter()
                        .map(|rows| OpenSection { rows, done: 0 })
                        .collect(),
                )
            }
        };
        let starts = sections
            .iter()
            .enumerate()
            .filter_map(|(index, section)| Some((section.start()?, index)));
        Ok(starts.min())
    }

    fn reaches(&self, start: Place) -> bool {
        self.reach.is_some_and(|reach| reach >= start)
    }

    /// The open rows of a section up to `limit`, of which there is at least one.
    fn take_open(&mut self, index: usize, first: Place, limit: Option<Place>) -> Source {
        let sections = self
            .rows
            .open
            .as_mut()
            .map_or(&mut [][..], Vec::as_mut_slice);
        let section = &mut sections[index];
        let rows = match limit {
            Some((key, arrival)) => section.rows.rows_before(section.done, key, arrival),
            None => section.rows.keys.len() - section.done,
        };
        assert!(
            rows > 0,
            "open rows that come first come before what follows"
        );
        let piece = section.rows.slice(section.done, rows);
        section.done += rows;
        let alone = !self.reaches(first);
        self.reach = self.reach.max(Some((piece.keys[rows - 1], piece.arrival)));
        let content = if alone {
            Content::Alone(Ticket::new(move || Ok(vec![piece.batch])))
        } else {
            Content::Merge(Ticket::new(move || Ok(piece)))
        };
        Source {
            first,
            rows,
            content,
        }
    }

    /// The next block, and those after it that can be read in one go.
    fn take_block(&mut self, open: Option<Place>) -> Result<Option<Source>> {
        let Some(block) = self.rows.blocks.pop_front() else {
            return Ok(None);
        };
        let first = block.entry.start();
        let follows = !self.reaches(first);
        self.reach = self.reach.max(Some(block.entry.end()));
        let reader = Arc::clone(&self.reader);
        if !(follows && self.ends_before_next(&block.entry, 0, open)?) {
            let rows = usize::try_from(block.entry.rows).unwrap_or(usize::MAX);
            let content = Content::Merge(Ticket::new(move || reader.sorted_block(&block)));
            return Ok(Some(Source {
                first,
                rows,
                content,
            }));
        }
        let mut rows = usize::try_from(block.entry.rows).unwrap_or(usize::MAX);
        let mut run = vec![block];
        while rows < self.run_rows
            && let Some(next) = self.peek(0)?.cloned()
            && self.ends_before_next(&next.entry, 1, open)?
        {
            rows += usize::try_from(next.entry.rows).unwrap_or(usize::MAX);
            self.reach = self.reach.max(Some(next.entry.end()));
            self.rows.blocks.pop_front();
            run.push(next);
        }
        self.run_rows = (2 * self.run_rows).min(self.max_run_rows);
        Ok(Some(Source {
            first,
            rows,
            content: Content::Alone(Ticket::new(move || reader.blocks(&run))),
        }))
    }

    /// Whether a block ends before anything after it begins; the next one lies `ahead`.
    fn ends_before_next(
        &mut self,
        block: &Entry,
        ahead: usize,
        open: Option<Place>,
    ) -> Result<bool> {
        let next_block = self.peek(ahead)?.map(|block| block.entry.start());
        let next = [next_block, open].into_iter().flatten().min();
        Ok(block.sorted && next.is_none_or(|next| block.end() < next))
    }
}

impl Plan for Planner {
    fn next_source(&mut self) -> Result<Option<Source>> {
        let open = self.next_open()?;
        let block = self.peek(0)?.map(|block| block.entry.start());
        match open {
            Some((first, index)) if block.is_none_or(|block| first < block) => {
                let starts = self.rows.open.iter().flatten().enumerate();
                let others = starts
                    .filter(|(other, _)| *other != index)
                    .filter_map(|(_, section)| section.start());
                let limit = others.chain(block).min();
                Ok(Some(self.take_open(index, first, limit)))
            }
            _ => self.take_block(open.map(|(first, _)| first)),
        }
    }
}

/// Up to `count` ranges of keys with about as many rows each, which together are `keys`.
pub(super) fn partitions(view: &TableView, keys: KeyRange, count: usize) -> Result<Vec<KeyRange>> {
    let count = count.min(MAX_PARTITIONS);
    if count < 2 || keys.is_empty() || view.definition().key_ids().is_empty() {
        return Ok(vec![keys]);
    }
    let starts = weighted_starts(view, keys, 16 * count as u64)?;
    let total: u64 = starts.iter().map(|(_, rows)| rows).sum();
    let (mut ranges, mut first, mut rows) = (Vec::with_capacity(count), keys.first, 0);
    for (start, weight) in starts {
        let is_due = rows * count as u64 >= total * (ranges.len() as u64 + 1);
        if is_due && start > first && ranges.len() + 1 < count {
            ranges.push(KeyRange {
                first,
                last: start - 1,
            });
            first = start;
        }
        rows += weight;
    }
    ranges.push(KeyRange {
        first,
        last: keys.last,
    });
    Ok(ranges)
}

/// Where blocks, or pages of at most a `1 / fineness` of the rows, begin in the range, and how many rows they have.
fn weighted_starts(view: &TableView, keys: KeyRange, fineness: u64) -> Result<Vec<(i64, u64)>> {
    let tree = &view.snapshot().tree;
    let max_rows = tree.total().map_or(0, |total| total.rows / fineness);
    let mut walk = tree.walk(
        Some(keys.first..=keys.last),
        Arc::clone(view.engine().kernel().store()),
    );
    let mut starts = Vec::new();
    let decide = |entry: &Entry| {
        if entry.rows > max_rows {
            Step::Descend
        } else {
            Step::Take
        }
    };
    while let Some(entry) = walk.next(decide)? {
        starts.push((entry.key_min.max(keys.first), entry.rows));
    }
    let open = view
        .snapshot()
        .open_rows()
        .map(|open| (open.part.key_min, u64::from(open.part.rows)));
    starts.extend(open.filter(|(key, _)| keys.contains(*key)));
    starts.sort_unstable();
    Ok(starts)
}
