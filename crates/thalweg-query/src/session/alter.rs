//! ALTER TABLE, CREATE TABLE AS, and the constants that columns have where no value is given.

use super::{Call, Session, next_while, statement_of};
use crate::ddl;
use crate::dialect::type_of;
use crate::error::{from_datafusion, query, unsupported};
use crate::insert;
use crate::params::BoundParams;
use crate::parse::table_name;
use crate::result::QueryResult;
use crate::statement::Statement;
use crate::table_options;
use arrow::datatypes::DataType;
use datafusion_sql::sqlparser::ast::{
    AlterColumnOperation, AlterTable, AlterTableOperation, ColumnDef, CreateTable, Expr, Function,
    RenameTableNameKind, Visitor,
};
use std::ops::ControlFlow;
use std::sync::Arc;
use thalweg_planner::walk;
use thalweg_table::{Alteration, Constant, Error, ErrorKind, Result, TableDefinition, constant_of};

impl Session {
    /// Changes columns and options in one commit; a table gets another name in a statement of its own.
    pub(super) fn alter(
        &self,
        statement: &Statement,
        alter: &AlterTable,
        params: &BoundParams,
        call: &Call<'_>,
    ) -> Result<QueryResult> {
        if alter.only
            || alter.location.is_some()
            || alter.on_cluster.is_some()
            || alter.table_type.is_some()
        {
            return Err(unsupported(
                "ALTER TABLE takes the name of a table and changes of its columns and options",
            ));
        }
        let table = match self.shared.engine.table(&table_name(&alter.name)?) {
            Err(error) if alter.if_exists && error.kind() == ErrorKind::NotFound => {
                return Ok(QueryResult::count(0));
            }
            found => found?,
        };
        if let [AlterTableOperation::RenameTable { table_name: to }] = &alter.operations[..] {
            let (RenameTableNameKind::To(to) | RenameTableNameKind::As(to)) = to;
            table.rename(&table_name(to)?)?;
            return Ok(QueryResult::count(0));
        }
        // Each change sees the columns that those before it make.
        let mut definition = table.definition();
        let mut all = Vec::new();
        for operation in &alter.operations {
            let alterations = self.alterations(statement, operation, &definition, params, call)?;
            let altered = definition.altered(&alterations);
            let altered = altered.map_err(|error| {
                let message = format!("table \"{}\": {}", table.name(), error.message());
                Error::new(error.kind(), message)
            })?;
            if let Some(altered) = altered {
                definition = Arc::new(altered);
            }
            all.extend(alterations);
        }
        table.alter(&all)?;
        Ok(QueryResult::count(0))
    }

    fn alterations(
        &self,
        statement: &Statement,
        operation: &AlterTableOperation,
        definition: &TableDefinition,
        params: &BoundParams,
        call: &Call<'_>,
    ) -> Result<Vec<Alteration>> {
        Ok(match operation {
            AlterTableOperation::AddColumn {
                if_not_exists,
                column_def,
                column_position: None,
                ..
            } => {
                ddl::refuse_key(column_def)?;
                let (field, default) = ddl::field(column_def)?;
                let default = match default {
                    None => None,
                    Some(default) => self.constant(
                        statement,
                        default,
                        (field.name(), field.data_type()),
                        params,
                        call,
                    )?,
                };
                vec![Alteration::AddColumn {
                    field,
                    default,
                    if_not_exists: *if_not_exists,
                }]
            }
            AlterTableOperation::DropColumn {
                column_names,
                if_exists,
                ..
            } => {
                let drop = |name: &datafusion_sql::sqlparser::ast::Ident| Alteration::DropColumn {
                    name: name.value.clone(),
                    if_exists: *if_exists,
                };
                column_names.iter().map(drop).collect()
            }
            AlterTableOperation::RenameColumn {
                old_column_name,
                new_column_name,
            } => vec![Alteration::RenameColumn {
                name: old_column_name.value.clone(),
                to: new_column_name.value.clone(),
            }],
            AlterTableOperation::AlterColumn { column_name, op } => {
                let name = column_name.value.clone();
                vec![match op {
                    AlterColumnOperation::SetDataType {
                        data_type,
                        using: None,
                        ..
                    } => Alteration::WidenColumn {
                        name,
                        data_type: type_of(data_type)?,
                    },
                    AlterColumnOperation::SetDefault { value } => {
                        let position = definition.position_named(&name)?;
                        let column = &definition.columns()[position];
                        let of = (column.name.as_str(), &column.data_type);
                        let default = self.constant(statement, value, of, params, call)?;
                        let data_type = column.data_type.clone();
                        Alteration::SetDefault {
                            name,
                            default,
                            data_type,
                        }
                    }
                    AlterColumnOperation::DropDefault => Alteration::SetDefault {
                        name,
                        default: None,
                        data_type: DataType::Null,
                    },
                    AlterColumnOperation::DropNotNull => Alteration::AllowNulls { name },
                    other => {
                        return Err(unsupported(format!(
                            "ALTER COLUMN ... {other} is not offered by this version: it offers TYPE (wider ones), SET DEFAULT, DROP DEFAULT \
                             and DROP NOT NULL"
                        )));
                    }
                }]
            }
            AlterTableOperation::SetOptionsParens { options } => {
                table_options::alterations(options)?
            }
            AlterTableOperation::RenameTable { .. } => {
                return Err(unsupported("RENAME TO stands alone in an ALTER TABLE"));
            }
            other => {
                return Err(unsupported(format!(
                    "ALTER TABLE ... {other} is not offered by this version: it offers ADD, DROP, RENAME and ALTER COLUMN, RENAME TO, \
                     SET (option = value) and RESET (option)"
                )));
            }
        })
    }

