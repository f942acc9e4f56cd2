//! Each rule of the scheduler by itself, with exact values.
use crate::simulation::{PoolSpec, Simulation};
use ember::engine::CacheScope;
use ember::engine::ImageKey;
use ember::engine::scheduler::{Full, Limits, LimitsError, Plan, Refusal, RequestId, Submission};
use ember::engine::{BlockManager, scheduler::Scheduler};
use std::ops::Range;

const LIMITS: Limits =
    Limits { context: 8192, rows_per_step: 256, prompt_results_per_step: 64, running: 64, queued: 1000 };

fn pool(n_blocks: usize, block_len: usize) -> PoolSpec {
    PoolSpec { n_blocks, block_len, hash: None }
}

fn roomy() -> Simulation {
    Simulation::new(LIMITS, pool(2000, 16))
}

/// A prompt of `len` tokens that shares nothing with one of another seed.
fn prompt(seed: u32, len: usize) -> Submission {
    Submission { prompt: vec![100 + seed; len], ..Submission::default() }
}

fn submit(simulation: &mut Simulation, submission: Submission, max_new: usize) -> RequestId {
    simulation.submit(submission, max_new).expect("within the limits")[0]
}

/// The ids and tokens of a plan.
fn chunks(plan: &Plan) -> Vec<(RequestId, Range<usize>)> {
    plan.chunks.iter().map(|chunk| (chunk.id, chunk.tokens.clone())).collect()
}

#[test]
fn a_short_prompt_gets_its_first_token_in_the_next_step_beside_a_long_one() {
    let mut simulation = roomy();
    let long = submit(&mut simulation, prompt(0, 4000), 5);
    for _ in 0..3 {
        simulation.step();
    }
    let short = submit(&mut simulation, prompt(1, 16), 5);
    let plan = simulation.step();
    assert_eq!(chunks(&plan), [(long, 768..1008), (short, 0..16)]);
    assert_eq!(plan.chunks.iter().map(|c| c.wanted.clone()).collect::<Vec<_>>(), [1008..1008, 15..16]);
    // Then its rows come first.
    assert_eq!(chunks(&simulation.step()), [(short, 16..17), (long, 1008..1263)]);
}

#[test]
fn a_short_prompt_passes_all_long_ones_that_wait() {
    let mut simulation = roomy();
    let ids = [4000, 2000, 3000].map(|len| submit(&mut simulation, prompt(len as u32, len), 5));
    simulation.step();
    let short = submit(&mut simulation, prompt(1, 16), 5);
    // Half for the oldest, and the rest for the shortest ones.
    assert_eq!(chunks(&simulation.step()), [(ids[0], 128..256), (ids[1], 128..240), (short, 0..16)]);
    simulation.drain();
}

#[test]
fn a_long_prompt_keeps_half_of_the_rows_however_many_short_ones_come() {
    let mut simulation = roomy();
    let long = submit(&mut simulation, prompt(0, 4000), 1);
    let mut steps = 0;
    while simulation.live.contains_key(&long)
        && simulation.scheduler.request(long).unwrap().tokens().len() == 4000
    {
        for i in 0..20 {
            submit(&mut simulation, prompt(1000 + 20 * steps + i, 16), 1);
        }
        simulation.step();
        steps += 1;
    }
    // Of 256 rows up to 63 are of sequences one token behind: at least 97 are the long prompt's.
    assert!((4000 / 128..=4000_u32.div_ceil(97)).contains(&steps), "{steps} steps");
}

#[test]
fn requests_with_a_common_prefix_run_it_once() {
    let mut simulation = roomy();
    let shared: Vec<u32> = (0..512).map(|i| i % 7).collect();
    for i in 0..64 {
        let mut submission = prompt(i, 20);
        submission.prompt.splice(0..0, shared.iter().copied());
        submit(&mut simulation, submission, 0);
    }
    simulation.drain();
    assert_eq!(simulation.rows, 512 + 64 * 20);
    let metrics = simulation.scheduler.metrics();
    assert_eq!((metrics.prefix_queries, metrics.prefix_hits), (64 * 532, 63 * 512));
}

