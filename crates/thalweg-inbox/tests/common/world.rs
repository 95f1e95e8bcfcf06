//! All orders in which processes can make their calls, on one simulated machine.

use std::cell::RefCell;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

use thalweg_env::sim::SimEnv;
use thalweg_inbox::Limits;

use super::oracle::{History, Record};
use super::script::{Event, Op, Run, Script};
use super::step::{Progress, Stepped, Trace};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Status {
    Ready,
    /// Until the number of locks that were let go of is another one.
    Blocked(u64),
    Done,
    Killed,
}

#[derive(Clone, Debug)]
struct Process {
    trace: Trace,
    status: Status,
    events: Rc<Vec<Event>>,
    /// For each op that has begun, how many ops of each process had ended.
    before: Vec<Vec<usize>>,
}

/// One state of all of it.
#[derive(Clone, Debug)]
pub struct World {
    pub sim: SimEnv,
    processes: Vec<Process>,
    /// The number of the first process.
    first: usize,
    kills_left: usize,
    released: u64,
    /// What was there before the first step.
    earlier: Rc<History>,
    /// What was done last, and the world before.
    path: Option<Rc<Step>>,
}

#[derive(Debug)]
struct Step {
    what: String,
    before: Option<Rc<Step>>,
}

impl World {
    pub fn new(sim: SimEnv, scripts: &[Script], kills: usize) -> World {
        let process = Process {
            trace: Trace::default(),
            status: Status::Ready,
            events: Rc::default(),
            before: Vec::new(),
        };
        World {
            sim,
            processes: vec![process; scripts.len()],
            first: 0,
            kills_left: kills,
            released: 0,
            earlier: Rc::default(),
            path: None,
        }
    }

    /// Goes on from what others have done, all of which has ended.
    pub fn with_before(self, earlier: History, first: usize) -> World {
        World {
            first,
            earlier: Rc::new(earlier),
            ..self
        }
    }

    /// What was done so far, the last step first.
    pub fn path(&self) -> Vec<String> {
        let mut steps = Vec::new();
        let mut at = self.path.as_ref();
        while let Some(step) = at {
            steps.push(step.what.clone());
            at = step.before.as_ref();
        }
        steps
    }

    fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.sim.state_hash(), self.kills_left).hash(&mut hasher);
        for process in &self.processes {
            let is_over = matches!(process.status, Status::Done | Status::Killed);
            (process.trace.hash, &process.before, is_over).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// The state of the disk and what was promised: what a crash depends on.
    pub fn crash_hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.sim.state_hash().hash(&mut hasher);
        for process in &self.processes {
            for event in process.events.iter() {
                (event.op, &event.outcome).hash(&mut hasher);
            }
        }
        hasher.finish()
    }

    fn has_started(&self, scripts: &[Script], process: usize) -> bool {
        scripts[process].after.is_none_or(|before| {
            matches!(self.processes[before].status, Status::Done | Status::Killed)
        })
    }

    pub fn can_step(&self, scripts: &[Script], process: usize) -> bool {
        let may = match self.processes[process].status {
            Status::Ready => true,
            Status::Blocked(at) => at != self.released,
            Status::Done | Status::Killed => false,
        };
        may && self.has_started(scripts, process)
    }

    pub fn is_over(&self) -> bool {
        let is_over = |process: &Process| matches!(process.status, Status::Done | Status::Killed);
        self.processes.iter().all(is_over)
    }

    pub fn is_alive(&self, process: usize) -> bool {
        !matches!(
            self.processes[process].status,
            Status::Done | Status::Killed
        )
    }

    fn ended(&self) -> Vec<usize> {
        let ended = |process: &Process| process.events.iter().filter(|e| e.end.is_some()).count();
        self.processes.iter().map(ended).collect()
    }

    /// Lets a process make one call. Returns whether an op ended with it.
    pub fn step(&mut self, scripts: &[Script], at: usize, limits: Limits) -> bool {
        let ended = self.ended();
        let process = &mut self.processes[at];
        let trace = std::mem::take(&mut process.trace);
        let (events, stepped) = go_on(&self.sim, self.first, at, scripts, trace, limits);
        let progress = stepped.progress();
        let made = stepped.made();
        process.trace = stepped.into_trace();
        let calls = process.trace.replies.len();
        let begun = events.iter().filter(|event| event.start < calls).count();
        while process.before.len() < begun {
            process.before.push(ended.clone());
        }
        let has_ended = events.iter().filter(|event| event.end.is_some()).count();
        let news = has_ended > ended[at];
        process.events = Rc::new(events);
        process.status = match progress {
            None => Status::Done,
            Some(Progress::Suspended) => Status::Ready,
            Some(Progress::Blocked) => Status::Blocked(self.released),
        };
        let what = made.unwrap_or_else(|| "ends".to_owned());
        if what.starts_with("unlock") || process.status == Status::Done {
            self.released += 1;
        }
        self.note(format!("{at}: {what}"));
        news
    }

    fn note(&mut self, what: String) {
        let before = self.path.take();
        self.path = Some(Rc::new(Step { what, before }));
    }

    /// Ends a process, wherever it is.
    pub fn kill(&mut self, at: usize) {
        self.sim.kill_process(process_id(self.first + at));
        self.processes[at].status = Status::Killed;
        self.released += 1;
        self.kills_left = self.kills_left.saturating_sub(1);
        self.note(format!("{at}: killed"));
    }

    pub fn branch(&self) -> World {
        World {
            sim: self.sim.branch(),
            ..self.clone()
        }
    }

    /// All that was begun.
    pub fn history(&self, scripts: &[Script]) -> History {
        let mut history = History::clone(&self.earlier);
        let of_earlier = history.counts();
        for (at, process) in self.processes.iter().enumerate() {
            for (event, before) in process.events.iter().zip(&process.before) {
                history.records.push(Record {
                    process: self.first + at,
                    op_index: event.op,
                    role: scripts[at].role,
                    op: scripts[at].ops[event.op].clone(),
                    outcome: event.outcome.clone(),
                    before: joined(self.first, before, &of_earlier),
                    read_up_to: event.read_up_to,
                });
            }
        }
        history
    }
}

