//! Direction of dependencies: each crate names only what lies below it.
//!
//! Development dependencies obey the same rule. An exception for tests was rejected: it would let the crash
//! tests of the kernel pull in DataFusion, and they would no longer build in a minute.

use serde_json::Value;

use super::{Finding, SourceFile};

/// The place of one crate in the house.
struct Layer {
    name: &'static str,
    /// Crates of this workspace it may name.
    may_use: &'static [&'static str],
    /// Families of outside crates it may not name: the name itself, or anything that starts with it and a dash.
    banned: &'static [&'static [&'static str]],
}

const ARROW: &[&str] = &["arrow", "parquet"];
const ASYNC: &[&str] = &["async", "futures", "tokio"];
const PYTHON: &[&str] = &["numpy", "pyo3"];
/// Its waiting threads are listed in the process, which a fork breaks: see crates/thalweg-env/src/sync/locks.rs.
const LOCKS: &[&str] = &["parking_lot"];
const SQL: &[&str] = &["datafusion", "sqlparser"];

const LAYERS: &[Layer] = &[
    Layer {
        name: "thalweg-env",
        may_use: &[],
        banned: &[LOCKS, ARROW, ASYNC, PYTHON, SQL],
    },
    Layer {
        name: "thalweg-codec",
        may_use: &[],
        banned: &[LOCKS, ARROW, ASYNC, PYTHON, SQL],
    },
    Layer {
        name: "thalweg-inbox",
        // Itself: its tests select a feature of it.
        may_use: &["thalweg-env", "thalweg-inbox"],
        banned: &[LOCKS, ARROW, ASYNC, PYTHON, SQL],
    },
    Layer {
        name: "thalweg-kernel",
        may_use: &["thalweg-codec", "thalweg-env"],
        banned: &[LOCKS, ARROW, ASYNC, PYTHON, SQL],
    },
    Layer {
        name: "thalweg-table",
        may_use: &["thalweg-codec", "thalweg-env", "thalweg-kernel"],
        banned: &[LOCKS, ASYNC, PYTHON, SQL],
    },
    Layer {
        name: "thalweg-sim",
        may_use: &[
            "thalweg-codec",
            "thalweg-env",
            "thalweg-kernel",
            "thalweg-table",
        ],
        banned: &[LOCKS, ASYNC, PYTHON, SQL],
    },
    Layer {
        name: "thalweg-planner",
        may_use: &[],
        banned: &[LOCKS, ASYNC, PYTHON],
    },
    Layer {
        name: "thalweg-query",
        may_use: &[
            "thalweg-env",
            "thalweg-kernel",
            "thalweg-planner",
            "thalweg-table",
        ],
        banned: &[LOCKS, PYTHON],
    },
    Layer {
        name: "thalweg",
        may_use: &[
            "thalweg-env",
            "thalweg-kernel",
            "thalweg-query",
            "thalweg-table",
        ],
        banned: &[LOCKS, PYTHON, SQL],
    },
    Layer {
        name: "thalweg-cli",
        may_use: &["thalweg", "thalweg-env"],
        banned: &[LOCKS, PYTHON, SQL],
    },
    Layer {
        name: "thalweg-python",
        may_use: &["thalweg", "thalweg-env", "thalweg-table"],
        banned: &[LOCKS, SQL],
    },
    Layer {
        name: "thalweg-bench",
        may_use: &[
            "thalweg",
            "thalweg-codec",
            "thalweg-env",
            "thalweg-kernel",
            "thalweg-sim",
            "thalweg-table",
        ],
        banned: &[LOCKS, PYTHON, SQL],
    },
    Layer {
        name: "xtask",
        may_use: &[],
        banned: &[LOCKS, ARROW, ASYNC, PYTHON, SQL],
    },
];

/// Checks the output of `cargo metadata --no-deps`, and the manifests among `files`.
pub(crate) fn check(metadata: &str, files: &[SourceFile]) -> Result<Vec<Finding>, String> {
    let metadata: Value =
        serde_json::from_str(metadata).map_err(|error| format!("cargo metadata: {error}"))?;
    let packages = metadata["packages"]
        .as_array()
        .ok_or("cargo metadata lists no packages")?;
    let mut findings = Vec::new();
    for package in packages {
        let name = package["name"].as_str().ok_or("a package without a name")?;
        findings.extend(check_package(name, package));
    }
    findings.extend(files.iter().filter_map(check_manifest));
    Ok(findings)
}

