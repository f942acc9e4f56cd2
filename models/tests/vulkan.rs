//! The models on a Vulkan device: every operation against its definition, and whole models against Hugging Face.
mod common;

use burn::tensor::{Tensor, TensorData};
use burn_cubecl::CubeBackend;
use burn_cubecl::cubecl::Runtime;
use burn_ndarray::NdArray;
use burn_wgpu::WgpuRuntime;
use common::broken;
use common::golden::{self, EXACT, load, reference};
use common::invariance;
use common::synthetic::{self, Size};
use common::vision;
use ember_kernels_cubecl::read_bytes;
use ember_loaders::checkpoint::{Checkpoint, TensorSource};
use ember_models::backend::{Backend, conformance, read};
use ember_models::{Batch, Decoder, KvCache, KvType, WeightFormat};
use std::path::Path;

type B = CubeBackend<WgpuRuntime, f32, i32, u32>;

/// Kernels for a few rows and for many add in different orders.
fn close(a: &[f32], b: &[f32], what: &str) {
    let error = ember_test_support::max_relative(a, b);
    assert!(error < 1e-3, "{what}: {error}");
}

#[test]
fn operations_equal_their_definitions() {
    let mut compared = 0;
    conformance::operations::<B>(&Default::default(), &mut |finding| {
        compared += 1;
        assert!(finding.holds(), "{finding}");
    })
    .expect("a healthy device");
    assert!(compared > 50, "{compared} comparisons");
}

#[test]
fn a_checked_step_computes_the_same() {
    golden::a_checked_step_computes_the_same::<B>();
}

#[test]
fn f32_logits_equal_the_reference() {
    golden::f32_logits_equal_the_reference::<B>();
}

#[test]
fn the_cacheless_forward_equals_the_reference() {
    let (model, expected) = EXACT[0];
    let reference = reference(expected);
    let ids: Vec<i64> = reference.tokens.iter().map(|&id| i64::from(id)).collect();
    let shape = [1, ids.len()];
    let tokens =
        burn::tensor::Tensor::from_data(burn::tensor::TensorData::new(ids, shape), &Default::default());
    let logits = common::values(load::<B>(model).forward_at(tokens, &reference.positions));
    golden::assert_within(1e-4, &logits, &reference, model);
}

/// Activations are not rounded here.
#[test]
fn every_block_type_runs() {
    golden::every_block_type_runs::<B>(0.99999);
}

#[test]
fn every_kv_type_is_within_its_limit() {
    golden::every_kv_type_is_within_its_limit::<B>();
}

#[test]
fn image_embeddings_equal_the_reference() {
    vision::embeddings_equal_the_reference::<B>();
}

#[test]
fn logits_after_images_equal_the_reference() {
    vision::logits_equal_the_reference::<B>();
}

/// Activations are not rounded here.
#[test]
fn quantized_projectors_equal_the_reference() {
    vision::quantized_projectors_equal_the_reference::<B>();
}

#[test]
fn decode_equals_prefill_for_every_length_up_to_260() {
    invariance::decode_equals_prefill::<B>(&[KvType::F16], close);
}

#[test]
fn a_batch_of_sequences_equals_each_alone() {
    invariance::batch_equals_single::<B>(close);
}

#[test]
fn overflows_of_the_cache_reach_the_logits() {
    broken::overflows_of_the_cache_reach_the_logits::<B>();
}

#[test]
fn a_broken_token_breaks_what_follows() {
    broken::a_broken_token_breaks_what_follows::<B>();
}

/// The norms of the heads take 65,536 cubes, one more than a grid has in one direction.
#[test]
fn a_forward_of_many_rows_equals_the_cpu() {
    let size = Size { heads: 16, kv_heads: 8, head_dim: 8, context: 1024, ..Size::SMALL };
    let checkpoint = synthetic::checkpoint_of(false, &size);
    let tokens: Vec<i64> = invariance::tokens(4 * 1024).into_iter().map(i64::from).collect();
    let (gpu, cpu) = (forward::<B>(&checkpoint, &tokens), forward::<NdArray>(&checkpoint, &tokens));
    let error = ember_test_support::max_relative(&gpu, &cpu);
    assert!(error < 1e-4, "{error}");
}

/// Logits of four sequences side by side, without a cache.
fn forward<B: Backend>(checkpoint: &Checkpoint, tokens: &[i64]) -> Vec<f32> {
    let device = Default::default();
    let model = Decoder::<B>::load(checkpoint, WeightFormat::Packed, &device).expect("a whole checkpoint");
    let tokens = Tensor::from_data(TensorData::new(tokens.to_vec(), [4, tokens.len() / 4]), &device);
    read(model.forward(tokens)).expect("a healthy device")
}

