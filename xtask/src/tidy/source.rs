//! Rules for source files: length, banned constructs, where unsafe code may stand.

use super::rust_text::{code_only, lines_with_word, without_tests};
use super::{Finding, SourceFile};

/// One subject per file; above this it is two.
const MAX_LINES: usize = 900;

/// Longer files, each with its reason. An entry that is no longer needed is itself a finding.
const LONG_FILES: &[(&str, &str)] = &[];

/// The only files with unsafe code.
const UNSAFE_FILES: &[&str] = &[
    "crates/thalweg-codec/src/wide.rs",
    "crates/thalweg-codec/src/wide/prefix.rs",
    "crates/thalweg-codec/src/wide/symbols.rs",
    "crates/thalweg-codec/src/wide/symbols/x86.rs",
    "crates/thalweg-env/src/os/locks.rs",
    "crates/thalweg-python/src/interpreter.rs",
    "crates/thalweg-python/src/one_row.rs",
    "crates/thalweg-env/src/os/process.rs",
    // Nothing but a real fork shows what a fork does.
    "crates/thalweg-env/tests/agree.rs",
    "crates/thalweg-env/tests/os.rs",
    "crates/thalweg/tests/processes/forks.rs",
    // An allocator that counts: the trait of allocators is unsafe.
    "crates/thalweg-sim/tests/common/mod.rs",
];

/// Where the simulator is made and used.
const SIMULATOR_CRATES: &[&str] = &[
    "crates/thalweg-env/src/sim/",
    "crates/thalweg-sim/",
    "crates/thalweg-bench/",
];

/// How many lines above an unsafe block its reason may start.
const SAFETY_COMMENT_WITHIN_LINES: usize = 8;

const BANNED_MACROS: &[&str] = &["dbg", "todo", "unimplemented"];

pub(crate) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let mut findings = check_lengths(files, LONG_FILES);
    for file in files {
        if let Some(text) = file.text_of("rs") {
            let code = code_only(text);
            findings.extend(banned_in_rust(&file.path, text, &code));
            findings.extend(unsafe_code(&file.path, text, &code, UNSAFE_FILES));
            findings.extend(unsafe_is_refused(&file.path, &code));
            findings.extend(simulator_in_product(&file.path, &code));
        }
        if let Some(text) = file.text_of("py") {
            findings.extend(skipped_in_python(&file.path, text));
        }
    }
    findings
}

