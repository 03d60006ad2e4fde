//! Reading golden files: safetensors whose metadata lists the cases as JSON, and `specs.json`.

use std::{
    collections::{BTreeMap, HashMap},
    fs, io,
    path::{Path, PathBuf},
};

use burn_mx::{MxSpecs, ResolvedSpecs, SpecsError};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use thiserror::Error;

/// Why the golden files cannot be used. A failed check of the library is never an error.
#[derive(Debug, Error)]
pub(crate) enum GoldenError {
    #[error("{}: cannot be read: {reason}", path.display())]
    Read { path: PathBuf, reason: io::Error },
    #[error("{}: not a safetensors file: {reason}", path.display())]
    Safetensors { path: PathBuf, reason: String },
    #[error("{}: metadata key `cases`: {reason}", path.display())]
    Cases { path: PathBuf, reason: String },
    #[error("{}: case {id}: {reason}", path.display())]
    Case {
        path: PathBuf,
        id: String,
        reason: String,
    },
    #[error("{}: tensor `{tensor}`: {reason}", path.display())]
    Tensor {
        path: PathBuf,
        tensor: String,
        reason: String,
    },
    #[error("{}: not a JSON object of named specs: {reason}", path.display())]
    Specs { path: PathBuf, reason: String },
}

/// A dense array in row-major order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Array<T> {
    pub(crate) shape: Vec<usize>,
    pub(crate) values: Vec<T>,
}

impl<T> Array<T> {
    pub(crate) fn rank(&self) -> usize {
        self.shape.len()
    }

    /// The axis counted from 0 for one that may be counted from the end by negative numbers.
    pub(crate) fn axis(&self, axis: isize) -> Option<usize> {
        let axis = if axis < 0 {
            self.rank().checked_add_signed(axis)?
        } else {
            axis as usize
        };
        (axis < self.rank()).then_some(axis)
    }
}

/// A case of a golden file: its id and its parameters.
#[derive(Clone, Debug)]
pub(crate) struct Case<T> {
    pub(crate) id: String,
    pub(crate) params: T,
}

/// A golden file in memory.
pub(crate) struct Golden {
    path: PathBuf,
    floats: BTreeMap<String, Array<f32>>,
    bytes: BTreeMap<String, Array<u8>>,
    cases: Vec<Case<Value>>,
}

impl Golden {
    /// Reads all tensors and the list of cases.
    pub(crate) fn read(path: &Path) -> Result<Self, GoldenError> {
        let path = path.to_owned();
        let buffer = match fs::read(&path) {
            Ok(buffer) => buffer,
            Err(reason) => return Err(GoldenError::Read { path, reason }),
        };
        let safetensors = |reason: safetensors::SafeTensorError| GoldenError::Safetensors {
            path: path.clone(),
            reason: reason.to_string(),
        };
        let (_, header) = SafeTensors::read_metadata(&buffer).map_err(safetensors)?;
        let file = SafeTensors::deserialize(&buffer).map_err(safetensors)?;

        let mut floats = BTreeMap::new();
        let mut bytes = BTreeMap::new();
        for (name, view) in file.iter() {
            let name = name.to_owned();
            match view.dtype() {
                Dtype::F32 => drop(floats.insert(name, array(&view, f32::from_le_bytes))),
                Dtype::U8 => drop(bytes.insert(name, array(&view, |[byte]: [u8; 1]| byte))),
                other => {
                    let reason = format!("dtype is {other:?}, expected F32 or U8");
                    let tensor = name;
                    return Err(GoldenError::Tensor {
                        path,
                        tensor,
                        reason,
                    });
                }
            }
        }
        let metadata = header.metadata().as_ref();
        let cases = metadata
            .and_then(|metadata| metadata.get("cases"))
            .ok_or_else(|| "is missing".to_owned())
            .and_then(|json| parse_cases(json));
        match cases {
            Ok(cases) => Ok(Self {
                path,
                floats,
                bytes,
                cases,
            }),
            Err(reason) => Err(GoldenError::Cases { path, reason }),
        }
    }

