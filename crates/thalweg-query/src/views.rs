//! Views in queries: a name that means a view becomes the plan of its query.
//!
//! Invariants: the text of a view is planned when a statement reads it, against what is there then, apart from the statement around it:
//! it sees neither the names of its WITH, nor its parameters, nor tables that a caller has handed in. From then on its plan is part of
//! that of the statement, and optimised with it. A view is planned once for each statement. However views read each other, planning
//! them ends: a view inside of itself is an error, and the depth and number of all are bounded.

use crate::catalog::Resolver;
use crate::depths::Depths;
use crate::dialect::output_names::visible;
use crate::error::{from_datafusion, query};
use crate::params::BoundParams;
use crate::parse::{Request, is_explain, parse};
use crate::plans::unoptimised;
use crate::stack::with_room;
use arrow::datatypes::SchemaRef;
use datafusion::common::Column;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, TableSource, TableType};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use thalweg_table::schema::fold_name;
use thalweg_table::{DatabaseView, Error, ErrorKind, Result, StoredView, ViewDefinition};

/// Views that read each other, one inside of the other.
const MAX_DEPTH: usize = 32;
/// Tables that a statement reads through views, each as often as it is read.
const MAX_TABLES: usize = 1_000;
/// Bytes of the queries of the views that a statement reads, each as often as it is read. A single view may have more.
const MAX_TEXT_BYTES: usize = 16 << 20;

/// A view as part of a statement.
#[derive(Debug)]
pub(crate) struct Expanded {
    plan: LogicalPlan,
    schema: SchemaRef,
    size: Size,
}

/// The size of what a query reads through views.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Size {
    /// Views, one inside of the other.
    levels: usize,
    tables: usize,
    text_bytes: usize,
    depths: Depths,
}

impl Size {
    /// The size with one more table, which is none of the views.
    pub(crate) fn with_table(self) -> Self {
        Self {
            tables: self.tables + 1,
            ..self
        }
    }

    /// The size with one more view.
    pub(crate) fn with(self, view: &Expanded) -> Result<Self> {
        let both = Self {
            levels: self.levels.max(view.size.levels),
            tables: self.tables + view.size.tables,
            text_bytes: self.text_bytes + view.size.text_bytes,
            depths: self.depths.beside(view.size.depths),
        };
        if both.tables > MAX_TABLES {
            return Err(limit(format!(
                "a statement reads at most {MAX_TABLES} tables through views, each as often as it is named"
            )));
        }
        if both.text_bytes > MAX_TEXT_BYTES.max(view.size.text_bytes) {
            return Err(limit(format!(
                "the queries of all views that a statement reads have at most {MAX_TEXT_BYTES} bytes, each as often as it is named"
            )));
        }
        Ok(both)
    }

    /// Refuses a query of these depths that reads views of this size.
    pub(crate) fn check_inside(self, query: Depths) -> Result<()> {
        match self.depths == Depths::default() {
            true => Ok(()),
            false => query.around(self.depths).map(drop),
        }
    }
}

fn too_deep() -> Error {
    limit(format!(
        "views that read views are at most {MAX_DEPTH} deep: put some of the queries together"
    ))
}

fn limit(message: String) -> Error {
    Error::new(ErrorKind::Limit, message)
}

/// The views that a statement has met so far, by folded names: those that cannot be planned as well, so that none is tried twice.
pub(crate) type Known = HashMap<String, (StoredView, Result<Arc<Expanded>>)>;

/// Plans a view of a statement, for a query with the views of `path` around it.
pub(crate) fn expanded(resolver: &Resolver<'_>, view: &StoredView) -> Result<Arc<Expanded>> {
    let name = fold_name(view.name());
    if resolver.path().contains(&name) {
        return Err(query(format!(
            "it reads the view \"{}\", which would read itself: CREATE OR REPLACE VIEW gives one of them another query",
            view.name()
        )));
    }
    if let Some(known) = resolver.known_view(&name) {
        return known;
    }
    let definition = view.definition()?;
    let planned = if resolver.path().len() < MAX_DEPTH {
        with_room(|| planned(resolver, view.name(), &definition))
    } else {
        Err(too_deep())
    };
    let planned = planned.map(Arc::new).map_err(|error| {
        let message = format!("view \"{}\": {}", view.name(), error.message());
        Error::new(error.kind(), message)
    });
    resolver.note_view(name, view.clone(), planned.clone());
    planned
}

