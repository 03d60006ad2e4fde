//! Rows of a kernel that is being written.

use cubecl::frontend::branch::{for_expand, if_expand, range_stepped};
use cubecl::ir::Scope;
use cubecl::prelude::*;
use microscaling::{FloatFormat, Rounding};

use super::super::arithmetic::{Emitter, Value};
use crate::arithmetic::Rows;
use crate::cube::numbers::float::{self, Float32};
use crate::cube::numbers::round::round_float;

/// Units that work on a row.
pub(super) const LANES: u32 = 16;

/// A row of a tensor, or of numbers that are the same for all rows.
#[derive(Clone)]
pub(super) struct Row {
    pub(super) tensor: NativeExpand<Tensor<u32>>,
    /// Where it starts.
    pub(super) start: NativeExpand<usize>,
    /// How its elements are rounded when they are read.
    pub(super) rounding: Option<(FloatFormat, Rounding)>,
}

/// The rows that the units of a cube work on, one a line of units.
pub(super) struct KernelRows<'e> {
    pub(super) emitter: &'e Emitter,
    /// Elements of a row; zero where a line of units has none.
    pub(super) length: NativeExpand<usize>,
    /// The same if it is known when the kernel is written, and asked for.
    pub(super) count: usize,
    pub(super) lane: NativeExpand<usize>,
    /// Where the partial results of this line of units start in `shared`.
    pub(super) line: NativeExpand<usize>,
    pub(super) shared: NativeExpand<SharedMemory<u32>>,
    pub(super) float32: Float32,
}

impl KernelRows<'_> {
    /// Runs `body` for each element of this unit.
    fn each(&self, mut body: impl FnMut(NativeExpand<usize>)) {
        let (lane, length) = (self.lane.clone(), self.length.clone());
        self.emitter.block(
            |scope, body| {
                let range = range_stepped::expand(scope, lane, length, (LANES as usize).into());
                for_expand(scope, range, false, body);
            },
            &mut body,
        );
    }

    fn read(&self, row: &Row, index: NativeExpand<usize>) -> Value {
        let Row { tensor, start, .. } = row.clone();
        self.emitter.emit(|scope| {
            let x = read_element::expand(scope, tensor, start, index);
            match row.rounding {
                Some((format, rounding)) => {
                    round_float::expand(scope, x, 0.into(), format, rounding)
                }
                None => x,
            }
        })
    }

    fn write(&self, row: &Row, index: NativeExpand<usize>, value: Value) {
        let Row { tensor, start, .. } = row.clone();
        self.emitter
            .emit(|scope| write_element::expand(scope, tensor, start, index, value));
    }

    /// Reduces the values of each unit's elements, and then the results of the units.
    fn reduce(
        &self,
        first: u32,
        value: impl Fn(NativeExpand<usize>) -> Value,
        combine: impl Fn(&mut Scope, Value, Value) -> Value,
    ) -> Value {
        let first = Value::from(first);
        let partial = self.emitter.emit(|scope| into_mut_assign(first, scope));
        self.each(|index| {
            let value = value(index);
            self.emitter.emit(|scope| {
                let mut partial = partial.clone();
                let next = combine(scope, partial.clone(), value);
                partial.expand_assign(scope, next);
            });
        });
        self.emitter.emit(|scope| {
            let own = add_index::expand(scope, self.line.clone(), self.lane.clone());
            write_shared::expand(scope, self.shared.clone(), own.clone(), partial);
            let mut width = LANES as usize / 2;
            while width > 0 {
                synchronize::expand(scope);
                let other = add_index::expand(scope, own.clone(), width.into());
                let takes_part = is_below::expand(scope, self.lane.clone(), width.into());
                if_expand(scope, takes_part, |scope| {
                    let a = read_shared::expand(scope, self.shared.clone(), own.clone());
                    let b = read_shared::expand(scope, self.shared.clone(), other);
                    let both = combine(scope, a, b);
                    write_shared::expand(scope, self.shared.clone(), own.clone(), both);
                });
                width /= 2;
            }
            synchronize::expand(scope);
            let result = read_shared::expand(scope, self.shared.clone(), self.line.clone());
            // Nobody may write the next partial results before all have read these.
            synchronize::expand(scope);
            result
        })
    }
}

impl Rows for KernelRows<'_> {
    type Value = Value;
    type Row = Row;
    type View = Row;
    type Room = Row;

    fn view(row: &Row) -> &Row {
        row
    }

    fn map(&self, row: Row, f: impl Fn(Value) -> Value) -> Row {
        self.each(|index| {
            let x = self.read(&row, index.clone());
            self.write(&row, index, f(x));
        });
        row
    }

    fn zip(&self, row: Row, other: &Row, f: impl Fn(Value, Value) -> Value) -> Row {
        self.each(|index| {
            let x = self.read(&row, index.clone());
            let y = self.read(other, index.clone());
            self.write(&row, index, f(x, y));
        });
        row
    }

    fn zip_new(&self, room: Row, lhs: &Row, rhs: &Row, f: impl Fn(Value, Value) -> Value) -> Row {
        self.each(|index| {
            let x = self.read(lhs, index.clone());
            let y = self.read(rhs, index.clone());
            self.write(&room, index, f(x, y));
        });
        room
    }

    fn sum(&self, row: &Row, f: impl Fn(Value) -> Value) -> Value {
        self.reduce(
            0,
            |index| f(self.read(row, index)),
            |scope, a, b| float::add::expand(scope, a, b, self.float32),
        )
    }

    fn sum_of_two(&self, lhs: &Row, rhs: &Row, f: impl Fn(Value, Value) -> Value) -> Value {
        self.reduce(
            0,
            |index| {
                let x = self.read(lhs, index.clone());
                f(x, self.read(rhs, index))
            },
            |scope, a, b| float::add::expand(scope, a, b, self.float32),
        )
    }

    fn max(&self, row: &Row) -> Value {
        let key = self.reduce(
            // Below the pattern of -Inf.
            0,
            |index| {
                let x = self.read(row, index);
                self.emitter
                    .emit(|scope| float::to_ordered::expand(scope, x))
            },
            cubecl::prelude::max::expand,
        );
        self.emitter
            .emit(|scope| float::of_ordered::expand(scope, key))
    }

    fn length(&self, _: &Row) -> usize {
        self.count
    }
}

#[cube]
fn read_element(tensor: &Tensor<u32>, start: usize, index: usize) -> u32 {
    tensor[start + index]
}

#[cube]
fn write_element(tensor: &mut Tensor<u32>, start: usize, index: usize, value: u32) {
    tensor[start + index] = value;
}

#[cube]
fn read_shared(shared: &SharedMemory<u32>, index: usize) -> u32 {
    shared[index]
}

#[cube]
fn write_shared(shared: &mut SharedMemory<u32>, index: usize, value: u32) {
    shared[index] = value;
}

#[cube]
fn add_index(a: usize, b: usize) -> usize {
    a + b
}

#[cube]
fn is_below(a: usize, b: usize) -> bool {
    a < b
}

#[cube]
fn synchronize() {
    sync_cube();
}
