//! BEGIN, COMMIT and ROLLBACK: what a session does with its transaction.
//!
//! Invariant: what is accepted means the same as without its options. A level of isolation that snapshot isolation does not reach is
//! refused, never taken for less.

use crate::error::unsupported;
use datafusion_sql::sqlparser::ast::{
    Statement as SqlStatement, TransactionAccessMode, TransactionIsolationLevel, TransactionMode,
    TransactionModifier,
};
use thalweg_table::Result;

/// The step of a transaction that a statement takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Begin,
    Commit,
    Rollback,
}

impl Step {
    /// The step of a statement; `None` for one that is no part of a transaction's frame.
    pub(crate) fn of(statement: &SqlStatement) -> Result<Option<Self>> {
        let step = match statement {
            SqlStatement::StartTransaction {
                modes,
                modifier,
                statements,
                exception,
                ..
            } => {
                check_modes(modes)?;
                match modifier {
                    None | Some(TransactionModifier::Deferred) => {}
                    Some(other) => {
                        return Err(unsupported(format!(
                            "BEGIN {other} is not offered: a transaction keeps nobody else from writing, and the first one to commit \
                             wins; write BEGIN"
                        )));
                    }
                }
                if !statements.is_empty() || exception.is_some() {
                    return Err(unsupported(
                        "a block of statements is not offered: BEGIN stands alone, and COMMIT ends the transaction",
                    ));
                }
                Self::Begin
            }
            SqlStatement::Commit {
                chain, modifier, ..
            } => {
                check_end(*chain, modifier.is_some())?;
                Self::Commit
            }
            SqlStatement::Rollback { chain, savepoint } => {
                check_end(*chain, false)?;
                if savepoint.is_some() {
                    return Err(no_savepoints());
                }
                Self::Rollback
            }
            SqlStatement::Savepoint { .. } | SqlStatement::ReleaseSavepoint { .. } => {
                return Err(no_savepoints());
            }
            _ => return Ok(None),
        };
        Ok(Some(step))
    }
}

fn no_savepoints() -> thalweg_table::Error {
    unsupported(
        "savepoints are not offered by this version; a statement that fails changes nothing, and its transaction goes on",
    )
}

fn check_modes(modes: &[TransactionMode]) -> Result<()> {
    for mode in modes {
        match mode {
            TransactionMode::IsolationLevel(TransactionIsolationLevel::Serializable) => {
                return Err(unsupported(
                    "ISOLATION LEVEL SERIALIZABLE is not offered: transactions have snapshot isolation, where two of them may each \
                     change what the other one has only read",
                ));
            }
            TransactionMode::AccessMode(TransactionAccessMode::ReadOnly) => {
                return Err(unsupported(
                    "READ ONLY is not offered for one transaction: open the database or the session with read_only",
                ));
            }
            TransactionMode::IsolationLevel(_)
            | TransactionMode::AccessMode(TransactionAccessMode::ReadWrite) => {}
        }
    }
    Ok(())
}

fn check_end(chain: bool, has_modifier: bool) -> Result<()> {
    if chain || has_modifier {
        return Err(unsupported(
            "COMMIT and ROLLBACK stand alone: the next transaction begins with a BEGIN of its own",
        ));
    }
    Ok(())
}
