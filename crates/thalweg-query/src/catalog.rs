//! The tables that names in a statement mean.
//!
//! Invariants: names are matched without regard to case; stored tables come before system tables, and those before
//! tables that the caller hands in; what a plan was made from is noted, so that a kept plan is only used again
//! while all of it is unchanged. Views are planned in the place of their names ([`crate::views`]).

use crate::dependencies::Relations;
use crate::error::{to_datafusion, unsupported};
use crate::extra::ExtraTable;
use crate::meaning::{casts, time_texts};
use crate::params::BoundParams;
use crate::parse::is_schema;
use crate::placed_table::{PLACED, PlacedTable, STORED};
use crate::planner::Planner;
use crate::system;
use crate::table::StoredTable;
use crate::views::{self, Expanded, Known, Size, ViewSource};
use arrow::datatypes::{DataType, IntervalUnit, SchemaRef, TimeUnit};
use datafusion::catalog::cte_worktable::CteWorkTable;
use datafusion::catalog::{TableFunctionArgs, TableProvider};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{DFSchema, Result, TableReference, plan_err};
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::planner::{ContextProvider, ExprPlanner, RelationPlanner};
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{
    AggregateUDF, Expr, HigherOrderUDF, ScalarUDF, TableSource, WindowUDF, cast, lit,
};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use thalweg_table::schema::fold_name;
use thalweg_table::{DatabaseView, ErrorKind, StoredView, TableDefinition};

/// The tables and functions that one statement may name.
pub(crate) struct Resolver<'a> {
    planner: &'a Planner,
    view: &'a DatabaseView,
    extra: &'a [(String, ExtraTable)],
    params: &'a BoundParams,
    relations: [Arc<dyn RelationPlanner>; 1],
    /// The folded names of the views that this is the query of, from the outermost one.
    path: Vec<String>,
    /// The size of what was read through views so far.
    size: Cell<Size>,
    /// Common to a statement and all of its views.
    noted: Rc<Noted>,
}

/// The tables and views that a statement has named so far.
#[derive(Default)]
struct Noted {
    tables: RefCell<Vec<UsedTable>>,
    views: RefCell<Known>,
    /// Some tables were not stored ones.
    has_others: Cell<bool>,
}

/// The stored tables and views that a plan names.
#[derive(Debug)]
pub(crate) struct Used {
    tables: Vec<UsedTable>,
    views: Vec<StoredView>,
}

impl Used {
    /// Whether all of them are in a snapshot what they were.
    pub(crate) fn is_current(&self, view: &DatabaseView) -> bool {
        let unchanged = |used: &UsedTable| {
            view.table(&used.name)
                .is_ok_and(|table| Arc::ptr_eq(table.definition(), &used.definition))
        };
        self.tables.iter().all(unchanged) && views::are_same(&self.views, view)
    }
}

/// A stored table that a plan names.
#[derive(Clone, Debug)]
struct UsedTable {
    name: String,
    definition: Arc<TableDefinition>,
}

impl<'a> Resolver<'a> {
    pub(crate) fn new(
        planner: &'a Planner,
        view: &'a DatabaseView,
        extra: &'a [(String, ExtraTable)],
        params: &'a BoundParams,
    ) -> Self {
        Self {
            planner,
            view,
            extra,
            params,
            relations: [Arc::new(Relations::default())],
            path: Vec::new(),
            size: Cell::default(),
            noted: Rc::default(),
        }
    }

