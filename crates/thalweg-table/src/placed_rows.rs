//! Rows of a table as they lie, each with its place: for statements that delete or change some of them.
//!
//! Invariants: a place names one row of one snapshot: its *piece*, a block or the open rows of one commit, and its position there.
//! Rows that are deleted already have none. Rows come as they are stored, not in the order of keys: nothing is merged.

use crate::definition::TableDefinition;
use crate::deleted_rows::{Block, DeletedRows, push_open_rows, step_into};
use crate::nans::with_one_nan;
use crate::piece::{Piece, RowAt};
use crate::range::KeyRange;
use crate::reader::{Reader, column_id};
use crate::rows::RowsDecoder;
use crate::scan::ScanRequest;
use crate::scan::plan::wanted_keys;
use crate::table::TableView;
use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, RecordBatch, UInt64Array};
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::filter::{filter, filter_record_batch};
use std::collections::BTreeMap;
use std::sync::Arc;
use thalweg_kernel::index::{Entry, ItemName, Place, Step};
use thalweg_kernel::masks::{BlockMask, ItemMask, MaskEdit, MaskList, PartMask, Positions};
use thalweg_kernel::{Error, ErrorKind, OpenRows, Result};

/// Bits of a place that number the position in its piece; those above number the piece.
const POSITION_BITS: u32 = 32;

/// The rows of a snapshot of a table that may match a request, with their places.
#[derive(Debug)]
pub struct PlacedRows {
    view: TableView,
    request: ScanRequest,
    pieces: Vec<Piece>,
}

/// Which pieces of a table are wanted.
pub(crate) struct Wanted<'a> {
    /// Whether an entry can have wanted rows below it, given its place if it is an item or in one.
    pub(crate) entry: &'a dyn Fn(&Entry, Option<Place>) -> bool,
    pub(crate) open: &'a dyn Fn(&OpenRows) -> bool,
}

/// Some rows of [`PlacedRows`], by their places.
#[derive(Clone, Debug, Default)]
pub struct PickedRows(BTreeMap<u32, Vec<u32>>);

impl PickedRows {
    /// Adds rows. A row may be added more than once.
    pub fn add(&mut self, places: &[u64]) {
        let mut last: Option<(u32, &mut Vec<u32>)> = None;
        for place in places {
            let (piece, position) = parts_of(*place);
            match &mut last {
                Some((of, positions)) if *of == piece => positions.push(position),
                _ => {
                    let positions = self.0.entry(piece).or_default();
                    positions.push(position);
                    last = Some((piece, positions));
                }
            }
        }
    }

