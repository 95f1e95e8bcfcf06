//! Modules of the engine import none that leads back to them.
//!
//! Invariant: a parent and what lies in its folder count as one subject, so what they import of each other is no cycle.

use super::rust_text::{code_only, without_tests};
use super::{Finding, SourceFile};
use std::collections::{BTreeMap, BTreeSet};

/// The crates that are checked, each alone: `xtask tidy` checks the order of crates by their manifests.
const CHECKED: [&str; 7] = [
    "crates/thalweg-bench/src/",
    "crates/thalweg-codec/src/",
    "crates/thalweg-env/src/",
    "crates/thalweg-inbox/src/",
    "crates/thalweg-kernel/src/",
    "crates/thalweg-sim/src/",
    "crates/thalweg-table/src/",
];

type Module = Vec<String>;

pub(crate) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let in_crate = |folder: &&str| check_crate(folder, files);
    CHECKED.iter().flat_map(in_crate).collect()
}

fn check_crate(folder: &str, files: &[SourceFile]) -> Vec<Finding> {
    let mut texts: BTreeMap<Module, (&str, String)> = BTreeMap::new();
    for file in files {
        let Some(name) = file.path.strip_prefix(folder) else {
            continue;
        };
        if let Some(text) = file.text_of("rs")
            && !is_test(name)
        {
            texts.insert(
                module_of(name),
                (&file.path, without_tests(&code_only(text)).to_owned()),
            );
        }
    }
    let modules: BTreeSet<&Module> = texts.keys().collect();
    let imports: BTreeMap<&Module, BTreeSet<&Module>> = texts
        .iter()
        .map(|(module, (_, code))| (module, imported(module, code, &modules)))
        .collect();
    let mut findings = Vec::new();
    for (module, (path, _)) in &texts {
        if let Some(back) = way_back(module, &imports) {
            let way: Vec<String> = back.iter().map(|step| step.join("::")).collect();
            let message = format!(
                "imports lead back to this module: {} -> {}: move what both need to a module of its own",
                module.join("::"),
                way.join(" -> ")
            );
            findings.push(Finding::new(path, None, message));
        }
    }
    findings
}

fn is_test(name: &str) -> bool {
    name.split('/')
        .any(|part| part == "tests" || part == "tests.rs")
}

/// `index/page.rs` is `index::page`; the root of the crate has no name.
fn module_of(name: &str) -> Module {
    let mut parts: Module = name
        .trim_end_matches(".rs")
        .split('/')
        .map(str::to_owned)
        .collect();
    if parts
        .last()
        .is_some_and(|last| last == "mod" || last == "lib")
    {
        parts.pop();
    }
    parts
}

/// The modules that paths beginning with `crate::` or `super::` name.
fn imported<'a>(
    module: &Module,
    code: &str,
    modules: &BTreeSet<&'a Module>,
) -> BTreeSet<&'a Module> {
    let mut found = BTreeSet::new();
    for (start, base) in [("crate::", Vec::new()), ("super::", parent(module))] {
        for (at, _) in code.match_indices(start) {
            let follows_a_path = code[..at].ends_with("::");
            if follows_a_path
                || code[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_')
            {
                continue;
            }
            let (mut base, mut rest) = (base.clone(), &code[at + start.len()..]);
            while let Some(further) = rest.strip_prefix("super::") {
                (base, rest) = (parent(&base), further);
            }
            for path in paths(rest) {
                let full: Module = base.iter().cloned().chain(path).collect();
                let longest = (1..=full.len())
                    .rev()
                    .find_map(|length| modules.get(&full[..length].to_vec()).copied());
                if let Some(named) = longest
                    && !named.starts_with(module)
                    && !module.starts_with(named)
                {
                    found.insert(named);
                }
            }
        }
    }
    found
}

fn parent(module: &Module) -> Module {
    module
        .split_last()
        .map_or_else(Vec::new, |(_, above)| above.to_vec())
}

/// The paths that begin a text: one, or those of a list in braces, as far as their names come one after the other.
fn paths(rest: &str) -> Vec<Module> {
    match rest.strip_prefix('{') {
        None => vec![names(rest)],
        Some(list) => {
            let end = list.find(['}', '{']).unwrap_or(list.len());
            list[..end]
                .split(',')
                .map(|item| names(item.trim()))
                .collect()
        }
    }
}

fn names(text: &str) -> Module {
    let mut found = Vec::new();
    let mut rest = text;
    loop {
        let end = rest
            .find(|it: char| !it.is_alphanumeric() && it != '_')
            .unwrap_or(rest.len());
        if end == 0 {
            return found;
        }
        found.push(rest[..end].to_owned());
        match rest[end..].strip_prefix("::") {
            Some(further) => rest = further,
            None => return found,
        }
    }
}

/// The shortest way from what a module imports back to it.
fn way_back<'a>(
    module: &'a Module,
    imports: &BTreeMap<&'a Module, BTreeSet<&'a Module>>,
) -> Option<Vec<&'a Module>> {
    let mut from: BTreeMap<&Module, &Module> = BTreeMap::new();
    let mut next = vec![module];
    while !next.is_empty() {
        let mut further = Vec::new();
        for at in next {
            for to in imports.get(at).into_iter().flatten() {
                if *to == module {
                    let mut way = vec![module];
                    let mut step = at;
                    while step != module {
                        way.push(step);
                        step = from.get(step)?;
                    }
                    way.reverse();
                    return Some(way);
                }
                if !from.contains_key(to) {
                    from.insert(to, at);
                    further.push(*to);
                }
            }
        }
        next = further;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: &str = "crates/thalweg-kernel/src/";

    fn messages(texts: &[(&str, &str)]) -> Vec<String> {
        let file = |(name, text): &(&str, &str)| SourceFile::of(&format!("{KERNEL}{name}"), text);
        let files: Vec<SourceFile> = texts.iter().map(file).collect();
        check(&files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_leads_back_is_found_by_every_kind_of_path() {
        for (a, b, c) in [
            (
                "use crate::b::B;",
                "use crate::c::{C, D};",
                "use crate::{a::A, e};",
            ),
            (
                "fn f(x: crate::b::B) {}",
                "use super::c;",
                "impl super::a::A {}",
            ),
        ] {
            let found = messages(&[
                ("lib.rs", "mod a;"),
                ("a.rs", a),
                ("b.rs", b),
                ("c/mod.rs", c),
            ]);
            assert_eq!(found.len(), 3, "{found:?}");
            assert!(found[0].contains("a -> b -> c -> a"), "{found:?}");
        }
    }

    #[test]
    fn one_way_families_tests_and_words_are_no_cycle() {
        let found = messages(&[
            ("lib.rs", "mod a; pub use crate::a::A;"),
            (
                "a.rs",
                "use crate::b::B;\n#[cfg(test)]\nmod tests {\n    use crate::c::C;\n}\n",
            ),
            (
                "b.rs",
                "// use crate::a::A;\nconst TEXT: &str = \"crate::a::A\";\nuse thalweg_crate::a;",
            ),
            ("c/mod.rs", "use crate::a::A; use crate::c::d::D;"),
            ("c/d.rs", "use super::C;"),
            ("a/tests.rs", "use crate::c::C;"),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }
}
