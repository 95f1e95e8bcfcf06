//! Regions of blocks with a page grid, decoded into strided memory of the caller.
//!
//! Invariants
//! - Every cell of a region is written once per call, and nothing else of the memory; it is not filled with anything before.
//! - A page is read, verified and decoded once per call: shares of the work are cut where all blocks have edges of pages.
//! - Pages next to each other in a block are read at once, as far as they are of one share. Regions of few pages go through the
//!   cache of pages; larger ones would push everything else out.
//! - After an error the cells of the regions hold arbitrary values, and no others were touched.

mod spread;
mod strided;

use self::spread::Spread;
pub use self::strided::Strided;
use crate::assemble::append_widened;
use crate::column::with_number;
use crate::error::{damaged, invalid};
use crate::pool::Spare;
use crate::schema::widens;
use crate::table::TableView;
use arrow_buffer::{ArrowNativeType, MutableBuffer};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use thalweg_codec::{ChunkKind, DecodeError, Decoder, Element, ElementType};
use thalweg_env::sync::Mutex;
use thalweg_kernel::block::{BlockReader, Grid, MAX_DIMENSIONS, PageSet, Role, StreamedPage};
use thalweg_kernel::index::Address;
use thalweg_kernel::store::Store;
use thalweg_kernel::{Error, ErrorKind, Result, TableId};

/// Regions that meet at most so many pages go through the cache of pages.
const FEW_PAGES: usize = 4;

/// Cells of the pages of a share of the work, if pages allow.
const SHARE_CELLS: usize = 1 << 16;

/// Another thread is asked for with each so many cells of pages: one decodes them in a few tenths of a millisecond, and to start
/// another takes some 30 us where a core is free.
const CELLS_PER_THREAD: usize = 1 << 19;

/// Values are decoded one by one where at most this part of a page is wanted.
const PAGE_PER_CELL: usize = 64;

/// A region of one block, and where its cells go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockRegion {
    /// The block, which has a grid.
    pub block: Address,
    /// The index of its first cell in the block, one number for each dimension.
    pub start: Vec<u32>,
    /// Its extents.
    pub extents: Vec<u32>,
    /// The index of its first cell in the memory of the caller.
    pub at: Vec<usize>,
}

/// Reads regions of blocks of a table.
pub struct RegionReader {
    store: Arc<Store>,
    table: TableId,
    threads: usize,
    spare: Spare<Scratch>,
    /// The view, if there is one: it keeps the files of the blocks.
    view: Option<TableView>,
}

