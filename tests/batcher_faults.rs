//! The engine of many requests on a model that counts: its steps, and what becomes of faults.
mod engine_support;

use ember::engine::{BatchLimits, Batcher, EngineHandle, EngineStopped, FinishReason};
use engine_support::{BLOCK, Counting, Listener, request, run, submit};
use std::thread;
use std::time::{Duration, Instant};

fn limits(context: usize) -> BatchLimits {
    BatchLimits { context, running: 64, queued: 200 }
}

fn batcher(model: Counting) -> Batcher {
    let context = model.n_blocks * BLOCK;
    Batcher::new(Box::new(model), limits(context)).expect("limits")
}

fn wait(listener: &Listener) {
    let started = Instant::now();
    while listener.heard().end.is_none() {
        assert!(started.elapsed() < Duration::from_secs(60), "no end came");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_short_prompt_is_answered_within_three_steps_of_a_long_one() {
    let mut batcher = batcher(Counting::new(2000));
    let long = submit(&mut batcher, &request(&[1; 4096], 4));
    assert!(batcher.step());
    let short = submit(&mut batcher, &request(&[7; 16], 4));
    for _ in 0..3 {
        assert!(batcher.step());
    }
    assert!(!short.tokens().is_empty());
    assert!(long.tokens().is_empty(), "it is still being read");
    run(&mut batcher);
    assert_eq!((long.tokens(), short.tokens()), (vec![2, 3, 4, 5], vec![8, 9, 10, 11]));
}

#[test]
fn a_common_beginning_is_read_once() {
    let model = Counting::new(4000);
    let batches = model.batches.clone();
    let mut batcher = batcher(model);
    let prompt = |i: u32| (0..512).map(|j| j % 50).chain([i % 50, i / 50]).collect::<Vec<_>>();
    let listeners: Vec<_> = (0..64).map(|i| submit(&mut batcher, &request(&prompt(i), 1))).collect();
    run(&mut batcher);
    let rows: usize = batches.lock().expect("no panic").iter().map(|batch| batch.len()).sum();
    assert_eq!(rows, 512 + 64 * 2);
    let cached: Vec<_> = listeners.iter().map(|listener| listener.finished().cached_tokens).collect();
    assert_eq!((cached[0], cached[1..].iter().all(|&cached| cached == 512)), (0, true), "{cached:?}");
}

#[test]
fn numbers_that_break_down_end_their_own_request() {
    let mut batcher = batcher(Counting { breaks_after: Some(9), ..Counting::new(100) });
    let (bad, good) = (submit(&mut batcher, &request(&[5], 20)), submit(&mut batcher, &request(&[20], 20)));
    run(&mut batcher);
    assert_eq!(bad.tokens(), [6, 7, 8, 9]);
    let error = bad.error();
    assert!(error.starts_with("the model produced NaN at token position 4"), "{error}");
    assert_eq!(good.tokens(), (21..41).collect::<Vec<_>>());
    let later = submit(&mut batcher, &request(&[20, 21], 2));
    run(&mut batcher);
    assert_eq!(later.tokens(), [22, 23]);
}

#[test]
fn a_lost_device_ends_all_requests_and_those_to_come() {
    let mut batcher = batcher(Counting { fails_at: Some(3), ..Counting::new(100) });
    let listeners = [5, 9].map(|token| submit(&mut batcher, &request(&[token], 20)));
    while batcher.step() {}
    for listener in &listeners {
        assert_eq!(listener.error(), "the engine has stopped: the device was lost");
        assert_eq!(listener.tokens().len(), 3);
    }
    let later = submit(&mut batcher, &request(&[1], 1));
    assert_eq!(later.error(), "the engine has stopped: the device was lost");
    assert!(batcher.is_idle() && !batcher.step());
    assert_eq!(batcher.metrics().blocks.held, 0);
}

#[test]
fn a_sequence_ends_with_the_context_and_the_cache() {
    let model = Counting::new(100);
    let mut batcher = Batcher::new(Box::new(model), limits(8)).expect("limits");
    let context = submit(&mut batcher, &request(&[1, 2], 99));
    run(&mut batcher);
    assert_eq!(context.tokens(), [3, 4, 5, 6, 7, 8, 9], "the last one is only sampled");
    assert_eq!(context.finished().reason, FinishReason::ContextFull);
    assert_eq!(context.finished().generated_tokens, 7);
    let mut of_request = request(&[1, 2], 99);
    of_request.limits.context = Some(5);
    let own = submit(&mut batcher, &of_request);
    of_request.limits.context = Some(2);
    let refused = submit(&mut batcher, &of_request);
    run(&mut batcher);
    assert_eq!((own.tokens().len(), own.finished().reason), (4, FinishReason::ContextFull));
    assert_eq!(refused.error(), "3 tokens do not fit into the context of 2");
    let mut batcher = Batcher::new(Box::new(Counting::new(2)), limits(1000)).expect("limits");
    let cache = submit(&mut batcher, &request(&[1, 2], 99));
    run(&mut batcher);
    assert_eq!((cache.tokens().len(), cache.finished().reason), (7, FinishReason::ContextFull));
}

#[test]
fn requests_of_many_threads_are_answered() {
    let engine = EngineHandle::start(Box::new(Counting::new(500)), limits(2000)).expect("limits");
    let threads: Vec<_> = (0..8)
        .map(|i| {
            let engine = engine.clone();
            thread::spawn(move || {
                let listeners: Vec<_> = (0..5).map(|_| Listener::default()).collect();
                for (j, listener) in listeners.iter().enumerate() {
                    let prompt = [i, j as u32, 3];
                    engine.submit(request(&prompt, 10), vec![Box::new(listener.clone())]).expect("it runs");
                }
                listeners
            })
        })
        .collect();
    for thread in threads {
        for listener in thread.join().expect("no panic") {
            wait(&listener);
            assert_eq!(listener.tokens(), (4..14).collect::<Vec<_>>());
        }
    }
    assert_eq!(engine.metrics().preemptions, 0);
}

#[test]
fn a_request_that_was_left_frees_its_place() {
    let engine = EngineHandle::start(Box::new(Counting::new(1000)), limits(4000)).expect("limits");
    let left = Listener::default();
    engine.submit(request(&[1], 3000), vec![Box::new(left.clone())]).expect("it runs");
    left.close();
    let started = Instant::now();
    let after = Listener::default();
    engine.submit(request(&[1], 2), vec![Box::new(after.clone())]).expect("it runs");
    wait(&after);
    while engine.metrics().blocks.held > 0 {
        assert!(started.elapsed() < Duration::from_secs(60), "its blocks came back");
        thread::sleep(Duration::from_millis(1));
    }
    assert!(left.heard().end.is_none());
}

#[test]
fn a_panic_of_the_model_ends_the_requests_with_its_message() {
    let model = Counting { panics_at: Some(2), ..Counting::new(100) };
    let engine = EngineHandle::start(Box::new(model), limits(400)).expect("limits");
    let (first, later) = (Listener::default(), Listener::default());
    engine.submit(request(&[1], 20), vec![Box::new(first.clone())]).expect("it runs");
    wait(&first);
    assert_eq!(first.error(), "the engine has stopped: the engine failed: an index out of range");
    match engine.submit(request(&[1], 20), vec![Box::new(later.clone())]) {
        Ok(()) => {
            wait(&later);
            assert_eq!(later.error(), first.error());
        }
        Err(EngineStopped) => panic!("the thread stays and says why"),
    }
}