#[test]
fn a_prompt_waits_only_for_one_that_is_as_fast() {
    let mut simulation = Simulation::new(Limits { rows_per_step: 32, running: 8, ..LIMITS }, pool(2000, 16));
    let shared: Vec<u32> = (0..160).map(|i| i % 7).collect();
    let with = |seed: u32, own: usize| {
        let mut submission = prompt(seed, own);
        submission.prompt.splice(0..0, shared.iter().copied());
        submission
    };
    // The oldest is another one; of the two with a common prefix the shorter one is ahead with 16 rows, the other has none.
    let oldest = submit(&mut simulation, prompt(0, 1000), 0);
    let long = submit(&mut simulation, with(1, 500), 0);
    let short = submit(&mut simulation, with(2, 4), 0);
    for i in 0..10 {
        assert_eq!(chunks(&simulation.step()), [(oldest, 16 * i..16 * i + 16), (short, 16 * i..16 * i + 16)]);
    }
    assert_eq!(chunks(&simulation.step()), [(oldest, 160..176), (long, 160..172), (short, 160..164)]);
}

#[test]
fn samples_of_one_prompt_share_its_full_blocks() {
    for bypass_cache in [false, true] {
        let mut simulation = roomy();
        let submission = Submission { samples: 4, bypass_cache, ..prompt(0, 40) };
        let ids = simulation.submit(submission, 6).expect("there is room");
        assert_eq!(chunks(&simulation.step()), [(ids[0], 0..40)]);
        let expected = [(ids[0], 40..41), (ids[1], 32..40), (ids[2], 32..40), (ids[3], 32..40)];
        assert_eq!(chunks(&simulation.step()), expected);
        let tables: Vec<&[u32]> = ids
            .iter()
            .map(|&id| simulation.scheduler.request(id).expect("it is running").block_table())
            .collect();
        assert!(tables.iter().all(|table| table[..2] == tables[0][..2]));
        let blocks = simulation.scheduler.blocks();
        assert_eq!([0, 1, 2].map(|i| blocks.holders(tables[1][i])), [4, 4, 1]);
        assert_eq!(blocks.usage().held, 2 + 4);
        let cached =
            ids.iter().map(|&id| simulation.scheduler.request(id).expect("it is running").cached_tokens());
        assert_eq!(cached.collect::<Vec<_>>(), [0, 32, 32, 32]);
        simulation.drain();
        assert_eq!(simulation.scheduler.metrics().blocks.idle > 0, !bypass_cache);
    }
}

#[test]
fn the_youngest_of_the_lowest_priority_is_preempted_and_finds_its_blocks_again() {
    // Seven blocks of four entries.
    let mut simulation = Simulation::new(LIMITS, pool(7, 4));
    let at = |priority| move |seed| Submission { priority, ..prompt(seed, 7) };
    let low = submit(&mut simulation, at(0)(0), 9);
    let high = submit(&mut simulation, at(1)(1), 9);
    let low_too = submit(&mut simulation, at(0)(2), 9);
    // The third finds its two blocks taken but for a spare one for each of the others.
    assert_eq!(chunks(&simulation.step()), [(high, 0..7), (low, 0..7)]);
    assert_eq!(chunks(&simulation.step()), [(high, 7..8), (low, 7..8)]);
    assert_eq!(chunks(&simulation.step()), [(high, 8..9), (low, 8..9)]);
    assert_eq!(simulation.scheduler.metrics().waiting, 1);
    for _ in 0..3 {
        simulation.step();
    }
    // Seven blocks: four of `high`, three of `low`; the next entry of `low` is its 13th.
    let plan = simulation.step();
    assert_eq!((chunks(&plan), plan.preempted), (vec![(high, 12..13)], vec![low]));
    let metrics = simulation.scheduler.metrics();
    assert_eq!((metrics.waiting, metrics.running, metrics.preemptions), (2, 1, 1));
    assert_eq!((metrics.blocks.held, metrics.blocks.idle), (4, 3));
    while simulation.live.contains_key(&high) {
        simulation.step();
    }
    // What it had computed and nobody has needed since is not run again: all its three full blocks.
    assert_eq!(chunks(&simulation.step()), [(low, 12..13), (low_too, 0..7)]);
    let metrics = simulation.scheduler.metrics();
    assert_eq!((metrics.prefix_queries, metrics.prefix_hits), (21, 0), "its own blocks are no hits");
    simulation.drain();
    assert!([low, high, low_too].iter().all(|id| simulation.ended[id].tokens.len() == 16));
}

