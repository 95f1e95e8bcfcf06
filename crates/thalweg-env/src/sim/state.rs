//! The simulated file system as a value: what is visible, what is durable, and what lies between.
//!
//! Invariants
//! - *Visible* is what calls see; *durable* is what a crash is sure to keep. A change is visible at once and
//!   *pending* until a sync of its file (bytes, length) or of its directory (names) makes it durable.
//! - Pending changes of a file become durable in order and only by a sync; a crash keeps any subset of them.
//! - Durable contents plus all pending changes give the visible ones, except for bytes a failed sync lost.
//! - Copying a state copies pointers; contents are shared until one side changes them.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use super::content::{Content, MAX_FILE_BYTES};
use super::fault::ReadsAfter;

/// Number of a file or directory.
pub(super) type Ino = u64;
/// Names of a directory.
pub(super) type Entries = BTreeMap<OsString, Ino>;

/// The directory all paths start from.
pub(super) const ROOT: Ino = 1;

/// Earlier contents kept as a source of stale bytes.
const STALE_CONTENTS: usize = 8;

/// A file with its two images and what lies between.
#[derive(Clone, Debug)]
pub(super) struct FileNode {
    pub(super) durable: Arc<Content>,
    pub(super) visible: Arc<Content>,
    pub(super) pending: Arc<Vec<FileChange>>,
    /// The path it was created under or last renamed to, for reports.
    pub(super) path: Arc<PathBuf>,
    /// Strict mode refuses writes to sealed files.
    pub(super) sealed: bool,
}

/// A directory with its two images; its pending changes are in [`FsState::name_changes`], because one of
/// them can concern two directories.
#[derive(Clone, Debug, Default)]
pub(super) struct DirNode {
    pub(super) durable: Arc<Entries>,
    pub(super) visible: Arc<Entries>,
}

#[derive(Clone, Debug)]
pub(super) enum Node {
    File(FileNode),
    Dir(DirNode),
    /// A symbolic link to a path, which need not exist.
    Link(Arc<PathBuf>),
}

/// A pending change of a file's bytes or length.
#[derive(Clone, Debug)]
pub(super) struct FileChange {
    /// Order among all changes of the state.
    pub(super) seq: u64,
    pub(super) change: ByteChange,
}

#[derive(Clone, Debug, Hash)]
pub(super) enum ByteChange {
    Write { offset: u64, bytes: Arc<[u8]> },
    SetLen { len_bytes: u64 },
    Allocate { range: Range<u64> },
}

impl ByteChange {
    pub(super) fn apply(&self, content: &mut Content) {
        match self {
            ByteChange::Write { offset, bytes } => content.write(*offset, bytes),
            ByteChange::SetLen { len_bytes } => content.set_len(*len_bytes),
            ByteChange::Allocate { range } => content.allocate(range.clone()),
        }
    }
}

/// A pending change of directory entries that a crash keeps or drops as a whole.
#[derive(Clone, Debug)]
pub(super) struct NameChange {
    /// Order among all changes of the state.
    pub(super) seq: u64,
    pub(super) entries: Vec<EntryChange>,
}

/// A directory entry after a change.
#[derive(Clone, Debug)]
pub(super) struct EntryChange {
    pub(super) dir: Ino,
    pub(super) name: OsString,
    pub(super) target: Option<Ino>,
}

/// The whole file system.
#[derive(Clone, Debug)]
pub(super) struct FsState {
    pub(super) nodes: BTreeMap<Ino, Node>,
    pub(super) name_changes: Arc<Vec<NameChange>>,
    /// Contents of removed, cut or lost files, the newest last: what a recycled block may show.
    pub(super) stale: Vec<Arc<Content>>,
    next_ino: Ino,
    next_seq: u64,
}

impl FsState {
    /// An empty root directory.
    pub(super) fn new() -> FsState {
        let root = Node::Dir(DirNode::default());
        FsState::from_nodes(BTreeMap::from([(ROOT, root)]), Vec::new())
    }

    /// A state where everything is durable.
    pub(super) fn from_nodes(nodes: BTreeMap<Ino, Node>, stale: Vec<Arc<Content>>) -> FsState {
        let next_ino = nodes.last_key_value().map_or(ROOT, |(last, _)| *last) + 1;
        FsState {
            nodes,
            name_changes: Arc::default(),
            stale,
            next_ino,
            next_seq: 1,
        }
    }

    /// Changes made from now on have this sequence number or a higher one.
    pub(super) fn next_seq(&self) -> u64 {
        self.next_seq
    }

    fn take_seq(&mut self) -> u64 {
        self.next_seq += 1;
        self.next_seq - 1
    }

    pub(super) fn dir(&self, ino: Ino) -> io::Result<&DirNode> {
        match self.nodes.get(&ino) {
            Some(Node::Dir(dir)) => Ok(dir),
            Some(Node::File(_) | Node::Link(_)) => Err(Errno::NOTDIR.into()),
            None => Err(Errno::NOENT.into()),
        }
    }

