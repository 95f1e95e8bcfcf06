//! Every storage against a plain model: names that lead to vectors of bytes, and handles that outlive their names.
#![cfg(not(feature = "shuttle"))]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use proptest::prelude::*;
use thalweg_env::sim::SimEnv;
use thalweg_env::{Env, File, OpenMode};

/// Names: 0 and 1 in one folder, 2 and 3 in another.
const NAMES: [&str; 4] = ["a/0", "a/1", "b/2", "b/3"];
/// Offsets lie around these: where pages and chunks of any size meet, and in the middle of nowhere.
const PLACES: [usize; 6] = [0, 4_096, 65_536, 131_072, 200_000, 1_000_000];

#[derive(Clone, Debug)]
enum Step {
    Open(usize, OpenMode),
    Close(usize),
    /// The last handle opened, or one before it.
    Write {
        handle: usize,
        at: usize,
        byte: u8,
        len: usize,
    },
    Read {
        handle: usize,
        at: usize,
        len: usize,
    },
    SetLen {
        handle: usize,
        len: usize,
    },
    Allocate {
        handle: usize,
        at: usize,
        len: usize,
    },
    Remove(usize),
    Rename(usize, usize),
    Link(usize, usize),
    /// Gives the folders each other's files.
    SwapFolders,
}

type Content = Rc<RefCell<Vec<u8>>>;

#[derive(Default)]
struct Model {
    names: BTreeMap<String, Content>,
}

struct Handle {
    file: Arc<dyn File>,
    content: Content,
    is_writable: bool,
}

impl Model {
    /// Whether POSIX would open it; the content then.
    fn open(&mut self, name: &str, mode: OpenMode) -> Option<Content> {
        let found = self.names.get(name).cloned();
        match (found, mode) {
            (Some(_), OpenMode::CreateNew) | (None, OpenMode::Read | OpenMode::ReadWrite) => None,
            (Some(content), _) => Some(content),
            (None, _) => {
                let content = Content::default();
                self.names.insert(name.to_owned(), Rc::clone(&content));
                Some(content)
            }
        }
    }

    fn swap_folders(&mut self) {
        let swapped = std::mem::take(&mut self.names)
            .into_iter()
            .map(|(name, content)| {
                let rest = &name[1..];
                let folder = if name.starts_with('a') { "b" } else { "a" };
                (format!("{folder}{rest}"), content)
            });
        self.names = swapped.collect();
    }
}

fn grow(bytes: &mut Vec<u8>, end: usize) {
    bytes.resize(bytes.len().max(end), 0);
}

/// Takes the steps on both sides; what fails must fail on both.
fn run(env: &Env, root: &Path, steps: &[Step]) -> Result<(), TestCaseError> {
    let storage = env.storage();
    let path = |name: &str| -> PathBuf { root.join(name) };
    for folder in ["a", "b"] {
        storage.create_dir(&path(folder)).unwrap();
    }
    let (mut model, mut handles) = (Model::default(), Vec::<Handle>::new());
    for step in steps {
        // A handle from the back, so that steps of a shrunken case still meet one.
        let pick = |back: usize| handles.len().checked_sub(1 + back);
        match step {
            Step::Open(name, mode) => {
                let name = NAMES[*name];
                let opened = storage.open(&path(name), *mode);
                let content = model.open(name, *mode);
                prop_assert_eq!(opened.is_ok(), content.is_some(), "open {}", name);
                if let (Ok(file), Some(content)) = (opened, content) {
                    handles.push(Handle {
                        file,
                        content,
                        is_writable: *mode != OpenMode::Read,
                    });
                }
            }
            Step::Close(back) => {
                if let Some(at) = pick(*back) {
                    handles.remove(at);
                }
            }
            Step::Write {
                handle,
                at,
                byte,
                len,
            } => {
                let Some(handle) = pick(*handle).map(|at| &handles[at]) else {
                    continue;
                };
                let bytes = vec![*byte; *len];
                let written = handle.file.write_all_at(&bytes, *at as u64);
                prop_assert_eq!(written.is_ok(), handle.is_writable || *len == 0);
                if written.is_ok() && *len > 0 {
                    let mut content = handle.content.borrow_mut();
                    grow(&mut content, at + len);
                    content[*at..at + len].copy_from_slice(&bytes);
                }
            }
            Step::Read { handle, at, len } => {
                let Some(handle) = pick(*handle).map(|at| &handles[at]) else {
                    continue;
                };
                let content = handle.content.borrow();
                let expected = content.get(*at..).unwrap_or_default();
                let expected = &expected[..expected.len().min(*len)];
                let mut buf = vec![0xAA; *len];
                let mut done = 0;
                loop {
                    let count = handle.file.read_at(&mut buf[done..], (at + done) as u64);
                    match count.unwrap() {
                        0 => break,
                        count => done += count,
                    }
                }
                prop_assert!(buf[..done] == *expected, "read of {} at {}", len, at);
            }
            Step::SetLen { handle, len } => {
                let Some(handle) = pick(*handle).map(|at| &handles[at]) else {
                    continue;
                };
                let set = handle.file.set_len(*len as u64);
                prop_assert_eq!(set.is_ok(), handle.is_writable);
                if set.is_ok() {
                    handle.content.borrow_mut().resize(*len, 0);
                }
            }
            Step::Allocate { handle, at, len } => {
                let Some(handle) = pick(*handle).map(|at| &handles[at]) else {
                    continue;
                };
                let done = handle.file.allocate(*at as u64, *len as u64);
                prop_assert_eq!(done.is_ok(), handle.is_writable && *len > 0);
                if done.is_ok() {
                    grow(&mut handle.content.borrow_mut(), at + len);
                }
            }
            Step::Remove(name) => {
                let removed = storage.remove_file(&path(NAMES[*name]));
                let expected = model.names.remove(NAMES[*name]);
                prop_assert_eq!(removed.is_ok(), expected.is_some());
            }
            Step::Rename(from, to) => {
                let (from, to) = (NAMES[*from], NAMES[*to]);
                let renamed = storage.rename(&path(from), &path(to));
                let found = model.names.get(from).cloned();
                prop_assert_eq!(renamed.is_ok(), found.is_some());
                if let Some(content) = found {
                    let replaced = model.names.get(to);
                    // Two names of one file stay both.
                    if !replaced.is_some_and(|replaced| Rc::ptr_eq(replaced, &content)) {
                        model.names.remove(from);
                        model.names.insert(to.to_owned(), content);
                    }
                }
            }
            Step::Link(from, to) => {
                let (from, to) = (NAMES[*from], NAMES[*to]);
                let linked = storage.hard_link(&path(from), &path(to));
                let found = model.names.get(from).cloned();
                let fits = found.is_some() && !model.names.contains_key(to);
                prop_assert_eq!(linked.is_ok(), fits);
                if let (Some(content), true) = (found, fits) {
                    model.names.insert(to.to_owned(), content);
                }
            }
            Step::SwapFolders => {
                storage.rename(&path("a"), &path("c")).unwrap();
                storage.rename(&path("b"), &path("a")).unwrap();
                storage.rename(&path("c"), &path("b")).unwrap();
                model.swap_folders();
            }
        }
    }
    check_names(env, root, &model)?;
    for handle in &handles {
        let len_bytes = handle.content.borrow().len() as u64;
        prop_assert_eq!(handle.file.len_bytes().unwrap(), len_bytes);
    }
    Ok(())
}

