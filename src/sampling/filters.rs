//! Which tokens stay in the draw.

use std::cmp::Ordering;

/// A token that may be drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Candidate {
    pub id: u32,
    pub logit: f32,
}

/// Number of candidates that are sorted at first where a cumulative filter seldom needs more.
const FIRST_SORTED: usize = 256;

/// Likeliest first; equal logits by id, so that a result never depends on the sort.
fn likeliest_first(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.total_cmp(&a.logit).then(a.id.cmp(&b.id))
}

/// Keeps the `k` likeliest, likeliest first.
pub(super) fn top_k(candidates: &mut Vec<Candidate>, k: usize) {
    if k < candidates.len() {
        candidates.select_nth_unstable_by(k, likeliest_first);
        candidates.truncate(k);
    }
    candidates.sort_unstable_by(likeliest_first);
}

/// Keeps the shortest run of likeliest tokens whose probability reaches `p`; at least one.
pub(super) fn top_p(candidates: &mut Vec<Candidate>, p: f32) {
    let weight = weights(candidates);
    let goal = f64::from(p) * candidates.iter().map(&weight).sum::<f64>();
    keep_mass(candidates, likeliest_first, weight, |mass| mass >= goal);
}

/// Keeps tokens whose probability is at least `p` times the largest.
pub(super) fn min_p(candidates: &mut Vec<Candidate>, p: f32) {
    let least = max_logit(candidates) + p.ln();
    candidates.retain(|c| c.logit >= least);
}

/// Keeps the tokens whose surprise is nearest to the entropy until their probability exceeds `p`; at least one.
pub(super) fn typical(candidates: &mut Vec<Candidate>, p: f32) {
    let weight = weights(candidates);
    let total: f64 = candidates.iter().map(&weight).sum();
    let surprise = |c: &Candidate| -(weight(c) / total).ln();
    // A token of probability 0 adds nothing: the limit of p ln p.
    let entropy: f64 = candidates
        .iter()
        .map(|c| (weight(c) / total, surprise(c)))
        .filter(|(p, _)| *p > 0.0)
        .map(|(p, s)| p * s)
        .sum();
    let distance = |c: &Candidate| (surprise(c) - entropy).abs();
    let nearest_first =
        |a: &Candidate, b: &Candidate| distance(a).total_cmp(&distance(b)).then(a.id.cmp(&b.id));
    keep_mass(candidates, nearest_first, &weight, |mass| mass > f64::from(p) * total);
}

/// The weight `exp(logit - max)` of each candidate: its probability up to a common factor.
pub(super) fn weights(candidates: &[Candidate]) -> impl Fn(&Candidate) -> f64 + use<> {
    let max = max_logit(candidates);
    move |c| f64::from(c.logit - max).exp()
}

fn max_logit(candidates: &[Candidate]) -> f32 {
    candidates.iter().map(|c| c.logit).fold(f32::NEG_INFINITY, f32::max)
}

/// Orders the candidates and cuts after the one whose cumulated weight is `enough`, sorting only as many as needed.
fn keep_mass(
    candidates: &mut Vec<Candidate>,
    order: impl Fn(&Candidate, &Candidate) -> Ordering,
    weight: impl Fn(&Candidate) -> f64,
    enough: impl Fn(f64) -> bool,
) {
    let mut sorted = FIRST_SORTED;
    loop {
        let all = sorted >= candidates.len();
        if !all {
            candidates.select_nth_unstable_by(sorted, &order);
        }
        let head_len = sorted.min(candidates.len());
        let head = &mut candidates[..head_len];
        head.sort_unstable_by(&order);
        let mut mass = 0.0;
        let cut = head.iter().position(|c| {
            mass += weight(c);
            enough(mass)
        });
        match cut {
            Some(last) => return candidates.truncate(last + 1),
            None if all => return,
            None => sorted *= 16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Candidates of the given probabilities.
    fn of(probabilities: &[f32]) -> Vec<Candidate> {
        (0..).zip(probabilities).map(|(id, p)| Candidate { id, logit: p.ln() }).collect()
    }

    fn ids(candidates: &[Candidate]) -> Vec<u32> {
        candidates.iter().map(|c| c.id).collect()
    }

    fn kept(filter: fn(&mut Vec<Candidate>, f32), probabilities: &[f32], p: f32) -> Vec<u32> {
        let mut candidates = of(probabilities);
        filter(&mut candidates, p);
        let mut ids = ids(&candidates);
        ids.sort_unstable();
        ids
    }

    // The probabilities and limits of the next four tests are those of llama.cpp's tests/test-sampling.cpp.
    const FOUR: [f32; 4] = [0.1, 0.2, 0.3, 0.4];

    #[test]
    fn top_k_keeps_the_likeliest_in_order() {
        for (k, expected) in [(1, vec![3]), (3, vec![3, 2, 1]), (4, vec![3, 2, 1, 0]), (9, vec![3, 2, 1, 0])]
        {
            let mut candidates = of(&FOUR);
            top_k(&mut candidates, k);
            assert_eq!(ids(&candidates), expected, "k = {k}");
        }
    }

    #[test]
    fn top_p_keeps_the_shortest_run() {
        for (p, expected) in
            [(0.0, vec![3]), (0.7, vec![2, 3]), (0.8, vec![1, 2, 3]), (1.0, vec![0, 1, 2, 3])]
        {
            assert_eq!(kept(top_p, &FOUR, p), expected, "p = {p}");
        }
    }

    #[test]
    fn min_p_is_relative_to_the_likeliest() {
        for (p, first) in [(0.24, 0), (0.26, 1), (0.49, 1), (0.51, 2), (0.74, 2), (0.76, 3), (1.0, 3)] {
            assert_eq!(kept(min_p, &FOUR, p), (first..4).collect::<Vec<_>>(), "p = {p}");
        }
    }

    #[test]
    fn typical_keeps_the_expected_surprise() {
        assert_eq!(kept(typical, &[0.97, 0.01, 0.01, 0.01], 0.5), [0]);
        assert_eq!(kept(typical, &[0.4, 0.2, 0.2, 0.2], 0.5), [1, 2, 3]);
    }

    #[test]
    fn cumulative_filters_agree_with_a_full_sort_when_thousands_stay() {
        let probabilities: Vec<f32> = (0..5000).map(|i| 1.0 + ((i * 7919) % 5000) as f32).collect();
        let mut candidates = of(&probabilities);
        top_p(&mut candidates, 0.8);
        // The weights are 1…5000 in some order. 5000 + … + m is at least 0.8 of all 12502500 while m(m-1)/2 is at most
        // 2500500: down to m = 2236.
        assert_eq!(candidates.len(), 2765);
        assert_eq!(probabilities[candidates[2764].id as usize], 2236.0);
    }
}
