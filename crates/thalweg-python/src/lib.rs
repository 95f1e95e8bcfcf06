//! The Python package of Thalweg: `import thalweg`.
//!
//! Invariants
//! - No logic of a database is here: Python objects become Arrow and values of the engine, and the other way round.
//! - Nothing that may wait holds the interpreter.
//! - Unsafe code is in `interpreter` alone.
//! - Every exception that is raised on purpose is a `thalweg.Error`.
//! - A child of a fork neither uses nor drops what it has inherited (`process`).
#![deny(unsafe_code)]

mod appender;
mod cells;
mod database;
mod error;
mod finalize;
mod foreign;
mod input;
mod interpreter;
mod many;
mod once;
mod one_row;
mod options;
mod process;
mod result;
mod row;
mod scan;
mod schema;
mod sharing;
mod show;
mod signals;
mod table;
mod transaction;
mod value;

use pyo3::prelude::*;
use tikv_jemallocator::Jemalloc;

/// Results of some megabytes come and go. Given back to the system and taken again, each costs a page fault per 4 KiB,
/// half the time of a large scan: this allocator keeps what is freed for some seconds. And it survives a fork.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// The compiled part of the package.
#[pymodule(name = "_thalweg")]
fn compiled(module: &Bound<'_, PyModule>) -> PyResult<()> {
    once::fill_cells_of_pyo3(module.py())?;
    finalize::register(module)?;
    error::register(module)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<database::PyDatabase>()?;
    module.add_class::<database::PyPrepared>()?;
    module.add_class::<table::PyTable>()?;
    module.add_class::<transaction::PyTransaction>()?;
    module.add_class::<appender::PyAppender>()?;
    module.add_class::<result::PyQueryResult>()?;
    module.py().get_type::<result::Batches>();
    module.add_function(wrap_pyfunction!(result::csv_header, module)?)?;
    module.add_function(wrap_pyfunction!(result::csv_rows, module)?)?;
    module.add_function(wrap_pyfunction!(schema::type_words, module)?)?;
    module.add_function(wrap_pyfunction!(database::connect, module)?)
}
