//! The shapes that split the summed axis of an activation. A computed length stands where −1 could not be told from 0 elements, as
//! in a batch of nothing.

use crate::additions::Builder;
use crate::error::OnnxError;
use crate::graph::layers::SummedAxis;
use crate::proto::NewAttribute;

/// The axes before and after the summed one, each flattened.
pub(crate) struct Around {
    /// Two values of one number each. `None` if the summed axis is the last one, so that −1 and 1 are around.
    computed: Option<[String; 2]>,
    /// The start of the names of nodes.
    name: String,
}

impl Around {
    /// The axes around the summed one of the activation `x`.
    pub(crate) fn of(
        to: &mut Builder<'_, '_>,
        name: &str,
        x: &str,
        layout: SummedAxis,
    ) -> Result<Self, OnnxError> {
        if layout == SummedAxis::Last {
            return Ok(Self {
                computed: None,
                name: name.to_owned(),
            });
        }
        let shape = to.node(&format!("{name}_shape"), "Shape", &[x], Vec::new());
        let (before, after) = if layout == SummedAxis::Channels {
            let before = slice(to, &format!("{name}_batch"), &shape, [0, 1])?;
            let after = slice(to, &format!("{name}_places"), &shape, [2, i64::MAX])?;
            (before, product(to, &format!("{name}_count"), &after))
        } else {
            let before = slice(to, &format!("{name}_batch_axes"), &shape, [0, -2])?;
            let before = with_one(to, &format!("{name}_batch_lengths"), &before)?;
            let before = product(to, &format!("{name}_batch"), &before);
            // A vector counts as a matrix of one column: nothing is after its first axis, and this 1 is the last axis.
            let after = slice(to, &format!("{name}_after_first"), &shape, [1, i64::MAX])?;
            let after = with_one(to, &format!("{name}_columns"), &after)?;
            let after = slice(to, &format!("{name}_last"), &after, [-1, i64::MAX])?;
            (before, after)
        };
        Ok(Self {
            computed: Some([before, after]),
            name: name.to_owned(),
        })
    }

    /// The shape with these axes in place of the summed one.
    pub(crate) fn shape(
        &self,
        to: &mut Builder<'_, '_>,
        kind: &str,
        axes: &[i64],
    ) -> Result<String, OnnxError> {
        let Some([before, after]) = &self.computed else {
            return to.integers(kind, &[&[-1], axes, &[1]].concat());
        };
        let axes = to.integers(kind, axes)?;
        let wish = format!("{}_{kind}", self.name);
        Ok(concat(to, &wish, &[before, &axes, after]))
    }
}

fn slice(
    to: &mut Builder<'_, '_>,
    wish: &str,
    shape: &str,
    [start, end]: [i64; 2],
) -> Result<String, OnnxError> {
    let (start, end) = (to.integers("start", &[start])?, to.integers("end", &[end])?);
    Ok(to.node(wish, "Slice", &[shape, &start, &end], Vec::new()))
}

fn concat(to: &mut Builder<'_, '_>, wish: &str, pieces: &[&str]) -> String {
    let axis = vec![NewAttribute::Integer("axis", 0)];
    to.node(wish, "Concat", pieces, axis)
}

fn with_one(to: &mut Builder<'_, '_>, wish: &str, lengths: &str) -> Result<String, OnnxError> {
    let one = to.integers("axes", &[1])?;
    Ok(concat(to, wish, &[&one, lengths]))
}

fn product(to: &mut Builder<'_, '_>, wish: &str, lengths: &str) -> String {
    to.node(wish, "ReduceProd", &[lengths], Vec::new())
}
