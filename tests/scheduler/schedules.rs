//! Random schedules. The seed is fixed: the same ones in every run.
use crate::simulation::{PoolSpec, Simulation};
use ember::engine::scheduler::{Limits, Submission};
use ember::engine::{BlockKey, CacheScope, HashBlock, ImageKey};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::RngSeed;

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        rng_seed: RngSeed::Fixed(12),
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..ProptestConfig::default()
    }
}

/// A request by numbers that many requests have in common.
#[derive(Clone, Debug)]
struct Arrival {
    /// Length of a beginning that all arrivals share as far as they have it.
    shared: usize,
    own: Vec<u32>,
    image: Option<(Index, usize, u8)>,
    salt: Option<u8>,
    adapter: bool,
    bypass_cache: bool,
    samples: usize,
    prompt_results: bool,
    priority: i32,
    ready: bool,
    max_new: usize,
}

#[derive(Clone, Debug)]
enum Event {
    Arrive(Arrival),
    Cancel(Index),
    Fail(Index),
    SetReady(Index, bool),
    Steps(usize),
}

impl Arrival {
    fn submission(&self) -> Submission {
        let shared = (0..self.shared as u32).map(|i| i / 3 % 3);
        let prompt: Vec<u32> = shared.chain(self.own.iter().copied()).collect();
        let image = self.image.filter(|_| !prompt.is_empty()).map(|(start, len, hash)| {
            let start = start.index(prompt.len());
            let end = (start + len).min(prompt.len());
            // Images of different sizes are different images.
            ImageKey { start, end, hash: [hash * 8 + (end - start) as u8; 32] }
        });
        let salt = self.salt.map(|salt| salt.to_string());
        Submission {
            prompt,
            images: image.into_iter().collect(),
            scope: CacheScope { adapter: self.adapter.then_some([1; 32]), salt },
            bypass_cache: self.bypass_cache,
            samples: self.samples,
            prompt_results: self.prompt_results,
            priority: self.priority,
            ready: self.ready,
            ..Submission::default()
        }
    }
}

fn arrivals(max_len: usize) -> impl Strategy<Value = Arrival> {
    let content = (0..max_len, vec(0u32..3, 0..max_len), option::of((any::<Index>(), 1usize..6, 0u8..2)));
    let rare = |percent: f64| prop::bool::weighted(percent / 100.0);
    let scope = (option::weighted(0.2, 0u8..2), rare(10.0), rare(10.0));
    let kind =
        (prop_oneof![4 => Just(1usize), 1 => 2usize..4], rare(15.0), prop_oneof![3 => Just(0), 1 => -1..2]);
    (content, scope, kind, rare(85.0), 0usize..24).prop_map(|(content, scope, kind, ready, max_new)| {
        let (shared, own, image) = content;
        let (salt, adapter, bypass_cache) = scope;
        let (samples, prompt_results, priority) = kind;
        Arrival {
            shared,
            own,
            image,
            salt,
            adapter,
            bypass_cache,
            samples,
            prompt_results,
            priority,
            ready,
            max_new,
        }
    })
}

fn events(max_len: usize, n: usize) -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        8 => arrivals(max_len).prop_map(Event::Arrive),
        1 => any::<Index>().prop_map(Event::Cancel),
        1 => any::<Index>().prop_map(Event::Fail),
        2 => (any::<Index>(), prop::bool::weighted(0.7)).prop_map(|(index, ready)| Event::SetReady(index, ready)),
        7 => (1usize..5).prop_map(Event::Steps),
    ];
    vec(event, 1..n)
}

fn limits() -> impl Strategy<Value = Limits> {
    (8usize..64, 1usize..24, 1usize..6, 1usize..7, 1usize..16).prop_map(
        |(context, rows, results, running, queued)| Limits {
            context,
            rows_per_step: rows.max(running),
            prompt_results_per_step: results,
            running,
            queued,
        },
    )
}

/// Hashes that are good, of which a third collide, and that all collide.
fn hashes() -> impl Strategy<Value = Option<HashBlock>> {
    let few: HashBlock = |parent, block: &BlockKey<'_>| parent.wrapping_add(u64::from(block.tokens[0])) % 3;
    select(vec![None, Some(few), Some((|_, _| 7) as HashBlock)])
}