#[test]
fn a_request_of_higher_priority_takes_the_room_of_lower_ones() {
    let mut simulation = Simulation::new(LIMITS, pool(8, 4));
    let low = submit(&mut simulation, prompt(0, 12), 9);
    let lower = submit(&mut simulation, Submission { priority: -1, ..prompt(1, 9) }, 9);
    simulation.step();
    let higher = submit(&mut simulation, prompt(2, 12), 9);
    let plan = simulation.step();
    assert_eq!((chunks(&plan), plan.preempted), (vec![(low, 12..13), (higher, 0..12)], vec![lower]));
    simulation.drain();

    // Nobody is preempted in vain: without the lower one there would not be room either.
    let mut simulation = Simulation::new(LIMITS, pool(8, 4));
    let low = submit(&mut simulation, prompt(0, 12), 9);
    let lower = submit(&mut simulation, Submission { priority: -1, ..prompt(1, 9) }, 9);
    simulation.step();
    submit(&mut simulation, prompt(2, 24), 1);
    let plan = simulation.step();
    assert_eq!((chunks(&plan), plan.preempted), (vec![(low, 12..13), (lower, 9..10)], vec![]));
    simulation.drain();

    // The limit of running sequences is room, too.
    let mut simulation = Simulation::new(Limits { running: 1, ..LIMITS }, pool(100, 4));
    let low = submit(&mut simulation, prompt(0, 12), 9);
    simulation.step();
    let equal = submit(&mut simulation, prompt(1, 12), 9);
    assert_eq!(chunks(&simulation.step()), [(low, 12..13)]);
    let high = submit(&mut simulation, Submission { priority: 1, ..prompt(2, 12) }, 9);
    let plan = simulation.step();
    assert_eq!((chunks(&plan), plan.preempted), (vec![(high, 0..12)], vec![low]));
    assert!(simulation.live.contains_key(&equal));
    simulation.drain();
}

#[test]
fn nobody_is_admitted_before_a_senior_that_finds_no_room() {
    let mut simulation = Simulation::new(LIMITS, pool(10, 4));
    let running = submit(&mut simulation, prompt(0, 16), 6);
    simulation.step();
    let big = submit(&mut simulation, prompt(1, 30), 1);
    let small = submit(&mut simulation, prompt(2, 4), 1);
    assert_eq!(chunks(&simulation.step()), [(running, 16..17)]);
    while simulation.live.contains_key(&running) {
        simulation.step();
    }
    assert_eq!(chunks(&simulation.step()), [(big, 0..30), (small, 0..4)]);
}

#[test]
fn impossible_requests_are_refused_with_both_sizes() {
    let limits = Limits { context: 100, queued: 2, ..LIMITS };
    let mut simulation = Simulation::new(limits, pool(10, 8));
    let mut refused = |submission: Submission, max_new| simulation.submit(submission, max_new).unwrap_err();
    assert_eq!(refused(prompt(0, 0), 1), Refusal::EmptyPrompt);
    assert_eq!(refused(Submission { samples: 0, ..prompt(0, 1) }, 1), Refusal::NoSamples);
    let too_long = refused(prompt(0, 100), 1);
    assert_eq!(too_long, Refusal::BeyondContext { tokens: 101, context: 100 });
    assert_eq!(too_long.to_string(), "101 tokens do not fit into the context of 100");
    let too_long = refused(prompt(0, 80), 1);
    assert_eq!(too_long, Refusal::BeyondCache { tokens: 81, entries: 80 });
    assert_eq!(too_long.to_string(), "81 tokens do not fit into the KV cache of 80 entries");
    let image = |start, end| ImageKey { start, end, hash: [0; 32] };
    for images in [vec![image(3, 6)], vec![image(2, 2)], vec![image(0, 3), image(2, 4)]] {
        let start = images.last().expect("one of them").start;
        assert_eq!(refused(Submission { images, ..prompt(0, 5) }, 1), Refusal::ImagePlace { start });
    }
    assert_eq!(
        refused(Submission { samples: 3, ..prompt(0, 5) }, 1),
        Refusal::QueueFull { waiting: 0, queued: 2 }
    );
    // Without an answer the whole pool is the prompt's.
    submit(&mut simulation, prompt(0, 80), 0);
    submit(&mut simulation, prompt(1, 79), 1);
    let full = simulation.submit(prompt(2, 5), 1);
    assert_eq!(full, Err(Refusal::QueueFull { waiting: 2, queued: 2 }));
    assert_eq!(full.unwrap_err().to_string(), "2 requests are waiting, and the queue holds 2");
    simulation.drain();
}

