//! Rows of a kernel that is being written.

use std::cell::Cell;

use burn_cubecl::CubeRuntime;
use cubecl::client::ComputeClient;
use cubecl::features::Plane;
use cubecl::frontend::branch::{for_expand, if_expand, range_stepped};
use cubecl::ir::Scope;
use cubecl::prelude::*;
use microscaling::{FloatFormat, Rounding};

use super::super::arithmetic::{Emitter, Value};
use crate::arithmetic::{Rows, lanes};
use crate::cube::numbers::float::{self, Float32};
use crate::cube::numbers::round::round_float;

/// Who works on the rows of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::cube) struct Units {
    /// Units that work on a row, each on a lane of its elements.
    lanes: u32,
    /// Elements that a unit keeps in its registers, or none: then a row is kept in memory.
    kept: usize,
    /// Whether the units of a plane hand over their results without shared memory.
    planes: bool,
}

impl Units {
    /// The most elements that a unit keeps: two rows of them leave half of a GPU's registers to everything else.
    const KEPT: usize = 32;
    /// The units of a plane that hand results over; no plane that is used has fewer.
    const PLANE: u32 = 32;
    /// The fewest units of a cube.
    const CUBE: u32 = 128;

    /// For rows of a length.
    pub(in crate::cube) fn of(length: usize, planes: bool) -> Self {
        let lanes = lanes(length);
        let each = length.div_ceil(lanes);
        Self {
            lanes: lanes as u32,
            kept: if each <= Self::KEPT { each } else { 0 },
            planes,
        }
    }

    /// Whether the units of a device's planes hand over their results.
    pub(super) fn has_planes<R: CubeRuntime>(client: &ComputeClient<R>) -> bool {
        client.features().plane.contains(Plane::Ops)
            && client.properties().hardware.plane_size_min >= Self::PLANE
    }

    /// The units of a cube, along a row and across the rows.
    pub(in crate::cube) fn cube(self) -> (u32, u32) {
        (self.lanes, Self::CUBE.div_ceil(self.lanes))
    }

    /// Whether rows are kept in registers.
    pub(in crate::cube) fn keeps_rows(self) -> bool {
        self.kept > 0
    }

    /// Words of shared memory. One reduction has the first half and the next one the second, so that nobody waits until all
    /// units have read the results.
    pub(super) fn shared_words(self) -> usize {
        let (x, y) = self.cube();
        2 * (x * y) as usize
    }
}

/// A row to read or to write.
#[derive(Clone)]
pub(super) enum Row {
    /// In the registers of its units.
    Kept(NativeExpand<Array<u32>>),
    Memory(Memory),
}

/// A row of a tensor, or of numbers that are the same for all rows.
#[derive(Clone)]
pub(super) struct Memory {
    pub(super) tensor: NativeExpand<Tensor<u32>>,
    /// Where it starts.
    pub(super) start: NativeExpand<usize>,
    /// How its elements are rounded when they are read.
    pub(super) rounding: Option<(FloatFormat, Rounding)>,
}

/// An element of this unit.
#[derive(Clone)]
struct Element {
    /// Its place in the unit's registers.
    register: NativeExpand<usize>,
    /// Its place in the row. Beyond the row's end this is the last place.
    index: NativeExpand<usize>,
    /// Whether the row has the element, if it may not.
    is_there: Option<NativeExpand<bool>>,
    /// The same, where a unit's last element may be beyond the row's end: then sums leave it out.
    counts: Option<NativeExpand<bool>>,
}

/// The rows that the units of a cube work on, one a line of units.
pub(super) struct KernelRows<'e> {
    pub(super) emitter: &'e Emitter,
    pub(super) units: Units,
    /// Elements of a row; zero where a line of units has none.
    pub(super) length: NativeExpand<usize>,
    /// The same if it is known when the kernel is written, and asked for.
    pub(super) count: usize,
    pub(super) lane: NativeExpand<usize>,
    /// The number of this line of units.
    pub(super) line: NativeExpand<usize>,
    pub(super) shared: NativeExpand<SharedMemory<u32>>,
    /// Whether the next reduction has the second half of `shared`.
    pub(super) second: Cell<bool>,
    pub(super) float32: Float32,
}

