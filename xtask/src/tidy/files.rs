//! The files of the source tree.

use std::fs;
use std::path::Path;

/// Folders that hold nothing written by hand, wherever they are.
const SKIPPED_FOLDERS: &[&str] = &[
    ".hypothesis",
    ".pytest_cache",
    "__pycache__",
    "corpus",
    "target",
];

/// The same at the root only: `src/bin` is a common place for sources.
const SKIPPED_AT_ROOT: &[&str] = &[".git", ".venv", "bin", "dist"];

/// One file; `text` is `None` where the content is not UTF-8.
#[derive(Debug)]
pub(crate) struct SourceFile {
    /// Relative to the root of the workspace, with `/` between parts.
    pub(crate) path: String,
    pub(crate) text: Option<String>,
}

impl SourceFile {
    /// The text if the file name ends in `.extension`.
    pub(crate) fn text_of(&self, extension: &str) -> Option<&str> {
        let (_, found) = self.path.rsplit_once('.')?;
        if found == extension {
            self.text.as_deref()
        } else {
            None
        }
    }

    #[cfg(test)]
    pub(crate) fn of(path: &str, text: &str) -> SourceFile {
        SourceFile {
            path: path.to_owned(),
            text: Some(text.to_owned()),
        }
    }
}

/// All files below `root`, ordered by path.
pub(crate) fn read_tree(root: &Path) -> Result<Vec<SourceFile>, String> {
    let mut files = Vec::new();
    read_folder(root, "", &mut files)
        .map_err(|error| format!("cannot read the source tree: {error}"))?;
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

fn read_folder(root: &Path, folder: &str, files: &mut Vec<SourceFile>) -> std::io::Result<()> {
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if folder.is_empty() {
            name.clone()
        } else {
            format!("{folder}/{name}")
        };
        let kind = entry.file_type()?;
        let is_skipped = SKIPPED_FOLDERS.contains(&name.as_str())
            || (folder.is_empty() && SKIPPED_AT_ROOT.contains(&name.as_str()));
        if is_skipped {
            // Also a file: in a further worktree, `.git` is one.
            continue;
        }
        if kind.is_dir() {
            read_folder(root, &path, files)?;
        } else if kind.is_file() {
            let text = String::from_utf8(fs::read(entry.path())?).ok();
            files.push(SourceFile { path, text });
        }
    }
    Ok(())
}