impl TableView {
    /// A reader of regions of its blocks that have a grid.
    ///
    /// # Errors
    /// `Unavailable` once the database was closed; `Unsupported` for a table with deleted rows.
    pub fn region_reader(&self) -> Result<RegionReader> {
        self.engine().closed().check()?;
        if self.snapshot().masks().is_some() {
            let message = format!(
                "table \"{}\" has deleted rows: regions of such tables cannot be read yet",
                self.name()
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        Ok(RegionReader::of_view(self.clone()))
    }
}

impl std::fmt::Debug for RegionReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RegionReader")
            .field("table", &self.table)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

/// Buffers of one thread.
#[derive(Debug)]
struct Scratch {
    decoder: Decoder,
    /// Bytes that were read.
    bytes: Vec<u8>,
    /// Numbers of pages.
    pages: Vec<usize>,
    values: PageBuffers,
}

/// Memory for the values of a page.
#[derive(Debug)]
struct PageBuffers {
    /// As cells.
    cells: MutableBuffer,
    /// As they are stored, where that is another type.
    stored: MutableBuffer,
    widened: MutableBuffer,
}

impl Scratch {
    fn new() -> Self {
        let empty = || MutableBuffer::new(0);
        Self {
            decoder: Decoder::new(),
            bytes: Vec::new(),
            pages: Vec::new(),
            values: PageBuffers {
                cells: empty(),
                stored: empty(),
                widened: empty(),
            },
        }
    }
}

/// How pages become cells of a type.
trait PageReader<C>: Sync {
    /// Whether it reads chunks of this element.
    fn reads(element: ElementType) -> bool;

    /// Decodes all cells of a page, as many as `out` has.
    fn decode(
        page: &StreamedPage<'_>,
        decoder: &mut Decoder,
        buffers: (&mut MutableBuffer, &mut MutableBuffer),
        out: &mut [C],
    ) -> Result<(), DecodeError>;

    /// Whether cells of such a chunk are decoded one by one, without the others of their page.
    fn are_apart(page: &StreamedPage<'_>) -> bool;

    /// Decodes one cell of a page of such a chunk.
    fn decode_one(
        page: &StreamedPage<'_>,
        index: usize,
        decoder: &mut Decoder,
    ) -> Result<C, DecodeError>;
}

/// Reads numbers: of their own type, or of a narrower one.
struct Numbers;

impl<T: Element + ArrowNativeType> PageReader<T> for Numbers {
    fn reads(element: ElementType) -> bool {
        widens(element, T::TYPE)
    }

    fn decode(
        page: &StreamedPage<'_>,
        decoder: &mut Decoder,
        (stored, widened): (&mut MutableBuffer, &mut MutableBuffer),
        out: &mut [T],
    ) -> Result<(), DecodeError> {
        let StreamedPage {
            codec,
            prelude,
            page,
            ..
        } = *page;
        if codec.element == T::TYPE {
            return decoder.decode_page(codec, prelude, page, out);
        }
        with_number!(codec.element, Native => {
            stored.resize(size_of::<Native>() * out.len(), 0);
            let values = stored.typed_data_mut::<Native>();
            decoder.decode_page(codec, prelude, page, values)?;
        });
        widened.clear();
        append_widened(codec.element, T::TYPE, stored.as_slice(), widened);
        out.copy_from_slice(widened.typed_data());
        Ok(())
    }

    fn are_apart(page: &StreamedPage<'_>) -> bool {
        let codec = page.codec;
        let is_own = codec.element == T::TYPE;
        is_own && !codec.compresses(page.page) && codec.kind != ChunkKind::Pco
    }

    fn decode_one(
        page: &StreamedPage<'_>,
        index: usize,
        decoder: &mut Decoder,
    ) -> Result<T, DecodeError> {
        decoder.decode_value(page.codec, page.prelude, page.page, page.rows, index)
    }
}

/// Reads bits, as bytes of 0 or 1.
struct Flags;

impl PageReader<u8> for Flags {
    fn reads(element: ElementType) -> bool {
        element == ElementType::Bits
    }

    fn decode(
        page: &StreamedPage<'_>,
        decoder: &mut Decoder,
        (stored, _): (&mut MutableBuffer, &mut MutableBuffer),
        out: &mut [u8],
    ) -> Result<(), DecodeError> {
        stored.resize(out.len().div_ceil(8), 0);
        let bits = stored.as_slice_mut();
        decoder.decode_bits_page(page.codec, page.prelude, page.page, out.len(), bits)?;
        for (cells, byte) in out.chunks_mut(8).zip(bits) {
            for (bit, cell) in cells.iter_mut().enumerate() {
                *cell = *byte >> bit & 1;
            }
        }
        Ok(())
    }

    fn are_apart(page: &StreamedPage<'_>) -> bool {
        !page.codec.compresses(page.page)
    }

    fn decode_one(
        page: &StreamedPage<'_>,
        index: usize,
        decoder: &mut Decoder,
    ) -> Result<u8, DecodeError> {
        let bit = decoder.decode_bit(page.codec, page.prelude, page.page, page.rows, index);
        bit.map(u8::from)
    }
}

/// A region whose block is open, and which was checked.
struct Opened<'a> {
    region: &'a BlockRegion,
    block: BlockReader<'a>,
    has_chunk: bool,
}

impl Opened<'_> {
    fn grid(&self) -> &Grid {
        match self.block.head().paging().grid() {
            Some(grid) => grid,
            None => unreachable!("a bug: a block without a grid was let in"),
        }
    }

    /// Its indices of the memory along a dimension.
    fn indices(&self, at: usize) -> Range<usize> {
        let first = self.region.at[at];
        first..first + self.region.extents[at] as usize
    }

    /// The numbers of its pages along a dimension.
    fn pages_along(&self, at: usize) -> std::ops::RangeInclusive<u32> {
        let page = self.grid().dimensions()[at].page_extent;
        let (start, extent) = (self.region.start[at], self.region.extents[at]);
        start / page..=(start + extent - 1) / page
    }
}

/// Part of the memory of the caller: all cells whose index along one dimension lies in a range.
struct Share<'a, C> {
    indices: Range<usize>,
    /// Where `cells` begins in all of them.
    base: usize,
    cells: &'a mut [C],
    /// Numbers of the regions with cells in it.
    regions: Vec<usize>,
}