#[test]
fn the_file_is_given_back_once_its_weights_are_placed() {
    const VOCAB: usize = 32_768;
    let name = "placed_weights.gguf";
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let file = synthetic::gguf(false, &Size { vocab: VOCAB, ..Size::SMALL });
    std::fs::write(&path, &file).expect("a temporary file");
    let checkpoint = Checkpoint::open(&path).expect("a whole checkpoint");
    let embedding = checkpoint.tensor("token_embd.weight").expect("the largest tensor, beside the head");
    let first = embedding.to_f32();
    assert!(resident_bytes(name) >= file.len() / 3, "read, but not resident");
    let model = Decoder::<B>::load(&checkpoint, WeightFormat::Packed, &Default::default()).expect("it fits");
    let resident = resident_bytes(name);
    assert!(resident < file.len() / 10, "{resident} of {} bytes stayed", file.len());
    // The file is still there for whoever reads it.
    assert_eq!(embedding.to_f32(), first);
    drop((model, checkpoint));
    std::fs::remove_file(path).expect("the file is ours");
}

/// Bytes of the mappings of the file called `name` that are in memory.
fn resident_bytes(name: &str) -> usize {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("Linux");
    let mut inside = false;
    let mut total = 0;
    for line in maps.lines() {
        if line.starts_with(|c: char| c.is_ascii_digit() || c.is_ascii_lowercase()) {
            inside = line.ends_with(name);
        } else if let Some(kib) = line.strip_prefix("Rss:").filter(|_| inside) {
            total += 1024 * kib.trim().trim_end_matches(" kB").parse::<usize>().expect("a number");
        }
    }
    total
}

/// Decode steps of one sequence of the synthetic model from `kv_start` on; `each` is called after every step.
fn decode(steps: std::ops::Range<u32>, mut each: impl FnMut(u32)) {
    let device = Default::default();
    let model = common::synthetic::qwen3::<B>(true);
    let table: Vec<u32> = (0..steps.end.div_ceil(invariance::BLOCK as u32)).collect();
    let mut cache =
        KvCache::new::<B>(model.config(), KvType::F16, steps.end as usize, &device).expect("small");
    for step in steps {
        let mut batch = Batch::single(&invariance::tokens(1), step, &table, invariance::BLOCK);
        batch.likeliest_rows = vec![0];
        let logits = model.step(&batch, &mut cache, &device).expect("a valid batch").likeliest;
        let picks = B::top_k(logits.expect("wanted"), 1).expect("a healthy device");
        assert!(picks[0][0].1.is_finite());
        each(step);
    }
}

/// The numbers of docs/backends.md.
#[test]
fn a_greedy_step_reads_back_eight_bytes() {
    let before = read_bytes();
    decode(0..3, |_| ());
    assert_eq!(read_bytes() - before, 3 * 8);
    let logits = burn::tensor::Tensor::<B, 2>::zeros([2, 1000], &Default::default());
    let before = read_bytes();
    B::top_k(logits, 40).expect("a healthy device");
    assert_eq!(read_bytes() - before, 2 * 40 * 8);
}

#[test]
fn a_thousand_steps_allocate_nothing_more() {
    let client = WgpuRuntime::client(&Default::default());
    let reserved = || client.memory_usage().expect("a healthy device").bytes_reserved;
    let mut early = 0;
    decode(0..1100, |step| match step {
        100 => early = reserved(),
        1099 => assert_eq!(reserved(), early, "bytes reserved after 100 steps and after 1100"),
        _ => {}
    });
}

/// What `launches_per_layer` looks at: run on its own, with CubeCL told to log every launch. So late in a context that
/// attention is split.
#[test]
fn one_decode_step() {
    decode(400..401, |_| ());
}

/// Counted in CubeCL's own log, Burn's kernels included: the number of docs/backends.md, of which a product with V of
/// another block type, and each further row shard, make one more.
#[test]
fn launches_per_layer() {
    let launches = logged_launches();
    // The rotation comes once in each of the two layers.
    let layers: Vec<usize> = (0..launches.len()).filter(|&i| launches[i].contains("HeadsKernel")).collect();
    let [first, second] = layers[..] else { panic!("{launches:#?}") };
    assert_eq!(second - first, 10, "{:#?}", &launches[first..second]);
    assert!(launches[first..second].iter().all(|name| !name.contains("KernelBinop")), "a kernel of Burn's");
}

/// The kernels of `one_decode_step`, in order.
fn logged_launches() -> Vec<String> {
    let folder = std::env::temp_dir().join(format!("ember-launches-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let log = folder.join("launches.log");
    let config = format!("[profiling]\nlogger = {{ level = \"minimal\", file = {log:?} }}\n");
    std::fs::write(folder.join("cubecl.toml"), config).expect("a temporary file");
    let run = std::process::Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "one_decode_step", "--test-threads", "1"])
        .current_dir(&folder)
        .output()
        .expect("this test runs again");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stdout));
    let launches = std::fs::read_to_string(&log).expect("CubeCL's log");
    std::fs::remove_dir_all(&folder).expect("the folder is ours");
    launches.lines().map(str::to_owned).collect()
}
