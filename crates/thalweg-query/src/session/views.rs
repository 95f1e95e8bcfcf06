//! CREATE VIEW, and what there is to see of views.

use super::Session;
use crate::catalog::Resolver;
use crate::ddl;
use crate::new_view::NewView;
use crate::params::BoundParams;
use crate::result::QueryResult;
use crate::views;
use thalweg_table::{DatabaseView, Error, ErrorKind, Result, ViewDefinition};

impl Session {
    /// Stores a view, once its query was planned: a mistake in it is better found now than by the first who reads it.
    pub(super) fn create_view(&self, new: &NewView) -> Result<QueryResult> {
        let engine = &self.shared.engine;
        let definition = ViewDefinition {
            query: new.query.clone(),
            columns: new.columns.clone(),
        };
        let view = engine.snapshot()?;
        let is_taken = view.stored_view(&new.name).is_some() || view.table(&new.name).is_ok();
        if new.if_not_exists && is_taken {
            return Ok(QueryResult::count(0));
        }
        let no_params = BoundParams::default();
        let planner = self.shared.plans.planner();
        let resolver = Resolver::new(planner, &view, &[], &no_params);
        views::check(&resolver, &new.name, &definition).map_err(|error| {
            let message = format!("view \"{}\": {}", new.name, error.message());
            Error::new(error.kind(), message)
        })?;
        let made = match new.or_replace {
            true => engine.replace_view(&new.name, &definition),
            false => engine.create_view(&new.name, &definition),
        };
        match made {
            // Others have made one meanwhile.
            Err(error) if new.if_not_exists && error.kind() == ErrorKind::AlreadyExists => {}
            done => done?,
        }
        Ok(QueryResult::count(0))
    }

    /// DESCRIBE of a table or a view.
    pub(super) fn describe(&self, view: &DatabaseView, name: &str) -> Result<QueryResult> {
        let Some(stored) = view.stored_view(name) else {
            return ddl::describe(view, name);
        };
        let no_params = BoundParams::default();
        let resolver = Resolver::new(self.shared.plans.planner(), view, &[], &no_params);
        ddl::describe_rows(&*views::schema_of(&resolver, &stored)?)
    }
}
