//! Aggregates of floats over windows whose beginning moves.
//!
//! DataFusion subtracts a value that leaves a window. Floats do not come back from that: after one NaN or infinity every
//! later window is NaN, after one outlier all are off. Invariants: nothing is ever subtracted, so a result depends on
//! the values in the window alone; values leave in the order in which they came, as DataFusion moves windows; nulls are
//! no values. Rejected: computing each window anew, whose time grows with the window.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::Float64Type;
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::Accumulator;
use std::fmt;

/// An aggregate of one or more values, in order.
pub(super) trait Aggregate: Copy + fmt::Debug + Send + Sync + 'static {
    type Value: Copy + fmt::Debug + Send + Sync;

    fn of(value: Self::Value) -> Self;

    /// The aggregate of the values of both.
    fn merge(self, later: Self) -> Self;

    /// Calls `each` with the values of the arguments, nulls left out.
    fn read(arguments: &[ArrayRef], each: impl FnMut(Self::Value)) -> Result<()>;
}

/// The values of a window as a queue made of two stacks: the older half with the aggregate from each value on, the newer
/// half as it came, with the aggregate of all. A value is merged at most three times, whatever the size of the window.
#[derive(Debug)]
struct SlidingWindow<A: Aggregate> {
    /// The last one is that of all older values.
    older: Vec<A>,
    newer: Vec<A::Value>,
    newer_total: Option<A>,
}

impl<A: Aggregate> SlidingWindow<A> {
    fn new() -> Self {
        Self {
            older: Vec::new(),
            newer: Vec::new(),
            newer_total: None,
        }
    }

    fn len(&self) -> usize {
        self.older.len() + self.newer.len()
    }

    fn push(&mut self, value: A::Value) {
        let of_value = A::of(value);
        self.newer.push(value);
        self.newer_total = Some(match self.newer_total {
            Some(total) => total.merge(of_value),
            None => of_value,
        });
    }

    /// Removes the oldest value; `false` if there is none.
    fn pop(&mut self) -> bool {
        if self.older.is_empty() {
            self.newer_total = None;
            let mut suffix: Option<A> = None;
            for value in self.newer.drain(..).rev() {
                let of_value = A::of(value);
                let longer = match suffix {
                    Some(suffix) => of_value.merge(suffix),
                    None => of_value,
                };
                self.older.push(longer);
                suffix = Some(longer);
            }
        }
        self.older.pop().is_some()
    }

    /// The aggregate of all values; `None` without any.
    fn total(&self) -> Option<A> {
        match (self.older.last(), self.newer_total) {
            (Some(older), Some(newer)) => Some(older.merge(newer)),
            (older, newer) => older.copied().or(newer),
        }
    }

    fn size(&self) -> usize {
        self.older.capacity() * size_of::<A>() + self.newer.capacity() * size_of::<A::Value>()
    }
}

/// An aggregate function over windows; `finish` makes its result of the aggregate and the number of values.
pub(super) struct Sliding<A: Aggregate, F> {
    window: SlidingWindow<A>,
    finish: F,
}

impl<A, F> Sliding<A, F>
where
    A: Aggregate,
    F: Fn(Option<(A, usize)>) -> Result<ScalarValue> + Send + Sync + 'static,
{
    pub(super) fn boxed(finish: F) -> Box<dyn Accumulator> {
        Box::new(Self {
            window: SlidingWindow::new(),
            finish,
        })
    }
}

impl<A: Aggregate, F> fmt::Debug for Sliding<A, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sliding").field(&self.window).finish()
    }
}

