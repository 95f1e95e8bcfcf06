//! Calls that make, remove or move names of the simulated file system.
//!
//! Invariants
//! - A call that fails changes nothing.
//! - Each call is one pending change, which a crash keeps or drops as a whole.

use std::io;
use std::path::Path;
use std::sync::Arc;

use rustix::io::Errno;

use super::paths::Place;
use super::state::{DirNode, FileNode, FsState, Ino, Node};

impl FsState {
    pub(super) fn create_file(&mut self, place: Place) -> io::Result<Ino> {
        if place.asks_for_dir {
            return Err(Errno::ISDIR.into());
        }
        let ino = self.insert(Node::File(FileNode {
            durable: Arc::default(),
            visible: Arc::default(),
            pending: Arc::default(),
            path: Arc::new(place.path.clone()),
            sealed: false,
        }));
        self.change_names(vec![place.becomes(Some(ino))?]);
        Ok(ino)
    }

    pub(super) fn create_dir(&mut self, path: &Path) -> io::Result<()> {
        let place = self.free_entry(path)?;
        let ino = self.insert(Node::Dir(DirNode::default()));
        self.change_names(vec![place.becomes(Some(ino))?]);
        Ok(())
    }

    pub(super) fn symlink(&mut self, target: &Path, path: &Path) -> io::Result<()> {
        let place = self.free_entry(path)?;
        if place.asks_for_dir || target.as_os_str().is_empty() {
            return Err(Errno::NOENT.into());
        }
        let ino = self.insert(Node::Link(Arc::new(target.to_owned())));
        self.change_names(vec![place.becomes(Some(ino))?]);
        Ok(())
    }

    pub(super) fn hard_link(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let (_, ino) = self.taken_entry(from)?;
        let place = self.free_entry(to)?;
        if self.is_dir(ino) {
            return Err(Errno::PERM.into());
        }
        if place.asks_for_dir {
            return Err(Errno::NOENT.into());
        }
        self.change_names(vec![place.becomes(Some(ino))?]);
        Ok(())
    }

    pub(super) fn remove_file(&mut self, path: &Path) -> io::Result<()> {
        let (place, ino) = self.taken_entry(path)?;
        if self.is_dir(ino) {
            return Err(Errno::ISDIR.into());
        }
        self.keep_stale(ino);
        self.change_names(vec![place.becomes(None)?]);
        Ok(())
    }

    pub(super) fn remove_dir(&mut self, path: &Path) -> io::Result<()> {
        let (place, ino) = self.taken_entry(path)?;
        if place.name.is_none() {
            let by_dot = path.as_os_str().as_encoded_bytes().ends_with(b"/.");
            return Err(if by_dot {
                Errno::INVAL
            } else {
                Errno::NOTEMPTY
            }
            .into());
        }
        self.check_empty(ino)?;
        self.change_names(vec![place.becomes(None)?]);
        Ok(())
    }

    fn check_empty(&self, dir: Ino) -> io::Result<()> {
        if self.dir(dir)?.visible.is_empty() {
            Ok(())
        } else {
            Err(Errno::NOTEMPTY.into())
        }
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (self.entry(from)?, self.entry(to)?);
        if from.name.is_none() || to.name.is_none() {
            return Err(Errno::BUSY.into());
        }
        let ino = from.target.ok_or(Errno::NOENT)?;
        let is_dir = self.is_dir(ino);
        if !is_dir && (from.asks_for_dir || to.asks_for_dir) {
            return Err(Errno::NOTDIR.into());
        }
        if to.target == Some(ino) {
            return Ok(());
        }
        if is_dir && to.path.starts_with(&from.path) {
            return Err(Errno::INVAL.into());
        }
        match (is_dir, to.target) {
            (true, Some(replaced)) => self.check_empty(replaced)?,
            (false, Some(replaced)) if self.is_dir(replaced) => return Err(Errno::ISDIR.into()),
            (false, Some(replaced)) => self.keep_stale(replaced),
            (_, None) => {}
        }
        if let Ok(file) = self.file_mut(ino) {
            file.path = Arc::new(to.path.clone());
        }
        self.change_names(vec![from.becomes(None)?, to.becomes(Some(ino))?]);
        Ok(())
    }
}
