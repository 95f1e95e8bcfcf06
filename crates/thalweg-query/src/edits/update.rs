//! UPDATE: rows of one table with other values, from expressions and from joined tables.

use super::{
    Action, EditQuery, Editing, assign_keys, assignments, column_of, numbered, place_of, placed,
    selecting,
};
use crate::error::unsupported;
use crate::parse::table_name;
use datafusion_sql::parser::Statement as DfStatement;
use datafusion_sql::sqlparser::ast::{
    Assignment, Expr, TableFactor, TableWithJoins, Update, UpdateTableFromKind, Value, With,
};
use thalweg_table::{Result, TableDefinition};

/// An UPDATE.
#[derive(Clone, Debug)]
pub(crate) struct Updating {
    name: String,
    table: TableFactor,
    others: Vec<TableWithJoins>,
    assignments: Vec<Assignment>,
    condition: Option<Expr>,
    with: Option<With>,
}

const ONE_TABLE: &str = "UPDATE takes one table, others after FROM: UPDATE t SET v = other.v FROM other WHERE other.id = t.id";

impl Updating {
    pub(crate) fn of(update: &Update, with: Option<&With>) -> Result<Self> {
        if update.returning.is_some() || update.output.is_some() {
            return Err(unsupported(
                "RETURNING is not offered by this version: the result of an UPDATE is the number of rows",
            ));
        }
        if !update.order_by.is_empty() || update.limit.is_some() {
            return Err(unsupported(
                "UPDATE takes no ORDER BY and no LIMIT: WHERE says which rows change",
            ));
        }
        if update.or.is_some() {
            return Err(unsupported(
                "UPDATE OR ... is not offered: an UPDATE that would give two rows one unique key changes nothing",
            ));
        }
        if !update.table.joins.is_empty() {
            return Err(unsupported(ONE_TABLE));
        }
        let TableFactor::Table { name, .. } = &update.table.relation else {
            return Err(unsupported(ONE_TABLE));
        };
        let others = match &update.from {
            None => Vec::new(),
            Some(UpdateTableFromKind::AfterSet(others)) => others.clone(),
            Some(UpdateTableFromKind::BeforeSet(_)) => return Err(unsupported(ONE_TABLE)),
        };
        Ok(Self {
            name: table_name(name)?,
            table: update.table.relation.clone(),
            others,
            assignments: update.assignments.clone(),
            condition: update.selection.clone(),
            with: with.cloned(),
        })
    }

    fn from(&self, table: TableFactor) -> Vec<TableWithJoins> {
        let table = TableWithJoins {
            relation: table,
            joins: Vec::new(),
        };
        std::iter::once(table).chain(self.others.clone()).collect()
    }
}

impl Editing for Updating {
    fn table(&self) -> &str {
        &self.name
    }

    fn query(&self, definition: &TableDefinition) -> Result<EditQuery> {
        let (table, alias) = placed(&self.table)?;
        let assigned = assignments(&self.assignments, definition, &alias)?;
        let of_column = |position: usize| {
            let assigned = assigned.iter().find(|(column, _)| *column == position);
            match assigned {
                Some((_, value)) => value.clone(),
                None => column_of(&alias, &definition.columns()[position].name),
            }
        };
        let action = Expr::Value(Value::Number("1".to_owned(), false).into());
        let columns = 0..definition.columns().len();
        let values = [place_of(&alias), action].into_iter();
        let values = values.chain(columns.clone().map(of_column)).enumerate();
        let values = values.map(|(number, value)| numbered(number, value));
        Ok(EditQuery {
            query: selecting(
                self.with.as_ref(),
                values.collect(),
                self.from(table),
                self.condition.clone(),
            )?,
            actions: vec![Action::Store(
                columns.map(|column| (column + 2, column)).collect(),
            )],
        })
    }

    fn read_tables(&self) -> Result<DfStatement> {
        let values = self.assignments.iter().enumerate();
        let values = values.map(|(number, assigned)| numbered(number, assigned.value.clone()));
        selecting(
            self.with.as_ref(),
            values.collect(),
            self.from(self.table.clone()),
            self.condition.clone(),
        )
    }

    fn adds_keys(&self, definition: &TableDefinition) -> bool {
        assign_keys(&self.assignments, definition)
    }

    fn repeated(&self) -> &'static str {
        "a row of the table goes with several rows of FROM, and it is not said which of them it takes its values from: let FROM have \
         one for each, as in FROM (SELECT DISTINCT ON (id) * FROM other ORDER BY id, ts DESC) AS other"
    }
}