    /// Keeps the case with this id only; false if there is none.
    pub(crate) fn select(&mut self, id: &str) -> bool {
        self.cases.retain(|case| case.id == id);
        !self.cases.is_empty()
    }

    /// The cases, each read as a `T`.
    pub(crate) fn cases<T: DeserializeOwned>(&self) -> Result<Vec<Case<T>>, GoldenError> {
        let read = |case: &Case<Value>| {
            let id = case.id.clone();
            match T::deserialize(&case.params) {
                Ok(params) => Ok(Case { id, params }),
                Err(error) => Err(self.bad_case(&id, error.to_string())),
            }
        };
        self.cases.iter().map(read).collect()
    }

    /// The float32 tensor called `name`.
    pub(crate) fn floats(&self, name: &str) -> Result<&Array<f32>, GoldenError> {
        self.floats
            .get(name)
            .ok_or_else(|| self.missing(name, "float32"))
    }

    /// The tensor of bytes called `name`.
    pub(crate) fn bytes(&self, name: &str) -> Result<&Array<u8>, GoldenError> {
        self.bytes
            .get(name)
            .ok_or_else(|| self.missing(name, "byte"))
    }

    /// The float32 tensors whose names begin with `prefix`, by the rest of their names.
    pub(crate) fn floats_under(&self, prefix: &str) -> BTreeMap<&str, &Array<f32>> {
        self.floats
            .iter()
            .filter_map(|(name, array)| Some((name.strip_prefix(prefix)?, array)))
            .collect()
    }

    /// The error for a case that says something impossible.
    pub(crate) fn bad_case(&self, id: &str, reason: impl Into<String>) -> GoldenError {
        GoldenError::Case {
            path: self.path.clone(),
            id: id.to_owned(),
            reason: reason.into(),
        }
    }

    fn missing(&self, tensor: &str, kind: &str) -> GoldenError {
        GoldenError::Tensor {
            path: self.path.clone(),
            tensor: tensor.to_owned(),
            reason: format!("there is no {kind} tensor of this name"),
        }
    }
}

/// Decodes little-endian elements of N bytes.
fn array<const N: usize, T>(view: &TensorView<'_>, decode: impl Fn([u8; N]) -> T) -> Array<T> {
    let (elements, _) = view.data().as_chunks::<N>();
    Array {
        shape: view.shape().to_vec(),
        values: elements.iter().map(|&bytes| decode(bytes)).collect(),
    }
}

fn parse_cases(json: &str) -> Result<Vec<Case<Value>>, String> {
    let list: Vec<Value> = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let with_id = |(i, params): (usize, Value)| match &params["id"] {
        Value::Null => Err(format!("entry {i} has no `id`")),
        Value::String(id) => Ok(Case {
            id: id.clone(),
            params,
        }),
        id => Ok(Case {
            id: id.to_string(),
            params,
        }),
    };
    list.into_iter().enumerate().map(with_id).collect()
}

/// The named specs of `specs.json`.
pub(crate) struct Specs(HashMap<String, Result<ResolvedSpecs, SpecsError>>);

impl Specs {
    /// Reads `specs.json` of a folder. Specs that the library refuses fail the cases that name them.
    pub(crate) fn read(dir: &Path) -> Result<Self, GoldenError> {
        let path = dir.join("specs.json");
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(reason) => return Err(GoldenError::Read { path, reason }),
        };
        let named: Map<String, Value> = match serde_json::from_str(&text) {
            Ok(named) => named,
            Err(error) => {
                let reason = error.to_string();
                return Err(GoldenError::Specs { path, reason });
            }
        };
        let resolve = |(name, json): (String, Value)| {
            let specs = MxSpecs::from_json(&json.to_string()).and_then(|specs| specs.resolve());
            (name, specs)
        };
        Ok(Self(named.into_iter().map(resolve).collect()))
    }

    /// The specs called `name`, or why the library refuses them; `None` if the file has none.
    pub(crate) fn get(&self, name: &str) -> Option<Result<&ResolvedSpecs, &SpecsError>> {
        self.0.get(name).map(Result::as_ref)
    }
}
