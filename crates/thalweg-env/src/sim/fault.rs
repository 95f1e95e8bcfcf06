//! Which storage calls go wrong, and how.
//!
//! Invariants
//! - A plan is a list of rules; for each call the first rule that matches and is not used up decides.
//! - Calls are numbered from 1 in the order they start, over all processes and threads of one simulation.

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

pub use rustix::io::Errno;

/// The calls that can fail: those of storage, each of which gets a number, and the start of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "named as the methods of Storage and File")]
pub enum CallKind {
    Open,
    CreateDir,
    ListDir,
    Rename,
    RemoveFile,
    RemoveDir,
    SyncDir,
    OpenDir,
    Metadata,
    HardLink,
    Hold,
    Canonicalize,
    FreeBytes,
    Read,
    Write,
    Len,
    SetLen,
    Allocate,
    SyncData,
    SyncAll,
    TryLock,
    Unlock,
    /// Starting a thread, whose name stands for the path. It has no number, and befalls only what names it.
    Spawn,
}

impl CallKind {
    /// Whether the call makes earlier changes durable and changes nothing visible itself.
    #[must_use]
    pub fn is_sync(self) -> bool {
        matches!(
            self,
            CallKind::SyncDir | CallKind::SyncData | CallKind::SyncAll
        )
    }
}

/// The calls that change a file system, among them `Open`, which may create a file.
pub const MUTATING: &[CallKind] = &[
    CallKind::Open,
    CallKind::CreateDir,
    CallKind::Rename,
    CallKind::RemoveFile,
    CallKind::RemoveDir,
    CallKind::HardLink,
    CallKind::Write,
    CallKind::SetLen,
    CallKind::Allocate,
];

/// The calls that sync a file or a directory.
pub const SYNCS: &[CallKind] = &[CallKind::SyncDir, CallKind::SyncData, CallKind::SyncAll];

/// The bytes that later reads return where a sync failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReadsAfter {
    /// The new bytes, which are gone after a crash (ext4, XFS).
    New,
    /// The bytes of the last successful sync (Btrfs).
    Old,
}

/// A fault of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The machine stops. The effect of this call may or may not survive (see [`super::CrashChoice`]);
    /// it and every later call fail with `ErrorKind::Other`, "simulated crash".
    Crash,
    /// The call has no effect and fails.
    Error(Errno),
    /// The call takes effect, and fails all the same.
    ErrorAfter(Errno),
    /// A sync fails, and the unsynced changes it was to cover never become durable, though the next sync
    /// reports success. On other calls like `Error`.
    FlushError {
        /// The error reported.
        errno: Errno,
        /// Which bytes later reads see.
        reads: ReadsAfter,
    },
    /// A read or write transfers at most so many bytes; with zero it returns `Ok(0)`.
    Short(usize),
    /// A read returns one flipped bit; bits are counted from the start of the file.
    FlipBit(u64),
    /// A read returns zeros, for the bytes the rule names or all.
    Zeros,
    /// A read returns what lies at another offset of the file, for the bytes the rule names or all.
    Misdirected {
        /// Where the data comes from.
        from_offset: u64,
    },
    /// The call takes that long on the simulated clocks, then goes on.
    Delay(Duration),
    /// The call blocks until [`super::SimEnv::release_hung_calls`] or a crash, then goes on.
    Hang,
    /// The call is under way until [`super::SimEnv::release_hung_calls`] or a crash: what it writes or names, others find
    /// done in any part, another one each time they look; what it reads or lists may be of before or after whatever is
    /// done meanwhile, each part for itself.
    Linger,
    /// The call is under way, as with `Linger`, while the watcher runs ([`super::SimEnv::set_watcher`]), in the same
    /// thread. Calls of the watcher itself are not watched.
    Watched,
}

/// One kind of fault and the calls it befalls. By default: every storage call.
#[derive(Clone, Debug)]
pub struct FaultRule {
    fault: Fault,
    kinds: Vec<CallKind>,
    path_suffix: Option<String>,
    calls: Range<u64>,
    bytes: Option<Range<u64>>,
    skip: u64,
    times: u64,
}

impl FaultRule {
    /// A rule that befalls every call.
    #[must_use]
    pub fn new(fault: Fault) -> FaultRule {
        FaultRule {
            fault,
            kinds: Vec::new(),
            path_suffix: None,
            calls: 0..u64::MAX,
            bytes: None,
            skip: 0,
            times: u64::MAX,
        }
    }

    /// Only calls of these kinds.
    #[must_use]
    pub fn on(mut self, kinds: &[CallKind]) -> FaultRule {
        self.kinds = kinds.to_vec();
        self
    }

    /// Only calls whose path (as normalised, from the root) ends so; of a rename or link either path.
    #[must_use]
    pub fn path_suffix(mut self, suffix: &str) -> FaultRule {
        self.path_suffix = Some(suffix.to_owned());
        self
    }

    /// Only the call of that number.
    #[must_use]
    pub fn at_call(mut self, call: u64) -> FaultRule {
        self.calls = call..call.saturating_add(1);
        self
    }

    /// Only calls from that number on.
    #[must_use]
    pub fn from_call(mut self, call: u64) -> FaultRule {
        self.calls = call..u64::MAX;
        self
    }

    /// Only reads and writes that touch this range of the file.
    #[must_use]
    pub fn bytes(mut self, range: Range<u64>) -> FaultRule {
        self.bytes = Some(range);
        self
    }

    /// Lets the first `count` matching calls pass.
    #[must_use]
    pub fn skip(mut self, count: u64) -> FaultRule {
        self.skip = count;
        self
    }

    /// Befalls at most `count` calls.
    #[must_use]
    pub fn times(mut self, count: u64) -> FaultRule {
        self.times = count;
        self
    }

