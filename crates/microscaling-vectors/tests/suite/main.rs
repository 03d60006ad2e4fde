//! Vectors against independent sources, dumps of devices with planted deviations, and the forms of files.

mod block_deviations;
mod deviations;
mod devices;
mod forms;
mod golden;
mod independent;
mod p3109_rationals;
mod sums;
mod tiles;

use microscaling_vectors::{
    CheckReport, DumpInputs, DumpPart, DumpReader, VectorForm, VectorSet, VectorWriter, check,
};
use std::io::Cursor;

/// All cases of a set: inputs and outputs.
pub(crate) fn cases(set: &dyn VectorSet) -> Vec<(Vec<u64>, Vec<u64>)> {
    let case = |case| {
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        set.inputs(case, &mut inputs);
        set.outputs(&inputs, &[], &mut outputs);
        (inputs, outputs)
    };
    (0..set.cases()).map(case).collect()
}

/// The file of a set with the outputs of a device.
pub(crate) fn dump(
    set: &dyn VectorSet,
    form: VectorForm,
    device: impl Fn(&[u64], &[u64]) -> Vec<u64>,
) -> Vec<u8> {
    let mut writer =
        VectorWriter::new(form, set.layout(), &set.name(), set.cases(), Vec::new()).unwrap();
    for (inputs, outputs) in cases(set) {
        let got = device(&inputs, &outputs);
        writer.case(&[inputs, got].concat()).unwrap();
    }
    writer.finish().unwrap()
}

/// The verdict of `check` says about a device.
pub(crate) fn report(
    set: &dyn VectorSet,
    device: impl Fn(&[u64], &[u64]) -> Vec<u64>,
) -> CheckReport {
    let bytes = dump(set, VectorForm::Hex, device);
    let mut reader =
        DumpReader::new("dump", Cursor::new(bytes), set.layout(), &[DumpPart::Whole]).unwrap();
    check(set, &mut reader, DumpInputs::OfSet).unwrap()
}
