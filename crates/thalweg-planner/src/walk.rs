//! Walks over the syntax tree of SQL.
//!
//! The walk of the parser is generic over its visitor and has a function for each of the 400 types of the tree: each visitor
//! compiles all of them again, which was two thirds of what `thalweg-query` compiled. Here visitors are trait objects.

use datafusion_sql::sqlparser::ast::{
    Expr, ObjectName, Query, Select, Statement, TableFactor, ValueWithSpan, Visit, VisitMut,
    Visitor, VisitorMut,
};
use std::ops::ControlFlow;

/// Shows a part of a statement to a visitor.
pub fn walk<V: Visitor>(part: &impl Visit, visitor: &mut V) -> ControlFlow<V::Break> {
    let mut kept = Kept {
        visitor,
        value: None,
    };
    let _ = part.visit(&mut AnyVisitor(&mut kept));
    kept.flow()
}

/// Shows a part of a statement to a visitor that may change it.
pub fn walk_mut<V: VisitorMut>(part: &mut impl VisitMut, visitor: &mut V) -> ControlFlow<V::Break> {
    let mut kept = KeptMut {
        visitor,
        value: None,
    };
    let _ = part.visit(&mut AnyVisitorMut(&mut kept));
    kept.flow()
}

/// Shows the expressions of a part of a statement to a function, until it breaks.
pub fn walk_expressions(
    part: &impl Visit,
    visit: &mut dyn FnMut(&Expr) -> ControlFlow<()>,
) -> ControlFlow<()> {
    struct Expressions<'a>(&'a mut dyn FnMut(&Expr) -> ControlFlow<()>);
    impl Visitor for Expressions<'_> {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            (self.0)(expr)
        }
    }
    walk(part, &mut Expressions(visit))
}

/// Shows a statement to a visitor. Here the walk over all types is compiled; the functions above find it so.
pub fn walk_statement(
    statement: &Statement,
    visitor: &mut dyn Visitor<Break = ()>,
) -> ControlFlow<()> {
    statement.visit(&mut AnyVisitor(visitor))
}

/// Shows a statement to a visitor that may change it; as [`walk_statement`].
pub fn walk_statement_mut(
    statement: &mut Statement,
    visitor: &mut dyn VisitorMut<Break = ()>,
) -> ControlFlow<()> {
    statement.visit(&mut AnyVisitorMut(visitor))
}

/// A visitor that keeps what it breaks with.
struct Kept<'a, V: Visitor> {
    visitor: &'a mut V,
    value: Option<V::Break>,
}

struct KeptMut<'a, V: VisitorMut> {
    visitor: &'a mut V,
    value: Option<V::Break>,
}

/// The walk takes no trait object itself.
struct AnyVisitor<'a>(&'a mut dyn Visitor<Break = ()>);

struct AnyVisitorMut<'a>(&'a mut dyn VisitorMut<Break = ()>);

macro_rules! forward {
    ($trait:ident, $kept:ident, $any:ident, [$($method:ident($part:ty)),* $(,)?]) => {
        impl<V: $trait> $kept<'_, V> {
            fn keep(&mut self, flow: ControlFlow<V::Break>) -> ControlFlow<()> {
                match flow {
                    ControlFlow::Continue(()) => ControlFlow::Continue(()),
                    ControlFlow::Break(value) => {
                        self.value = Some(value);
                        ControlFlow::Break(())
                    }
                }
            }

            fn flow(self) -> ControlFlow<V::Break> {
                match self.value {
                    None => ControlFlow::Continue(()),
                    Some(value) => ControlFlow::Break(value),
                }
            }
        }

        impl<V: $trait> $trait for $kept<'_, V> {
            type Break = ();

            $(fn $method(&mut self, part: $part) -> ControlFlow<()> {
                let flow = self.visitor.$method(part);
                self.keep(flow)
            })*
        }

        impl $trait for $any<'_> {
            type Break = ();

            $(fn $method(&mut self, part: $part) -> ControlFlow<()> {
                self.0.$method(part)
            })*
        }
    };
}

forward!(
    Visitor,
    Kept,
    AnyVisitor,
    [
        pre_visit_query(&Query),
        post_visit_query(&Query),
        pre_visit_select(&Select),
        post_visit_select(&Select),
        pre_visit_relation(&ObjectName),
        post_visit_relation(&ObjectName),
        pre_visit_table_factor(&TableFactor),
        post_visit_table_factor(&TableFactor),
        pre_visit_expr(&Expr),
        post_visit_expr(&Expr),
        pre_visit_statement(&Statement),
        post_visit_statement(&Statement),
        pre_visit_value(&ValueWithSpan),
        post_visit_value(&ValueWithSpan),
    ]
);

forward!(
    VisitorMut,
    KeptMut,
    AnyVisitorMut,
    [
        pre_visit_query(&mut Query),
        post_visit_query(&mut Query),
        pre_visit_select(&mut Select),
        post_visit_select(&mut Select),
        pre_visit_relation(&mut ObjectName),
        post_visit_relation(&mut ObjectName),
        pre_visit_table_factor(&mut TableFactor),
        post_visit_table_factor(&mut TableFactor),
        pre_visit_expr(&mut Expr),
        post_visit_expr(&mut Expr),
        pre_visit_statement(&mut Statement),
        post_visit_statement(&mut Statement),
        pre_visit_value(&mut ValueWithSpan),
        post_visit_value(&mut ValueWithSpan),
    ]
);