    /// Whether some row was added more than once.
    pub fn repeats(&mut self) -> bool {
        self.0.values_mut().any(|positions| {
            positions.sort_unstable();
            positions.windows(2).any(|two| two[0] == two[1])
        })
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the two halves of 64 bits")]
fn parts_of(place: u64) -> (u32, u32) {
    ((place >> POSITION_BITS) as u32, place as u32)
}

impl PlacedRows {
    /// The rows of a view. `request` says which columns are wanted, and which pieces cannot have a wanted row: of the others all
    /// rows come, whatever their keys and values. Its limit does not count.
    ///
    /// # Errors
    /// `Invalid` for columns that do not exist; those of reading the index.
    pub fn new(view: &TableView, request: &ScanRequest) -> Result<Self> {
        let all = Wanted {
            entry: &|_, _| true,
            open: &|_| true,
        };
        Self::of_wanted(view, request, &all)
    }

    /// As [`Self::new`], of the wanted pieces alone.
    pub(crate) fn of_wanted(
        view: &TableView,
        request: &ScanRequest,
        wanted: &Wanted<'_>,
    ) -> Result<Self> {
        let pieces = pieces(view, request, wanted);
        let pieces = pieces.map_err(|error| view.named().in_words(error))?;
        Ok(Self {
            view: view.clone(),
            request: request.clone(),
            pieces,
        })
    }

    /// Rows of pieces that the view has.
    pub(crate) fn of_pieces(view: &TableView, request: &ScanRequest, pieces: Vec<Piece>) -> Self {
        Self {
            view: view.clone(),
            request: request.clone(),
            pieces,
        }
    }

    /// How many pieces there are.
    #[must_use]
    pub fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// The pieces, in the order of their numbers.
    pub(crate) fn all(&self) -> &[Piece] {
        &self.pieces
    }

    /// Where the row of a place is; `None` for a place of other rows.
    pub(crate) fn row_at(&self, place: u64) -> Option<RowAt> {
        let (piece, position) = parts_of(place);
        Some(match self.pieces.get(piece as usize)? {
            Piece::Block { place, .. } => RowAt::Block {
                place: *place,
                position,
            },
            Piece::Open(open) => RowAt::Open {
                commit: open.commit,
                part: open.number,
                position,
            },
        })
    }

    /// How many rows all pieces have together.
    #[must_use]
    pub fn row_count(&self) -> u64 {
        let table = self.view.snapshot();
        let rows = |piece: &Piece| match piece {
            Piece::Block { block, .. } => {
                let hidden = match &block.mask {
                    Some(BlockMask::Rows(hidden)) => u64::from(hidden.rows()),
                    _ => 0,
                };
                block.entry.rows.saturating_sub(hidden)
            }
            Piece::Open(open) => {
                let hidden = table.hidden_in(open).map_or(0, Positions::rows);
                u64::from(open.part.rows.saturating_sub(hidden))
            }
        };
        self.pieces.iter().map(rows).sum()
    }

    /// The view that the rows are of.
    #[must_use]
    pub fn view(&self) -> &TableView {
        &self.view
    }

    /// Reads pieces one after the other.
    ///
    /// # Errors
    /// `Invalid` for columns that do not exist.
    pub fn reader(self: &Arc<Self>) -> Result<PlacedReader> {
        let reader = Reader::new(
            &self.view,
            self.request.projection.as_deref(),
            KeyRange::ALL,
        )?;
        Ok(PlacedReader {
            rows: Arc::clone(self),
            reader: reader.with_one_nan(self.request.one_nan),
        })
    }

    /// The masks that hide the picked rows, and how many these are.
    pub(crate) fn masks_of(&self, picked: PickedRows) -> Result<(MaskEdit, u64)> {
        let mut items: BTreeMap<ItemName, ItemMasks> = BTreeMap::new();
        let (mut parts, mut rows) = (Vec::new(), 0);
        for (piece, mut positions) in picked.0 {
            positions.sort_unstable();
            positions.dedup();
            rows += positions.len() as u64;
            let positions = Positions::of_rows(positions);
            match self.pieces.get(piece as usize) {
                Some(Piece::Block {
                    place, item_rows, ..
                }) => {
                    let item = items.entry(place.item).or_default();
                    item.rows = *item_rows;
                    item.newly += u64::from(positions.rows());
                    let rank = u32::try_from(place.rank);
                    let rank = rank.map_err(|_| too_many_blocks())?;
                    item.masks.push((rank, BlockMask::Rows(positions)));
                }
                Some(Piece::Open(open)) => parts.push(PartMask {
                    commit: open.commit,
                    part: open.number,
                    rows: open.part.rows,
                    positions,
                }),
                None => {
                    let message = format!("there is no piece number {piece} of these rows");
                    return Err(Error::new(ErrorKind::Invalid, message));
                }
            }
        }
        let items = items.into_iter().map(|(name, item)| item.of(name));
        parts.sort_unstable_by_key(|part| (part.commit, part.part));
        let edit = MaskEdit {
            table: self.view.snapshot().id,
            items: items.collect::<Result<_>>()?,
            parts,
        };
        Ok((edit, rows))
    }
}

#[derive(Default)]
struct ItemMasks {
    rows: u64,
    newly: u64,
    masks: Vec<(u32, BlockMask)>,
}

impl ItemMasks {
    fn of(mut self, name: ItemName) -> Result<ItemMask> {
        self.masks.sort_unstable_by_key(|(rank, _)| *rank);
        let masks = MaskList::of(self.masks);
        Ok(ItemMask {
            name,
            rows: self.rows,
            newly: self.newly,
            masks: masks.map_err(|what| Error::new(ErrorKind::Invalid, what))?,
        })
    }
}

fn too_many_blocks() -> Error {
    let what = "a file has more blocks than masks can name";
    Error::new(ErrorKind::Limit, what)
}

/// The blocks and open rows that can have a wanted row.
fn pieces(view: &TableView, request: &ScanRequest, wanted: &Wanted<'_>) -> Result<Vec<Piece>> {
    let (table, definition) = (view.snapshot(), view.definition());
    let keys = wanted_keys(definition, request);
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let ranges = request
        .ranges
        .iter()
        .map(|wanted| Ok((column_id(definition, wanted.column)?, &wanted.range)));
    let ranges = ranges.collect::<Result<Vec<_>>>()?;
    let store = Arc::clone(view.engine().kernel().store());
    let mut walk = table.tree.walk(Some(keys.first..=keys.last), store);
    let (mut pieces, mut item_rows) = (Vec::new(), BTreeMap::new());
    while let Some(entry) = walk.next_at(|entry: &Entry, place| {
        if !(wanted.entry)(entry, place)
            || ranges.iter().any(|(id, range)| entry.prunes(*id, range))
        {
            return Step::Skip;
        }
        if let Some(place) = place.filter(|place| place.item == ItemName::of(entry)) {
            item_rows.insert(place.item, entry.rows);
        }
        step_into(table, entry, place)
    })? {
        // Every block lies in an item.
        let Some(place) = walk.place() else { continue };
        pieces.push(Piece::Block {
            item_rows: item_rows.get(&place.item).copied().unwrap_or(entry.rows),
            block: Block::found(table, entry, Some(place)),
            place,
        });
    }
    let open = table.open_rows().filter(|open| {
        let (first, last) = (open.part.key_min, open.part.key_max);
        !keys.intersect(KeyRange { first, last }).is_empty() && (wanted.open)(open)
    });
    pieces.extend(open.cloned().map(Piece::Open));
    Ok(pieces)
}

/// Reads pieces of [`PlacedRows`].
pub struct PlacedReader {
    rows: Arc<PlacedRows>,
    reader: Reader,
}

impl PlacedReader {
    /// The columns, without the places.
    #[must_use]
    pub fn schema(&self) -> &SchemaRef {
        self.reader.schema()
    }

    /// The rows of a piece, with their places.
    ///
    /// # Errors
    /// Those of reading; damage.
    ///
    /// # Panics
    /// Beyond [`PlacedRows::pieces`].
    pub fn read(&self, piece: usize) -> Result<Vec<(RecordBatch, UInt64Array)>> {
        let named = |error| self.rows.view.named().in_words(error);
        let read = match &self.rows.pieces[piece] {
            Piece::Block { block, .. } => self.read_block(piece, block),
            Piece::Open(open) => self.read_open(piece, open),
        };
        read.map_err(named)
    }

    fn read_block(&self, piece: usize, block: &Block) -> Result<Vec<(RecordBatch, UInt64Array)>> {
        let mut deleted = DeletedRows::default();
        if let Some(hidden) = block.hidden()? {
            let all = 0..usize::try_from(block.entry.rows).unwrap_or(usize::MAX);
            deleted.note(0, std::slice::from_ref(&all), hidden);
        }
        let all = Block {
            entry: block.entry.clone(),
            mask: None,
        };
        let mut first = 0;
        let mut placed = Vec::with_capacity(1);
        for batch in self.reader.blocks(std::slice::from_ref(&all))? {
            let rows = batch.num_rows();
            placed.push((batch, places(piece, first, rows)));
            first += rows;
        }
        self.without(deleted, placed)
    }

    fn read_open(&self, piece: usize, open: &OpenRows) -> Result<Vec<(RecordBatch, UInt64Array)>> {
        let definition: &TableDefinition = self.rows.view.definition();
        let mut decoder = RowsDecoder::new(definition, Some(self.reader.ids()))?;
        let hidden = self.rows.view.snapshot().hidden_in(open);
        let mut deleted = DeletedRows::default();
        push_open_rows(open, hidden, &mut decoder, &mut deleted)?;
        let batch = decoder.finish()?;
        let batch = match self.rows.request.one_nan {
            true => with_one_nan(batch),
            false => batch,
        };
        let places = places(piece, 0, batch.num_rows());
        self.without(deleted, vec![(batch, places)])
    }

    /// The rows that are not deleted.
    fn without(
        &self,
        deleted: DeletedRows,
        placed: Vec<(RecordBatch, UInt64Array)>,
    ) -> Result<Vec<(RecordBatch, UInt64Array)>> {
        if deleted.is_empty() {
            return Ok(placed);
        }
        let left = deleted.left(placed.iter().map(|(batch, _)| batch.num_rows()).sum());
        let mut first = 0;
        let kept = placed.into_iter().map(|(batch, places)| {
            let left = left.slice(first, batch.num_rows());
            first += batch.num_rows();
            let places = filter(&places, &left)?;
            Ok((
                filter_record_batch(&batch, &left)?,
                places.as_primitive().clone(),
            ))
        });
        kept.collect::<Result<_, ArrowError>>().map_err(|e| {
            Error::with_source(ErrorKind::Limit, format!("taking out deleted rows: {e}"), e)
        })
    }
}

/// The places of rows that lie one after the other.
fn places(piece: usize, first: usize, rows: usize) -> UInt64Array {
    let base = (piece as u64) << POSITION_BITS;
    (first..first + rows)
        .map(|position| base | position as u64)
        .collect::<Vec<u64>>()
        .into()
}

/// A batch of rows with their places as its last column.
///
/// # Errors
/// `Invalid` where the schema is not that of the rows and a column more.
pub fn with_places(
    schema: &SchemaRef,
    (batch, places): (RecordBatch, UInt64Array),
) -> Result<RecordBatch> {
    let mut columns: Vec<ArrayRef> = batch.columns().to_vec();
    columns.push(Arc::new(places));
    RecordBatch::try_new(Arc::clone(schema), columns)
        .map_err(|e| Error::with_source(ErrorKind::Invalid, format!("rows with places: {e}"), e))
}
