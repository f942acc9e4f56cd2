//! One persistent pool of threads for every kernel.
//!
//! A decode step makes over a hundred short parallel calls with microseconds between them, so the workers spin for a
//! while before they sleep, and the caller works along instead of waiting. Which thread runs which task is left to
//! chance; kernels therefore give every output one fixed order of operations.

use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Condvar, Mutex, OnceLock, TryLockError};
use std::thread::JoinHandle;

use thiserror::Error;

/// Polls of a waiting worker before it sleeps: about 50 to 100 microseconds, longer than the gaps within a layer.
const SPINS: usize = 4_000;

/// Bit of [`Shared::gate`] that says workers may join the present call.
const OPEN: u64 = 1 << 31;
/// Bits of [`Shared::gate`] that count the workers inside the present call.
const INSIDE: u64 = OPEN - 1;
/// Added to [`Shared::gate`] for a new call: the bits above `OPEN` are the call's number.
const NEXT_CALL: u64 = 1 << 32;

/// Threads that share the tasks of one call at a time.
pub struct ThreadPool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

/// The task function of the present call, its lifetime erased.
type Job = *const (dyn Fn(usize) + Sync);

struct Shared {
    /// Held by the thread whose call is running.
    caller: Mutex<()>,
    /// Call number, [`OPEN`], and the count of workers inside.
    gate: AtomicU64,
    /// Function and number of tasks of the present call: written while the gate is shut and nobody is inside.
    job: UnsafeCell<Option<(Job, usize)>>,
    next_task: AtomicUsize,
    panicked: AtomicBool,
    /// Workers that sleep, or are about to.
    sleepers: AtomicUsize,
    sleep: Mutex<()>,
    wake: Condvar,
    shutdown: AtomicBool,
}

// SAFETY: `job` is the only field that is not Sync by itself. It is written only by the holder of `caller` while the
// gate is shut and no worker is inside, and read only by workers inside (who entered by an acquiring exchange on the
// gate that the writer released); the function it points to is Sync.
unsafe impl Sync for Shared {}
// SAFETY: as above; the pointer in `job` is never used outside of the call that wrote it.
unsafe impl Send for Shared {}

impl ThreadPool {
    /// A pool of `threads` threads, of which the caller is one: `new(1)` starts none.
    ///
    /// # Panics
    /// If `threads` is 0 or the system refuses to start a thread.
    pub fn new(threads: usize) -> Self {
        assert!(threads > 0, "a pool needs at least one thread");
        let shared = Arc::new(Shared {
            caller: Mutex::new(()),
            gate: AtomicU64::new(0),
            job: UnsafeCell::new(None),
            next_task: AtomicUsize::new(0),
            panicked: AtomicBool::new(false),
            sleepers: AtomicUsize::new(0),
            sleep: Mutex::new(()),
            wake: Condvar::new(),
            shutdown: AtomicBool::new(false),
        });
        let workers = (1..threads)
            .map(|index| {
                let shared = Arc::clone(&shared);
                std::thread::Builder::new()
                    .name(format!("ember-kernel-{index}"))
                    .spawn(move || shared.work())
                    .expect("the system starts a worker thread")
            })
            .collect();
        Self { shared, workers }
    }