    /// The resolver of the query of a view, which this statement or view reads.
    pub(crate) fn inside<'b>(&self, view: String, no_params: &'b BoundParams) -> Resolver<'b>
    where
        'a: 'b,
    {
        let mut path = self.path.clone();
        path.push(view);
        Resolver {
            path,
            noted: Rc::clone(&self.noted),
            ..Resolver::new(self.planner, self.view, &[], no_params)
        }
    }

    pub(crate) fn planner(&self) -> &Planner {
        self.planner
    }

    pub(crate) fn path(&self) -> &[String] {
        &self.path
    }

    /// Forgets what was read so far, before the query is planned once more.
    pub(crate) fn begin_again(&self) {
        self.size.take();
    }

    pub(crate) fn size(&self) -> Size {
        self.size.get()
    }

    /// The plan of a view that was planned for this statement before.
    pub(crate) fn known_view(&self, folded: &str) -> Option<thalweg_table::Result<Arc<Expanded>>> {
        let known = self.noted.views.borrow();
        known.get(folded).map(|(_, plan)| plan.clone())
    }

    pub(crate) fn note_view(
        &self,
        folded: String,
        view: StoredView,
        plan: thalweg_table::Result<Arc<Expanded>>,
    ) {
        let mut known = self.noted.views.borrow_mut();
        known.insert(folded, (view, plan));
    }

    /// The columns of the table or view of that name.
    pub(crate) fn schema(&self, name: &str) -> thalweg_table::Result<SchemaRef> {
        match self.view.stored_view(name) {
            Some(view) => views::schema_of(self, &view),
            None => Ok(self.table(name)?.schema()),
        }
    }

    /// Whether a name means a view.
    pub(crate) fn is_view(&self, name: &str) -> bool {
        self.view.stored_view(name).is_some()
    }

    /// The table of that name.
    pub(crate) fn table(&self, name: &str) -> thalweg_table::Result<Arc<dyn TableProvider>> {
        if let Some(stored) = name.strip_prefix(STORED) {
            return Ok(Arc::new(self.stored(stored)?));
        }
        if let Some(placed) = name.strip_prefix(PLACED) {
            let stored = self.stored(placed)?;
            return Ok(Arc::new(PlacedTable::new(stored)));
        }
        let missing = match self.stored(name) {
            Ok(stored) => return Ok(Arc::new(stored)),
            Err(error) if error.kind() == ErrorKind::NotFound => error,
            Err(error) => return Err(error),
        };
        self.noted.has_others.set(true);
        if let Some(table) = system::table(name, self.view) {
            return Ok(table);
        }
        let folded = fold_name(name);
        match self
            .extra
            .iter()
            .find(|(name, _)| fold_name(name) == folded)
        {
            Some((name, table)) => table.provider(name),
            None if is_file(&folded) => Err(unsupported(format!("\"{name}\": {NO_FILES}"))),
            None => Err(missing),
        }
    }

    /// The stored table of that name.
    fn stored(&self, name: &str) -> thalweg_table::Result<StoredTable> {
        let view = self.view.table(name)?;
        let definition = Arc::clone(view.definition());
        let mut used = self.noted.tables.borrow_mut();
        if !used.iter().any(|known| known.name == name) {
            used.push(UsedTable {
                name: name.to_owned(),
                definition: Arc::clone(&definition),
            });
        }
        Ok(StoredTable::new(view.name(), definition))
    }

    /// The stored tables and views that were named, if there were no others.
    pub(crate) fn used(&self) -> Option<Used> {
        let known = self.noted.views.borrow();
        (!self.noted.has_others.get()).then(|| Used {
            tables: self.noted.tables.borrow().clone(),
            views: known.values().map(|(view, _)| view.clone()).collect(),
        })
    }
}

/// The arguments of a table function that are times, in the unit that these take; dates beside times as times, and durations as
/// intervals.
fn in_nanoseconds(arguments: Vec<Expr>) -> Result<Vec<Expr>> {
    let type_of = |argument: &Expr| match argument {
        Expr::Literal(value, _) => value.data_type(),
        _ => DataType::Null,
    };
    let has_times = arguments
        .iter()
        .any(|argument| matches!(type_of(argument), DataType::Timestamp(..)));
    let in_nanoseconds = |argument: Expr| {
        let to = match type_of(&argument) {
            DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Nanosecond, zone),
            DataType::Date32 if has_times => DataType::Timestamp(TimeUnit::Nanosecond, None),
            DataType::Duration(_) => DataType::Interval(IntervalUnit::MonthDayNano),
            _ => return Ok(argument),
        };
        match argument {
            Expr::Literal(value, metadata) => Ok(Expr::Literal(value.cast_to(&to)?, metadata)),
            other => Ok(other),
        }
    };
    arguments.into_iter().map(in_nanoseconds).collect()
}

const NO_FILES: &str = "SQL reads no files: thalweg import stores CSV and JSON as a table, and in Python a data frame, of Parquet for example, \
                        is a table by the name of its variable";

/// Whether a name is more likely that of a file than of a table.
fn is_file(folded: &str) -> bool {
    let endings = [
        ".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".parquet", ".arrow", ".gz", ".zst",
    ];
    endings.iter().any(|ending| folded.ends_with(ending))
}

/// The table's own name in a reference that may be qualified.
pub(crate) fn plain_name(reference: &TableReference) -> Option<&str> {
    match reference {
        TableReference::Bare { table } => Some(table),
        TableReference::Partial { schema, table } if is_schema(schema) => Some(table),
        _ => None,
    }
}

/// The texts of a series of times as its end and its step.
fn of_first_type(mut arguments: Vec<Expr>) -> Vec<Expr> {
    let Some(Expr::Literal(first, _)) = arguments.first() else {
        return arguments;
    };
    let data_type = first.data_type();
    if !matches!(data_type, DataType::Timestamp(..) | DataType::Date32) {
        return arguments;
    }
    let types = [data_type, DataType::Interval(IntervalUnit::MonthDayNano)];
    for (argument, to) in arguments.iter_mut().skip(1).zip(types) {
        if matches!(argument, Expr::Literal(value, _) if value.data_type().is_string()) {
            *argument = cast(std::mem::take(argument), to);
        }
    }
    arguments
}

