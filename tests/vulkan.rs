//! The command line and a real model on a Vulkan device. Needs EMBER_REFERENCE_DIR (see CONTRIBUTING.md).
mod cli_support;
mod real_support;

use cli_support::{ember, model};
use ember::device::{BackendKind, CacheOptions, DeviceOptions, KvType, LoadOptions, load};
use ember::engine::{Engine, GenerateLimits, Generation, Sequence, Wanted};
use ember::sampling::{Sampler, SamplingParams};
use ember_backend_wgpu::burn_cubecl::cubecl::Runtime;
use ember_backend_wgpu::burn_wgpu::{WgpuDevice, WgpuRuntime};
use ember_loaders::checkpoint::Checkpoint;
use ember_loaders::tokenizer::{SpecialTokens, Tokenizer};

const SMOLLM2: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

fn engine(checkpoint: &Checkpoint, backend: BackendKind) -> Engine {
    let options = LoadOptions {
        device: DeviceOptions { backend, device: 0, threads: None },
        cache: CacheOptions { context_size: 128, kv_type: KvType::F16 },
    };
    Engine::new(load(checkpoint, &options, &mut |_| ()).expect("a device and a model that fits").runner)
}

/// The likeliest token and how far the second is behind it.
fn best(logits: &[f32]) -> (usize, f32) {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.select_nth_unstable_by(1, |&a, &b| logits[b].total_cmp(&logits[a]));
    (order[0], logits[order[0]] - logits[order[1]])
}

/// The CPU's text, teacher-forced: a prompt in one step, then token by token.
#[test]
fn smollm2_agrees_with_the_cpu() {
    const TOKENS: usize = 32;
    let checkpoint = Checkpoint::open(real_support::model(SMOLLM2)).expect("a model that is supported");
    let tokenizer = Tokenizer::from_gguf(checkpoint.gguf().expect("a GGUF file")).expect("its tokenizer");
    // A text whose next words are not a matter of taste: differences are then differences of the arithmetic.
    let prompt = "One, two, three, four, five, six, seven, eight, nine,";
    let prompt = tokenizer.encode(prompt, SpecialTokens::Parse).expect("plain text");
    let mut cpu = engine(&checkpoint, BackendKind::Ndarray);
    let limits = GenerateLimits { max_tokens: Some(TOKENS), ..GenerateLimits::default() };
    let mut sampler = Sampler::new(SamplingParams::default()).expect("greedy");
    let mut sequence = Sequence::default();
    let mut generation = Generation::start(&mut cpu, &mut sequence, &prompt, limits).expect("it fits");
    generation.run(&mut cpu, &mut sequence, &mut sampler).expect("it fits the context");
    let text = generation.tokens();
    assert_eq!(text.len(), TOKENS);

    let mut gpu = engine(&checkpoint, BackendKind::Vulkan);
    assert_memory_is_the_model(&checkpoint, &gpu);
    let mut sequence = Sequence::default();
    let mut equal = 0;
    let mut rows = vec![&prompt[..]];
    rows.extend(text.chunks(1).take(TOKENS - 1));
    for (step, (tokens, &expected)) in rows.into_iter().zip(text).enumerate() {
        let output =
            gpu.extend(&mut sequence, tokens, Wanted::Last, &mut |_| true).expect("a healthy device");
        let (token, gap) = best(&output.logits);
        equal += usize::from(token == expected as usize);
        assert!(token == expected as usize || gap <= 0.5, "token {step} is another, {gap} ahead");
    }
    assert!(equal * 100 >= TOKENS * 96, "{equal} of {TOKENS} tokens are the CPU's");
}

/// Device memory after loading is the file and the KV pool, within a tenth.
fn assert_memory_is_the_model(checkpoint: &Checkpoint, engine: &Engine) {
    let client = WgpuRuntime::client(&WgpuDevice::Cpu);
    let reserved = client.memory_usage().expect("a healthy device").bytes_reserved;
    let file = checkpoint.gguf().expect("a GGUF file").file_bytes();
    let model = file + engine.runner().kv_bytes() as u64;
    assert!(reserved * 10 <= model * 11, "{reserved} bytes reserved for {model}");
}

