//! The path of a module, and whether the module is Burn's.

use burn_mx_module::LayerKind;
use std::panic::Location;

/// The present path of a walk through a module, in burn-store's form.
pub(crate) struct Path {
    pub(super) skip_variants: bool,
    names: Vec<String>,
    containers: Vec<String>,
    /// For each container, whether it is a module of Burn.
    is_burns: Vec<bool>,
}

impl Path {
    pub(crate) fn new(skip_variants: bool) -> Self {
        Self {
            skip_variants,
            names: Vec::new(),
            containers: Vec::new(),
            is_burns: Vec::new(),
        }
    }

    fn counts(&self, container: &str) -> bool {
        !self.skip_variants || !container.starts_with("Enum:")
    }

    /// The caller's location is the derived `Module` of the container. The file of this location shows which crate the
    /// container belongs to.
    #[track_caller]
    pub(crate) fn enter(&mut self, name: &str, container: &str) {
        self.containers.push(container.to_owned());
        self.is_burns.push(is_burns(Location::caller().file()));
        if self.counts(container) {
            self.names.push(name.to_owned());
        }
    }

    pub(crate) fn exit(&mut self, container: &str) {
        self.containers.pop();
        self.is_burns.pop();
        if self.counts(container) {
            self.names.pop();
        }
    }

    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    pub(crate) fn containers(&self) -> &[String] {
        &self.containers
    }

    pub(crate) fn text(&self) -> String {
        self.names.join(".")
    }

    /// The Burn layer whose weight the present parameter is, if any.
    pub(crate) fn layer(&self) -> Option<LayerKind> {
        self.called()
            .filter(|_| self.is_burns.last() == Some(&true))
    }

    /// Whether the present parameter is the weight of a module that only shares the name of a Burn layer.
    pub(super) fn is_alike(&self) -> bool {
        self.called().is_some() && self.layer().is_none()
    }

    /// The layer whose weight the present parameter would be, judged by names.
    fn called(&self) -> Option<LayerKind> {
        let is_weight = self.names.last()? == "weight";
        LayerKind::of(self.containers.last()?).filter(|_| is_weight)
    }
}

/// Whether a source file belongs to burn-nn, judged by Cargo's folder of the crate: `burn-nn-0.21.0` from a registry,
/// `burn-nn` from a repository.
fn is_burns(file: &str) -> bool {
    let folders: Vec<&str> = file.split(['/', '\\']).collect();
    let is_crate = |folder: &str| {
        folder.strip_prefix("burn-nn").is_some_and(|version| {
            let mut version = version.bytes();
            match (version.next(), version.next()) {
                (None, _) => true,
                (Some(dash), digit) => {
                    dash == b'-' && digit.is_some_and(|byte| byte.is_ascii_digit())
                }
            }
        })
    };
    let mut places = folders.windows(3);
    places.any(|place| is_crate(place[0]) && place[1..] == ["src", "modules"])
}

#[cfg(test)]
mod tests {
    use super::is_burns;

    #[test]
    fn burns_modules_are_known_by_where_they_lie() {
        for file in [
            "/home/u/.cargo/registry/src/index.crates.io-1949cf8c6b5b557f/burn-nn-0.21.0/src/modules/linear.rs",
            "/home/u/.cargo/git/checkouts/burn-178c6829f420dae1/85b4b6e/crates/burn-nn/src/modules/conv/conv2d.rs",
            r"C:\Users\u\.cargo\registry\src\index\burn-nn-0.21.0\src\modules\linear.rs",
            "vendor/burn-nn/src/modules/linear.rs",
            "burn-nn-0.21.0-pre.1/src/modules/linear.rs",
        ] {
            assert!(is_burns(file), "{file}");
        }
        for file in [
            "src/modules/linear.rs",
            "src/linear.rs",
            "/home/u/burn-nn/app/src/modules/linear.rs",
            "crates/burn-nn-extra/src/modules/linear.rs",
            "crates/my-burn-nn/src/modules/linear.rs",
            "crates/burn-nn2/src/modules/linear.rs",
            "<redacted>",
            "",
        ] {
            assert!(!is_burns(file), "{file}");
        }
    }
}
