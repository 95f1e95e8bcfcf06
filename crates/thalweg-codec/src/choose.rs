//! The chooser: samples a few runs of a chunk and plans how its pages are to be tried.
//!
//! Invariants: what it costs does not grow with the chunk beyond [`SAMPLE_PAGES_MAX`] pages; its
//! answer is a plan to start from, never a promise: pages check their own size against it.
//!
//! Runs of neighbours are sampled rather than single values, since differences and runs show only
//! between neighbours. Middle values over the sampled pages are compared, so that one odd page
//! does not decide.

use crate::PAGE_ROWS;
use crate::integers::IntegerPlan;
use crate::mode::PageMode;
use crate::packing::PageBuffer;
use crate::wide::{Lane, RUN_ROWS, page_bounds};

/// Runs of a sampled page: its start, middle and end, so that drift within the page shows.
const RUNS_PER_PAGE: usize = 3;
/// Pages sampled of a long chunk.
const SAMPLE_PAGES_MAX: usize = 16;
/// Pages sampled of a short one.
const SAMPLE_PAGES_MIN: usize = 2;

/// Sampled runs, page after page.
#[derive(Debug)]
pub(crate) struct Sample<'a, L> {
    /// Runs of [`RUN_ROWS`] values.
    pub(crate) values: &'a mut [L],
    /// Values that come from the same page.
    pub(crate) page_rows: usize,
}

impl<'a, L: Lane> Sample<'a, L> {
    /// Samples the full pages of a chunk; `None` when it has none.
    pub(crate) fn of_chunk(values: &[L], buffer: &'a mut PageBuffer) -> Option<Self> {
        let pages = values.len() / PAGE_ROWS;
        let sampled = (pages / 16)
            .clamp(SAMPLE_PAGES_MIN, SAMPLE_PAGES_MAX)
            .min(pages);
        let room = buffer.lanes::<L>();
        let page_rows = RUNS_PER_PAGE * RUN_ROWS;
        for index in 0..sampled {
            let page = (index * pages / sampled) * PAGE_ROWS;
            let page = &values[page..page + PAGE_ROWS];
            take_runs(page, &mut room[index * page_rows..][..page_rows]);
        }
        (sampled > 0).then(|| Self {
            values: &mut room[..sampled * page_rows],
            page_rows,
        })
    }

    /// Samples one page, more closely; `None` when it is short.
    pub(crate) fn of_page(values: &[L], buffer: &'a mut PageBuffer) -> Option<Self> {
        let page_rows = 16 * RUN_ROWS;
        let room = &mut buffer.lanes::<L>()[..page_rows];
        if values.len() < page_rows {
            return None;
        }
        take_runs(values, room);
        Some(Self {
            values: room,
            page_rows,
        })
    }

    /// How integers like these should be tried.
    pub(crate) fn plan_integers(&self, flip: L) -> IntegerPlan {
        // Bytes of a page in each mode, for each sampled page.
        let mut frames = [0; SAMPLE_PAGES_MAX];
        let mut deltas = [0; SAMPLE_PAGES_MAX];
        let mut runs = [0; SAMPLE_PAGES_MAX];
        let mut pages = 0;
        for page in self.values.chunks(self.page_rows).take(SAMPLE_PAGES_MAX) {
            let seen = page_bounds(page, flip);
            let packed_bytes =
                |low: L, high: L| high.wsub(low).bit_width() as usize * PAGE_ROWS / 8;
            frames[pages] = 4 + L::BYTES + packed_bytes(seen.low, seen.high);
            deltas[pages] = 4 + 2 * L::BYTES + packed_bytes(seen.low_delta, seen.high_delta);
            let neighbours = page.len() / RUN_ROWS * (RUN_ROWS - 1);
            runs[pages] = 4 + (1 + seen.changes * PAGE_ROWS / neighbours) * (2 + L::BYTES);
            pages += 1;
        }
        let [frame, delta, run] =
            [&mut frames, &mut deltas, &mut runs].map(|bytes| middle(&mut bytes[..pages]));
        let mut best = (PageMode::FrameOfReference, frame, frame);
        // The same weights as for single pages.
        for (mode, bytes) in [(PageMode::Delta, delta), (PageMode::RunLength, run)] {
            if bytes + bytes / 16 < best.2 {
                best = (mode, bytes, bytes + bytes / 16);
            }
        }
        IntegerPlan {
            mode: Some(best.0),
            page_bytes: best.1.min(PAGE_ROWS * L::BYTES),
            forced: false,
        }
    }

    /// About how many distinct values there are; `None` when hardly any value repeats.
    pub(crate) fn distinct_values(&self) -> Option<usize> {
        distinct_values(self.values)
    }
}

/// About how many distinct values there are; `None` when hardly any value repeats.
pub(crate) fn distinct_values<T: Copy + Default + PartialEq>(values: &[T]) -> Option<usize> {
    const LOOK: usize = 48;
    let mut seen = [T::default(); LOOK];
    let (mut distinct, mut looked) = (0, 0);
    let step = (values.len() / LOOK).max(1);
    for &value in values.iter().step_by(step).take(LOOK) {
        looked += 1;
        if !seen[..distinct].contains(&value) {
            seen[distinct] = value;
            distinct += 1;
        }
        // Most values were new so far: no need to look at the rest.
        if looked == LOOK / 3 && distinct + 2 > looked {
            return None;
        }
    }
    // The fewer repeat, the more are still unseen.
    (distinct * 4 <= looked * 3).then(|| distinct * looked / (looked - distinct))
}

/// Copies evenly spread runs of a page, the first from its start, the last from its end.
fn take_runs<L: Copy>(page: &[L], room: &mut [L]) {
    let runs = room.len() / RUN_ROWS;
    for (index, run) in room.chunks_exact_mut(RUN_ROWS).enumerate() {
        let start = index * (page.len() - RUN_ROWS) / (runs - 1);
        run.copy_from_slice(&page[start..start + RUN_ROWS]);
    }
}

/// The lower of the two middle values, or the middle one.
fn middle(bytes: &mut [usize]) -> usize {
    bytes.sort_unstable();
    bytes[(bytes.len() - 1) / 2]
}
