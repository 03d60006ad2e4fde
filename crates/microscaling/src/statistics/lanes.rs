//! Sums, lane by lane.

/// Lanes of the sums over a block whose elements are contiguous, and over a part. Kernels of devices have the same.
pub(super) const BLOCK_LANES: usize = 8;
pub(super) const PART_LANES: usize = 32;

/// The sums of blocks, lane by lane.
pub(super) struct Sums<const W: usize> {
    pub(super) power: [f64; W],
    pub(super) error: [f64; W],
}

impl<const W: usize> Sums<W> {
    #[inline(always)]
    pub(super) fn new() -> Self {
        Self {
            power: [0.0; W],
            error: [0.0; W],
        }
    }
}

/// The sum of `term` of each pair, in lanes.
#[inline(always)]
pub(super) fn sum_of<const LANES: usize>(
    a: &[f32],
    b: &[f32],
    term: impl Fn(f64, f64) -> f64,
) -> f64 {
    let (a, a_rest) = a.as_chunks::<LANES>();
    let (b, b_rest) = b.as_chunks::<LANES>();
    let mut lanes = [0.0; LANES];
    for (a, b) in a.iter().zip(b) {
        for i in 0..LANES {
            lanes[i] += term(f64::from(a[i]), f64::from(b[i]));
        }
    }
    for (lane, (a, b)) in lanes.iter_mut().zip(a_rest.iter().zip(b_rest)) {
        *lane += term(f64::from(*a), f64::from(*b));
    }
    fold(lanes)
}

/// The sum of lanes, by halves.
#[inline(always)]
fn fold<const W: usize>(mut lanes: [f64; W]) -> f64 {
    let mut width = W;
    while width > 1 {
        width /= 2;
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
    }
    lanes[0]
}

#[inline(always)]
pub(super) fn product(a: f64, b: f64) -> f64 {
    // Exact, of two float32.
    a * b
}

#[inline(always)]
pub(super) fn square_of_difference(a: f64, b: f64) -> f64 {
    (a - b) * (a - b)
}
