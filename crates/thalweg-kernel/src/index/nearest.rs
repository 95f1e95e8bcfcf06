//! A walk through an index by a bound, the least first: nearest neighbours by the distance of boxes, the newest rows, the largest
//! values (Hjaltason and Samet, Distance browsing in spatial databases, 1999).
//!
//! Invariants: blocks come in ascending bounds, though of an entry no more is known than a bound of all below it; a page is opened
//! only when no block with a smaller bound is known. So the first k blocks open no page that a walk for k blocks could leave
//! closed. A page is kept as long as one of its entries waits.

use super::Entry;
use super::page::{Child, Page, PageLoader};
use super::walk::{Heritage, open_page};
use crate::error::{Error, Result};
use crate::ids::TableId;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// A walk by a bound. See [`Nearest::next`].
#[derive(Debug)]
pub struct Nearest<L> {
    loader: L,
    table: TableId,
    root: Option<Arc<Child>>,
    /// Open pages by their numbers.
    open: Vec<Option<OpenPage>>,
    /// Numbers of pages of which no entry waits any more.
    free: Vec<u32>,
    pages: usize,
    waiting: BinaryHeap<Waiting>,
    /// In the place of all blocks.
    refused: Option<Error>,
}

#[derive(Debug)]
struct OpenPage {
    page: Arc<Page>,
    /// How many of its entries wait.
    waiting: usize,
    depth: u32,
    heritage: Option<Heritage>,
}

/// An entry of an open page.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    bound: f64,
    is_block: bool,
    /// The number of the page among the open ones.
    page: u32,
    /// The number of the entry in it.
    entry: u32,
}

impl<L: PageLoader> Nearest<L> {
    pub(super) fn new(
        table: TableId,
        root: Option<Arc<Child>>,
        loader: L,
        refused: Option<Error>,
    ) -> Self {
        Self {
            loader,
            table,
            root,
            open: Vec::new(),
            free: Vec::new(),
            pages: 0,
            waiting: BinaryHeap::new(),
            refused,
        }
    }

    /// The block of the least bound of those that are left, with that bound; `None` at the end. `bound` is asked once about each
    /// entry of the pages that are opened, of which `None` leaves out all that is below. It is to be no larger for a page than
    /// for any entry below; where it is, the page's bound is taken for the entry's. Of equal bounds any may come first. Errors end
    /// the walk as well.
    ///
    /// # Errors
    /// When a page cannot be loaded.
    pub fn next(
        &mut self,
        mut bound: impl FnMut(&Entry) -> Option<f64>,
    ) -> Result<Option<(f64, Entry)>> {
        let next = self.advance(&mut bound);
        if !matches!(next, Ok(Some(_))) {
            (self.root, self.waiting) = (None, BinaryHeap::new());
            (self.open, self.free) = (Vec::new(), Vec::new());
        }
        next
    }

    /// Pages opened so far, from memory or not.
    #[must_use]
    pub fn pages(&self) -> usize {
        self.pages
    }

    fn advance(
        &mut self,
        bound: &mut impl FnMut(&Entry) -> Option<f64>,
    ) -> Result<Option<(f64, Entry)>> {
        if let Some(error) = self.refused.take() {
            return Err(error);
        }
        if let Some(root) = self.root.take()
            && let Some(least) = bound(&root.entry)
        {
            self.open(&root, least, 1, Heritage::below(&root.entry), bound)?;
        }
        while let Some(next) = self.waiting.pop() {
            let place = &mut self.open[next.page as usize];
            let Some(parent) = place else {
                unreachable!("a bug: an entry waits of a page that is not open");
            };
            let (depth, heritage) = (parent.depth + 1, parent.heritage);
            let child = Arc::clone(&parent.page.children()[next.entry as usize]);
            parent.waiting -= 1;
            if parent.waiting == 0 {
                *place = None;
                self.free.push(next.page);
            }
            let given = Heritage::give(heritage, &child.entry);
            if next.is_block {
                let entry = given.unwrap_or_else(|| child.entry.clone());
                return Ok(Some((next.bound, entry)));
            }
            let below = match given {
                Some(_) => heritage,
                None => Heritage::below(&child.entry),
            };
            self.open(&child, next.bound, depth, below, bound)?;
        }
        Ok(None)
    }

    fn open(
        &mut self,
        child: &Child,
        least: f64,
        depth: u32,
        heritage: Option<Heritage>,
        bound: &mut impl FnMut(&Entry) -> Option<f64>,
    ) -> Result<()> {
        let page = open_page(self.table, child, depth, &self.loader)?;
        self.pages += 1;
        let number = self.free.pop().unwrap_or_else(|| {
            self.open.push(None);
            u32::try_from(self.open.len() - 1).unwrap_or(u32::MAX)
        });
        let before = self.waiting.len();
        for (at, child) in (0..).zip(page.children()) {
            let given = Heritage::give(heritage, &child.entry);
            let entry = given.as_ref().unwrap_or(&child.entry);
            if let Some(bound) = bound(entry) {
                self.waiting.push(Waiting {
                    bound: if bound >= least { bound } else { least },
                    is_block: entry.is_block(),
                    page: number,
                    entry: at,
                });
            }
        }
        let waiting = self.waiting.len() - before;
        if waiting == 0 {
            self.free.push(number);
            return Ok(());
        }
        self.open[number as usize] = Some(OpenPage {
            page,
            waiting,
            depth,
            heritage,
        });
        Ok(())
    }
}

impl Ord for Waiting {
    /// The largest comes out of the heap first: the least bound, and of equal ones a block.
    fn cmp(&self, other: &Self) -> Ordering {
        let by_bound = other.bound.total_cmp(&self.bound);
        by_bound
            .then(self.is_block.cmp(&other.is_block))
            .then((other.page, other.entry).cmp(&(self.page, self.entry)))
    }
}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Waiting {}