impl<'a, C> Share<'a, C> {
    fn new(indices: Range<usize>, base: usize, cells: &'a mut [C]) -> Self {
        Self {
            indices,
            base,
            cells,
            regions: Vec::new(),
        }
    }
}

/// The parts of a call that all its threads share.
struct Job<'a> {
    chunk: (u32, Role),
    opened: &'a [Opened<'a>],
    strides: &'a [usize],
    /// The dimension along which the work is shared.
    along: usize,
    /// Whether pages go through the cache.
    cached: bool,
}

/// A box of cells of a block, and the memory they go to.
struct Target<'a, C> {
    start: [u32; MAX_DIMENSIONS],
    extents: [u32; MAX_DIMENSIONS],
    at: [usize; MAX_DIMENSIONS],
    strides: &'a [usize],
    base: usize,
    cells: &'a mut [C],
}

impl RegionReader {
    /// A reader of blocks of a table, on up to `threads` threads.
    #[must_use]
    pub fn new(store: Arc<Store>, table: TableId, threads: usize) -> Self {
        Self {
            store,
            table,
            threads: threads.max(1),
            spare: Spare::default(),
            view: None,
        }
    }

    /// A reader of the blocks of a view, which it keeps.
    pub(crate) fn of_view(view: TableView) -> Self {
        let store = Arc::clone(view.engine().kernel().store());
        let threads = view.engine().options().threads;
        Self {
            view: Some(view.clone()),
            ..Self::new(store, view.snapshot().id, threads)
        }
    }

    /// Reads the values of a column, numbers of type `T` or of one that widens to it, into `target`. Those of null and of empty
    /// cells are arbitrary.
    ///
    /// # Errors
    /// `Invalid` when a region is not one of its block or does not fit the memory, or the column holds no such numbers;
    /// `Corruption` for damage; whatever reading leads to.
    pub fn values<T: Element + ArrowNativeType>(
        &self,
        column_id: u32,
        regions: &[BlockRegion],
        target: &mut Strided<'_, T>,
    ) -> Result<()> {
        self.read::<T, Numbers>((column_id, Role::Values), T::default(), regions, target)
    }

    /// Reads the bits of a column into `target`, as 0 and 1: its values, if they are booleans, or which cells are not null.
    /// [`Role::Presence`] of column 0 has which cells exist.
    ///
    /// # Errors
    /// As [`Self::values`].
    pub fn flags(
        &self,
        column_id: u32,
        role: Role,
        regions: &[BlockRegion],
        target: &mut Strided<'_, u8>,
    ) -> Result<()> {
        // Without a chunk of values all booleans are null, so any value will do; without one of validity or presence no cell is
        // null or empty.
        let absent = u8::from(role != Role::Values);
        self.read::<u8, Flags>((column_id, role), absent, regions, target)
    }