fn run(simulation: &mut Simulation, events: &[Event]) {
    let pick = |simulation: &Simulation, index: &Index| {
        let ids: Vec<_> = simulation.live.keys().copied().collect();
        (!ids.is_empty()).then(|| ids[index.index(ids.len())])
    };
    for event in events {
        match event {
            Event::Arrive(arrival) => {
                // Refused ones leave no trace, which the simulation checks.
                let _ = simulation.submit(arrival.submission(), arrival.max_new);
            }
            Event::Cancel(index) => {
                pick(simulation, index).into_iter().for_each(|id| simulation.end(id, false));
            }
            Event::Fail(index) => {
                pick(simulation, index).into_iter().for_each(|id| simulation.end(id, true));
            }
            Event::SetReady(index, ready) => {
                pick(simulation, index).into_iter().for_each(|id| simulation.set_ready(id, *ready));
            }
            Event::Steps(n) => (0..*n).for_each(|_| {
                simulation.step();
            }),
        }
    }
    let ids: Vec<_> = simulation.live.keys().copied().collect();
    ids.into_iter().for_each(|id| simulation.set_ready(id, true));
    simulation.drain();
}

proptest! {
    #![proptest_config(config(2000))]

    /// Tiny pools: much is evicted and preempted.
    #[test]
    fn every_schedule_is_run_right_and_to_its_end(
        limits in limits(),
        n_blocks in 1usize..20,
        block_len in 1usize..5,
        hash in hashes(),
        events in events(8, 40),
    ) {
        let mut simulation = Simulation::new(limits, PoolSpec { n_blocks, block_len, hash });
        run(&mut simulation, &events);
    }
}

proptest! {
    #![proptest_config(config(250))]

    /// The same events make the same plans, however the hashes fall.
    #[test]
    fn plans_depend_on_the_events_only(
        limits in limits(),
        n_blocks in 1usize..20,
        block_len in 1usize..5,
        events in events(8, 40),
    ) {
        let plans = [None, Some((|_, _| 7) as HashBlock)].map(|hash| {
            let mut simulation = Simulation::new(limits, PoolSpec { n_blocks, block_len, hash });
            run(&mut simulation, &events);
            simulation.plans
        });
        prop_assert_eq!(&plans[0], &plans[1]);
    }

    /// Pools in which nothing is ever evicted: each request finds all that others have computed.
    #[test]
    fn a_roomy_cache_finds_everything_that_was_computed(
        limits in limits(),
        block_len in 1usize..5,
        hash in hashes(),
        events in events(14, 14),
    ) {
        let roomy = Limits { context: 80, running: 8, queued: 100, rows_per_step: limits.rows_per_step.max(8), ..limits };
        let mut simulation = Simulation::new(roomy, PoolSpec { n_blocks: 1200 / block_len, block_len, hash });
        simulation.exact_hits = true;
        // A failure forgets what was computed.
        let events: Vec<Event> = events.into_iter().filter(|event| !matches!(event, Event::Fail(_))).collect();
        run(&mut simulation, &events);
    }

    /// With room for all, nobody waits longer than it takes to run the prompts of its seniors and its own with half of the
    /// rows that decoding leaves.
    #[test]
    fn the_wait_for_a_first_token_is_bounded(
        rows_per_step in 8usize..40,
        arrivals in vec((1usize..60, 0usize..12, 0usize..4), 1..8),
    ) {
        let limits = Limits { context: 100, rows_per_step, prompt_results_per_step: 1, running: 8, queued: 100 };
        let mut simulation = Simulation::new(limits, PoolSpec { n_blocks: 200, block_len: 4, hash: None });
        let half = (rows_per_step - 7).div_ceil(2);
        let mut bounds = Vec::new();
        for (i, &(len, max_new, steps)) in arrivals.iter().enumerate() {
            // Nothing to share.
            let prompt = vec![10 + i as u32; len];
            let id = simulation.submit(Submission { prompt, ..Submission::default() }, max_new).expect("room")[0];
            bounds.push((id, simulation.steps + simulation.live[&id].rows_ahead.div_ceil(half)));
            for _ in 0..steps {
                simulation.step();
            }
        }
        simulation.drain();
        for (id, bound) in bounds {
            let first_token = simulation.ended[&id].first_token;
            prop_assert!(first_token <= bound, "first token in step {first_token}, and not {bound}");
        }
    }
}
