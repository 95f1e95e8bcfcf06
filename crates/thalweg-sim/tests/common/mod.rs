//! What test binaries of the stages share: an allocator that counts, and the hooks of the library.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use thalweg_sim::hooks::{self, Hooks};

/// The allocator of the system; counts what each thread allocates and frees.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static ALLOCATED: Cell<i64> = const { Cell::new(0) };
}

fn count(bytes: usize, sign: i64) {
    let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    // A thread that ends has no counter any more.
    let _ = ALLOCATED.try_with(|all| all.set(all.get() + sign * bytes));
}

// SAFETY: every call goes to the allocator of the system as it comes; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: the caller's promises are those of the callee.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(layout.size(), -1);
        // SAFETY: the caller's promises are those of the callee.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 1);
        // SAFETY: the caller's promises are those of the callee.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, new_bytes: usize) -> *mut u8 {
        count(layout.size(), -1);
        count(new_bytes, 1);
        // SAFETY: the caller's promises are those of the callee.
        unsafe { System.realloc(at, layout, new_bytes) }
    }
}

/// Sets the hooks of this binary.
pub(crate) fn set_hooks() {
    hooks::set(Hooks {
        limit_page_entries: thalweg_kernel::limit_page_entries,
        allocated_bytes: || ALLOCATED.get(),
    });
}