fn check_package(name: &str, package: &Value) -> Vec<Finding> {
    let manifest = if name == "xtask" {
        "xtask/Cargo.toml".into()
    } else {
        format!("crates/{name}/Cargo.toml")
    };
    let Some(layer) = LAYERS.iter().find(|layer| layer.name == name) else {
        let message = format!("{name} has no place in LAYERS of xtask/src/tidy/layers.rs");
        return vec![Finding::new(&manifest, None, message)];
    };
    let dependencies = package["dependencies"].as_array().into_iter().flatten();
    dependencies
        .filter_map(|dependency| dependency["name"].as_str())
        .filter(|dependency| !may_name(layer, dependency))
        .map(|dependency| {
            let message = format!(
                "{name} may not depend on {dependency}: it does not lie below it (ARCHITECTURE.md)"
            );
            Finding::new(&manifest, None, message)
        })
        .collect()
}

fn may_name(layer: &Layer, dependency: &str) -> bool {
    if LAYERS.iter().any(|other| other.name == dependency) {
        return layer.may_use.contains(&dependency);
    }
    let is_of = |family: &&str| {
        dependency
            .strip_prefix(*family)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    !layer.banned.iter().copied().flatten().any(is_of)
}

/// Every crate takes the lint floor of the workspace.
fn check_manifest(file: &SourceFile) -> Option<Finding> {
    let is_member = file.path == "xtask/Cargo.toml"
        || (file.path.starts_with("crates/")
            && file.path.ends_with("/Cargo.toml")
            && file.path.matches('/').count() == 2);
    let text = file.text_of("toml").filter(|_| is_member)?;
    let mut lines = text
        .lines()
        .map(str::trim)
        .skip_while(|line| *line != "[lints]");
    let takes_floor = lines.nth(1) == Some("workspace = true");
    (!takes_floor).then(|| {
        Finding::new(
            &file.path,
            None,
            "say [lints] workspace = true: one lint floor for all crates".to_owned(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::SourceFile;

    fn messages(name: &str, dependencies: &[&str]) -> Vec<String> {
        let dependencies: Vec<String> = dependencies
            .iter()
            .map(|dependency| format!("{{\"name\": \"{dependency}\"}}"))
            .collect();
        let metadata = format!(
            "{{\"packages\": [{{\"name\": \"{name}\", \"dependencies\": [{}]}}]}}",
            dependencies.join(",")
        );
        check(&metadata, &[])
            .unwrap()
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn dependencies_point_down_only() {
        assert!(
            messages(
                "thalweg-kernel",
                &["thalweg-env", "thalweg-codec", "bytes", "arrowhead"]
            )
            .is_empty()
        );
        assert_eq!(messages("thalweg-kernel", &["thalweg-table"]).len(), 1);
        assert_eq!(
            messages("thalweg-kernel", &["arrow-array", "tokio", "datafusion"]).len(),
            3
        );
        assert_eq!(messages("thalweg-table", &["arrow-array"]).len(), 0);
        assert_eq!(messages("thalweg-table", &["datafusion-common"]).len(), 1);
        assert_eq!(messages("thalweg-cli", &["thalweg-kernel"]).len(), 1);
        assert!(messages("thalweg-query", &["datafusion", "tokio", "thalweg-table"]).is_empty());
    }

    #[test]
    fn a_new_crate_must_be_placed() {
        assert!(messages("thalweg-new", &[])[0].contains("no place"));
    }

    #[test]
    fn every_crate_takes_the_lint_floor() {
        let metadata = "{\"packages\": []}";
        let good = SourceFile::of(
            "crates/a/Cargo.toml",
            "[package]\n\n[lints]\nworkspace = true\n",
        );
        let bad = SourceFile::of(
            "crates/b/Cargo.toml",
            "[package]\n\n[lints.rust]\nunsafe_code = \"allow\"\n",
        );
        let root = SourceFile::of("Cargo.toml", "[workspace]\n");
        let findings = check(metadata, &[good, bad, root]).unwrap();
        assert_eq!(findings.len(), 1);
        assert!(findings[0].to_string().starts_with("crates/b/Cargo.toml"));
    }
}
