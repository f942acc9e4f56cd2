//! The division of a step's rows among prompts.
use std::cmp::Reverse;

/// A prompt that could use rows in a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Want {
    pub priority: i32,
    pub rows: usize,
}

/// Divides `budget` rows among prompts, which come in the order of seniority.
///
/// The senior ones get half of it, so that nobody starves; the other half goes to those with the least left to run, so that a
/// short prompt does not wait for the long ones before it. Higher priorities come first in both halves.
pub(super) fn share(budget: usize, wants: &[Want]) -> Vec<usize> {
    let by_seniority = 0..wants.len();
    let mut by_length: Vec<usize> = by_seniority.clone().collect();
    by_length.sort_by_key(|&i| (Reverse(wants[i].priority), wants[i].rows, i));

    let mut rows = vec![0; wants.len()];
    give(budget.div_ceil(2), by_seniority, wants, &mut rows);
    give(budget - rows.iter().sum::<usize>(), by_length, wants, &mut rows);
    rows
}

/// Gives each what it still wants, in the order given, until the budget is spent.
fn give(mut budget: usize, order: impl IntoIterator<Item = usize>, wants: &[Want], rows: &mut [usize]) {
    for i in order {
        let more = (wants[i].rows - rows[i]).min(budget);
        rows[i] += more;
        budget -= more;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_one_priority<const N: usize>(budget: usize, wants: [usize; N]) -> Vec<usize> {
        share(budget, &wants.map(|rows| Want { priority: 0, rows }))
    }

    #[test]
    fn one_prompt_gets_everything() {
        assert_eq!(of_one_priority(256, [4000]), [256]);
        assert_eq!(of_one_priority(256, [100]), [100]);
        assert_eq!(of_one_priority(0, [100]), [0]);
        assert!(of_one_priority(9, []).is_empty());
    }

    #[test]
    fn half_goes_to_the_oldest_and_half_to_the_shortest() {
        assert_eq!(of_one_priority(256, [4000, 16]), [240, 16]);
        assert_eq!(of_one_priority(256, [4000, 3000, 200]), [128, 0, 128]);
        assert_eq!(of_one_priority(256, [50, 3000, 2000]), [50, 78, 128]);
        assert_eq!(of_one_priority(256, [300, 300, 300]), [256, 0, 0]);
        // One row is the oldest's.
        assert_eq!(of_one_priority(1, [4000, 16]), [1, 0]);
    }

    #[test]
    fn a_higher_priority_comes_first_in_both_halves() {
        let want = |priority, rows| Want { priority, rows };
        assert_eq!(share(256, &[want(1, 4000), want(0, 16)]), [256, 0]);
        assert_eq!(share(256, &[want(1, 200), want(0, 4000), want(0, 16)]), [200, 40, 16]);
    }
}