    pub(super) fn file(&self, ino: Ino) -> io::Result<&FileNode> {
        match self.nodes.get(&ino) {
            Some(Node::File(file)) => Ok(file),
            Some(Node::Dir(_)) => Err(Errno::ISDIR.into()),
            Some(Node::Link(_)) => Err(Errno::INVAL.into()),
            None => Err(Errno::NOENT.into()),
        }
    }

    pub(super) fn file_mut(&mut self, ino: Ino) -> io::Result<&mut FileNode> {
        match self.nodes.get_mut(&ino) {
            Some(Node::File(file)) => Ok(file),
            Some(Node::Dir(_)) => Err(Errno::ISDIR.into()),
            Some(Node::Link(_)) => Err(Errno::INVAL.into()),
            None => Err(Errno::NOENT.into()),
        }
    }

    pub(super) fn is_dir(&self, ino: Ino) -> bool {
        matches!(self.nodes.get(&ino), Some(Node::Dir(_)))
    }

    /// Adds a node that no name leads to yet.
    pub(super) fn insert(&mut self, node: Node) -> Ino {
        let ino = self.next_ino;
        self.next_ino += 1;
        self.nodes.insert(ino, node);
        ino
    }

    /// Makes entry changes visible, and pending as one change.
    pub(super) fn change_names(&mut self, entries: Vec<EntryChange>) {
        for entry in &entries {
            if let Some(Node::Dir(dir)) = self.nodes.get_mut(&entry.dir) {
                entry.apply(Arc::make_mut(&mut dir.visible));
            }
        }
        let seq = self.take_seq();
        Arc::make_mut(&mut self.name_changes).push(NameChange { seq, entries });
    }

    /// Remembers a file's bytes as what a recycled block may show.
    pub(super) fn keep_stale(&mut self, ino: Ino) {
        let Ok(file) = self.file(ino) else { return };
        let content = Arc::clone(&file.visible);
        push_stale(&mut self.stale, content);
    }

    /// Makes a change of bytes visible, and pending.
    pub(super) fn change_bytes(&mut self, ino: Ino, change: ByteChange) -> io::Result<()> {
        let end = match &change {
            ByteChange::Write { offset, bytes } => offset.checked_add(bytes.len() as u64),
            ByteChange::SetLen { len_bytes } => Some(*len_bytes),
            ByteChange::Allocate { range } => Some(range.end),
        };
        if end.is_none_or(|end| end > MAX_FILE_BYTES) {
            return Err(Errno::FBIG.into());
        }
        if matches!(change, ByteChange::SetLen { len_bytes } if len_bytes < self.file(ino)?.visible.len_bytes())
        {
            self.keep_stale(ino);
        }
        let seq = self.take_seq();
        let file = self.file_mut(ino)?;
        change.apply(Arc::make_mut(&mut file.visible));
        Arc::make_mut(&mut file.pending).push(FileChange { seq, change });
        Ok(())
    }

    /// Makes the pending changes of a file durable that were made before the given sequence number.
    pub(super) fn sync_file(&mut self, ino: Ino, before_seq: u64) -> io::Result<()> {
        let file = self.file_mut(ino)?;
        let count = file
            .pending
            .partition_point(|pending| pending.seq < before_seq);
        file.write_back(count);
        Ok(())
    }

    /// Loses what a failed sync was to make durable: the pages count as clean from now on.
    pub(super) fn lose_file_changes(
        &mut self,
        ino: Ino,
        before_seq: u64,
        reads: ReadsAfter,
    ) -> io::Result<()> {
        let file = self.file_mut(ino)?;
        Arc::make_mut(&mut file.pending).retain(|pending| pending.seq >= before_seq);
        if reads == ReadsAfter::Old {
            let mut content = Content::clone(&file.durable);
            content.set_len(file.visible.len_bytes());
            file.pending
                .iter()
                .for_each(|pending| pending.change.apply(&mut content));
            file.visible = Arc::new(content);
        }
        Ok(())
    }

    /// Makes the pending entry changes of a directory durable.
    ///
    /// A rename between two directories is one step of the journal: a sync of either takes it along, and
    /// with it all that came before in the other one.
    pub(super) fn sync_dir(&mut self, ino: Ino, before_seq: u64) -> io::Result<()> {
        for change in self.take_name_changes(ino, before_seq)? {
            for entry in change.entries {
                if let Some(Node::Dir(dir)) = self.nodes.get_mut(&entry.dir) {
                    entry.apply(Arc::make_mut(&mut dir.durable));
                }
            }
        }
        Ok(())
    }

    /// Loses the pending entry changes of a directory; they stay visible until a crash.
    pub(super) fn lose_name_changes(&mut self, ino: Ino, before_seq: u64) -> io::Result<()> {
        self.take_name_changes(ino, before_seq).map(drop)
    }