#[test]
fn limits_that_would_let_nothing_run_are_refused() {
    let new = |limits| {
        Scheduler::new(limits, BlockManager::new(1, 1)).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(new(Limits { queued: 0, ..LIMITS }), Err("the limit of queued requests is 0".to_string()));
    assert_eq!(new(Limits { running: 0, ..LIMITS }), Err(LimitsError::Zero("running sequences").to_string()));
    let few = "300 running sequences need as many rows in a step, and the limit is 256";
    assert_eq!(new(Limits { running: 300, ..LIMITS }), Err(few.to_string()));
    assert_eq!(new(Limits { running: 256, ..LIMITS }), Ok(()));
}

#[test]
fn a_sequence_grows_to_the_end_of_the_context_or_of_the_pool() {
    let mut simulation = Simulation::new(Limits { context: 30, ..LIMITS }, pool(10, 4));
    let id = submit(&mut simulation, prompt(0, 28), 10);
    simulation.drain();
    let ended = &simulation.ended[&id];
    assert_eq!((ended.tokens.len(), ended.full), (30, Some(Full::Context { context: 30 })));

    // Two that fill the pool together go on one after the other.
    let mut simulation = Simulation::new(LIMITS, pool(10, 4));
    let ids = [0, 1].map(|seed| submit(&mut simulation, prompt(seed, 14), 100));
    simulation.drain();
    for id in ids {
        let ended = &simulation.ended[&id];
        assert_eq!((ended.tokens.len(), ended.full), (40, Some(Full::Cache { entries: 40 })));
    }
    assert_eq!(simulation.scheduler.metrics().preemptions, 1);
}

#[test]
fn a_request_that_is_not_ready_holds_up_nobody() {
    let mut simulation = Simulation::new(Limits { running: 2, ..LIMITS }, pool(10, 4));
    let image = submit(&mut simulation, Submission { ready: false, ..prompt(0, 38) }, 1);
    let [a, b] = [1, 2].map(|seed| submit(&mut simulation, prompt(seed, 5), 9));
    assert_eq!(chunks(&simulation.step()), [(a, 0..5), (b, 0..5)]);
    // One that runs keeps its blocks.
    simulation.set_ready(a, false);
    assert_eq!(chunks(&simulation.step()), [(b, 5..6)]);
    assert_eq!(simulation.scheduler.request(a).expect("it is live").block_table().len(), 2);
    simulation.set_ready(a, true);
    simulation.set_ready(image, true);
    assert_eq!(chunks(&simulation.step()), [(a, 5..6), (b, 6..7)]);
    simulation.drain();
}

#[test]
fn results_of_a_whole_prompt_come_once_and_never_from_the_cache() {
    let limits = Limits { prompt_results_per_step: 10, ..LIMITS };
    let mut simulation = Simulation::new(limits, pool(16, 4));
    submit(&mut simulation, prompt(0, 24), 0);
    simulation.drain();
    let scored = |samples| Submission { prompt_results: true, samples, ..prompt(0, 24) };
    let ids = simulation.submit(scored(2), 9).expect("there is room");
    let wanted = |plan: &Plan| {
        plan.chunks.iter().map(|c| (c.id, c.tokens.start, c.wanted.clone())).collect::<Vec<_>>()
    };
    // The second sample takes what the cache has.
    assert_eq!(wanted(&simulation.step()), [(ids[0], 0, 0..10), (ids[1], 20, 23..24)]);
    assert_eq!(wanted(&simulation.step()), [(ids[1], 24, 24..25), (ids[0], 10, 10..20)]);
    // Preempted now, both begin again.
    let high = submit(&mut simulation, Submission { priority: 1, ..prompt(1, 60) }, 0);
    let plan = simulation.step();
    assert_eq!((wanted(&plan), plan.preempted), (vec![(high, 0, 59..60)], vec![ids[1], ids[0]]));
    // The one block that was not evicted is there, and only the rest of the results is still wanted.
    assert_eq!(wanted(&simulation.step()), [(ids[0], 4, 20..24), (ids[1], 4, 25..26)]);
    simulation.drain();
    let metrics = simulation.scheduler.metrics();
    assert_eq!((metrics.prefix_queries, metrics.prefix_hits), (24 + 24 + 60, 20));
}

#[test]
fn salts_and_the_bypass_keep_requests_apart() {
    let salted = |salt: &str| CacheScope { salt: Some(salt.into()), ..CacheScope::default() };
    let hits = |first: Submission, second: Submission| {
        let mut simulation = roomy();
        submit(&mut simulation, first, 0);
        simulation.drain();
        submit(&mut simulation, second, 0);
        simulation.drain();
        simulation.scheduler.metrics().prefix_hits
    };
    let plain = || prompt(0, 100);
    let with = |scope| Submission { scope, ..plain() };
    let bypass = || Submission { bypass_cache: true, ..plain() };
    assert_eq!(hits(plain(), plain()), 96);
    assert_eq!(hits(with(salted("a")), with(salted("a"))), 96);
    assert_eq!(hits(with(salted("a")), with(salted("b"))), 0);
    assert_eq!(hits(plain(), with(salted("a"))), 0);
    assert_eq!(hits(plain(), bypass()), 0);
    assert_eq!(hits(bypass(), plain()), 0);
    assert_eq!(hits(bypass(), bypass()), 0);
}

#[test]
fn a_plan_that_is_not_run_is_planned_again_and_a_cancelled_request_is_left_out() {
    let mut scheduler = Scheduler::new(LIMITS, BlockManager::new(10, 4)).expect("valid limits");
    let submit =
        |scheduler: &mut Scheduler, seed| scheduler.submit(prompt(seed, 9)).expect("there is room")[0];
    let [a, b] = [0, 1].map(|seed| submit(&mut scheduler, seed));
    let plan = scheduler.plan();
    assert_eq!(chunks(&plan), [(a, 0..9), (b, 0..9)]);
    assert_eq!(scheduler.plan(), plan);
    scheduler.finish(a);
    assert_eq!(scheduler.metrics().blocks.held, 3);
    scheduler.complete(&plan);
    assert_eq!(scheduler.push_token(a, 1), Ok(()));
    assert!(scheduler.request(a).is_none());
    assert!(scheduler.plan().chunks.is_empty(), "the other one awaits its token");
    assert_eq!(scheduler.push_token(b, 1), Ok(()));
    assert_eq!(chunks(&scheduler.plan()), [(b, 9..10)]);
    // What was never completed is not in the cache: nothing of `a`.
    assert_eq!(scheduler.metrics().blocks.idle, 0);
    scheduler.finish(b);
    assert_eq!((scheduler.metrics().blocks.idle, scheduler.is_empty()), (2, true));
}

#[test]
fn what_a_failed_request_computed_is_not_reused() {
    let mut simulation = roomy();
    let failed = submit(&mut simulation, prompt(0, 300), 5);
    simulation.step();
    simulation.end(failed, true);
    assert_eq!(simulation.scheduler.metrics().blocks.idle, 0);
    let again = submit(&mut simulation, prompt(0, 300), 5);
    assert_eq!(chunks(&simulation.step()), [(again, 0..256)]);
    simulation.end(again, false);
    assert_eq!(simulation.scheduler.metrics().blocks.idle, 16);
}

#[test]
fn several_tokens_may_be_appended_at_once() {
    let mut scheduler = Scheduler::new(LIMITS, BlockManager::new(10, 4)).expect("valid limits");
    let id = scheduler.submit(prompt(0, 5)).expect("there is room")[0];
    let plan = scheduler.plan();
    scheduler.complete(&plan);
    for token in 0..6 {
        scheduler.push_token(id, token).expect("there is room");
    }
    let plan = scheduler.plan();
    assert_eq!((chunks(&plan), plan.chunks[0].wanted.clone()), (vec![(id, 5..11)], 10..11));
    assert_eq!(scheduler.request(id).expect("it is running").block_table().len(), 3);
}
