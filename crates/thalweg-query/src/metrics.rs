//! The counters of tables that EXPLAIN and EXPLAIN ANALYZE show.

use datafusion::physical_plan::metrics::{
    Count, ExecutionPlanMetricsSet, Metric, MetricValue, MetricsSet,
};
use std::fmt;
use std::sync::Arc;
use thalweg_env::sync::Mutex;
use thalweg_table::time::key_to_text;
use thalweg_table::{KeyRange, ScanMetrics, TableView};

/// The work of the scans and aggregates of one operator.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taken(Arc<Mutex<Vec<Arc<ScanMetrics>>>>);

impl Taken {
    pub(crate) fn add(&self, scan: &Arc<ScanMetrics>) {
        self.0.lock().push(Arc::clone(scan));
    }

    /// The metrics of the operator with those of its scans.
    pub(crate) fn with(&self, operator: &ExecutionPlanMetricsSet) -> MetricsSet {
        let mut metrics = operator.clone_inner();
        for (name, value) in counters(&self.0.lock()) {
            let count = Count::new();
            count.add(usize::try_from(value).unwrap_or(usize::MAX));
            let name = name.into();
            let metric = Metric::new(MetricValue::Count { name, count }, None);
            metrics.push(Arc::new(metric));
        }
        metrics
    }
}

/// The work of scans side by side, added up. Each of them passes the blocks of the others, which are counted only once.
fn counters(scans: &[Arc<ScanMetrics>]) -> Vec<(&'static str, u64)> {
    let Some((first, others)) = scans.split_first() else {
        return Vec::new();
    };
    let mut counters = first.counters();
    if others.is_empty() {
        return counters;
    }
    for other in others {
        for (sum, (_, value)) in counters.iter_mut().zip(other.counters()) {
            sum.1 += value;
        }
    }
    let touched = |scan: &Arc<ScanMetrics>| scan.blocks_read() + scan.blocks_pruned_by_summary();
    let touched: u64 = scans.iter().map(touched).sum();
    let total = first.blocks_total();
    for (name, value) in &mut counters {
        match *name {
            "blocks_total" => *value = total,
            "blocks_pruned_by_time" => *value = total.saturating_sub(touched),
            _ => {}
        }
    }
    counters
}

/// Writes a range of keys as times; nothing when it is all of them.
pub(crate) fn write_keys(
    f: &mut fmt::Formatter<'_>,
    view: &TableView,
    keys: KeyRange,
) -> fmt::Result {
    let Some(time) = view.definition().order_column() else {
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