    /// Number of threads that share the work, the caller included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `f(0)`, `f(1)` ... `f(tasks - 1)`, each once, in any order and on any thread; returns when all are done.
    ///
    /// A call made from inside a task, or while another thread's call is running, runs its tasks on the calling
    /// thread alone.
    ///
    /// # Panics
    /// If a task panics.
    pub fn parallel(&self, tasks: usize, f: &(dyn Fn(usize) + Sync)) {
        let turn = match self.shared.caller.try_lock() {
            _ if tasks < 2 || self.workers.is_empty() => None,
            Ok(turn) => Some(turn),
            // A task of an earlier call panicked; that call ended in order all the same.
            Err(TryLockError::Poisoned(turn)) => Some(turn.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        let Some(_turn) = turn else {
            (0..tasks).for_each(f);
            return;
        };
        let shared = &*self.shared;
        // SAFETY: only the lifetime changes. `Call::drop` below shuts the gate and waits for the workers inside
        // before this function returns or unwinds, so nobody uses the pointer after `f` is gone.
        let job: Job = unsafe { std::mem::transmute::<&(dyn Fn(usize) + Sync), Job>(f) };
        // SAFETY: we hold `caller`, and the previous call ended with the gate shut and nobody inside.
        unsafe { *shared.job.get() = Some((job, tasks)) };
        shared.next_task.store(0, Relaxed);
        shared.panicked.store(false, Relaxed);
        let call = Call { shared };
        call.open();
        shared.run_tasks(f, tasks);
        drop(call);
        if shared.panicked.load(Relaxed) {
            panic!("a task of a parallel call panicked");
        }
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.shared.shutdown.store(true, SeqCst);
        self.shared.wake_sleepers();
        for worker in self.workers.drain(..) {
            if let Err(panic) = worker.join()
                && !std::thread::panicking()
            {
                resume_unwind(panic);
            }
        }
    }
}

/// A call in progress; dropping it ends the call, also when a task of the caller panics.
struct Call<'a> {
    shared: &'a Shared,
}

impl Call<'_> {
    fn open(&self) {
        let gate = self.shared.gate.load(Relaxed);
        self.shared.gate.store((gate & !(OPEN | INSIDE)).wrapping_add(NEXT_CALL) | OPEN, SeqCst);
        if self.shared.sleepers.load(SeqCst) > 0 {
            self.shared.wake_sleepers();
        }
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.shared.gate.fetch_and(!OPEN, AcqRel);
        let mut polls = 0;
        while self.shared.gate.load(Acquire) & INSIDE != 0 {
            pause(&mut polls);
        }
    }
}

impl Shared {
    fn wake_sleepers(&self) {
        let _guard = self.sleep.lock().expect("nothing panics while it holds this lock");
        self.wake.notify_all();
    }

    fn run_tasks(&self, f: &(dyn Fn(usize) + Sync), tasks: usize) {
        loop {
            let task = self.next_task.fetch_add(1, Relaxed);
            if task >= tasks {
                return;
            }
            f(task);
        }
    }

    /// A worker's life: join each call at most once, until the pool is dropped.
    fn work(&self) {
        let mut last_call = 0;
        while let Some(call) = self.join_next_call(last_call) {
            last_call = call;
            // SAFETY: we are counted inside, so the caller waits for us before it touches `job` or lets `f` go.
            let (job, tasks) = unsafe { (*self.job.get()).expect("written before the gate opened") };
            // SAFETY: as above: `f` outlives our stay inside.
            let f = unsafe { &*job };
            if catch_unwind(AssertUnwindSafe(|| self.run_tasks(f, tasks))).is_err() {
                self.panicked.store(true, Relaxed);
            }
            self.gate.fetch_sub(1, Release);
        }
    }

    /// Waits for a call other than `last_call` and enters it; `None` when the pool is going away.
    fn join_next_call(&self, last_call: u64) -> Option<u64> {
        let mut polls = 0;
        loop {
            let gate = self.gate.load(SeqCst);
            let call = gate / NEXT_CALL;
            if gate & OPEN != 0 && call != last_call {
                if self.gate.compare_exchange_weak(gate, gate + 1, Acquire, Relaxed).is_ok() {
                    return Some(call);
                }
                continue;
            }
            if self.shutdown.load(SeqCst) {
                return None;
            }
            if polls < SPINS {
                polls += 1;
                std::hint::spin_loop();
                continue;
            }
            self.sleep_until_call_after(last_call);
            polls = 0;
        }
    }

    fn sleep_until_call_after(&self, last_call: u64) {
        let mut guard = self.sleep.lock().expect("nothing panics while it holds this lock");
        self.sleepers.fetch_add(1, SeqCst);
        // A call that opened before we were counted shows in the gate; one that opens later sees us and notifies.
        loop {
            let gate = self.gate.load(SeqCst);
            let joinable = gate & OPEN != 0 && gate / NEXT_CALL != last_call;
            if joinable || self.shutdown.load(SeqCst) {
                break;
            }
            guard = self.wake.wait(guard).expect("nothing panics while it holds this lock");
        }
        self.sleepers.fetch_sub(1, SeqCst);
    }
}

/// One step of a wait that should be short, but gives the processor away when it is not.
fn pause(polls: &mut usize) {
    *polls += 1;
    if *polls < SPINS { std::hint::spin_loop() } else { std::thread::yield_now() }
}

static GLOBAL: OnceLock<ThreadPool> = OnceLock::new();

