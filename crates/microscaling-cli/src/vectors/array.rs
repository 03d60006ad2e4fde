//! A set of vectors as an array, for other languages.

use super::{VectorsArgs, write_cases};
use crate::error::Error;
use microscaling_vectors::VectorForm;
use std::path::Path;

/// The bytes of a set as an array of NumPy.
pub(crate) fn array_of(args: &VectorsArgs) -> Result<Vec<u8>, Error> {
    let set = args.set.set()?;
    let is_alone = args.output.is_none() && args.layout.is_none() && args.form.is_none();
    if !is_alone || args.cover || args.set.trace().is_some() {
        let text = "allowed: the options of the set, without output, layout, form, cover and trace";
        return Err(Error::Arguments(text.to_owned()));
    }
    let mut bytes = Vec::new();
    write_cases(&*set, VectorForm::Npy, &mut bytes, None)
        .map_err(|source| Error::io(Path::new("the cases"), source))?;
    Ok(bytes)
}