/// The plan of a view with this definition.
fn planned(resolver: &Resolver<'_>, name: &str, definition: &ViewDefinition) -> Result<Expanded> {
    let parsed = parse(&definition.query)?;
    let written = match &parsed.request {
        Request::Query(written) if !is_explain(written) => written,
        _ => return Err(query("a view takes a query, such as SELECT")),
    };
    if !parsed.placeholders.names.is_empty() {
        return Err(query("a view has no parameters"));
    }
    let no_params = BoundParams::default();
    let inside = resolver.inside(fold_name(name), &no_params);
    let plan = unoptimised(&parsed, written, &inside, &no_params)?;
    let inner = inside.size();
    // Where the inner ones were planned before, nothing has counted how deep they are here.
    if inner.levels >= MAX_DEPTH {
        return Err(too_deep());
    }
    let depths = match inner.depths == Depths::default() {
        true => parsed.depths,
        false => parsed.depths.around(inner.depths)?,
    };
    let plan = with_names(plan, &definition.columns)?;
    Ok(Expanded {
        schema: Arc::clone(plan.schema().inner()),
        plan,
        size: Size {
            levels: inner.levels + 1,
            tables: inner.tables.max(1),
            text_bytes: inner.text_bytes + definition.query.len(),
            depths,
        },
    })
}

/// The plan whose first columns have these names.
fn with_names(plan: LogicalPlan, names: &[String]) -> Result<LogicalPlan> {
    let columns: Vec<Column> = plan.schema().columns();
    if names.len() > columns.len() {
        return Err(query(format!(
            "it names {} columns, and its query has {}",
            names.len(),
            columns.len()
        )));
    }
    let others = columns.iter().skip(names.len());
    let others = others.map(|column| visible(&column.name));
    check_names(names.iter().map(String::as_str).chain(others))?;
    if names.is_empty() {
        return Ok(plan);
    }
    let others = std::iter::repeat(None);
    let named = columns
        .into_iter()
        .zip(names.iter().map(Some).chain(others));
    let named = named.map(|(column, name)| match name {
        Some(name) => Expr::Column(column).alias(name),
        None => Expr::Column(column),
    });
    let plan = LogicalPlanBuilder::new(plan).project(named);
    plan.and_then(LogicalPlanBuilder::build)
        .map_err(from_datafusion)
}

/// Refuses columns of one name: each is read by it.
fn check_names<'a>(names: impl Iterator<Item = &'a str>) -> Result<()> {
    let mut seen = HashSet::new();
    for name in names {
        if !seen.insert(fold_name(name)) {
            return Err(query(format!(
                "it has two columns \"{name}\": name them apart, by AS or after the name of the view"
            )));
        }
    }
    Ok(())
}

/// Refuses a new view that could not be read, as things are.
pub(crate) fn check(
    resolver: &Resolver<'_>,
    name: &str,
    definition: &ViewDefinition,
) -> Result<()> {
    with_room(|| planned(resolver, name, definition)).map(drop)
}

/// The columns of a view, as things are in `resolver`.
pub(crate) fn schema_of(resolver: &Resolver<'_>, view: &StoredView) -> Result<SchemaRef> {
    Ok(Arc::clone(&expanded(resolver, view)?.schema))
}

/// Whether all views are what they were.
pub(crate) fn are_same(views: &[StoredView], view: &DatabaseView) -> bool {
    views.iter().all(|used| {
        view.stored_view(used.name())
            .is_some_and(|now| now.is_same(used))
    })
}

/// A view in FROM, which the planner replaces by its plan.
#[derive(Debug)]
pub(crate) struct ViewSource(Arc<Expanded>);

impl ViewSource {
    pub(crate) fn new(view: Arc<Expanded>) -> Self {
        Self(view)
    }
}

impl TableSource for ViewSource {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.0.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::View
    }

    fn get_logical_plan(&self) -> Option<Cow<'_, LogicalPlan>> {
        Some(Cow::Borrowed(&self.0.plan))
    }
}