    fn read<C: ArrowNativeType, R: PageReader<C>>(
        &self,
        chunk: (u32, Role),
        absent: C,
        regions: &[BlockRegion],
        target: &mut Strided<'_, C>,
    ) -> Result<()> {
        if let Some(view) = &self.view {
            view.engine().closed().check()?;
        }
        let mut opened = Vec::with_capacity(regions.len());
        for region in regions {
            if let Some(open) = self.open::<C, R>(chunk, region, &target.extents)? {
                opened.push(open);
            }
        }
        let (mut pages, mut cells) = (0_usize, 0_usize);
        for open in &opened {
            let grid = open.grid();
            let along = |at: usize| open.pages_along(at).count();
            let met: usize = (0..grid.dimensions().len()).map(along).product();
            pages += met;
            cells += met * grid.page_positions() as usize;
        }
        let extents = target.extents.iter().zip(&target.strides).enumerate();
        let slowest = extents
            .filter(|(_, (extent, _))| **extent > 1)
            .max_by_key(|(_, (_, stride))| **stride);
        let job = Job {
            chunk,
            opened: &opened,
            strides: &target.strides,
            along: slowest.map_or(0, |(at, _)| at),
            cached: pages <= FEW_PAGES,
        };
        let shares = shares(&job, cells, target.extents[job.along], target.cells);
        let threads = self
            .threads
            .min(shares.len())
            .min(1 + cells / CELLS_PER_THREAD);
        let left = Mutex::new(shares.into_iter());
        let failure: Mutex<Option<Error>> = Mutex::new(None);
        let has_failed = AtomicBool::new(false);
        let work = || {
            let Ok(mut scratch) = self.spare.take(|| Ok::<_, Error>(Scratch::new())) else {
                return;
            };
            while !has_failed.load(Ordering::Relaxed) {
                let Some(share) = left.lock().next() else {
                    break;
                };
                if let Err(error) = read_share::<C, R>(&job, share, absent, &mut scratch) {
                    has_failed.store(true, Ordering::Relaxed);
                    failure.lock().get_or_insert(error);
                }
            }
            self.spare.give(scratch);
        };
        let spawner = self.store.env().spawner();
        spawner.share("thalweg-region", threads, &work);
        match failure.into_inner() {
            None => Ok(()),
            Some(error) => Err(error),
        }
    }

    /// Checks a region; `None` if it has no cell.
    fn open<'a, C, R: PageReader<C>>(
        &'a self,
        (column_id, role): (u32, Role),
        region: &'a BlockRegion,
        extents: &[usize],
    ) -> Result<Option<Opened<'a>>> {
        let block = self.store.block(&region.block)?;
        let head = block.head();
        let wrong = |what: &str| Err(invalid(format!("{}: {what}", region.block)));
        if head.spec().table != self.table {
            return wrong("the block is one of another table");
        }
        let Some(grid) = head.paging().grid() else {
            return wrong("the block has no grid");
        };
        let count = grid.dimensions().len();
        let has_all = region.start.len() == count
            && region.extents.len() == count
            && region.at.len() == count
            && extents.len() == count;
        if !has_all {
            return wrong("the region has another number of dimensions than the block");
        }
        for (at, dimension) in grid.dimensions().iter().enumerate() {
            let end = u64::from(region.start[at]) + u64::from(region.extents[at]);
            if end > u64::from(dimension.extent) {
                return wrong("the region reaches beyond the block");
            }
            let end = region.at[at].checked_add(region.extents[at] as usize);
            if end.is_none_or(|end| end > extents[at]) {
                return wrong("the region reaches beyond the memory for it");
            }
            if dimension.column_id == column_id && role == Role::Values {
                return wrong("the column is a dimension: its values are those of the grid");
            }
        }
        let chunk = head.chunk(column_id, role);
        if let Some(chunk) = chunk
            && !R::reads(chunk.codec.element)
        {
            let element = chunk.codec.element;
            return wrong(&format!(
                "column {column_id} holds values of type {element:?}"
            ));
        }
        let is_empty = region.extents.contains(&0);
        Ok((!is_empty).then_some(Opened {
            region,
            block,
            has_chunk: chunk.is_some(),
        }))
    }
}

/// Divides the memory along a dimension, where all blocks that reach over the cut have edges of pages.
fn shares<'a, C>(
    job: &Job<'_>,
    cells: usize,
    extent: usize,
    mut memory: &'a mut [C],
) -> Vec<Share<'a, C>> {
    let wanted = if job.cached {
        1
    } else {
        cells.div_ceil(SHARE_CELLS)
    };
    let edges = match wanted {
        0 | 1 => Vec::new(),
        _ => common_edges(job.opened, job.along),
    };
    // About as many as are wanted, of about as many edges each.
    let step = ((edges.len() + 1) / wanted.max(1)).max(1);
    let cuts = edges.into_iter().skip(step - 1).step_by(step);
    let stride = job.strides[job.along];
    let mut shares = Vec::new();
    let (mut first, mut base) = (0, 0);
    for cut in cuts.filter(|cut| *cut < extent) {
        let end = cut * stride;
        let (cells, rest) = memory.split_at_mut(end - base);
        shares.push(Share::new(first..cut, base, cells));
        memory = rest;
        (first, base) = (cut, end);
    }
    shares.push(Share::new(first..extent, base, memory));
    for (number, open) in job.opened.iter().enumerate() {
        let cells = open.indices(job.along);
        let first = shares.partition_point(|share| share.indices.end <= cells.start);
        let met = shares[first..].iter_mut();
        let met = met.take_while(|share| share.indices.start < cells.end);
        met.for_each(|share| share.regions.push(number));
    }
    shares
}