    /// CREATE TABLE AS: the table appears with all its rows, or not at all.
    pub(super) fn create_table_as(
        &self,
        statement: &Statement,
        create: &CreateTable,
        params: &BoundParams,
        call: &Call<'_>,
    ) -> Result<QueryResult> {
        let Some(source) = &create.query else {
            return Err(query("CREATE TABLE AS needs a query"));
        };
        let source = statement_of(source);
        let mut rows = self.query(statement, &source, params, call)?;
        let Some(new) = ddl::create_table_for(&self.shared.engine, create, rows.schema())? else {
            return Ok(QueryResult::count(0));
        };
        let columns: Vec<usize> = (0..new.table().definition().columns().len()).collect();
        let batches = std::iter::from_fn(|| next_while(&mut rows, call.go_on).transpose());
        let rows = insert::assigned(new.table(), &columns, batches, true);
        let count = new.table().append(rows, self.settings.durability)?;
        match new.publish() {
            Ok(_) => Ok(QueryResult::count(count)),
            Err(error) if create.if_not_exists && error.kind() == ErrorKind::AlreadyExists => {
                Ok(QueryResult::count(0))
            }
            Err(error) => Err(error),
        }
    }

    /// The defaults of the columns of a new table.
    pub(super) fn defaults(
        &self,
        statement: &Statement,
        columns: &[ColumnDef],
        params: &BoundParams,
        call: &Call<'_>,
    ) -> Result<Vec<(String, Constant)>> {
        let mut defaults = Vec::new();
        for column in columns {
            if let (field, Some(default)) = ddl::field(column)? {
                let of = (field.name().as_str(), field.data_type());
                let constant = self.constant(statement, default, of, params, call)?;
                defaults.extend(constant.map(|constant| (field.name().clone(), constant)));
            }
        }
        Ok(defaults)
    }

    /// The value of an expression as a constant of a column, given by its name and type; `None` for null.
    fn constant(
        &self,
        statement: &Statement,
        value: &Expr,
        (column, data_type): (&str, &DataType),
        params: &BoundParams,
        call: &Call<'_>,
    ) -> Result<Option<Constant>> {
        if walk(value, &mut Changing).is_break() {
            return Err(query(format!(
                "column \"{column}\": DEFAULT takes a constant, not {value}: functions and columns have another value each time"
            )));
        }
        let computed = match insert::literal(value, params, data_type) {
            Some(value) => vec![value],
            None => self.computed(statement, &[value], params, call)?,
        };
        let array = { computed.first() }
            .map(|value| value.to_array())
            .transpose();
        let Some(array) = array.map_err(from_datafusion)? else {
            return Err(query("a default was not computed"));
        };
        let of_column = |error: Error| {
            let message = format!("column \"{column}\": DEFAULT {value}: {}", error.message());
            Error::new(error.kind(), message)
        };
        let array = insert::assigned_value(&array, data_type).map_err(of_column)?;
        constant_of(column, &array, data_type)
    }
}

/// Whether the value of a function follows from its arguments: casts are written as such functions, too.
fn is_of_its_arguments(function: &Function) -> bool {
    let name = function.name.to_string().to_lowercase();
    let changes = [
        "now", "current", "today", "local", "random", "uuid", "nextval",
    ];
    !changes.iter().any(|part| name.contains(part))
}

/// Finds what is no constant.
struct Changing;

impl Visitor for Changing {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(function) if is_of_its_arguments(function) => ControlFlow::Continue(()),
            Expr::Function(_)
            | Expr::Identifier(_)
            | Expr::CompoundIdentifier(_)
            | Expr::Subquery(_)
            | Expr::Exists { .. } => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}
