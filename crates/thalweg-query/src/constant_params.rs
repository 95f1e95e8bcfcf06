//! Parameters where the planner takes constants only: `date_part(?, ts)`, `ROWS ? PRECEDING`, and lists as in `quantile_cont(x, ?)`.
//!
//! Invariant: their values are written into a copy of the statement, whose plan is not kept for other values.

use crate::dialect;
use crate::params::BoundParams;
use arrow::array::Array;
use datafusion::common::ScalarValue;
use datafusion_sql::parser::Statement as DfStatement;
use datafusion_sql::sqlparser::ast::{
    self, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Value, VisitorMut,
    WindowFrameBound, WindowType,
};
use std::ops::ControlFlow;
use thalweg_planner::walk_mut;

/// Whether a statement has such places.
pub(crate) fn are_in(statement: &mut DfStatement) -> bool {
    let mut finder = Places(|_: &mut Expr| true);
    visit(statement, &mut finder)
}

/// The statement with the values of the parameters in such places.
pub(crate) fn written(statement: &DfStatement, params: &BoundParams) -> DfStatement {
    let mut statement = statement.clone();
    let mut writer = Places(|place: &mut Expr| {
        if let Some(constant) = placeholder(place)
            .and_then(|name| params.named(name))
            .and_then(constant)
        {
            *place = constant;
        }
        false
    });
    visit(&mut statement, &mut writer);
    statement
}

/// Calls a function with each such place, until it returns true.
struct Places<F>(F);

/// Whether the function returned true.
fn visit(statement: &mut DfStatement, places: &mut Places<impl FnMut(&mut Expr) -> bool>) -> bool {
    match statement {
        DfStatement::Statement(inner) => walk_mut(&mut **inner, places).is_break(),
        DfStatement::Explain(explain) => visit(&mut explain.statement, places),
        _ => false,
    }
}

impl<F: FnMut(&mut Expr) -> bool> Places<F> {
    fn call(&mut self, function: &mut Function) -> bool {
        let place = match dialect::function_name(function).as_deref() {
            Some("date_part") => 0,
            Some("percentile_cont" | "quantile_cont") => 1,
            _ => return false,
        };
        let FunctionArguments::List(list) = &mut function.args else {
            return false;
        };
        match list.args.get_mut(place) {
            Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(arg))) => self.place(arg),
            _ => false,
        }
    }

    fn frame(&mut self, function: &mut Function) -> bool {
        let Some(WindowType::WindowSpec(spec)) = &mut function.over else {
            return false;
        };
        let Some(frame) = &mut spec.window_frame else {
            return false;
        };
        let mut bounds = std::iter::once(&mut frame.start_bound).chain(&mut frame.end_bound);
        bounds.any(|bound| match bound {
            WindowFrameBound::Preceding(Some(rows)) | WindowFrameBound::Following(Some(rows)) => {
                self.place(rows)
            }
            _ => false,
        })
    }

    fn place(&mut self, place: &mut Expr) -> bool {
        placeholder(place).is_some() && (self.0)(place)
    }
}

impl<F: FnMut(&mut Expr) -> bool> VisitorMut for Places<F> {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let Expr::Function(function) = expr else {
            return ControlFlow::Continue(());
        };
        if self.call(function) || self.frame(function) {
            return ControlFlow::Break(());
        }
        if let Ok(Some(list)) = dialect::quantiles(function) {
            *expr = list;
        }
        ControlFlow::Continue(())
    }
}

fn placeholder(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::Placeholder(name) => Some(name),
            _ => None,
        },
        _ => None,
    }
}

/// A value as a constant of SQL; `None` for what none of these places takes.
fn constant(value: &ScalarValue) -> Option<Expr> {
    if value.is_null() {
        return None;
    }
    let items = match value {
        ScalarValue::List(list) => list.value(0),
        ScalarValue::LargeList(list) => list.value(0),
        ScalarValue::FixedSizeList(list) => list.value(0),
        value if value.data_type().is_string() => {
            let text = value.try_as_str().flatten()?;
            return Some(dialect::text(text));
        }
        value if value.data_type().is_numeric() => {
            let number = Value::Number(value.to_string(), false);
            return Some(Expr::Value(number.into()));
        }
        _ => return None,
    };
    let items = (0..items.len()).map(|row| {
        let item = ScalarValue::try_from_array(&items, row).ok()?;
        constant(&item)
    });
    Some(Expr::Array(ast::Array {
        elem: items.collect::<Option<Vec<_>>>()?,
        named: true,
    }))
}