impl<A, F> Accumulator for Sliding<A, F>
where
    A: Aggregate,
    F: Fn(Option<(A, usize)>) -> Result<ScalarValue> + Send + Sync + 'static,
{
    fn update_batch(&mut self, arguments: &[ArrayRef]) -> Result<()> {
        A::read(arguments, |value| self.window.push(value))
    }

    fn retract_batch(&mut self, arguments: &[ArrayRef]) -> Result<()> {
        let mut present = true;
        A::read(arguments, |_| present &= self.window.pop())?;
        if !present {
            return internal_err!("a value leaves a window that it is not in");
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let total = self.window.total();
        (self.finish)(total.map(|total| (total, self.window.len())))
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        internal_err!("a window is not cut into parts")
    }

    fn merge_batch(&mut self, _: &[ArrayRef]) -> Result<()> {
        internal_err!("a window is not cut into parts")
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.window.size()
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "as many values as need more than 53 bits fit into no window"
)]
fn float(count: usize) -> f64 {
    count as f64
}

fn read_one(arguments: &[ArrayRef], each: impl FnMut(f64)) -> Result<()> {
    let [values] = arguments else {
        return internal_err!("{} arguments instead of one", arguments.len());
    };
    let values = values.as_primitive::<Float64Type>();
    values.iter().flatten().for_each(each);
    Ok(())
}

/// A sum.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sum(f64);

impl Sum {
    pub(super) fn sum(window: Option<(Self, usize)>) -> Result<ScalarValue> {
        // The sum of -0.0 alone is 0.0, as everywhere else.
        let sum = window.map(|(Self(sum), _)| sum + 0.0);
        Ok(ScalarValue::Float64(sum))
    }

    pub(super) fn avg(window: Option<(Self, usize)>) -> Result<ScalarValue> {
        let avg = window.map(|(Self(sum), count)| (sum + 0.0) / float(count));
        Ok(ScalarValue::Float64(avg))
    }
}

impl Aggregate for Sum {
    type Value = f64;

    fn of(value: f64) -> Self {
        Self(value)
    }

    fn merge(self, later: Self) -> Self {
        Self(self.0 + later.0)
    }

    fn read(arguments: &[ArrayRef], each: impl FnMut(f64)) -> Result<()> {
        read_one(arguments, each)
    }
}

/// The distance of one value from its mean: none, and no number for what is not finite, here and with whatever it is merged.
fn distance_of_one(value: f64) -> f64 {
    if value.is_finite() { 0.0 } else { f64::NAN }
}

/// The mean, and the sum of squared distances from it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spread {
    count: f64,
    mean: f64,
    squares: f64,
}

/// Whether values are a whole population or a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Of {
    Population,
    Sample,
}

impl Of {
    /// `sum` by the number of values, less one for a sample.
    fn mean(self, sum: f64, count: usize) -> Option<f64> {
        let by = match self {
            Self::Population => count,
            Self::Sample => count.checked_sub(1)?,
        };
        (by > 0).then(|| sum / float(by))
    }
}

impl Spread {
    pub(super) fn variance(of: Of, window: Option<(Self, usize)>) -> Option<f64> {
        match window? {
            // One value has no spread, whatever it is.
            (_, 1) => (of == Of::Population).then_some(0.0),
            (spread, count) => of.mean(spread.squares, count),
        }
    }
}

impl Aggregate for Spread {
    type Value = f64;

    fn of(value: f64) -> Self {
        Self {
            count: 1.0,
            mean: value,
            squares: distance_of_one(value),
        }
    }

    /// By the formula of Chan, Golub and LeVeque.
    fn merge(self, later: Self) -> Self {
        let count = self.count + later.count;
        let distance = later.mean - self.mean;
        Self {
            count,
            mean: self.mean + distance * (later.count / count),
            squares: self.squares
                + later.squares
                + distance * distance * (self.count * later.count / count),
        }
    }

    fn read(arguments: &[ArrayRef], each: impl FnMut(f64)) -> Result<()> {
        read_one(arguments, each)
    }
}

/// The function of pairs that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum OfPairs {
    Covariance(Of),
    Correlation,
    Count,
    MeanX,
    MeanY,
    SquaresX,
    SquaresY,
    Products,
    Slope,
    Intercept,
    Determination,
}

/// The means of pairs, and the sums of squared distances from them and of their products.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pairs {
    count: f64,
    mean_x: f64,
    mean_y: f64,
    squares_x: f64,
    squares_y: f64,
    products: f64,
}

impl Pairs {
    /// The answers of DataFusion for the same values.
    pub(super) fn result(wanted: OfPairs, window: Option<(Self, usize)>) -> ScalarValue {
        if wanted == OfPairs::Count {
            let count = window.map_or(0, |(_, count)| count as u64);
            return ScalarValue::UInt64(Some(count));
        }
        let result = window.and_then(|(pairs, count)| pairs.float_result(wanted, count));
        ScalarValue::Float64(result)
    }

    fn float_result(self, wanted: OfPairs, count: usize) -> Option<f64> {
        let population = |sum: f64| sum / self.count;
        let (variance_x, variance_y) = (population(self.squares_x), population(self.squares_y));
        let covariance = population(self.products);
        let has_slope = count > 1 && variance_x != 0.0;
        let slope = covariance / variance_x;
        match wanted {
            OfPairs::Covariance(of) => of.mean(self.products, count),
            OfPairs::Correlation => self.correlation(count),
            OfPairs::Count => Some(self.count),
            OfPairs::MeanX => Some(self.mean_x),
            OfPairs::MeanY => Some(self.mean_y),
            OfPairs::SquaresX => Some(self.squares_x),
            OfPairs::SquaresY => Some(self.squares_y),
            OfPairs::Products => Some(self.products),
            OfPairs::Slope => has_slope.then_some(slope),
            OfPairs::Intercept => has_slope.then_some(self.mean_y - slope * self.mean_x),
            OfPairs::Determination => (has_slope && variance_y != 0.0)
                .then_some(covariance * covariance / (variance_x * variance_y)),
        }
    }

