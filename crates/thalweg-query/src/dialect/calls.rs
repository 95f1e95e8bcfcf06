//! Calls of functions and constants as the parser has them.

use datafusion_sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Value,
};

pub(super) fn plain_name(function: &Function) -> Option<String> {
    match &*function.name.0 {
        [part] => {
            let name = part.as_ident()?;
            name.quote_style
                .is_none()
                .then(|| name.value.to_ascii_lowercase())
        }
        _ => None,
    }
}

/// The arguments of a call of the function `name`.
pub(super) fn arguments_of<'a>(function: &'a Function, name: &str) -> Option<Vec<&'a Expr>> {
    match &function.args {
        FunctionArguments::List(list) if plain_name(function)? == name => {
            list.args.iter().map(argument).collect()
        }
        _ => None,
    }
}

pub(super) fn argument(arg: &FunctionArg) -> Option<&Expr> {
    match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    }
}

pub(super) fn text(value: &str) -> Expr {
    Expr::Value(Value::SingleQuotedString(value.to_owned()).into())
}

/// The text that a constant is.
pub(super) fn text_of(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text.clone()),
            _ => None,
        },
        _ => None,
    }
}