impl KernelRows<'_> {
    /// Where a new row goes: registers, or this row of an output.
    pub(super) fn room(&self, output: impl FnOnce() -> Row) -> Row {
        match self.units.keeps_rows() {
            true => {
                Row::Kept((self.emitter).emit(|scope| new_array::expand(scope, self.units.kept)))
            }
            false => output(),
        }
    }

    /// A new row of a function of a row's elements.
    pub(super) fn copy(&self, room: Row, from: &Row, f: impl Fn(Value) -> Value) -> Row {
        self.each(|element| self.write(&room, &element, f(self.read(from, &element))));
        room
    }

    /// A row to read more than once.
    pub(super) fn kept(&self, memory: Memory) -> Row {
        let row = Row::Memory(memory);
        match self.units.keeps_rows() {
            true => self.copy(self.room(|| row.clone()), &row, |x| x),
            false => row,
        }
    }

    /// Runs `body` for each element of this unit.
    fn each(&self, mut body: impl FnMut(Element)) {
        let Units { lanes, kept, .. } = self.units;
        let (lane, length) = (self.lane.clone(), self.length.clone());
        // Arithmetic by integers is too long to be written again and again.
        if self.float32 == Float32::Device && kept > 0 {
            for register in 0..kept {
                let index = self.emitter.emit(|scope| {
                    add_index::expand(scope, lane.clone(), (register * lanes as usize).into())
                });
                let is_there = self
                    .emitter
                    .emit(|scope| is_below::expand(scope, index.clone(), length.clone()));
                let is_last = register + 1 == kept;
                body(Element {
                    register: register.into(),
                    index: match is_last {
                        true => (self.emitter)
                            .emit(|scope| bounded::expand(scope, index, length.clone())),
                        false => index,
                    },
                    counts: is_last.then(|| is_there.clone()),
                    is_there: Some(is_there),
                });
            }
            return;
        }
        self.emitter.block(
            |scope, body| {
                let range = range_stepped::expand(scope, lane, length, (lanes as usize).into());
                for_expand(scope, range, false, body);
            },
            |index: NativeExpand<usize>| {
                let register = self
                    .emitter
                    .emit(|scope| divide_index::expand(scope, index.clone(), lanes as usize));
                body(Element {
                    register,
                    index,
                    is_there: None,
                    counts: None,
                });
            },
        );
    }

    fn read(&self, row: &Row, element: &Element) -> Value {
        let Element {
            register, index, ..
        } = element.clone();
        self.emitter.emit(|scope| match row.clone() {
            Row::Kept(array) => read_register::expand(scope, array, register),
            Row::Memory(memory) => {
                let x = read_element::expand(scope, memory.tensor, memory.start, index);
                match memory.rounding {
                    Some((format, rounding)) => {
                        round_float::expand(scope, x, 0.into(), format, rounding)
                    }
                    None => x,
                }
            }
        })
    }

    fn write(&self, row: &Row, element: &Element, value: Value) {
        let Element {
            register,
            index,
            is_there,
            ..
        } = element.clone();
        self.emitter.emit(|scope| match row.clone() {
            Row::Kept(array) => write_register::expand(scope, array, register, value),
            Row::Memory(Memory { tensor, start, .. }) => {
                let write = |scope: &mut Scope| {
                    write_element::expand(scope, tensor, start, index, value);
                };
                match is_there {
                    Some(is_there) => if_expand(scope, is_there, write),
                    None => write(scope),
                }
            }
        });
    }

    /// Reduces the values of each unit's elements, and then the results of the units. Zero is the neutral element.
    fn reduce(
        &self,
        value: impl Fn(&Element) -> Value,
        combine: impl Fn(&mut Scope, Value, Value) -> Value,
    ) -> Value {
        let partial = (self.emitter).emit(|scope| into_mut_assign(Value::from(0u32), scope));
        self.each(|element| {
            let value = value(&element);
            self.emitter.emit(|scope| {
                let value = match element.counts.clone() {
                    Some(counts) => select::expand(scope, counts, value, 0.into()),
                    None => value,
                };
                let mut partial = partial.clone();
                let next = combine(scope, partial.clone(), value);
                partial.expand_assign(scope, next);
            });
        });
        self.emitter.emit(|scope| match self.units.planes {
            true => self.reduce_by_planes(scope, partial, combine),
            false => self.reduce_in_shared_memory(scope, partial, combine),
        })
    }

    /// Where the results of this line of units lie in shared memory.
    fn shared_line(&self, scope: &mut Scope) -> NativeExpand<usize> {
        let second = self.second.replace(!self.second.get());
        let half = if second {
            self.units.shared_words() / 2
        } else {
            0
        };
        let lanes = self.units.lanes as usize;
        line_start::expand(scope, self.line.clone(), lanes, half)
    }

    /// Every plane adds the results of all planes of its line, and then its own units'.
    fn reduce_by_planes(
        &self,
        scope: &mut Scope,
        partial: Value,
        combine: impl Fn(&mut Scope, Value, Value) -> Value,
    ) -> Value {
        let lanes = self.units.lanes;
        let mut result = partial;
        if lanes > Units::PLANE {
            let line = self.shared_line(scope);
            let own = add_index::expand(scope, line.clone(), self.lane.clone());
            write_shared::expand(scope, self.shared.clone(), own, result);
            synchronize::expand(scope);
            let mut of_planes: Vec<Value> = (0..lanes / Units::PLANE)
                .map(|plane| {
                    let start = (plane * Units::PLANE) as usize;
                    let place =
                        place_in_plane::expand(scope, line.clone(), self.lane.clone(), start);
                    read_shared::expand(scope, self.shared.clone(), place)
                })
                .collect();
            while of_planes.len() > 1 {
                let upper = of_planes.split_off(of_planes.len() / 2);
                let pairs = of_planes.into_iter().zip(upper);
                of_planes = pairs.map(|(a, b)| combine(scope, a, b)).collect();
            }
            result = of_planes.remove(0);
        }
        let mut width = lanes.min(Units::PLANE) / 2;
        while width > 0 {
            let other = plane_shuffle_xor::expand(scope, result.clone(), width.into());
            result = combine(scope, result, other);
            width /= 2;
        }
        result
    }

    fn reduce_in_shared_memory(
        &self,
        scope: &mut Scope,
        partial: Value,
        combine: impl Fn(&mut Scope, Value, Value) -> Value,
    ) -> Value {
        let line = self.shared_line(scope);
        let own = add_index::expand(scope, line.clone(), self.lane.clone());
        write_shared::expand(scope, self.shared.clone(), own.clone(), partial);
        let mut width = self.units.lanes as usize / 2;
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
        read_shared::expand(scope, self.shared.clone(), line)
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
        self.copy(row.clone(), &row, f)
    }

    fn zip(&self, row: Row, other: &Row, f: impl Fn(Value, Value) -> Value) -> Row {
        self.zip_new(row.clone(), &row, other, f)
    }

    fn zip_new(&self, room: Row, lhs: &Row, rhs: &Row, f: impl Fn(Value, Value) -> Value) -> Row {
        self.each(|element| {
            let [x, y] = [lhs, rhs].map(|row| self.read(row, &element));
            self.write(&room, &element, f(x, y));
        });
        room
    }

    fn sum(&self, row: &Row, f: impl Fn(Value) -> Value) -> Value {
        self.reduce(
            |element| f(self.read(row, element)),
            |scope, a, b| float::add::expand(scope, a, b, self.float32),
        )
    }

    fn sum_of_two(&self, lhs: &Row, rhs: &Row, f: impl Fn(Value, Value) -> Value) -> Value {
        self.reduce(
            |element| {
                let [x, y] = [lhs, rhs].map(|row| self.read(row, element));
                f(x, y)
            },
            |scope, a, b| float::add::expand(scope, a, b, self.float32),
        )
    }

    fn max(&self, row: &Row) -> Value {
        // Zero is below the key of -Inf.
        let key = self.reduce(
            |element| {
                let x = self.read(row, element);
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
fn new_array(#[comptime] length: usize) -> Array<u32> {
    Array::<u32>::new(length)
}

#[cube]
fn read_register(array: &Array<u32>, index: usize) -> u32 {
    array[index]
}

#[cube]
fn write_register(array: &mut Array<u32>, index: usize, value: u32) {
    array[index] = value;
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
fn divide_index(a: usize, #[comptime] b: usize) -> usize {
    a / b
}

/// The index, or the row's last index if that is smaller. An empty row gives 0.
#[cube]
fn bounded(index: usize, length: usize) -> usize {
    min(index, max(length, 1) - 1)
}

#[cube]
fn line_start(line: usize, #[comptime] lanes: usize, #[comptime] half: usize) -> usize {
    line * lanes + half
}

/// The place of this unit's counterpart in the plane that starts there.
#[cube]
fn place_in_plane(line: usize, lane: usize, #[comptime] start: usize) -> usize {
    line + start + lane % comptime!(Units::PLANE as usize)
}

#[cube]
fn is_below(a: usize, b: usize) -> bool {
    a < b
}

#[cube]
fn synchronize() {
    sync_cube();
}
