//! What EXPLAIN and EXPLAIN ANALYZE say of tables.

use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricBuilder};
use std::fmt;
use thalweg_table::time::key_to_text;
use thalweg_table::{KeyRange, TableView};

/// Adds what a scan or an aggregate took to the metrics of its operator.
pub(crate) fn record_counters(
    metrics: &ExecutionPlanMetricsSet,
    partition: usize,
    counters: Vec<(&'static str, u64)>,
) {
    for (name, value) in counters {
        let value = usize::try_from(value).unwrap_or(usize::MAX);
        MetricBuilder::new(metrics)
            .counter(name, partition)
            .add(value);
    }
}

/// Writes a range of keys as times; nothing when it is all of them.
pub(crate) fn write_keys(
    f: &mut fmt::Formatter<'_>,
    view: &TableView,
    keys: KeyRange,
) -> fmt::Result {
    let Some(time) = view.definition().time_column() else {
        return Ok(());
    };
    if keys.is_empty() {
        return write!(f, ", {} in nothing", time.name);
    }
    let show = |key| key_to_text(&time.data_type, key);
    if keys.first > i64::MIN {
        write!(f, ", {} >= {}", time.name, show(keys.first))?;
    }
    if keys.last < i64::MAX {
        write!(f, ", {} <= {}", time.name, show(keys.last))?;
    }
    Ok(())
}
