//! Where cells of a box lie in two places: in a page, and in the memory they go to.
//!
//! Invariant: dimensions of one cell are left out, and those without gaps in both places are one; so the fastest run of a box is as
//! long as it can be.

use thalweg_kernel::block::MAX_DIMENSIONS;

/// Where the wanted cells of a page lie: in the page and in the memory they go to.
pub(super) struct Spread {
    /// Length, distance in the page and in memory of the dimensions, the slowest of the page first. Those of one cell are left out,
    /// and those without gaps are one.
    dimensions: [(usize, usize, usize); MAX_DIMENSIONS],
    count: usize,
    pub(super) cells: usize,
    pub(super) from: usize,
    pub(super) to: usize,
}

impl Spread {
    pub(super) fn empty() -> Self {
        Self {
            dimensions: [(0, 0, 0); MAX_DIMENSIONS],
            count: 0,
            cells: 1,
            from: 0,
            to: 0,
        }
    }

    /// Adds a faster dimension.
    pub(super) fn add(&mut self, length: usize, from: usize, to: usize) {
        self.cells *= length;
        if length == 1 {
            return;
        }
        if let Some(last) = self.dimensions[..self.count].last_mut()
            && last.1 == from * length
            && last.2 == to * length
        {
            *last = (last.0 * length, from, to);
            return;
        }
        self.dimensions[self.count] = (length, from, to);
        self.count += 1;
    }

    /// Whether they are all cells of a page, in the same order and without gaps in both places.
    pub(super) fn is_whole(&self, rows: usize) -> bool {
        let is_run = match self.dimensions[..self.count] {
            [] => true,
            [(_, from, to)] => (from, to) == (1, 1),
            _ => false,
        };
        is_run && self.cells == rows
    }

    /// Calls `run` with where each run of the fastest dimension begins in both places, and with that dimension.
    pub(super) fn each_run(&self, mut run: impl FnMut(usize, usize, (usize, usize, usize))) {
        let (outer, fastest) = match self.dimensions[..self.count].split_last() {
            None => (&[][..], (1, 1, 1)),
            Some((fastest, outer)) => (outer, *fastest),
        };
        let mut index = [0; MAX_DIMENSIONS];
        let (mut from, mut to) = (self.from, self.to);
        loop {
            run(from, to, fastest);
            let mut at = outer.len();
            loop {
                let Some(faster) = at.checked_sub(1) else {
                    return;
                };
                at = faster;
                let (length, distance, target) = outer[at];
                index[at] += 1;
                from += distance;
                to += target;
                if index[at] < length {
                    break;
                }
                index[at] = 0;
                from -= length * distance;
                to -= length * target;
            }
        }
    }

    /// Calls `take` with the places of each cell, up to the first error.
    pub(super) fn each_cell<E>(
        &self,
        mut take: impl FnMut(usize, usize) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut outcome = Ok(());
        self.each_run(|from, to, (length, distance, target)| {
            for cell in 0..length {
                if outcome.is_ok() {
                    outcome = take(from + cell * distance, to + cell * target);
                }
            }
        });
        outcome
    }

    pub(super) fn copy<C: Copy>(&self, page: &[C], cells: &mut [C]) {
        self.each_run(|from, to, (length, distance, target)| {
            if (distance, target) == (1, 1) {
                cells[to..to + length].copy_from_slice(&page[from..from + length]);
                return;
            }
            let page = page[from..].iter().step_by(distance.max(1));
            let cells = cells[to..].iter_mut().step_by(target);
            for (cell, value) in cells.zip(page).take(length) {
                *cell = *value;
            }
        });
    }
}
