//! Windows that slide over the planes of a tensor: what makes a matrix product of a convolution.

use super::convolution::Convolution;

/// Windows that slide over a plane: element κ of the window at position p reads element
/// (stride · p + dilation · κ − before) / spread along each axis, or zero if that is none.
pub(crate) struct Windows<'a> {
    plane: &'a [usize],
    window: &'a [usize],
    pub(crate) positions: Vec<usize>,
    stride: Vec<usize>,
    dilation: &'a [usize],
    before: Vec<isize>,
    spread: Vec<usize>,
}

impl<'a> Windows<'a> {
    /// As many as the output's lengths say, from the first on.
    pub(crate) fn of_output(
        convolution: &'a Convolution,
        plane: &'a [usize],
        window: &'a [usize],
        output: &[usize],
    ) -> Self {
        let Convolution {
            stride,
            padding,
            dilation,
            ..
        } = convolution;
        Self {
            plane,
            window,
            positions: output.to_vec(),
            stride: stride.clone(),
            dilation,
            before: padding.iter().map(|&padding| padding as isize).collect(),
            spread: vec![1; plane.len()],
        }
    }

    pub(crate) fn of_input_gradient(
        convolution: &'a Convolution,
        plane: &'a [usize],
        window: &'a [usize],
        input: &[usize],
    ) -> Self {
        let forward = Self::of_output(convolution, plane, window, input);
        let reach = |axis: usize| (forward.dilation[axis] * (window[axis] - 1)) as isize;
        let before = (0..plane.len()).map(|axis| reach(axis) - forward.before[axis]);
        Self {
            before: before.collect(),
            stride: forward.spread,
            spread: forward.stride,
            ..forward
        }
    }

    /// Elements of a window.
    pub(crate) fn taps(&self) -> usize {
        self.window.iter().product()
    }

    /// Number of positions.
    pub(crate) fn count(&self) -> usize {
        self.positions.iter().product()
    }

    /// Writes what one element of the window reads at consecutive positions. Where the window lies
    /// outside of the plane, values stay as they are.
    pub(crate) fn write<T: Copy>(&self, plane: &[T], tap: usize, start: usize, values: &mut [T]) {
        let last = self.plane.len() - 1;
        let (length, row) = (self.plane[last], self.positions[last]);
        let taps = in_axes(tap, self.window);
        let (stride, spread) = (self.stride[last] as isize, self.spread[last] as isize);
        let shift = (self.dilation[last] * taps[last]) as isize - self.before[last];
        let (mut at, mut rest) = (start, values);
        while !rest.is_empty() {
            let column = at % row;
            let (part, tail) = rest.split_at_mut((row - column).min(rest.len()));
            rest = tail;
            let outer = self.outer(at / row, &taps);
            at += part.len();
            let Some(outer) = outer else { continue };
            let source = &plane[outer * length..][..length];
            let first = stride * column as isize + shift;
            if stride == 1 && spread == 1 {
                // A stretch of the plane, without what lies beyond its ends.
                let skip = (-first).clamp(0, part.len() as isize) as usize;
                let from = (first + skip as isize).clamp(0, length as isize) as usize;
                let count = (part.len() - skip).min(length - from);
                part[skip..skip + count].copy_from_slice(&source[from..from + count]);
                continue;
            }
            for (i, value) in part.iter_mut().enumerate() {
                let place = first + stride * i as isize;
                if place >= 0 && place % spread == 0 && place / spread < length as isize {
                    *value = source[(place / spread) as usize];
                }
            }
        }
    }

    /// Which row of the plane is read at a position along all axes but the last; `None` if it is none.
    fn outer(&self, position: usize, taps: &[usize]) -> Option<usize> {
        let last = self.plane.len() - 1;
        let positions = in_axes(position, &self.positions[..last]);
        (0..last).try_fold(0, |row, axis| {
            let place = (self.stride[axis] * positions[axis] + self.dilation[axis] * taps[axis])
                as isize
                - self.before[axis];
            let spread = self.spread[axis] as isize;
            let length = self.plane[axis];
            let inside = place >= 0 && place % spread == 0 && place / spread < length as isize;
            inside.then(|| row * length + (place / spread) as usize)
        })
    }
}

/// A position in row-major order along axes of these lengths, at most three.
fn in_axes(mut position: usize, lengths: &[usize]) -> [usize; 3] {
    let mut axes = [0; 3];
    for (axis, length) in lengths.iter().enumerate().rev() {
        axes[axis] = position % length;
        position /= length;
    }
    axes
}
