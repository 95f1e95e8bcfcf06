//! The transaction of a session: what statements between BEGIN and COMMIT see and change.

use super::Session;
use crate::error::{query, unsupported};
use crate::parse::Request;
use crate::transactions::Step;
use std::sync::Arc;
use thalweg_table::{DatabaseView, Engine, Error, Result, Table, Transaction};

impl Session {
    /// Begins a transaction, as BEGIN does: from now on all statements of this session see one snapshot and their own changes, which
    /// are stored together by [`Self::commit`].
    ///
    /// # Errors
    /// `Query` where one is open already; `Unavailable` where the database or the session only reads.
    pub fn begin(&self) -> Result<()> {
        self.check_writes()?;
        let mut current = self.transaction.lock();
        if current.is_some() {
            return Err(query(
                "a transaction is open already: COMMIT or ROLLBACK ends it",
            ));
        }
        *current = Some(Arc::new(self.shared.engine.transaction()?));
        Ok(())
    }

    /// Stores all changes of the transaction in one commit, as COMMIT does. Where that fails, nothing of it is stored, and the
    /// transaction is over as well.
    ///
    /// # Errors
    /// `Query` where another commit has changed a row that this one changes, and where no transaction is open; whatever storing leads
    /// to.
    pub fn commit(&self) -> Result<()> {
        self.ended()?.commit(self.settings.durability)
    }

    /// Gives all changes of the transaction up, as ROLLBACK does.
    ///
    /// # Errors
    /// `Query` where no transaction is open.
    pub fn rollback(&self) -> Result<()> {
        self.ended()?.rollback();
        Ok(())
    }

    /// Whether a transaction is open.
    #[must_use]
    pub fn is_in_transaction(&self) -> bool {
        self.transaction.lock().is_some()
    }

    /// The table of that name, in any case. Where a transaction is open, the calls of the handle are part of it.
    ///
    /// # Errors
    /// `NotFound`, listing what there is.
    pub fn table(&self, name: &str) -> Result<Table> {
        self.scope().table(name)
    }

    /// All tables as statements of this session see them now.
    ///
    /// # Errors
    /// When a reading process cannot see the newest commit; `Query` where the transaction was open for too long.
    pub fn snapshot(&self) -> Result<DatabaseView> {
        self.scope().snapshot()
    }

    /// The scope of a statement that begins now.
    pub(super) fn scope(&self) -> Scope<'_> {
        Scope {
            engine: &self.shared.engine,
            transaction: self.transaction.lock().clone(),
        }
    }

    pub(super) fn step(&self, step: Step) -> Result<()> {
        match step {
            Step::Begin => self.begin(),
            Step::Commit => self.commit(),
            Step::Rollback => self.rollback(),
        }
    }

    fn ended(&self) -> Result<Arc<Transaction>> {
        let transaction = self.transaction.lock().take();
        transaction.ok_or_else(|| query("no transaction is open: BEGIN begins one"))
    }
}

/// The transaction that a statement is part of, or that it is a commit by itself.
///
/// A statement asks for tables and snapshots more than once, and again after a lost race. Were each answer that of the session at this
/// moment, a BEGIN of another thread in between would give it a table outside and rows inside of a transaction.
#[derive(Clone)]
pub(super) struct Scope<'a> {
    engine: &'a Engine,
    transaction: Option<Arc<Transaction>>,
}

impl Scope<'_> {
    pub(super) fn table(&self, name: &str) -> Result<Table> {
        match &self.transaction {
            Some(transaction) => transaction.table(name),
            None => self.engine.table(name),
        }
    }

    pub(super) fn snapshot(&self) -> Result<DatabaseView> {
        match &self.transaction {
            Some(transaction) => transaction.snapshot(),
            None => self.engine.snapshot(),
        }
    }

    /// Refuses what a transaction cannot hold.
    pub(super) fn check_fits(&self, request: &Request) -> Result<()> {
        let what = match request {
            Request::CreateTable(_) => "CREATE TABLE",
            Request::AlterTable(_) => "ALTER TABLE",
            Request::CreateView(_) => "CREATE VIEW",
            Request::Drop { views: true, .. } => "DROP VIEW",
            Request::Drop { views: false, .. } => "DROP TABLE",
            _ => return Ok(()),
        };
        if self.transaction.is_none() {
            return Ok(());
        }
        Err(not_in_transaction(what))
    }
}

/// The error for a kind of statement that a transaction cannot hold.
#[must_use]
pub fn not_in_transaction(what: &str) -> Error {
    unsupported(format!(
        "{what} within a transaction is not offered by this version: run it before BEGIN or after COMMIT"
    ))
}
