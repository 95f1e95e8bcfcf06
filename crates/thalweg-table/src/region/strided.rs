//! Memory of a caller, in which cells of several dimensions lie.
//!
//! Invariant: no two cells lie at the same place, and all of them within the memory.

use crate::error::invalid;
use thalweg_kernel::Result;
use thalweg_kernel::block::MAX_DIMENSIONS;

/// Memory in which cells of several dimensions lie.
///
/// ```
/// use thalweg_table::Strided;
///
/// let mut image = vec![0_u16; 12]; // 3 rows of 4 pixels
/// assert!(Strided::row_major(&mut image, vec![3, 4]).is_ok());
/// assert!(Strided::row_major(&mut image, vec![4, 4]).is_err()); // more cells than memory
/// assert!(Strided::new(&mut image, vec![4, 3], vec![1, 4]).is_ok()); // the same, transposed
/// assert!(Strided::new(&mut image, vec![3, 4], vec![1, 1]).is_err()); // two cells at one place
/// ```
#[derive(Debug)]
pub struct Strided<'a, T> {
    pub(super) cells: &'a mut [T],
    pub(super) extents: Vec<usize>,
    pub(super) strides: Vec<usize>,
}

impl<'a, T> Strided<'a, T> {
    /// The cell with the index `i` lies at the sum of `i[d] * strides[d]`.
    ///
    /// # Errors
    /// `Invalid` when cells lie beyond the end, or two of them at the same place.
    pub fn new(cells: &'a mut [T], extents: Vec<usize>, strides: Vec<usize>) -> Result<Self> {
        let count = extents.len();
        if count != strides.len() || count == 0 || count > MAX_DIMENSIONS {
            return Err(invalid("memory of another number of dimensions"));
        }
        let mut dimensions: Vec<_> = strides
            .iter()
            .copied()
            .zip(extents.iter().copied())
            .collect();
        dimensions.sort_unstable();
        if extents.iter().all(|extent| *extent > 0) {
            let mut last = 0_usize;
            for (stride, extent) in dimensions.into_iter().filter(|(_, extent)| *extent > 1) {
                if stride <= last {
                    return Err(invalid("two cells at the same place of the memory"));
                }
                let added = stride.checked_mul(extent - 1);
                let sum = added.and_then(|added| last.checked_add(added));
                last = sum.ok_or_else(|| invalid("cells beyond the end of the memory"))?;
            }
            if last >= cells.len() {
                return Err(invalid("cells beyond the end of the memory"));
            }
        }
        Ok(Self {
            cells,
            extents,
            strides,
        })
    }

    /// Cells without gaps, the last dimension running fastest.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn row_major(cells: &'a mut [T], extents: Vec<usize>) -> Result<Self> {
        let mut strides = vec![0; extents.len()];
        let mut stride = 1_usize;
        for (at, extent) in extents.iter().enumerate().rev() {
            strides[at] = stride;
            stride = stride.saturating_mul(*extent);
        }
        Self::new(cells, extents, strides)
    }
}
