//! Sums, lane by lane.

/// Lanes of the sums over a block whose elements are contiguous, and over a part.
pub(super) const BLOCK_LANES: usize = 8;
pub(super) const PART_LANES: usize = 32;

/// Lanes of a vector of float64.
pub(super) const VECTOR: usize = 8;

/// Of a row of numbers, a vector of them.
#[inline(always)]
pub(super) fn vector(row: &[f32], at: usize) -> &[f32; VECTOR] {
    row[at..].first_chunk().expect("it is as long")
}

/// The sum of `term` of each pair, in lanes.
#[inline(always)]
pub(super) fn sum_of<const LANES: usize>(
    a: &[f32],
    b: &[f32],
    term: impl Fn(f64, f64) -> f64,
) -> f64 {
    let mut lanes = [0.0; LANES];
    add_to(&mut lanes, a, b, term);
    fold(lanes)
}

/// Adds `term` of each pair to the lanes, of which the first pair has the first one.
#[inline(always)]
pub(super) fn add_to<const LANES: usize>(
    lanes: &mut [f64; LANES],
    a: &[f32],
    b: &[f32],
    term: impl Fn(f64, f64) -> f64,
) {
    let (a, a_rest) = a.as_chunks::<LANES>();
    let (b, b_rest) = b.as_chunks::<LANES>();
    // One vector of lanes after the other: of more at once the compiler makes scalars.
    for (i, lanes) in lanes.as_chunks_mut::<VECTOR>().0.iter_mut().enumerate() {
        let mut sums = *lanes;
        for (a, b) in a.iter().zip(b) {
            let [a, b] = [a, b].map(
                #[inline(always)]
                |row| vector(row, i * VECTOR),
            );
            for i in 0..VECTOR {
                sums[i] += term(f64::from(a[i]), f64::from(b[i]));
            }
        }
        *lanes = sums;
    }
    for (lane, (a, b)) in lanes.iter_mut().zip(a_rest.iter().zip(b_rest)) {
        *lane += term(f64::from(*a), f64::from(*b));
    }
}

/// The sum of lanes, by halves.
#[inline(always)]
pub(super) fn fold<const W: usize>(mut lanes: [f64; W]) -> f64 {
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