    /// Befalls one call.
    #[must_use]
    pub fn once(self) -> FaultRule {
        self.times(1)
    }

    fn matches(&self, call: &Call<'_>) -> bool {
        let in_bytes = |range: &Range<u64>| {
            let end = call.offset.saturating_add(call.len_bytes);
            range.start < end && call.offset < range.end
        };
        let is_meant = match &self.kinds[..] {
            [] => call.kind != CallKind::Spawn,
            kinds => kinds.contains(&call.kind),
        };
        is_meant
            && self.calls.contains(&call.number)
            && self.bytes.as_ref().is_none_or(in_bytes)
            && self
                .path_suffix
                .as_ref()
                .is_none_or(|suffix| call.names_end(suffix))
    }
}

/// The faults of a simulation. The default has none.
#[derive(Clone, Debug, Default)]
pub struct FaultPlan {
    rules: Vec<FaultRule>,
}

impl FaultPlan {
    /// No faults.
    #[must_use]
    pub fn none() -> FaultPlan {
        FaultPlan::default()
    }

    /// The machine stops at the call of that number.
    #[must_use]
    pub fn crash_at(call: u64) -> FaultPlan {
        FaultPlan::none().rule(FaultRule::new(Fault::Crash).at_call(call))
    }

    /// The call of that number fails without effect, a sync with the loss of what it was to cover.
    #[must_use]
    pub fn fail_at(call: u64, errno: Errno) -> FaultPlan {
        FaultPlan::none().rule(FaultRule::new(fail(errno)).at_call(call))
    }

    /// Every call from that number on fails like [`FaultPlan::fail_at`].
    #[must_use]
    pub fn fail_from(call: u64, errno: Errno) -> FaultPlan {
        FaultPlan::none().rule(FaultRule::new(fail(errno)).from_call(call))
    }

    /// Lets so many threads start, then fails one start with `EAGAIN`, as where the system has no more.
    #[must_use]
    pub fn refuse_thread(after: u64) -> FaultPlan {
        let refused = FaultRule::new(Fault::Error(Errno::AGAIN)).on(&[CallKind::Spawn]);
        FaultPlan::none().rule(refused.skip(after).once())
    }

    /// Adds a rule; rules added earlier go first.
    #[must_use]
    pub fn rule(mut self, rule: FaultRule) -> FaultPlan {
        self.rules.push(rule);
        self
    }

    /// Returns the fault that befalls a call, if one does, and counts it.
    pub(super) fn decide(&mut self, call: &Call<'_>) -> Option<Injected> {
        let mut hits = self
            .rules
            .iter_mut()
            .filter(|rule| rule.times > 0 && rule.matches(call));
        let rule = hits.find_map(|rule| {
            let pass = rule.skip > 0;
            rule.skip = rule.skip.saturating_sub(1);
            (!pass).then_some(rule)
        })?;
        rule.times -= 1;
        Some(Injected {
            fault: rule.fault,
            bytes: rule.bytes.clone(),
        })
    }
}

/// An interrupted call loses nothing; after any other error of a sync its pages count as clean.
fn fail(errno: Errno) -> Fault {
    match errno {
        Errno::INTR => Fault::Error(errno),
        _ => Fault::FlushError {
            errno,
            reads: ReadsAfter::New,
        },
    }
}

/// A storage call as rules see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call<'a> {
    pub(super) number: u64,
    pub(super) kind: CallKind,
    pub(super) path: &'a Path,
    /// The new name of a rename or link.
    pub(super) to: Option<&'a Path>,
    pub(super) offset: u64,
    pub(super) len_bytes: u64,
}

impl Call<'_> {
    fn names_end(&self, suffix: &str) -> bool {
        let ends = |path: &Path| {
            path.as_os_str()
                .as_encoded_bytes()
                .ends_with(suffix.as_bytes())
        };
        ends(self.path) || self.to.is_some_and(ends)
    }
}

/// A fault that befell a call, and the bytes it is limited to.
#[derive(Clone, Debug)]
pub(super) struct Injected {
    pub(super) fault: Fault,
    pub(super) bytes: Option<Range<u64>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(number: u64, kind: CallKind, path: &str) -> Call<'_> {
        Call {
            number,
            kind,
            path: Path::new(path),
            to: None,
            offset: 100,
            len_bytes: 10,
        }
    }

    #[test]
    fn rules_filter_by_number_kind_path_and_bytes() {
        let rule = FaultRule::new(Fault::Crash)
            .on(SYNCS)
            .path_suffix("root")
            .from_call(5)
            .bytes(105..106);
        assert!(rule.matches(&call(5, CallKind::SyncData, "/db/root")));
        assert!(!rule.matches(&call(4, CallKind::SyncData, "/db/root")));
        assert!(!rule.matches(&call(5, CallKind::Write, "/db/root")));
        assert!(!rule.matches(&call(5, CallKind::SyncData, "/db/live")));
        assert!(
            !rule
                .clone()
                .bytes(110..111)
                .matches(&call(5, CallKind::SyncData, "/db/root"))
        );
        assert!(
            !rule
                .at_call(6)
                .matches(&call(5, CallKind::SyncData, "/db/root"))
        );
    }

    #[test]
    fn a_rule_can_skip_and_is_used_up() {
        let rule = FaultRule::new(Fault::Error(Errno::IO))
            .on(&[CallKind::Read])
            .skip(1)
            .once();
        let mut plan = FaultPlan::none().rule(rule);
        let hits: Vec<bool> = (1..5)
            .map(|n| plan.decide(&call(n, CallKind::Read, "/x")).is_some())
            .collect();
        assert_eq!(hits, [false, true, false, false]);
    }
}