    fn take_name_changes(&mut self, ino: Ino, before_seq: u64) -> io::Result<Vec<NameChange>> {
        self.dir(ino)?;
        let mut dirs = BTreeSet::from([ino]);
        loop {
            let known = dirs.len();
            for change in self
                .name_changes
                .iter()
                .filter(|change| change.seq < before_seq)
            {
                if change.entries.iter().any(|entry| dirs.contains(&entry.dir)) {
                    dirs.extend(change.entries.iter().map(|entry| entry.dir));
                }
            }
            if dirs.len() == known {
                break;
            }
        }
        let taken = |change: &mut NameChange| {
            change.seq < before_seq && change.entries.iter().any(|entry| dirs.contains(&entry.dir))
        };
        Ok(Arc::make_mut(&mut self.name_changes)
            .extract_if(.., taken)
            .collect())
    }

    /// Makes everything that is visible durable, also what a failed sync had lost.
    pub(super) fn make_durable(&mut self) {
        self.name_changes = Arc::default();
        for node in self.nodes.values_mut() {
            match node {
                Node::File(file) => {
                    file.durable = Arc::clone(&file.visible);
                    file.pending = Arc::default();
                }
                Node::Dir(dir) => dir.durable = Arc::clone(&dir.visible),
                Node::Link(_) => {}
            }
        }
    }

    /// Forgets nodes that no name, visible, durable or pending, and no open handle leads to.
    pub(super) fn collect(&mut self, open: impl IntoIterator<Item = Ino>) {
        let mut live: BTreeSet<Ino> = open.into_iter().chain([ROOT]).collect();
        live.extend(
            self.name_changes
                .iter()
                .flat_map(|change| &change.entries)
                .filter_map(|entry| entry.target),
        );
        for node in self.nodes.values() {
            if let Node::Dir(dir) = node {
                live.extend(dir.durable.values().chain(dir.visible.values()));
            }
        }
        self.nodes.retain(|ino, _| live.contains(ino));
    }

    /// Space taken by files that a visible name or an open handle leads to.
    pub(super) fn used_bytes(&self, open: impl IntoIterator<Item = Ino>) -> u64 {
        let mut live: BTreeSet<Ino> = open.into_iter().collect();
        live.extend(self.visible_files().into_iter().map(|(_, ino)| ino));
        let bytes = |ino: &Ino| {
            self.file(*ino)
                .map_or(0, |file| file.visible.allocated_bytes())
        };
        live.iter().map(bytes).sum()
    }

    /// Paths and numbers of all files, sorted by path.
    pub(super) fn visible_files(&self) -> Vec<(PathBuf, Ino)> {
        let mut files = Vec::new();
        self.walk(ROOT, Path::new("/"), &mut files);
        files
    }

    /// The path of a folder; `None`: it was removed.
    pub(super) fn path_of_dir(&self, dir: Ino) -> Option<PathBuf> {
        fn find(fs: &FsState, dir: Ino, at: Ino) -> Option<Vec<OsString>> {
            if at == dir {
                return Some(Vec::new());
            }
            let entries = fs.dir(at).ok()?.visible.iter();
            let mut dirs = entries.filter(|(_, ino)| fs.is_dir(**ino));
            dirs.find_map(|(name, ino)| {
                let mut names = find(fs, dir, *ino)?;
                names.push(name.clone());
                Some(names)
            })
        }
        let names = find(self, dir, ROOT)?;
        Some(Path::new("/").join(names.iter().rev().collect::<PathBuf>()))
    }

    fn walk(&self, dir: Ino, path: &Path, files: &mut Vec<(PathBuf, Ino)>) {
        let Ok(node) = self.dir(dir) else { return };
        for (name, ino) in node.visible.iter() {
            match self.nodes.get(ino) {
                Some(Node::Dir(_)) => self.walk(*ino, &path.join(name), files),
                Some(Node::File(_)) => files.push((path.join(name), *ino)),
                Some(Node::Link(_)) | None => {}
            }
        }
    }
}

impl FileNode {
    /// Makes the oldest pending changes durable.
    pub(super) fn write_back(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        let durable = Arc::make_mut(&mut self.durable);
        for pending in Arc::make_mut(&mut self.pending).drain(..count) {
            pending.change.apply(durable);
        }
    }
}

impl EntryChange {
    pub(super) fn apply(&self, entries: &mut Entries) {
        match self.target {
            Some(ino) => entries.insert(self.name.clone(), ino),
            None => entries.remove(&self.name),
        };
    }
}

/// Adds to the pool of stale contents, whose oldest goes when it is full.
pub(super) fn push_stale(stale: &mut Vec<Arc<Content>>, content: Arc<Content>) {
    if content.len_bytes() == 0 {
        return;
    }
    if stale.len() == STALE_CONTENTS {
        stale.remove(0);
    }
    stale.push(content);
}
