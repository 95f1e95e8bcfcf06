//! Pages that a change needs, loaded before anything is changed.

use super::page::{Page, PageLoader};
use super::{Address, Entry};
use crate::error::Result;
use crate::ids::TableId;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

/// A loader that keeps what it loads: a page that was found once is found again, whatever a cache lets go of.
pub(crate) struct HeldPages<L> {
    loader: L,
    held: RefCell<HashMap<Address, Arc<Page>>>,
}

impl<L: PageLoader> HeldPages<L> {
    pub(crate) fn new(loader: L) -> Self {
        Self {
            loader,
            held: RefCell::default(),
        }
    }

    /// Bytes that the held pages take on disk.
    pub(crate) fn bytes(&self) -> u64 {
        let held = self.held.borrow();
        held.keys().map(|address| u64::from(address.bytes)).sum()
    }
}

impl<L: PageLoader> PageLoader for HeldPages<L> {
    fn load_page(&self, table: TableId, entry: &Entry) -> Result<Arc<Page>> {
        if let Some(page) = self.held.borrow().get(&entry.address)
            && page.is_at(table, entry)
        {
            return Ok(Arc::clone(page));
        }
        let page = self.loader.load_page(table, entry)?;
        let mut held = self.held.borrow_mut();
        held.insert(entry.address, Arc::clone(&page));
        Ok(page)
    }

    fn keep_page(&self, page: &Arc<Page>) {
        self.loader.keep_page(page);
    }
}