#[test]
fn every_kernel_equals_the_cpu() {
    let checked = ember(&["devices", "--check", "--backend", "vulkan"]).ok();
    let (held, all) = checked.stdout.split_once(" of ").expect("a count");
    assert_eq!(Some(held), all.strip_suffix(" comparisons hold\n"), "{}", checked.stderr);
    assert!(held.parse::<usize>().expect("a count") > 15 * 9 * 3, "{held} comparisons");
}

#[test]
fn run_answers_as_the_cpu_does() {
    let file = model("qwen3-tied/f32.gguf");
    let run = |backend| {
        let args = ["run", "--backend", backend, "--raw", "--max-tokens", "6", "--kv-cache-dtype", "f32"];
        ember(&[&args[..], &["-m", &file, "hello"]].concat()).ok()
    };
    let (gpu, cpu) = (run("vulkan"), run("ndarray"));
    assert!(gpu.stderr.contains("; vulkan, "), "{}", gpu.stderr);
    assert!(cpu.stderr.contains("; ndarray, "), "{}", cpu.stderr);
    assert!(!gpu.stdout.is_empty());
    assert_eq!(gpu.stdout, cpu.stdout);
}

#[test]
fn an_image_reads_as_on_the_cpu() {
    let vision = |file: &str| cli_support::fixture(&format!("vision/{file}"));
    let (model, mmproj) = (vision("gelu-2/text-f32.gguf"), vision("gelu-2/mmproj-f32.gguf"));
    let image = vision("ramps-224.png");
    let run = |backend| {
        let args = ["run", "--backend", backend, "--raw", "--max-tokens", "6", "--kv-cache-dtype", "f32"];
        let files = ["-m", &model, "--mmproj", &mmproj, "--image", &image, "a[IMG]b"];
        ember(&[&args[..], &files].concat()).ok()
    };
    let (gpu, cpu) = (run("vulkan"), run("ndarray"));
    assert!(gpu.stderr.contains("; vulkan, "), "{}", gpu.stderr);
    assert!(gpu.stderr.contains("1 image encoded: 72 tokens"), "{}", gpu.stderr);
    assert!(!gpu.stdout.is_empty());
    assert_eq!(gpu.stdout, cpu.stdout);
}

#[test]
fn devices_lists_what_the_backend_sees() {
    let listed = ember(&["devices", "--backend", "vulkan"]).ok().stdout;
    for fact in ["vulkan 0: ", "compiler: wgpu<spirv>", "largest buffer: ", "planes of ", "matrix units: "] {
        assert!(listed.contains(fact), "no `{fact}` in {listed}");
    }
    // Every backend has its lines, also one whose driver is not there.
    let all = ember(&["devices"]).ok().stdout;
    assert!(all.contains("ndarray 0: CPU") && all.contains("cuda"), "{all}");
}

#[test]
fn a_device_that_is_not_there_is_refused() {
    let file = model("qwen3-tied/f32.gguf");
    let run = |args: &[&str]| ember(&[&["run", "--max-tokens", "1", "-m", &file, "hi"], args].concat());
    let refused = run(&["--backend", "vulkan", "--device", "9"]);
    assert_eq!(refused.status, 1);
    assert!(
        refused.stderr.contains(
            "device 9 does not exist: there is 1, from 0: `ember devices --backend vulkan` lists them"
        ),
        "{}",
        refused.stderr
    );
    let refused = run(&["--backend", "cuda"]);
    assert_eq!(refused.status, 1);
    assert!(refused.stderr.contains("CUDA") && refused.stderr.contains("install"), "{}", refused.stderr);
    let refused = run(&["--backend", "metal"]);
    assert_eq!(refused.status, 1);
    let expected = "this binary was built without the metal backend (it has: cuda, vulkan, ndarray): build it with --features metal";
    assert!(refused.stderr.contains(expected), "{}", refused.stderr);
}
