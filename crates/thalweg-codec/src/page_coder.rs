//! How pages of integers and of floats are planned and written.
//!
//! Invariants: a coder writes pages that decode alone; its plan decides how a page is tried first, never
//! what a page must be.

use crate::PAGE_ROWS;
use crate::choose::Sample;
use crate::floats::{self, Float, FloatPlan, FloatScratch};
use crate::inner;
use crate::integers::{self, IntegerPlan, IntegerScratch};
use crate::number::{Integer, Number};
use crate::packing::PageBuffer;
use crate::settings::{Level, Settings};

/// How the pages of a type are planned and written; lanes are its bits.
pub(crate) trait PageCoder {
    type Number: Number;

    /// Makes a plan from a sample; returns how many distinct values it shows, when some repeat.
    fn plan(
        &mut self,
        values: &[<Self::Number as Number>::Lane],
        settings: &Settings,
        sample: &mut PageBuffer,
    ) -> Option<usize>;
    /// Estimated bytes of a full run.
    fn run_bytes(&self) -> usize;
    /// Appends a page of one run.
    fn encode_run(
        &mut self,
        run: &[<Self::Number as Number>::Lane],
        integers: &mut IntegerScratch,
        out: &mut Vec<u8>,
    );
    /// Appends a page.
    fn encode(
        &mut self,
        page: &[<Self::Number as Number>::Lane],
        integers: &mut IntegerScratch,
        out: &mut Vec<u8>,
    ) {
        if page.len() <= PAGE_ROWS {
            return self.encode_run(page, integers, out);
        }
        inner::encode_long(page, LaneOf::<Self>::default(), out, |run, out| {
            self.encode_run(run, integers, out);
        });
    }
}

/// The lane of a coder's values.
pub(crate) type LaneOf<C> = <<C as PageCoder>::Number as Number>::Lane;

/// Integers, signed or not.
pub(crate) struct IntegerCoder<T> {
    plan: IntegerPlan,
    level: Level,
    integer: std::marker::PhantomData<T>,
}

impl<T> IntegerCoder<T> {
    /// A coder without a plan that works at `level`.
    pub(crate) fn new(level: Level) -> Self {
        Self {
            plan: IntegerPlan::UNKNOWN,
            level,
            integer: std::marker::PhantomData,
        }
    }
}

impl<T: Integer> PageCoder for IntegerCoder<T> {
    type Number = T;

    fn plan(
        &mut self,
        values: &[T::Lane],
        settings: &Settings,
        buffer: &mut PageBuffer,
    ) -> Option<usize> {
        let sample = Sample::of_chunk(values, buffer);
        self.plan = match (settings.codec, &sample) {
            (Some(codec), _) => IntegerPlan::forced(codec.page_mode()),
            (None, Some(sample)) => sample.plan_integers(T::FLIP),
            (None, None) => IntegerPlan::UNKNOWN,
        };
        sample?.distinct_values()
    }

    fn run_bytes(&self) -> usize {
        self.plan.page_bytes
    }

    fn encode_run(&mut self, run: &[T::Lane], scratch: &mut IntegerScratch, out: &mut Vec<u8>) {
        if self.level == Level::Dense && !self.plan.forced {
            self.plan = IntegerPlan::UNKNOWN;
        }
        integers::encode(run, T::FLIP, &mut self.plan, scratch, out);
    }
}

/// Floats.
pub(crate) struct FloatCoder<'a, F> {
    plan: FloatPlan,
    scratch: &'a mut FloatScratch,
    float: std::marker::PhantomData<F>,
}

impl<'a, F> FloatCoder<'a, F> {
    /// A coder without a plan.
    pub(crate) fn new(scratch: &'a mut FloatScratch) -> Self {
        Self {
            plan: FloatPlan::UNKNOWN,
            scratch,
            float: std::marker::PhantomData,
        }
    }
}

impl<F: Float> PageCoder for FloatCoder<'_, F> {
    type Number = F;

    fn plan(
        &mut self,
        values: &[F::Bits],
        settings: &Settings,
        buffer: &mut PageBuffer,
    ) -> Option<usize> {
        if let Some(codec) = settings.codec {
            let (way, integers) = codec.float_way();
            let sample = &values[..values.len().min(PAGE_ROWS)];
            self.plan = FloatPlan::forced::<F>(sample, way, integers);
            return None;
        }
        let Some(sample) = Sample::of_chunk(values, buffer) else {
            self.plan = FloatPlan::UNKNOWN;
            return None;
        };
        let distinct = sample.distinct_values();
        self.plan = FloatPlan::of_sample::<F>(&sample, self.scratch.room());
        distinct
    }

    fn run_bytes(&self) -> usize {
        self.plan.page_bytes::<F>()
    }

    fn encode_run(&mut self, run: &[F::Bits], integers: &mut IntegerScratch, out: &mut Vec<u8>) {
        floats::encode::<F>(run, &mut self.plan, self.scratch, integers, out);
    }
}
