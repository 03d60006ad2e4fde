//! The methods of Burn's backend traits, read from the sources that this build uses.

use std::panic::{self, PanicHookInfo};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use burn_backend::TensorData;

/// The traits, each with the file under `src/backend/ops` of burn-backend that declares it.
const TRAITS: [(&str, &str); 7] = [
    ("FloatTensorOps", "tensor.rs"),
    ("IntTensorOps", "int_tensor.rs"),
    ("BoolTensorOps", "bool_tensor.rs"),
    ("ModuleOps", "modules/base.rs"),
    ("ActivationOps", "activation.rs"),
    ("QTensorOps", "qtensor.rs"),
    ("TransactionOps", "transaction.rs"),
];

/// The names of all methods, provided ones included.
pub(crate) fn methods() -> Vec<String> {
    let folder = burn_backend().join("src/backend/ops");
    let mut names = Vec::new();
    for (name, file) in TRAITS {
        let path = folder.join(file);
        let source = std::fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let before = names.len();
        let declared = source
            .lines()
            .skip_while(|line| !line.starts_with(&format!("pub trait {name}<")))
            .take_while(|line| *line != "}");
        for line in declared {
            let method = line.strip_prefix("    fn ");
            let method = method.or_else(|| line.strip_prefix("    async fn "));
            if let Some(method) = method {
                let end = method.find(|c: char| !c.is_alphanumeric() && c != '_');
                names.push(method[..end.unwrap_or(method.len())].to_owned());
            }
        }
        assert_ne!(names.len(), before, "{} declares {name}", path.display());
    }
    names
}

/// The folder of the sources of burn-backend that this program was compiled from.
///
/// The compiler has written it into the program: where a panic of burn-backend says that it happened. The test needs no cargo, which may
/// lack crates for other platforms, and holds for any source of the crate.
fn burn_backend() -> PathBuf {
    let place = Arc::new(Mutex::new(None));
    let this_thread = std::thread::current().id();
    let usual: Arc<dyn Fn(&PanicHookInfo<'_>) + Send + Sync> = panic::take_hook().into();
    panic::set_hook({
        let (place, usual) = (place.clone(), usual.clone());
        Box::new(move |panic| {
            if std::thread::current().id() != this_thread {
                return usual(panic); // another test's
            }
            let file = panic.location().map(|location| location.file().to_owned());
            *place.lock().expect("no panic holds it") = file;
        })
    });
    let result = panic::catch_unwind(|| TensorData::new(vec![0.0_f32], [2]));
    panic::set_hook(Box::new(move |panic| usual(panic)));

    assert!(result.is_err(), "one value makes no tensor of two");
    let file = place.lock().expect("no panic holds it").take();
    let file = PathBuf::from(file.expect("the panic has a place"));
    let is_source = |folder: &&Path| folder.join("src/backend/ops").exists();
    let folder = file.ancestors().find(is_source);
    folder
        .unwrap_or_else(|| panic!("{} is a source of burn-backend", file.display()))
        .to_owned()
}