fn check_names(env: &Env, root: &Path, model: &Model) -> Result<(), TestCaseError> {
    let mut listed = BTreeMap::new();
    for folder in ["a", "b"] {
        for entry in env.storage().list_dir(&root.join(folder)).unwrap() {
            let name = format!("{folder}/{}", entry.name.to_str().unwrap());
            let found = env.storage().metadata(&root.join(&name)).unwrap();
            listed.insert(name, found.len_bytes);
        }
    }
    let expected: BTreeMap<String, u64> = model
        .names
        .iter()
        .map(|(name, content)| (name.clone(), content.borrow().len() as u64))
        .collect();
    prop_assert_eq!(listed, expected);
    for (name, content) in &model.names {
        let file = env
            .storage()
            .open(&root.join(name), OpenMode::Read)
            .unwrap();
        let mut bytes = vec![0xAA; content.borrow().len()];
        file.read_exact_at(&mut bytes, 0).unwrap();
        prop_assert!(bytes == *content.borrow(), "{} has other bytes", name);
    }
    Ok(())
}

fn step() -> impl Strategy<Value = Step> {
    let name = || 0..NAMES.len();
    let handle = || 0..3_usize;
    let near = || {
        let place = prop::sample::select(PLACES.to_vec());
        (place, 0..200_usize).prop_map(|(place, more)| (place + more).saturating_sub(100))
    };
    let len = || prop_oneof![4 => 0..300_usize, 1 => 0..150_000_usize];
    let mode = prop_oneof![
        1 => Just(OpenMode::Read),
        1 => Just(OpenMode::ReadWrite),
        1 => Just(OpenMode::CreateNew),
        3 => Just(OpenMode::OpenOrCreate),
    ];
    // Zeros often: they take no room where nothing was, and must erase what was.
    let byte = prop_oneof![Just(0_u8), any::<u8>()];
    prop_oneof![
        4 => (name(), mode).prop_map(|(name, mode)| Step::Open(name, mode)),
        1 => handle().prop_map(Step::Close),
        8 => (handle(), near(), byte, len())
            .prop_map(|(handle, at, byte, len)| Step::Write { handle, at, byte, len }),
        3 => (handle(), near(), len()).prop_map(|(handle, at, len)| Step::Read { handle, at, len }),
        3 => (handle(), near()).prop_map(|(handle, len)| Step::SetLen { handle, len }),
        1 => (handle(), near(), len())
            .prop_map(|(handle, at, len)| Step::Allocate { handle, at, len }),
        1 => name().prop_map(Step::Remove),
        1 => (name(), name()).prop_map(|(from, to)| Step::Rename(from, to)),
        1 => (name(), name()).prop_map(|(from, to)| Step::Link(from, to)),
        1 => Just(Step::SwapFolders),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn memory_does_what_the_model_does(steps in steps()) {
        run(&Env::in_memory(), Path::new("/"), &steps)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn the_operating_system_does_what_the_model_does(steps in steps()) {
        let dir = tempfile::tempdir().unwrap();
        run(&Env::os(), dir.path(), &steps)?;
    }

    #[test]
    fn the_simulated_machine_does_what_the_model_does(steps in steps()) {
        run(&SimEnv::new(1).env(), Path::new("/"), &steps)?;
    }
}