/// The global pool has been used, so its size is fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SetThreadsError {
    /// Zero threads were asked for.
    #[error("the number of threads must be at least 1")]
    Zero,
    /// The pool already runs with another number of threads.
    #[error("the kernels already run on {0} threads; set the number before the first product")]
    AlreadyRunning(usize),
}

/// The pool that kernels use by default: one thread per core that the process may run on, unless [`set_threads`] said
/// otherwise.
pub fn global() -> &'static ThreadPool {
    GLOBAL.get_or_init(|| ThreadPool::new(default_threads()))
}

/// Cores rather than hardware threads: two threads of a core share the units that the kernels keep busy.
fn default_threads() -> usize {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    physical_cores().map_or(threads, |cores| cores.min(threads))
}

/// Number of cores that Linux lists; `None` where it does not say.
fn physical_cores() -> Option<usize> {
    let cpus = std::fs::read_dir("/sys/devices/system/cpu").ok()?;
    // Hardware threads of one core list the same siblings.
    let siblings = cpus
        .flatten()
        .filter_map(|cpu| std::fs::read_to_string(cpu.path().join("topology/thread_siblings_list")).ok());
    let cores = siblings.collect::<std::collections::HashSet<String>>().len();
    (cores > 0).then_some(cores)
}

/// Sets the number of threads of the [`global`] pool; call it before the first use.
///
/// # Errors
/// [`SetThreadsError`] when `threads` is 0 or the pool already runs with another number.
pub fn set_threads(threads: usize) -> Result<(), SetThreadsError> {
    if threads == 0 {
        return Err(SetThreadsError::Zero);
    }
    let running = GLOBAL.get_or_init(|| ThreadPool::new(threads)).threads();
    if running == threads { Ok(()) } else { Err(SetThreadsError::AlreadyRunning(running)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(pool: &ThreadPool, tasks: usize) -> Vec<usize> {
        let counts: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
        pool.parallel(tasks, &|task| {
            counts[task].fetch_add(1, Relaxed);
        });
        counts.into_iter().map(AtomicUsize::into_inner).collect()
    }

    #[test]
    fn every_task_runs_once() {
        for threads in [1, 2, 3, 8] {
            let pool = ThreadPool::new(threads);
            assert_eq!(pool.threads(), threads);
            for tasks in [0, 1, 2, 3, 7, 64, 1000] {
                for _ in 0..20 {
                    assert_eq!(counts(&pool, tasks), vec![1; tasks]);
                }
            }
        }
    }

    #[test]
    fn sleeping_workers_wake() {
        let pool = ThreadPool::new(3);
        for _ in 0..20 {
            std::thread::sleep(std::time::Duration::from_millis(2));
            let ids = Mutex::new(std::collections::HashSet::new());
            pool.parallel(3, &|_| {
                // Nobody can do two of these: the tasks wait for each other.
                ids.lock().unwrap().insert(std::thread::current().id());
                while ids.lock().unwrap().len() < 3 {
                    std::thread::yield_now();
                }
            });
            assert_eq!(ids.into_inner().unwrap().len(), 3);
        }
    }

    #[test]
    fn nested_and_concurrent_calls_complete() {
        let pool = ThreadPool::new(3);
        let total = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        pool.parallel(5, &|_| {
                            pool.parallel(3, &|_| {
                                total.fetch_add(1, Relaxed);
                            })
                        });
                    }
                });
            }
        });
        assert_eq!(total.into_inner(), 4 * 50 * 5 * 3);
    }

    #[test]
    fn a_panicking_task_panics_the_caller_and_the_pool_survives() {
        let pool = ThreadPool::new(2);
        for bad in 0..8 {
            let result = catch_unwind(AssertUnwindSafe(|| {
                pool.parallel(8, &|task| assert_ne!(task, bad, "meant to fail"));
            }));
            assert!(result.is_err());
            assert_eq!(counts(&pool, 10), vec![1; 10]);
        }
    }

    #[test]
    fn default_is_at_most_what_the_process_may_use() {
        let allowed = std::thread::available_parallelism().map_or(1, usize::from);
        assert!((1..=allowed).contains(&default_threads()));
    }

    #[test]
    fn zero_threads_are_refused() {
        assert_eq!(set_threads(0), Err(SetThreadsError::Zero));
    }
}
