//! The words of a kernel's [`Known`] facts on their device.

use super::rules::Format;
#[cfg(all(test, feature = "cuda"))]
pub(in crate::cube) use super::rules::known::KnownExpand;
use super::rules::known::KnownLaunch;
pub(in crate::cube) use super::rules::known::{Known, tensor_amax};
use super::rules::tables;
use super::tensor_scale::largest;
use crate::cube::launch;
use burn_backend::TensorMetadata;
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;
use microscaling::{FloatFormat, Rounding};

/// The words of [`Known`] on their device.
#[derive(Clone)]
pub(in crate::cube) struct KnownWords<R: CubeRuntime> {
    tensor_amax: Option<CubeTensor<R>>,
    tables: Option<CubeTensor<R>>,
}

impl<R: CubeRuntime> KnownWords<R> {
    /// For a tensor that is rounded to an elementwise format first, if there is one.
    pub(in crate::cube) fn of(
        tensor: &CubeTensor<R>,
        format: Format,
        elementwise: Option<(FloatFormat, Rounding)>,
    ) -> Self {
        let amax = || match tensor.shape().num_elements() {
            0 => launch::word(tensor, 0),
            _ => largest(tensor, elementwise),
        };
        Self::with_tables(tensor, format, format.tensor_scale.then(amax))
    }

    /// For no format.
    pub(in crate::cube) fn nothing() -> Self {
        Self {
            tensor_amax: None,
            tables: None,
        }
    }

    /// With this largest magnitude of the tensor, if any.
    pub(in crate::cube) fn with_tables(
        tensor: &CubeTensor<R>,
        format: Format,
        tensor_amax: Option<CubeTensor<R>>,
    ) -> Self {
        let tables = format.tables();
        Self {
            tensor_amax,
            tables: tables.map(|element| launch::words(tensor, &tables::words(element))),
        }
    }

    pub(in crate::cube) fn tensor_amax(&self) -> Option<CubeTensor<R>> {
        self.tensor_amax.clone()
    }

    pub(in crate::cube) fn argument(&self) -> KnownLaunch<R> {
        let [tensor_amax, tables] =
            [&self.tensor_amax, &self.tables].map(|words| match words.clone() {
                Some(words) => ComptimeOptionArgs::Some(words.into_array_arg()),
                None => ComptimeOptionArgs::None,
            });
        KnownLaunch::new(tensor_amax, tables)
    }
}

/// The argument of a kernel that is written for its source alone.
#[cfg(all(test, feature = "cuda"))]
pub(in crate::cube) fn expand(
    format: Option<Format>,
    mut array: impl FnMut() -> NativeExpand<Array<u32>>,
) -> KnownExpand {
    let mut option = |is_some: bool| match is_some {
        true => ComptimeOptionExpand::Some(array()),
        false => ComptimeOptionExpand::None,
    };
    KnownExpand {
        tensor_amax: option(format.is_some_and(|format| format.tensor_scale)),
        tables: option(format.is_some_and(|format| format.tables().is_some())),
    }
}