    fn correlation(self, count: usize) -> Option<f64> {
        if self.mean_x.is_nan() && self.mean_y.is_nan() {
            return Some(f64::NAN);
        }
        if self.mean_x.is_nan() || self.mean_y.is_nan() || count < 2 {
            return None;
        }
        let deviation = |squares: f64| (squares / self.count).sqrt();
        let (x, y) = (deviation(self.squares_x), deviation(self.squares_y));
        (x != 0.0 && y != 0.0).then(|| self.products / self.count / x / y)
    }
}

impl Aggregate for Pairs {
    /// `y`, then `x`, as the functions take them; what has no direction does not mind.
    type Value = (f64, f64);

    fn of((y, x): (f64, f64)) -> Self {
        let (none_x, none_y) = (distance_of_one(x), distance_of_one(y));
        Self {
            count: 1.0,
            mean_x: x,
            mean_y: y,
            squares_x: none_x,
            squares_y: none_y,
            products: none_x + none_y,
        }
    }

    fn merge(self, later: Self) -> Self {
        let count = self.count + later.count;
        let (x, y) = (later.mean_x - self.mean_x, later.mean_y - self.mean_y);
        let share = later.count / count;
        let weight = self.count * share;
        Self {
            count,
            mean_x: self.mean_x + x * share,
            mean_y: self.mean_y + y * share,
            squares_x: self.squares_x + later.squares_x + x * x * weight,
            squares_y: self.squares_y + later.squares_y + y * y * weight,
            products: self.products + later.products + x * y * weight,
        }
    }

    fn read(arguments: &[ArrayRef], mut each: impl FnMut((f64, f64))) -> Result<()> {
        let [y, x] = arguments else {
            return internal_err!("{} arguments instead of two", arguments.len());
        };
        let nulls = NullBuffer::union(y.nulls(), x.nulls());
        let (y, x) = (
            y.as_primitive::<Float64Type>(),
            x.as_primitive::<Float64Type>(),
        );
        for row in 0..y.len().min(x.len()) {
            if nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)) {
                each((y.value(row), x.value(row)));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;
    use std::cell::Cell;
    use std::collections::VecDeque;

    thread_local! {
        static MERGES: Cell<usize> = const { Cell::new(0) };
    }

    /// The first and the last of values that follow one another: merging any others would show.
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Run(u32, u32);

    impl Aggregate for Run {
        type Value = u32;

        fn of(value: u32) -> Self {
            Self(value, value)
        }

        fn merge(self, later: Self) -> Self {
            MERGES.set(MERGES.get() + 1);
            assert_eq!(self.1 + 1, later.0, "a gap");
            Self(self.0, later.1)
        }

        fn read(_: &[ArrayRef], _: impl FnMut(u32)) -> Result<()> {
            internal_err!("no columns")
        }
    }

    #[test]
    fn a_window_is_the_values_that_have_not_left() {
        let mut rng = Rng::with_seed(7);
        let mut window = SlidingWindow::<Run>::new();
        let mut model = VecDeque::new();
        for next in 0..20_000 {
            window.push(next);
            model.push_back(next);
            for _ in 0..rng.usize(0..3) {
                assert_eq!(window.pop(), model.pop_front().is_some());
            }
            assert_eq!(window.len(), model.len());
            let expected = model.front().zip(model.back());
            assert_eq!(
                window.total(),
                expected.map(|(first, last)| Run(*first, *last))
            );
        }
    }

    #[test]
    fn work_per_value_does_not_grow_with_the_window() {
        for size in [1, 10, 1_000] {
            let mut window = SlidingWindow::<Run>::new();
            MERGES.set(0);
            for next in 0..10_000 {
                window.push(next);
                if next >= size {
                    assert!(window.pop());
                }
                assert!(window.total().is_some());
            }
            assert!(MERGES.get() <= 3 * 10_000, "{} merges", MERGES.get());
            assert!(window.older.capacity() + window.newer.capacity() < 8 * (size as usize + 4));
        }
    }

    #[test]
    fn spread_is_that_of_the_values() {
        let values = [1e8 + 1.0, 1e8 + 2.0, 1e8 + 4.0];
        let [a, b, c] = values.map(Spread::of);
        for spread in [a.merge(b).merge(c), a.merge(b.merge(c))] {
            let variance = Spread::variance(Of::Sample, Some((spread, 3))).unwrap();
            assert!((variance - 7.0 / 3.0).abs() < 1e-6, "{variance}");
        }
        let infinite = a.merge(Spread::of(f64::INFINITY));
        assert!(
            Spread::variance(Of::Sample, Some((infinite, 2)))
                .unwrap()
                .is_nan()
        );
    }
}
