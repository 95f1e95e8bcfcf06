//! From paths to places in the file system, as POSIX resolves them.
//!
//! Invariants
//! - A path is resolved component by component: `..` is the parent of the directory that was reached, also after a
//!   symbolic link, and everything before the last name must be a directory.
//! - Calls that create, remove or rename an entry mean the entry itself, also if it is a symbolic link; all others mean
//!   what it leads to. Opening with [`crate::OpenMode::OpenOrCreate`] creates the target of a dangling link.
//! - A slash at the end asks for a directory.
//! - Relative paths start in the working directory of their process, which is kept as a path: whoever renames that
//!   directory leaves the process without one.
//!
//! [`normalise`] is by name alone. It serves fault plans and traces, which name calls before they are carried out.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::io::Errno;

use super::state::{EntryChange, FsState, Ino, Node, ROOT};

/// Most symbolic links followed for one path, as on Linux.
const MAX_LINKS: usize = 40;

/// The root directory; the working directory of processes that were given none.
pub(super) const ROOT_PATH: &str = "/";

/// A place in a directory: what a path means before it is known whether it exists.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) dir: Ino,
    /// The last name; none for a path that ends at the root or with `.` or `..`.
    pub(super) name: Option<OsString>,
    pub(super) target: Option<Ino>,
    /// The absolute path without links.
    pub(super) path: PathBuf,
    /// The path ends with a slash.
    pub(super) asks_for_dir: bool,
}

impl Place {
    /// The change that gives this entry another target, or none.
    pub(super) fn becomes(self, target: Option<Ino>) -> io::Result<EntryChange> {
        Ok(EntryChange {
            dir: self.dir,
            name: self.name.ok_or(Errno::BUSY)?,
            target,
        })
    }
}

/// How a link in the last place of a path is resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LastLink {
    Followed,
    Itself,
}

/// Makes a path absolute; an empty path stays empty, which no call accepts.
pub(super) fn absolute(working_dir: &Path, path: &Path) -> PathBuf {
    if path.as_os_str().is_empty() {
        PathBuf::new()
    } else {
        working_dir.join(path)
    }
}

/// The components of an absolute path; `..` is resolved by name.
pub(super) fn normalise(path: &Path) -> PathBuf {
    let mut whole = PathBuf::from(ROOT_PATH);
    for component in path.components() {
        match component {
            Component::Normal(name) => whole.push(name),
            Component::ParentDir => {
                whole.pop();
            }
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    whole
}

/// The raw components: [`Path::components`] hides `.` and slashes at the end.
fn components(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    let bytes = path.as_os_str().as_bytes();
    let names = bytes.split(|byte| *byte == b'/');
    names
        .filter(|name| !name.is_empty())
        .map(|name| OsString::from_vec(name.to_vec()))
}

fn ends_with_slash(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(b"/")
}

/// The directories from the root to the one reached, each with its name.
struct Trail(Vec<(Ino, OsString)>);

impl Trail {
    fn dir(&self) -> Ino {
        self.0.last().map_or(ROOT, |(ino, _)| *ino)
    }

    fn path(&self) -> PathBuf {
        let names = self.0.iter().map(|(_, name)| name);
        Path::new(ROOT_PATH).join(names.collect::<PathBuf>())
    }
}

impl FsState {
    /// Resolves an absolute path up to its last name, which may be missing.
    pub(super) fn resolve(&self, path: &Path, last: LastLink) -> io::Result<Place> {
        if !path.is_absolute() {
            return Err(Errno::NOENT.into());
        }
        let mut asks_for_dir = ends_with_slash(path);
        let mut left: VecDeque<OsString> = components(path).collect();
        let mut trail = Trail(Vec::new());
        let mut links = 0;
        while let Some(name) = left.pop_front() {
            let dir = trail.dir();
            let entries = &self.dir(dir)?.visible;
            if name == "." || name == ".." {
                if name == ".." {
                    trail.0.pop();
                }
                continue;
            }
            let target = entries.get(&name).copied();
            let is_last = left.is_empty();
            let follows = !is_last || last == LastLink::Followed;
            if let (true, Some(link)) = (follows, target.and_then(|ino| self.link(ino))) {
                links += 1;
                if links > MAX_LINKS {
                    return Err(Errno::LOOP.into());
                }
                if link.is_absolute() {
                    trail.0.clear();
                }
                asks_for_dir |= is_last && ends_with_slash(link);
                components(link)
                    .rev()
                    .for_each(|name| left.push_front(name));
                continue;
            }
            if is_last {
                return Ok(Place {
                    dir,
                    target,
                    path: trail.path().join(&name),
                    name: Some(name),
                    asks_for_dir,
                });
            }
            let next = target.ok_or(Errno::NOENT)?;
            self.dir(next)?;
            trail.0.push((next, name));
        }
        let reached = trail.dir();
        let path = trail.path();
        Ok(Place {
            dir: reached,
            name: None,
            target: Some(reached),
            path,
            asks_for_dir: true,
        })
    }

    fn link(&self, ino: Ino) -> Option<&Path> {
        match self.nodes.get(&ino) {
            Some(Node::Link(target)) => Some(target),
            _ => None,
        }
    }

    /// The target of an absolute path.
    pub(super) fn lookup(&self, path: &Path) -> io::Result<Ino> {
        self.lookup_place(path).map(|(_, ino)| ino)
    }

    /// The target of an absolute path, with its place.
    pub(super) fn lookup_place(&self, path: &Path) -> io::Result<(Place, Ino)> {
        let place = self.resolve(path, LastLink::Followed)?;
        let ino = place.target.ok_or(Errno::NOENT)?;
        if place.asks_for_dir {
            self.dir(ino)?;
        }
        Ok((place, ino))
    }

    /// Where a path's last name belongs, the entry itself.
    pub(super) fn entry(&self, path: &Path) -> io::Result<Place> {
        self.resolve(path, LastLink::Itself)
    }

    pub(super) fn free_entry(&self, path: &Path) -> io::Result<Place> {
        let place = self.entry(path)?;
        if place.target.is_some() {
            Err(Errno::EXIST.into())
        } else {
            Ok(place)
        }
    }

    pub(super) fn taken_entry(&self, path: &Path) -> io::Result<(Place, Ino)> {
        let place = self.entry(path)?;
        let target = place.target.ok_or(Errno::NOENT)?;
        if place.asks_for_dir {
            self.dir(target)?;
        }
        Ok((place, target))
    }
}
