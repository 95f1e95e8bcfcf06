//! DataFusion's SQL planner with the provider of tables and functions as a trait object.
//!
//! The planner is generic over its provider: whoever calls it with a type of their own compiles all of it again. Here that is done once,
//! at the same time as the rest of DataFusion, and not again whenever the crate that provides the tables changes.
#![forbid(unsafe_code)]

mod walk;

pub use walk::{walk, walk_expressions, walk_mut, walk_statement, walk_statement_mut};

use arrow_schema::{DataType, FieldRef, SchemaRef};
use datafusion_common::config::ConfigOptions;
use datafusion_common::file_options::file_type::FileType;
use datafusion_common::{DFSchema, Result, TableReference};
use datafusion_expr::planner::{ContextProvider, ExprPlanner, RelationPlanner, TypePlanner};
use datafusion_expr::{
    AggregateUDF, Expr, HigherOrderUDF, LogicalPlan, ScalarUDF, TableSource, WindowUDF,
};
use datafusion_sql::parser::Statement;
use datafusion_sql::planner::{ParserOptions, PlannerContext, SqlToRel};
use datafusion_sql::sqlparser::ast;
use std::sync::Arc;

/// Plans statements over the tables and functions of a provider.
pub struct SqlPlanner<'a> {
    provider: AnyProvider<'a>,
    options: ParserOptions,
}

impl<'a> SqlPlanner<'a> {
    /// A planner over the tables and functions of `provider`.
    pub fn new(provider: &'a dyn ContextProvider, options: ParserOptions) -> Self {
        Self {
            provider: AnyProvider(provider),
            options,
        }
    }

    /// The unoptimised plan of a statement that the parser of SQL knows.
    ///
    /// # Errors
    /// `Plan` and `SchemaError` for names that are not known and types that do not fit, `NotImplemented` for statements that DataFusion
    /// does not support.
    pub fn plan(
        &self,
        statement: ast::Statement,
        context: &mut PlannerContext,
    ) -> Result<LogicalPlan> {
        self.planner()
            .sql_statement_to_plan_with_context(statement, context)
    }

    /// The unoptimised plan of any statement, including those that DataFusion's parser adds.
    ///
    /// # Errors
    /// As [`Self::plan`].
    pub fn plan_any(&self, statement: Statement) -> Result<LogicalPlan> {
        self.planner().statement_to_plan(statement)
    }

    /// Plans an expression over the columns of `schema`.
    ///
    /// # Errors
    /// As [`Self::plan`].
    pub fn expression(&self, expr: ast::Expr, schema: &DFSchema) -> Result<Expr> {
        self.planner()
            .sql_to_expr(expr, schema, &mut PlannerContext::new())
    }

    fn planner(&self) -> SqlToRel<'_, AnyProvider<'a>> {
        SqlToRel::new_with_options(&self.provider, self.options)
    }
}

/// Wraps the trait object: the planner takes a sized provider only.
struct AnyProvider<'a>(&'a dyn ContextProvider);

impl ContextProvider for AnyProvider<'_> {
    fn get_table_source(&self, name: TableReference) -> Result<Arc<dyn TableSource>> {
        self.0.get_table_source(name)
    }

    fn get_file_type(&self, extension: &str) -> Result<Arc<dyn FileType>> {
        self.0.get_file_type(extension)
    }

    fn get_table_function_source(
        &self,
        name: &str,
        arguments: Vec<Expr>,
    ) -> Result<Arc<dyn TableSource>> {
        self.0.get_table_function_source(name, arguments)
    }

    fn create_cte_work_table(&self, name: &str, schema: SchemaRef) -> Result<Arc<dyn TableSource>> {
        self.0.create_cte_work_table(name, schema)
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        self.0.get_expr_planners()
    }

    fn get_relation_planners(&self) -> &[Arc<dyn RelationPlanner>] {
        self.0.get_relation_planners()
    }

    fn get_type_planner(&self) -> Option<Arc<dyn TypePlanner>> {
        self.0.get_type_planner()
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        self.0.get_function_meta(name)
    }

    fn get_higher_order_meta(&self, name: &str) -> Option<Arc<HigherOrderUDF>> {
        self.0.get_higher_order_meta(name)
    }

    fn get_aggregate_meta(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        self.0.get_aggregate_meta(name)
    }

    fn get_window_meta(&self, name: &str) -> Option<Arc<WindowUDF>> {
        self.0.get_window_meta(name)
    }

    fn get_variable_type(&self, names: &[String]) -> Option<DataType> {
        self.0.get_variable_type(names)
    }

    fn get_variable_field(&self, names: &[String]) -> Option<FieldRef> {
        self.0.get_variable_field(names)
    }

    fn options(&self) -> &ConfigOptions {
        self.0.options()
    }

    fn udf_names(&self) -> Vec<String> {
        self.0.udf_names()
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        self.0.higher_order_function_names()
    }

    fn udaf_names(&self) -> Vec<String> {
        self.0.udaf_names()
    }

    fn udwf_names(&self) -> Vec<String> {
        self.0.udwf_names()
    }
}