/// What had ended when an op began, what was there before included.
fn joined(first: usize, before: &[usize], earlier: &[usize]) -> Vec<usize> {
    let mut joined = earlier.to_vec();
    joined.resize(joined.len().max(first + before.len()), 0);
    let of_these = joined.iter_mut().skip(first).zip(before);
    of_these.for_each(|(count, ended)| *count = *ended);
    joined
}

pub fn process_id(at: usize) -> u32 {
    u32::try_from(at).unwrap() + 10
}

fn go_on(
    sim: &SimEnv,
    first: usize,
    at: usize,
    scripts: &[Script],
    trace: Trace,
    limits: Limits,
) -> (Vec<Event>, Stepped) {
    let script = &scripts[at];
    let removes = |script: &Script| script.ops.iter().any(|op| matches!(op, Op::Remove));
    let pins = scripts.iter().any(removes);
    let stepped = Stepped::new(
        sim,
        process_id(first + at),
        trace,
        script.clock.clone(),
        1,
        pins,
    );
    let events = Rc::new(RefCell::new(Vec::new()));
    let env = stepped.env();
    Run {
        process: first + at,
        env: &env,
        limits,
        calls: &|| stepped.calls(),
        is_stopped: &|| stepped.progress().is_some(),
        events: Rc::clone(&events),
    }
    .run(script);
    let events = events.take();
    (events, stepped)
}

/// What was tried, and what did not hold.
#[derive(Debug, Default)]
pub struct Found {
    pub states: usize,
    pub ends: usize,
    pub crashes: usize,
    pub violations: Vec<String>,
    /// The limit of states was met: not all orders were tried.
    pub is_cut: bool,
}

/// How a model is explored.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    pub kills: usize,
    /// Crashes and checks of what is left, for each distinct state of the disk.
    pub crashes: bool,
    pub states: usize,
    pub limits: Limits,
    /// Stops at the first violation.
    pub stop_early: bool,
}

/// Tries all orders of the calls of some processes; `check` looks at a world that may crash or has ended.
pub fn explore(
    start: World,
    scripts: &[Script],
    plan: &Plan,
    mut check: impl FnMut(&World, &History, bool) -> (usize, Vec<String>),
) -> Found {
    let mut found = Found::default();
    let mut seen: HashSet<u64> = HashSet::from([start.hash()]);
    let mut crashed: HashSet<u64> = HashSet::new();
    let mut stack = vec![start];
    while let Some(world) = stack.pop() {
        found.states += 1;
        if found.states > plan.states {
            found.is_cut = true;
            break;
        }
        if plan.stop_early && !found.violations.is_empty() {
            break;
        }
        let mut problems = Vec::new();
        if world.is_over() {
            found.ends += 1;
        }
        if world.is_over() || (plan.crashes && crashed.insert(world.crash_hash())) {
            let history = world.history(scripts);
            let (crashes, more) = check(&world, &history, world.is_over());
            found.crashes += crashes;
            problems.extend(more);
        }
        let able: Vec<usize> = (0..scripts.len())
            .filter(|at| world.can_step(scripts, *at))
            .collect();
        let may_kill = world.kills_left > 0;
        if able.is_empty() && !world.is_over() && !may_kill {
            problems.push("everybody waits for a lock".to_owned());
        }
        if !problems.is_empty() {
            report(&mut found, &world, problems);
            continue;
        }
        for at in 0..scripts.len() {
            if may_kill && world.is_alive(at) && world.has_started(scripts, at) {
                let mut next = world.branch();
                next.kill(at);
                if seen.insert(next.hash()) {
                    stack.push(next);
                }
            }
        }
        for at in able {
            let mut next = world.branch();
            let news = next.step(scripts, at, plan.limits);
            if next.processes[at].status == Status::Blocked(next.released) {
                // Nothing has changed, but that it waits.
                stack.push(next);
                continue;
            }
            if !seen.insert(next.hash()) {
                continue;
            }
            if news {
                let problems = next.history(scripts).violations();
                if !problems.is_empty() {
                    report(&mut found, &next, problems);
                    continue;
                }
            }
            stack.push(next);
        }
    }
    found
}

fn report(found: &mut Found, world: &World, problems: Vec<String>) {
    let mut path = world.path();
    path.truncate(400);
    path.reverse();
    found.violations.push(format!(
        "{}\n  after {}",
        problems.join("\n"),
        path.join("\n        ")
    ));
}
