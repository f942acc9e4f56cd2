//! Writing to disjoint pieces of one slice from several threads.

use std::marker::PhantomData;
use std::ops::Range;

use crate::pool::ThreadPool;

/// A mutable slice whose disjoint pieces may be lent to the tasks of a parallel call.
pub(crate) struct Pieces<'a, T> {
    start: *mut T,
    len: usize,
    slice: PhantomData<&'a mut [T]>,
}

// SAFETY: it is a `&mut [T]` taken apart; whoever calls `piece` promises that no two pieces in use overlap.
unsafe impl<T: Send> Sync for Pieces<'_, T> {}

impl<'a, T> Pieces<'a, T> {
    pub(crate) fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), slice: PhantomData }
    }

    /// The elements of `range`.
    ///
    /// # Safety
    /// No other piece in use may overlap `range`.
    #[expect(clippy::mut_from_ref, reason = "the caller keeps the pieces disjoint")]
    pub(crate) unsafe fn piece(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "piece {range:?} of {}", self.len);
        // SAFETY: the range is inside the slice this borrows, and the caller lets no other piece overlap it.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }
}

/// Elements a task should have at least, so that handing it out costs little beside doing it.
const TASK_ELEMENTS: usize = 16 * 1024;

/// Splits `rows` rows of `row_len` elements into runs of whole rows and calls `f` with each run, in parallel.
pub(crate) fn split_rows(pool: &ThreadPool, rows: usize, row_len: usize, f: impl Fn(Range<usize>) + Sync) {
    let rows_per_task = (TASK_ELEMENTS / row_len.max(1)).max(1);
    pool.parallel(rows.div_ceil(rows_per_task), &|task| {
        let start = task * rows_per_task;
        f(start..(start + rows_per_task).min(rows));
    });
}
