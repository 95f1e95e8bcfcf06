//! Rules for Markdown: relative links lead somewhere, format pages have the agreed headings.

use std::collections::BTreeMap;

use super::{Finding, SourceFile};

/// The headings every page of docs/format has, so that pages can be compared.
const FORMAT_HEADINGS: &[&str] = &["Diagram", "Fields", "Invariants", "Versions"];

pub(crate) fn check(files: &[SourceFile]) -> Vec<Finding> {
    let tree: BTreeMap<&str, &SourceFile> = files
        .iter()
        .map(|file| (file.path.as_str(), file))
        .collect();
    let mut findings = Vec::new();
    for file in files {
        if let Some(text) = file.text_of("md") {
            findings.extend(check_links(&file.path, text, &tree));
            findings.extend(check_format_page(&file.path, text));
        }
    }
    findings
}

fn check_links(path: &str, text: &str, tree: &BTreeMap<&str, &SourceFile>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in prose_lines(text) {
        for target in link_targets(&line) {
            if let Some(fault) = link_fault(path, &target, tree) {
                findings.push(Finding::new(path, Some(number), fault));
            }
        }
    }
    findings
}

/// Numbered lines outside fenced code, with inline code blanked.
fn prose_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines = Vec::new();
    let mut in_fence = false;
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") || line.trim_start().starts_with("~~~") {
            in_fence = !in_fence;
        } else if !in_fence {
            lines.push((number, without_inline_code(line)));
        }
    }
    lines
}

fn without_inline_code(line: &str) -> String {
    let parts: Vec<&str> = line.split('`').collect();
    // Odd parts are code if a closing mark follows; the last part never has one.
    let kept = parts
        .iter()
        .enumerate()
        .filter(|(i, _)| i % 2 == 0 || i + 1 == parts.len());
    kept.map(|(_, part)| *part).collect::<Vec<_>>().join(" ")
}

/// Targets of `[text](target)` and of `[label]: target`.
fn link_targets(line: &str) -> Vec<String> {
    let mut targets = Vec::new();
    for (start, _) in line.match_indices("](") {
        let rest = &line[start + 2..];
        if let Some(end) = rest.find(')') {
            targets.push(
                rest[..end]
                    .split_whitespace()
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
            );
        }
    }
    let definition = line
        .trim_start()
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("]: "));
    targets.extend(definition.map(|(_, target)| target.trim().to_owned()));
    targets
}

fn link_fault(page: &str, target: &str, tree: &BTreeMap<&str, &SourceFile>) -> Option<String> {
    let target = target.trim_start_matches('<').trim_end_matches('>');
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target
        .split_once('#')
        .map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    let found = if path.is_empty() {
        Some(page.to_owned())
    } else {
        resolve(page, path)
    };
    let Some(found) = found else {
        return Some(format!("link {target} leaves the tree"));
    };
    let folder = if found.is_empty() {
        String::new()
    } else {
        format!("{found}/")
    };
    let is_folder = tree.keys().any(|path| path.starts_with(&folder));
    let Some(file) = tree.get(found.as_str()) else {
        return (!is_folder).then(|| format!("dead link {target}: no file {found}"));
    };
    let anchor = anchor?;
    let text = file.text_of("md")?;
    (!headings(text).iter().any(|heading| slug(heading) == anchor))
        .then(|| format!("dead link {target}: {found} has no such heading"))
}

/// `path` relative to the folder of `page`; `None` above the root.
fn resolve(page: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

fn headings(text: &str) -> Vec<String> {
    let mut in_fence = false;
    let mut headings = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_fence = !in_fence;
        } else if !in_fence && line.starts_with('#') {
            headings.push(line.trim_start_matches('#').trim().to_owned());
        }
    }
    headings
}

/// The anchor that code hosts give a heading.
fn slug(heading: &str) -> String {
    let kept = heading
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c })
        .collect::<String>()
        .to_lowercase()
}

fn check_format_page(path: &str, text: &str) -> Vec<Finding> {
    let name = path.strip_prefix("docs/format/");
    let Some(_) = name.filter(|name| *name != "README.md") else {
        return Vec::new();
    };
    let headings = headings(text);
    let missing = FORMAT_HEADINGS
        .iter()
        .filter(|wanted| !headings.iter().any(|heading| heading == **wanted));
    missing
        .map(|wanted| {
            Finding::new(
                path,
                None,
                format!("a format page has the heading {wanted}"),
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::check;
    use crate::tidy::SourceFile;

    fn findings(pages: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<SourceFile> = pages
            .iter()
            .map(|(path, text)| SourceFile::of(path, text))
            .collect();
        check(&files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn links_lead_somewhere() {
        let guide = ("docs/guide.md", "# Guide\n\n## How it is, in short\n");
        let good = "[g](docs/guide.md) [s](docs/guide.md#how-it-is-in-short) [f](docs/) [w](https://x.y/z)\n";
        assert!(findings(&[guide, ("README.md", good)]).is_empty());
        assert!(
            findings(&[
                guide,
                ("docs/b.md", "[up](../docs/guide.md)\n\n[r]: guide.md\n")
            ])
            .is_empty()
        );
        for bad in [
            "[g](guide.md)",
            "[g](docs/guide.md#nowhere)",
            "[g](../x.md)",
            "[r]: none.md",
        ] {
            assert_eq!(findings(&[guide, ("README.md", bad)]).len(), 1, "{bad}");
        }
    }

    #[test]
    fn code_is_not_prose() {
        let text = "```\n[a](none.md)\n```\nuse `[a](none.md)` or `t[0](x)`\n";
        assert!(findings(&[("README.md", text)]).is_empty());
    }

    #[test]
    fn format_pages_have_the_same_headings() {
        let page = "# Root\n## Diagram\n## Fields\n## Invariants\n## Versions\n";
        assert!(findings(&[("docs/format/root.md", page)]).is_empty());
        let found = findings(&[(
            "docs/format/root.md",
            "# Root\n## Fields\n## Invariants\n## Versions\n",
        )]);
        assert_eq!(
            found,
            ["docs/format/root.md: a format page has the heading Diagram"]
        );
        assert!(findings(&[("docs/format/README.md", "# Pages\n")]).is_empty());
    }
}
