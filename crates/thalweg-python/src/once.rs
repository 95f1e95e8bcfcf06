//! Values that are made once per process, when they are first asked for.
//!
//! Invariant: no fork comes between the beginning and the end of making something. `os.fork` needs the interpreter, and here it
//! is held from before a cell is taken until it is full. PyO3's `intern!` and `PyOnceLock` release it while they hold the
//! cell: a child whose parent forked just then waited for ever for a thread that it does not have. PyO3's own cells are filled
//! when the module is loaded.

use pyo3::prelude::*;
use pyo3::types::{PyDate, PyDateTime, PyDelta, PyString, PyTzInfo};
use pyo3_arrow::PyRecordBatchReader;
use std::sync::OnceLock;

/// Fills the cells of PyO3 that this package uses: the types it looks up or makes when they are first needed.
pub(crate) fn fill_cells_of_pyo3(py: Python<'_>) -> PyResult<()> {
    // PyO3 checks once per process, on the first attach, that an interpreter exists; do that now, because during
    // finalisation the check fails.
    py.detach(|| Python::attach(|_| ()));
    py.get_type::<PyDateTime>();
    py.get_type::<PyDate>();
    py.get_type::<PyDelta>();
    py.get_type::<PyTzInfo>();
    py.get_type::<PyRecordBatchReader>();
    PyTzInfo::utc(py)?;
    PyTzInfo::fixed_offset(py, PyDelta::new(py, 0, 0, 0, false)?)?;
    // Without time zones installed there is none; the type is filled all the same.
    let _ = PyTzInfo::timezone(py, "UTC");
    Ok(())
}

/// Returns the value of a cell. An empty cell is filled with what `make` returns; if another thread filled it meanwhile, its value counts.
pub(crate) fn once<T>(
    cell: &'static OnceLock<T>,
    make: impl FnOnce() -> PyResult<T>,
) -> PyResult<&'static T> {
    if let Some(value) = cell.get() {
        return Ok(value);
    }
    let made = make()?;
    Ok(cell.get_or_init(|| made))
}

/// An interned name, kept in a cell.
pub(crate) fn interned<'py>(
    py: Python<'py>,
    cell: &'static OnceLock<Py<PyString>>,
    text: &str,
) -> &'py Bound<'py, PyString> {
    if let Some(name) = cell.get() {
        return name.bind(py);
    }
    let made = PyString::intern(py, text).unbind();
    cell.get_or_init(|| made).bind(py)
}

/// A name of Python that is made once: `name!(py, "read_all")`.
macro_rules! name {
    ($py:expr, $text:expr) => {{
        static NAME: std::sync::OnceLock<pyo3::Py<pyo3::types::PyString>> =
            std::sync::OnceLock::new();
        $crate::once::interned($py, &NAME, $text)
    }};
}
pub(crate) use name;
