//! Problems for attention: sequences in shuffled pages, and the definition in f64.
use crate::device::{TestRuntime, upload};
use crate::kv_reference::{read_row, stored_words};
use ember_kernels_cubecl::attention::{Plan, SequencePlan, paged_attention};
use ember_kernels_cubecl::kv::{KvLayout, KvPages, KvType};
use ember_kernels_cubecl::rope::{HeadInput, Pairing, RowTable, rotate_and_write};
use ember_kernels_cubecl::{Buffer, Gpu};
use ember_test_support::{Random, definition, distance, random};
use std::ops::Range;

/// Query rows of a sequence; each sees a range of its entries.
#[derive(Clone, Debug)]
pub struct Sequence {
    pub entries: usize,
    pub visible: Vec<Range<u32>>,
}

impl Sequence {
    /// `rows` rows at the end of `entries` entries, each of which sees itself and all before.
    pub fn causal(entries: usize, rows: usize) -> Self {
        let ends = entries as u32 - rows as u32 + 1..=entries as u32;
        Self { entries, visible: ends.map(|end| 0..end).collect() }
    }
}

/// Sequences with their keys and values on the device.
pub struct Problem {
    pub layout: KvLayout,
    pub n_heads: usize,
    pub sequences: Vec<Sequence>,
    pub tables: Vec<Vec<u32>>,
    pub q: Vec<f32>,
    pub pages: KvPages,
    /// Per sequence `[entries, n_kv_heads, head_dim]`, as the pages hold them.
    keys: Vec<Vec<f32>>,
    values: Vec<Vec<f32>>,
}

pub const SCALE: f32 = 0.3;

impl Problem {
    /// Fills pages with random keys and values; `poison` is what entries no row sees hold.
    pub fn new(
        gpu: &Gpu<TestRuntime>,
        layout: KvLayout,
        group: usize,
        sequences: &[Sequence],
        poison: Option<f32>,
    ) -> Self {
        Self::changed(gpu, layout, group, sequences, |_, sequence, [keys, values]| {
            let seen = |entry: usize| sequence.visible.iter().any(|range| range.contains(&(entry as u32)));
            for rows in [keys, values] {
                let entries = rows.chunks_exact_mut(layout.n_kv_heads * layout.head_dim).enumerate();
                for (_, row) in entries.filter(|(entry, _)| !seen(*entry)) {
                    poison.into_iter().for_each(|poison| row.fill(poison));
                }
            }
        })
    }

    /// Fills pages with random keys and values that `change` has seen, by the number of their sequence.
    pub fn changed(
        gpu: &Gpu<TestRuntime>,
        layout: KvLayout,
        group: usize,
        sequences: &[Sequence],
        change: impl Fn(usize, &Sequence, [&mut [f32]; 2]),
    ) -> Self {
        let blocks_of = |sequence: &Sequence| sequence.entries.div_ceil(layout.block_len);
        let n_blocks: usize = sequences.iter().map(blocks_of).sum();
        let mut ids = Random::new(9).shuffled(n_blocks).into_iter();
        let tables: Vec<Vec<u32>> =
            sequences.iter().map(|sequence| ids.by_ref().take(blocks_of(sequence)).collect()).collect();
        let entry_len = layout.n_kv_heads * layout.head_dim;
        let rows = |(i, sequence): (usize, &Sequence)| {
            let [mut keys, mut values] =
                [100, 101].map(|seed| random(seed + 2 * i as u64, sequence.entries * entry_len));
            change(i, sequence, [&mut keys, &mut values]);
            (keys, values)
        };
        let (keys, values): (Vec<Vec<f32>>, Vec<Vec<f32>>) = sequences.iter().enumerate().map(rows).unzip();
        let pages = KvPages::new(gpu, layout, n_blocks.max(1)).unwrap();
        let slots: Vec<u32> = sequences
            .iter()
            .zip(&tables)
            .flat_map(|(sequence, table)| {
                let len = layout.block_len;
                (0..sequence.entries).map(move |i| table[i / len] * len as u32 + (i % len) as u32)
            })
            .collect();
        write(gpu, &pages, &keys.concat(), &values.concat(), &slots);
        let n_heads = group * layout.n_kv_heads;
        let n_rows: usize = sequences.iter().map(|sequence| sequence.visible.len()).sum();
        let q = random(7, n_rows * n_heads * layout.head_dim).iter().map(|x| 2.0 * x).collect();
        let held = |rows: Vec<Vec<f32>>| rows.iter().map(|rows| as_held(rows, layout)).collect();
        let (keys, values) = (held(keys), held(values));
        Self { layout, n_heads, sequences: sequences.to_vec(), tables, q, pages, keys, values }
    }