/// Indices of the memory, ascending, at which some region begins, ends or has an edge of pages, and no page of any region lies on
/// both sides. Not by asking each region of each index: there may be very many of both.
fn common_edges(opened: &[Opened<'_>], along: usize) -> Vec<usize> {
    let cells = || opened.iter().map(|open| open.indices(along));
    let mut starts: Vec<usize> = cells().map(|cells| cells.start).collect();
    let mut ends: Vec<usize> = cells().map(|cells| cells.end).collect();
    starts.sort_unstable();
    ends.sort_unstable();
    let bounds = starts.iter().chain(&ends).map(|bound| (*bound, false));
    let inner = opened.iter().flat_map(|open| inner_edges(open, along));
    let mut edges: Vec<(usize, bool)> = bounds.chain(inner.map(|edge| (edge, true))).collect();
    edges.sort_unstable();
    let is_common = |edge: usize, crossed: usize| {
        let reach_over = starts.partition_point(|start| *start < edge)
            - ends.partition_point(|end| *end <= edge);
        edge > 0 && crossed == reach_over
    };
    edges
        .chunk_by(|a, b| a.0 == b.0)
        .map(|same| {
            (
                same[0].0,
                same.iter().filter(|(_, is_inner)| *is_inner).count(),
            )
        })
        .filter(|(edge, crossed)| is_common(*edge, *crossed))
        .map(|(edge, _)| edge)
        .collect()
}

/// Where pages of a region begin along a dimension, but for the first: indices of the memory.
fn inner_edges(open: &Opened<'_>, along: usize) -> impl Iterator<Item = usize> {
    let page = open.grid().dimensions()[along].page_extent;
    let (start, at) = (open.region.start[along], open.region.at[along]);
    let inner = open.pages_along(along).skip(1);
    inner.map(move |number| at + (number * page - start) as usize)
}

/// Reads the parts of regions that lie in a share.
fn read_share<C: ArrowNativeType, R: PageReader<C>>(
    job: &Job<'_>,
    share: Share<'_, C>,
    absent: C,
    scratch: &mut Scratch,
) -> Result<()> {
    for number in &share.regions {
        let open = &job.opened[*number];
        let region = open.region;
        let cells = open.indices(job.along);
        let at = cells.start;
        let here = at.max(share.indices.start)..cells.end.min(share.indices.end);
        let count = job.strides.len();
        let mut target = Target {
            start: [0; MAX_DIMENSIONS],
            extents: [0; MAX_DIMENSIONS],
            at: [0; MAX_DIMENSIONS],
            strides: job.strides,
            base: share.base,
            cells: &mut *share.cells,
        };
        target.start[..count].copy_from_slice(&region.start);
        target.extents[..count].copy_from_slice(&region.extents);
        target.at[..count].copy_from_slice(&region.at);
        // Within the region, whose extents are u32.
        let narrow = |index: usize| u32::try_from(index).unwrap_or(u32::MAX);
        target.start[job.along] += narrow(here.start - at);
        target.extents[job.along] = narrow(here.len());
        target.at[job.along] = here.start;
        if open.has_chunk {
            read_box::<C, R>(job, open, &mut target, scratch)?;
        } else {
            fill_box(&mut target, absent);
        }
    }
    Ok(())
}

/// Reads a box of one block.
fn read_box<C: ArrowNativeType, R: PageReader<C>>(
    job: &Job<'_>,
    open: &Opened<'_>,
    target: &mut Target<'_, C>,
    scratch: &mut Scratch,
) -> Result<()> {
    let Scratch {
        decoder,
        bytes,
        pages,
        values,
    } = scratch;
    let (grid, count) = (open.grid(), job.strides.len());
    pages.clear();
    grid.pages_of_box(&target.start[..count], &target.extents[..count], pages);
    let (block, chunk) = (&open.block, job.chunk);
    let mut place = |number: usize, page: &StreamedPage<'_>| {
        let spread = target.spread(grid, number);
        let placed = place_page::<C, R>(page, &spread, target, decoder, values);
        placed.map_err(|error| block.head().undecodable(chunk, block.address(), &error))
    };
    if !job.cached {
        return block.stream_pages(chunk, pages, bytes, |nth, page| place(pages[nth], page));
    }
    let mut set = PageSet::new();
    let Some(of) = set.want(block.head(), chunk.0, chunk.1, pages) else {
        return Err(damaged(block.address(), "a chunk that was there is not"));
    };
    block.load(&mut set)?;
    let found = set.pages(of);
    for (nth, number) in pages.iter().enumerate() {
        let page = StreamedPage {
            codec: found.codec(),
            prelude: found.prelude(),
            page: found.page(nth),
            rows: found.page_rows(nth),
        };
        place(*number, &page)?;
    }
    Ok(())
}

