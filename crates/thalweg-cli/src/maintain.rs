//! `thalweg maintain`: late rows in order, and short blocks together. Ctrl-C ends it at once: what was done until then stays
//! done.

use crate::arguments::MaintainCall;
use crate::failure::Failure;
use crate::sql::counted;
use thalweg::Database;

/// `thalweg maintain`.
pub(crate) fn run(call: &MaintainCall) -> Result<(), Failure> {
    let db = Database::builder().must_exist(true).open(&call.database)?;
    let done = match &call.table {
        Some(name) => db.table(name)?.maintain()?,
        None => db.maintain()?,
    };
    db.close()?;
    match done.steps {
        0 => eprintln!("everything was in order"),
        steps => eprintln!(
            "wrote {} anew in {}",
            counted(done.rows, "row"),
            counted(steps, "commit")
        ),
    }
    Ok(())
}