impl ContextProvider for Resolver<'_> {
    fn get_table_source(&self, name: TableReference) -> Result<Arc<dyn TableSource>> {
        if let Some(table) = system::of_information_schema(&name, self.view) {
            self.noted.has_others.set(true);
            return Ok(provider_as_source(table));
        }
        let Some(table) = plain_name(&name) else {
            return plan_err!("{name} is no table name: there is one schema, \"main\"");
        };
        if let Some(view) = self.view.stored_view(table) {
            let view = views::expanded(self, &view).map_err(to_datafusion)?;
            let size = self.size.get().with(&view).map_err(to_datafusion)?;
            self.size.set(size);
            return Ok(Arc::new(ViewSource::new(view)));
        }
        self.size.set(self.size.get().with_table());
        Ok(provider_as_source(
            self.table(table).map_err(to_datafusion)?,
        ))
    }

    fn create_cte_work_table(&self, name: &str, schema: SchemaRef) -> Result<Arc<dyn TableSource>> {
        self.noted.has_others.set(true);
        Ok(provider_as_source(Arc::new(CteWorkTable::new(
            name, schema,
        ))))
    }

    fn get_table_function_source(
        &self,
        name: &str,
        arguments: Vec<Expr>,
    ) -> Result<Arc<dyn TableSource>> {
        let Some(function) = self.planner.base().table_functions().get(name) else {
            if name.starts_with("read_") || name.ends_with("_scan") {
                return Err(to_datafusion(unsupported(format!("{name}: {NO_FILES}"))));
            }
            return plan_err!("there is no table function \"{name}\"");
        };
        self.noted.has_others.set(true);
        let context = SimplifyContext::builder()
            .with_config_options(Arc::clone(self.planner.base().config_options()))
            .with_current_time()
            .build();
        let simplifier = ExprSimplifier::new(context);
        let schema = DFSchema::empty();
        let constant = |argument: Expr| {
            let argument = argument.transform_up(|expr| {
                let expr = match &expr {
                    Expr::Placeholder(place) => match self.params.named(&place.id) {
                        Some(value) => lit(value.clone()),
                        None => expr,
                    },
                    _ => expr,
                };
                casts::of_call(expr, &schema)?
                    .transform_data(|expr| Ok(time_texts::with_seconds(expr, &schema)))
            })?;
            simplifier.simplify(simplifier.coerce(argument.data, &schema)?)
        };
        let arguments = arguments
            .into_iter()
            .map(constant)
            .collect::<Result<Vec<_>>>()?;
        let arguments = { of_first_type(arguments).into_iter() }
            .map(constant)
            .collect::<Result<Vec<_>>>()?;
        let arguments = in_nanoseconds(arguments)?;
        let arguments = TableFunctionArgs::new(&arguments, self.planner.base());
        Ok(provider_as_source(
            function.create_table_provider_with_args(arguments)?,
        ))
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        self.planner.base().expr_planners()
    }

    fn get_relation_planners(&self) -> &[Arc<dyn RelationPlanner>] {
        &self.relations
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        self.planner.base().scalar_functions().get(name).cloned()
    }

    fn get_higher_order_meta(&self, name: &str) -> Option<Arc<HigherOrderUDF>> {
        self.planner
            .base()
            .higher_order_functions()
            .get(name)
            .cloned()
    }

    fn get_aggregate_meta(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        self.planner.base().aggregate_functions().get(name).cloned()
    }

    fn get_window_meta(&self, name: &str) -> Option<Arc<WindowUDF>> {
        self.planner.base().window_functions().get(name).cloned()
    }

    fn get_variable_type(&self, _: &[String]) -> Option<DataType> {
        None
    }

    fn options(&self) -> &ConfigOptions {
        self.planner.base().config_options()
    }

    fn udf_names(&self) -> Vec<String> {
        self.planner
            .base()
            .scalar_functions()
            .keys()
            .cloned()
            .collect()
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        self.planner
            .base()
            .higher_order_functions()
            .keys()
            .cloned()
            .collect()
    }

    fn udaf_names(&self) -> Vec<String> {
        self.planner
            .base()
            .aggregate_functions()
            .keys()
            .cloned()
            .collect()
    }

    fn udwf_names(&self) -> Vec<String> {
        self.planner
            .base()
            .window_functions()
            .keys()
            .cloned()
            .collect()
    }
}