    /// One sequence whose queries, keys and values are given.
    pub fn of(pages: &KvPages, n_heads: usize, sequence: Sequence, [q, k, v]: [Vec<f32>; 3]) -> Self {
        Self {
            layout: pages.layout,
            n_heads,
            tables: vec![(0..sequence.entries as u32).collect()],
            sequences: vec![sequence],
            q,
            pages: pages.clone(),
            keys: vec![k],
            values: vec![v],
        }
    }

    pub fn plan(&self, gpu: &Gpu<TestRuntime>) -> Plan {
        let mut start = 0;
        let plans: Vec<SequencePlan> = self
            .sequences
            .iter()
            .zip(&self.tables)
            .map(|(sequence, block_table)| {
                let rows = start..start + sequence.visible.len();
                start = rows.end;
                SequencePlan { rows, block_table, visible: &sequence.visible }
            })
            .collect();
        Plan::new(gpu, &plans, self.layout.block_len).unwrap()
    }

    pub fn run(&self, gpu: &Gpu<TestRuntime>) -> Vec<f32> {
        let out = paged_attention(gpu, &upload(gpu, &self.q), &self.pages, &self.plan(gpu), SCALE);
        gpu.read_f32(&out).unwrap()
    }

    /// The definition: `softmax(scale q · k) v` over what each row sees.
    pub fn expected(&self) -> Vec<f64> {
        let mut queries = self.q.chunks_exact(self.n_heads * self.layout.head_dim);
        let mut out = Vec::new();
        for (i, sequence) in self.sequences.iter().enumerate() {
            for visible in &sequence.visible {
                let heads = queries.next().unwrap().chunks_exact(self.layout.head_dim);
                for (head, q) in heads.enumerate() {
                    out.extend(self.attend(i, head / (self.n_heads / self.layout.n_kv_heads), q, visible));
                }
            }
        }
        out
    }

    fn attend(&self, sequence: usize, kv_head: usize, q: &[f32], visible: &Range<u32>) -> Vec<f64> {
        let KvLayout { n_kv_heads, head_dim, .. } = self.layout;
        let entry = |entry: u32| {
            let at = (entry as usize * n_kv_heads + kv_head) * head_dim;
            (&self.keys[sequence][at..at + head_dim], &self.values[sequence][at..at + head_dim])
        };
        definition::attend(q, &visible.clone().map(entry).collect::<Vec<_>>(), SCALE)
    }

    /// Every row is right, not only their sum.
    pub fn check(&self, gpu: &Gpu<TestRuntime>, what: &str) {
        let (actual, expected) = (self.run(gpu), self.expected());
        assert_eq!(actual.len(), expected.len(), "{what}");
        let row_len = self.n_heads * self.layout.head_dim;
        for (row, (actual, expected)) in
            actual.chunks_exact(row_len).zip(expected.chunks_exact(row_len)).enumerate()
        {
            // A row that sees nothing is zeros, from which any difference is infinitely far.
            let error = distance(actual, expected);
            assert!(error < 1e-5, "{what}: row {row} is off by {error}");
        }
    }
}

pub fn layout(ty: KvType, block_len: usize, n_kv_heads: usize, head_dim: usize) -> KvLayout {
    KvLayout { ty, block_len, n_kv_heads, head_dim }
}

/// What the heads in `rows` read back as.
fn as_held(rows: &[f32], layout: KvLayout) -> Vec<f32> {
    rows.chunks_exact(layout.head_dim)
        .flat_map(|head| read_row(&stored_words(head, layout), layout))
        .collect()
}

/// Writes keys and values as they are.
fn write(gpu: &Gpu<TestRuntime>, pages: &KvPages, k: &[f32], v: &[f32], slots: &[u32]) {
    let unused: Buffer = upload(gpu, &vec![0.0; slots.len() * pages.layout.head_dim]);
    let table = RowTable::new(gpu, &[], &[], slots, None).unwrap();
    let (k, v) = (upload(gpu, k), upload(gpu, v));
    let input = HeadInput { q: &unused, k: &k, v: &v, norms: None, pairing: Pairing::Half };
    rotate_and_write(gpu, &input, &table, pages);
}
