//! Whole products.

use super::kernels::{ProductPart, WholeProduct};
use super::{Accumulator, AccumulatorOperand};
use crate::accumulate::AccumulateError;
use microscaling_processor::instruction_set::dispatch;
use microscaling_processor::threads::share_all;

impl Accumulator {
    /// The product of two matrices, row by row in `result`: each element is the [`dot`](Self::dot) product from 0. Large products
    /// are worked on by the threads of the current rayon pool (feature `rayon`). The bits do not depend on the processor, the
    /// threads, their float state, or the way in which the operands lie in memory.
    ///
    /// # Errors
    /// [`AccumulateError`], with `result` untouched.
    pub fn multiply(
        &self,
        lhs: &AccumulatorOperand<'_>,
        rhs: &AccumulatorOperand<'_>,
        result: &mut [f32],
    ) -> Result<(), AccumulateError> {
        self.multiply_from(Some(0.0), lhs, rhs, result)
    }

    /// [`multiply`](Self::multiply) from the sums c that `result` holds on.
    ///
    /// # Errors
    /// [`AccumulateError`], with `result` untouched.
    pub fn multiply_add(
        &self,
        lhs: &AccumulatorOperand<'_>,
        rhs: &AccumulatorOperand<'_>,
        result: &mut [f32],
    ) -> Result<(), AccumulateError> {
        self.multiply_from(None, lhs, rhs, result)
    }

    /// Adds the product to `c`, or to the numbers in the result.
    fn multiply_from(
        &self,
        c: Option<f32>,
        lhs: &AccumulatorOperand<'_>,
        rhs: &AccumulatorOperand<'_>,
        result: &mut [f32],
    ) -> Result<(), AccumulateError> {
        self.check_operands(lhs, rhs)?;
        // No result's length is beyond all memory.
        let expected = lhs.free.length.saturating_mul(rhs.free.length);
        if result.len() != expected {
            let got = result.len();
            return Err(AccumulateError::Result { expected, got });
        }
        if let Some(c) = c {
            result.fill(c);
        }
        // Without terms the chain ends where it began.
        if !result.is_empty() && lhs.summed.length > 0 {
            let product = WholeProduct::new(*self, [lhs, rhs], result);
            share_all(ProductPart::all(&product), &|part: ProductPart<'_>| {
                dispatch(part)
            });
        }
        Ok(())
    }
}
