//! A step of the optimizer AdamW.

#[cfg(any(feature = "host", feature = "cube"))]
use crate::arithmetic::Arithmetic;

/// The numbers of one step of AdamW (arXiv 1711.05101), by Burn's formulas in the order of Burn's ops.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWStep<T = f32> {
    /// β₁ and β₂, the factors of the two moments.
    pub betas: [T; 2],
    /// 1 − β₁ and 1 − β₂, the factors of the gradient and of its square.
    pub shares: [T; 2],
    /// 1 − β₁ᵗ and 1 − β₂ᵗ in step t, the divisors of the two moments.
    pub corrections: [T; 2],
    /// ε, which is added to the root of the second moment.
    pub epsilon: T,
    /// The factor of the parameter: 1 minus the learning rate times the weight decay.
    pub kept: T,
    /// The learning rate.
    pub rate: T,
}

#[cfg(any(feature = "host", feature = "cube"))]
impl<T: Clone> AdamWStep<T> {
    /// The new parameter and the new moments of one number.
    #[inline(always)]
    pub(crate) fn of_number(
        self,
        arith: &impl Arithmetic<Value = T>,
        parameter: T,
        gradient: T,
        [first, second]: [T; 2],
    ) -> [T; 3] {
        let [beta_1, beta_2] = self.betas;
        let [share_1, share_2] = self.shares;
        let [correction_1, correction_2] = self.corrections;
        let square = arith.mul(gradient.clone(), gradient.clone());
        let first = arith.add(arith.mul(first, beta_1), arith.mul(gradient, share_1));
        let second = arith.add(arith.mul(second, beta_2), arith.mul(square, share_2));
        let root = arith.sqrt(arith.quotient(second.clone(), correction_2));
        let mean = arith.quotient(first.clone(), correction_1);
        let delta = arith.quotient(mean, arith.add(root, self.epsilon));
        let kept = arith.mul(parameter, self.kept);
        [arith.sub(kept, arith.mul(delta, self.rate)), first, second]
    }
}

/// A parameter with its gradient, and the two moments.
#[cfg(feature = "host")]
type Slices<'a> = ((&'a mut [f32], &'a [f32]), (&'a mut [f32], &'a mut [f32]));

#[cfg(feature = "host")]
impl AdamWStep {
    /// Replaces a parameter and its two moments by the next ones.
    ///
    /// # Panics
    /// If the slices differ in length.
    pub(crate) fn apply(
        self,
        parameter: &mut [f32],
        gradient: &[f32],
        [first, second]: [&mut [f32]; 2],
    ) {
        use super::loops::in_parts;
        use crate::arithmetic::ScalarArithmetic;
        use microscaling_processor::instruction_set::dispatch;

        let lengths = [gradient.len(), first.len(), second.len()];
        assert_eq!(lengths, [parameter.len(); 3], "AdamW: lengths differ");
        let slices = ((parameter, gradient), (first, second));
        in_parts(slices, 1, &|slices: Slices<'_>| {
            let ((parameter, gradient), (first, second)) = slices;
            dispatch(
                #[inline(always)]
                move || {
                    let step = self;
                    let arith = ScalarArithmetic::<_, false>::new(
                        #[inline(always)]
                        |x| x,
                        false,
                    );
                    let moments = first.iter_mut().zip(second.iter_mut());
                    let numbers = parameter.iter_mut().zip(gradient).zip(moments);
                    for ((p, g), (first, second)) in numbers {
                        [*p, *first, *second] = step.of_number(&arith, *p, *g, [*first, *second]);
                    }
                },
            );
        });
    }
}