fn check_lengths(files: &[SourceFile], allowed: &[(&str, &str)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in files {
        let Some(text) = file.text_of("rs").or(file.text_of("py")) else {
            continue;
        };
        let lines = text.lines().count();
        let is_allowed = allowed.iter().any(|(path, _)| *path == file.path);
        if lines > MAX_LINES && !is_allowed {
            let message = format!("{lines} lines, at most {MAX_LINES}: split it by subject");
            findings.push(Finding::new(&file.path, None, message));
        } else if lines <= MAX_LINES && is_allowed {
            findings.push(Finding::new(
                &file.path,
                None,
                "take it off LONG_FILES: it is short enough".to_owned(),
            ));
        }
    }
    findings
}

fn banned_in_rust(path: &str, text: &str, code: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for name in BANNED_MACROS {
        for line in lines_with_word(code, name, "!") {
            findings.push(Finding::new(
                path,
                Some(line),
                format!("{name}! has no place in the tree: write the code"),
            ));
        }
    }
    for line in lines_with_word(code, "ignore", "") {
        let is_attribute = code
            .lines()
            .nth(line - 1)
            .is_some_and(|line| line.trim_start().starts_with("#[ignore"));
        if is_attribute {
            findings.push(Finding::new(
                path,
                Some(line),
                "an ignored test proves nothing: run it or delete it".to_owned(),
            ));
        }
    }
    for (number, line) in (1..).zip(text.lines()) {
        let comment = line.trim_start();
        let is_doc = comment.starts_with("///") || comment.starts_with("//!");
        if is_doc && comment.contains("```") && comment.contains("ignore") {
            findings.push(Finding::new(
                path,
                Some(number),
                "an ignored example rots: let it compile".to_owned(),
            ));
        }
    }
    findings
}

fn unsafe_code(path: &str, text: &str, code: &str, allowed: &[&str]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for line in lines_with_word(code, "unsafe", "") {
        if !allowed.contains(&path) {
            let message = format!("unsafe code belongs in {} only", allowed.join(" or "));
            findings.push(Finding::new(path, Some(line), message));
        } else if !has_reason(text, line) {
            let message =
                "say in a SAFETY: comment (or a # Safety section) above why this is sound"
                    .to_owned();
            findings.push(Finding::new(path, Some(line), message));
        }
    }
    findings
}

fn has_reason(text: &str, line: usize) -> bool {
    let first = line.saturating_sub(SAFETY_COMMENT_WITHIN_LINES + 1);
    let above = text.lines().skip(first).take(line - first);
    above
        .into_iter()
        .any(|line| line.contains("SAFETY:") || line.contains("# Safety"))
}

/// The root of every crate refuses unsafe code, so that the list above is also the compiler's.
fn unsafe_is_refused(path: &str, code: &str) -> Option<Finding> {
    let is_root = path.starts_with("crates/")
        && (path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs"));
    let refuses =
        code.contains("#![forbid(unsafe_code)]") || code.contains("#![deny(unsafe_code)]");
    (is_root && !refuses).then(|| {
        Finding::new(
            path,
            None,
            "start the crate with #![forbid(unsafe_code)]".to_owned(),
        )
    })
}

/// The simulator keeps all that a crash could lose: nothing that a user runs is built on it.
fn simulator_in_product(path: &str, code: &str) -> Vec<Finding> {
    let mut parts = path.split('/');
    let is_source = parts.next() == Some("crates") && parts.nth(1) == Some("src");
    let is_exempt = SIMULATOR_CRATES
        .iter()
        .any(|of_crate| path.starts_with(of_crate))
        || path.ends_with("/tests.rs")
        || path.contains("/tests/");
    if !is_source || is_exempt {
        return Vec::new();
    }
    let product = without_tests(code);
    let lines = lines_with_word(product, "sim", "::");
    let lines = lines
        .into_iter()
        .chain(lines_with_word(product, "SimEnv", ""));
    let message =
        "the simulator is for tests: take the operating system's files or Env::in_memory()";
    lines
        .map(|line| Finding::new(path, Some(line), message.to_owned()))
        .collect()
}

fn skipped_in_python(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let code = line.split('#').next().unwrap_or_default();
        // `skipif` states a condition and is printed; a plain skip or an expected failure is a test switched off.
        if code.contains("mark.xfail") || code.replace("mark.skipif", "").contains("mark.skip") {
            findings.push(Finding::new(
                path,
                Some(number),
                "a test switched off proves nothing".to_owned(),
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::{MAX_LINES, check, check_lengths, unsafe_code};
    use crate::tidy::SourceFile;
    use crate::tidy::rust_text::code_only;

    fn findings(path: &str, text: &str) -> Vec<String> {
        check(&[SourceFile::of(path, text)])
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn banned_constructs_are_found_in_code_only() {
        assert!(
            findings(
                "crates/a/src/b.rs",
                "// todo!() later\nlet s = \"dbg!(x)\";\n"
            )
            .is_empty()
        );
        let found = findings(
            "crates/a/src/b.rs",
            "fn f() {\n    todo!()\n}\n#[ignore = \"slow\"]\nfn g() {}\n",
        );
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("crates/a/src/b.rs:2:"), "{found:?}");
        assert!(found[1].starts_with("crates/a/src/b.rs:4:"), "{found:?}");
        assert_eq!(
            findings("crates/a/src/b.rs", "/// ```rust,ignore\n/// x\n/// ```\n").len(),
            1
        );
    }

    #[test]
    fn python_tests_are_not_switched_off() {
        assert!(findings("t.py", "@pytest.mark.skipif(sys.platform == 'x')\n").is_empty());
        assert_eq!(
            findings(
                "t.py",
                "@pytest.mark.skip\n@pytest.mark.xfail(strict=True)\n"
            )
            .len(),
            2
        );
    }

    #[test]
    fn unsafe_stands_in_listed_files_and_gives_its_reason() {
        let bare = "fn f() {\n    unsafe { g() }\n}\n";
        let reasoned = "fn f() {\n    // SAFETY: g asks for nothing.\n    unsafe { g() }\n}\n";
        let found = |path, text: &str| unsafe_code(path, text, &code_only(text), &["ok.rs"]).len();
        assert_eq!(found("ok.rs", reasoned), 0);
        assert_eq!(found("ok.rs", bare), 1);
        assert_eq!(found("other.rs", reasoned), 1);
        assert_eq!(found("other.rs", "#![forbid(unsafe_code)] // unsafe\n"), 0);
    }

    #[test]
    fn the_simulator_stays_in_tests() {
        let text = "use thalweg_env::sim::SimEnv;\n";
        assert_eq!(findings("crates/a/src/b.rs", text).len(), 2);
        let in_tests = format!("fn f() {{}}\n#[cfg(test)]\nmod tests {{\n{text}}}\n");
        assert!(findings("crates/a/src/b.rs", &in_tests).is_empty());
        let allowed = [
            "crates/a/src/b/tests.rs",
            "crates/a/tests/b.rs",
            "crates/thalweg-sim/src/a.rs",
        ];
        for path in allowed {
            assert!(findings(path, text).is_empty(), "{path}");
        }
    }

    #[test]
    fn crate_roots_refuse_unsafe_code() {
        assert_eq!(findings("crates/a/src/lib.rs", "//! A.\n").len(), 1);
        assert!(findings("crates/a/src/lib.rs", "//! A.\n#![forbid(unsafe_code)]\n").is_empty());
    }

    #[test]
    fn long_files_are_listed_and_the_list_is_kept_short() {
        let long = [SourceFile::of("a.rs", &"\n".repeat(MAX_LINES + 1))];
        let short = [SourceFile::of("a.rs", "\n")];
        assert_eq!(check_lengths(&long, &[]).len(), 1);
        assert_eq!(check_lengths(&long, &[("a.rs", "generated")]).len(), 0);
        assert_eq!(check_lengths(&short, &[("a.rs", "generated")]).len(), 1);
        assert_eq!(check_lengths(&short, &[]).len(), 0);
    }
}