/// Decodes the wanted cells of a page to where they go.
fn place_page<C: ArrowNativeType, R: PageReader<C>>(
    page: &StreamedPage<'_>,
    spread: &Spread,
    target: &mut Target<'_, C>,
    decoder: &mut Decoder,
    values: &mut PageBuffers,
) -> Result<(), DecodeError> {
    let PageBuffers {
        cells,
        stored,
        widened,
    } = values;
    if spread.is_whole(page.rows) {
        let out = &mut target.cells[spread.to..spread.to + page.rows];
        return R::decode(page, decoder, (stored, widened), out);
    }
    if spread.cells * PAGE_PER_CELL <= page.rows && R::are_apart(page) {
        return spread.each_cell(|from, to| {
            target.cells[to] = R::decode_one(page, from, decoder)?;
            Ok(())
        });
    }
    // Whole cells of any type, whatever it held before.
    let bytes = (page.rows * size_of::<C>()).next_multiple_of(size_of::<i128>());
    if cells.len() < bytes {
        cells.resize(bytes, 0);
    }
    let decoded = &mut cells.typed_data_mut::<C>()[..page.rows];
    R::decode(page, decoder, (stored, widened), decoded)?;
    spread.copy(decoded, target.cells);
    Ok(())
}

/// Fills a box of a block that has no such chunk.
fn fill_box<C: Copy>(target: &mut Target<'_, C>, value: C) {
    let count = target.strides.len();
    let mut spread = Spread::empty();
    for at in 0..count {
        spread.to += target.at[at] * target.strides[at];
        spread.add(target.extents[at] as usize, 0, target.strides[at]);
    }
    spread.to -= target.base;
    spread.each_run(|_, to, (length, _, distance)| {
        for cell in 0..length {
            target.cells[to + cell * distance] = value;
        }
    });
}

impl<C> Target<'_, C> {
    /// Where the cells of a page lie that are wanted, of which there is at least one.
    fn spread(&self, grid: &Grid, page: usize) -> Spread {
        let count = self.strides.len();
        let (mut first, mut cut) = ([0; MAX_DIMENSIONS], [0; MAX_DIMENSIONS]);
        grid.page_box(page, &mut first[..count], &mut cut[..count]);
        let mut within = [0; MAX_DIMENSIONS];
        let mut distance = 1;
        for at in grid.position_order().slowest_first(count).rev() {
            within[at] = distance;
            distance *= cut[at] as usize;
        }
        let mut spread = Spread::empty();
        for at in grid.position_order().slowest_first(count) {
            let start = first[at].max(self.start[at]);
            let end = (first[at] + cut[at]).min(self.start[at] + self.extents[at]);
            assert!(start < end, "a page without wanted cells");
            spread.from += (start - first[at]) as usize * within[at];
            spread.to += (self.at[at] + (start - self.start[at]) as usize) * self.strides[at];
            spread.add((end - start) as usize, within[at], self.strides[at]);
        }
        assert!(spread.to >= self.base, "cells before a share");
        spread.to -= self.base;
        spread
    }
}
