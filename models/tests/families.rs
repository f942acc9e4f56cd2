//! Every family: its configuration says what its checkpoints say, it loads only its own, and a model made of a
//! configuration without a file trains.
mod common;

use burn::backend::Autodiff;
use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Int, Tensor, backend::Backend as _};
use burn_ndarray::NdArray;
use common::golden::{file, paged_logits, reference, worst_position};
use common::values;
use ember_loaders::checkpoint::{Arch, Checkpoint, ModelConfig, TensorRole, TensorSpec};
use ember_loaders::gguf::Gguf;
use ember_loaders::image::{ImageGrid, PixelValues};
use ember_loaders::projector::{PixtralConfig, ProjectorLayout};
use ember_models::backend::Backend;
use ember_models::{
    Decoder, KvType, LlamaConfig, Mistral3, Mistral3Config, ModelError, Pixtral, Qwen2Config, Qwen3,
    Qwen3Config, TextModel, WeightFormat, YarnConfig,
};

type B = NdArray;
type Train = Autodiff<NdArray>;

fn checkpoint(path: &str) -> Checkpoint {
    Checkpoint::open(file(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The configuration as a checkpoint would have it that bears this name.
fn named(config: impl Into<ModelConfig>, like: &ModelConfig) -> ModelConfig {
    ModelConfig { name: like.name.clone(), ..config.into() }
}

/// Sets the sizes that all families have to those of a checkpoint.
macro_rules! sized {
    ($config:expr, $like:expr) => {
        $config
            .with_vocab_size($like.vocab_size)
            .with_hidden_size($like.hidden_size)
            .with_ffn_size($like.ffn_size)
            .with_n_layers($like.n_layers)
            .with_n_heads($like.n_heads)
            .with_n_kv_heads($like.n_kv_heads)
            .with_head_dim($like.head_dim)
            .with_context_length($like.context_length)
            .with_norm_eps($like.norm_eps)
            .with_rope_freq_base($like.rope.freq_base)
            .with_tied_embeddings($like.tied_embeddings)
    };
}

#[test]
fn configurations_say_what_checkpoints_say() {
    let file = checkpoint("qwen3-tied/f32.gguf");
    let like = file.config();
    assert_eq!(&named(&sized!(Qwen3Config::new(), like), like), like);

    let file = checkpoint("llama/f32.gguf");
    let like = file.config();
    assert_eq!(&named(&sized!(LlamaConfig::new(), like), like), like);

    let file = checkpoint("qwen2/f32.gguf");
    let like = file.config();
    assert_eq!(&named(&sized!(Qwen2Config::new(), like), like), like);

    let file = checkpoint("ministral3/f32.gguf");
    let like = file.config();
    assert_eq!(&named(&sized!(Mistral3Config::new(), like), like), like);

    let file = checkpoint("mistral-small/f32.gguf");
    let like = file.config();
    let small = sized!(Mistral3Config::new(), like).with_yarn(None).with_query_scale_beta(None);
    assert_eq!(&named(&small, like), like);
}

#[test]
fn a_gguf_file_loads_as_its_family_only() {
    let device = Default::default();
    let open = |path| Gguf::open(file(path)).expect("a committed fixture");
    let model = Qwen3::<B>::from_gguf(open("qwen3-tied/f32.gguf"), &device).expect("a Qwen3 file");
    let expected = reference("qwen3-tied/reference.safetensors");
    let error = worst_position(&paged_logits(&TextModel::Qwen3(model), &expected, KvType::F32), &expected);
    assert!(error < 1e-4, "{error}");
    let error = Mistral3::<B>::from_gguf(open("qwen3-tied/f32.gguf"), &device).expect_err("another family");
    assert!(
        matches!(error, ModelError::WrongArchitecture { found: Arch::Qwen3, wanted: "Mistral 3" }),
        "{error}"
    );
    assert_eq!(error.to_string(), "this checkpoint is a Qwen3 model, not Mistral 3");
    for (path, arch) in [
        ("qwen3-tied/f32.gguf", Arch::Qwen3),
        ("ministral3/f32.gguf", Arch::Mistral3),
        ("llama/f32.gguf", Arch::Llama),
        ("qwen2/f32.gguf", Arch::Qwen2),
    ] {
        let model = TextModel::<B>::load(&checkpoint(path), WeightFormat::Packed, &device);
        let found = match model.expect("a whole checkpoint") {
            TextModel::Qwen3(_) => Arch::Qwen3,
            TextModel::Mistral3(_) => Arch::Mistral3,
            TextModel::Llama(_) => Arch::Llama,
            TextModel::Qwen2(_) => Arch::Qwen2,
        };
        assert_eq!(found, arch, "{path}");
    }
}

/// Sizes that are small and all different.
macro_rules! tiny {
    ($config:expr) => {
        $config
            .with_vocab_size(50)
            .with_hidden_size(24)
            .with_ffn_size(40)
            .with_n_layers(2)
            .with_n_heads(4)
            .with_n_kv_heads(2)
            .with_head_dim(8)
    };
}

/// The number of elements of every parameter.
#[derive(Default)]
struct Sizes(Vec<usize>);

impl<B: burn::tensor::backend::Backend> ModuleVisitor<B> for Sizes {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        assert!(param.val().is_require_grad());
        self.0.push(param.val().dims().iter().product());
    }
}

/// Fails unless the module has a trainable parameter for each tensor of its description, and no other.
fn assert_has_all<B: Backend, M: Module<B>>(module: &M, described: &[TensorSpec]) {
    let mut sizes = Sizes::default();
    module.visit(&mut sizes);
    let trained = described.iter().filter(|tensor| !tensor.optional);
    let mut expected: Vec<usize> = trained.map(TensorSpec::elements).collect();
    expected.sort_unstable();
    sizes.0.sort_unstable();
    assert_eq!(sizes.0, expected);
}

struct Gradients<'a>(&'a <Train as burn::tensor::backend::AutodiffBackend>::Gradients);

impl ModuleVisitor<Train> for Gradients<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<Train, D>>) {
        let gradient = values(param.val().grad(self.0).expect("every weight is on the path to the loss"));
        assert!(gradient.iter().all(|g| g.is_finite()), "{:?}", param.val().dims());
        assert!(gradient.iter().any(|g| *g != 0.0), "{:?}", param.val().dims());
    }
}

fn assert_trains(decoder: &Decoder<Train>) {
    let device = Default::default();
    assert_has_all(decoder, &decoder.config().tensors());
    let tokens = Tensor::<Train, 2, Int>::from_ints([[3, 1, 4, 1, 5], [9, 2, 6, 49, 0]], &device);
    let logits = decoder.forward(tokens);
    assert_eq!(logits.dims(), [2, 5, 50]);
    let numbers = values(logits.clone());
    assert!(numbers.iter().all(|x| x.is_finite()));
    assert!(numbers[..50] != numbers[50..100], "positions differ");
    let gradients = burn::tensor::activation::log_softmax(logits, 2).square().mean().backward();
    decoder.visit(&mut Gradients(&gradients));
}

#[test]
fn models_without_a_file_train() {
    let device = Default::default();
    Train::seed(&device, 7);
    assert_trains(&tiny!(Qwen3Config::new()).init::<Train>(&device).decoder);
    assert_trains(&tiny!(Qwen3Config::new()).with_tied_embeddings(false).init::<Train>(&device).decoder);
    assert_trains(&tiny!(LlamaConfig::new()).init::<Train>(&device).decoder);
    assert_trains(&tiny!(Qwen2Config::new()).init::<Train>(&device).decoder);
    let yarn = Some(YarnConfig::new().with_factor(4.0));
    assert_trains(&tiny!(Mistral3Config::new()).with_yarn(yarn).init::<Train>(&device).decoder);
}

#[test]
#[should_panic(expected = "4 attention heads are not a multiple of 3 key/value heads")]
fn sizes_that_contradict_each_other_are_refused() {
    tiny!(LlamaConfig::new()).with_n_kv_heads(3).init::<B>(&Default::default());
}

#[test]
fn an_encoder_without_a_file_trains() {
    let device = Default::default();
    Train::seed(&device, 7);
    for merge_size in [1, 2] {
        let config = PixtralConfig {
            n_layers: 2,
            hidden_size: 16,
            ffn_size: 24,
            n_heads: 2,
            head_dim: 8,
            patch_size: 2,
            merge_size,
            has_merger: merge_size > 1,
            projector_size: 20,
            text_hidden_size: 28,
            ..PixtralConfig::mistral_small(ProjectorLayout::Ollama)
        };
        let (grid, side) = (ImageGrid { rows: 2, cols: 3 }, config.cell_size());
        let (width, height) = (3 * side, 2 * side);
        let image =
            PixelValues { grid, width, height, values: ember_test_support::random(3, 3 * width * height) };
        let encoder = Pixtral::<Train>::init(config, &device);
        assert_has_all(&encoder, &encoder.config().tensors());
        let embeddings = encoder.forward(&[image], &device).expect("a valid image");
        assert_eq!(embeddings.dims(), [6, 28]);
        assert!(values(embeddings.clone()).iter().all(|x| x.is_finite()));
        encoder.visit(&mut Gradients(&embeddings.square().mean().backward()));
    }
}

/// One description gives each family its own tensors.
#[test]
fn families_have_their_own_tensors() {
    let names = |config: ModelConfig| -> Vec<String> {
        let block = config.tensors().into_iter().filter(|tensor| tensor.layer == Some(1));
        block.filter(|tensor| tensor.role != TensorRole::Matrix).map(|tensor| tensor.name).collect()
    };
    let norms = ["blk.1.attn_norm.weight", "blk.1.ffn_norm.weight"];
    assert_eq!(names((&tiny!(LlamaConfig::new())).into()), norms);
    assert_eq!(names((&tiny!(Mistral3Config::new())).into()), norms);
    let [attn_norm, ffn_norm] = norms;
    let q_and_k = ["blk.1.attn_q_norm.weight", "blk.1.attn_k_norm.weight"];
    assert_eq!(names((&tiny!(Qwen3Config::new())).into()), [attn_norm, q_and_k[0], q_and_k[1], ffn_norm]);
    let biases = ["blk.1.attn_q.bias", "blk.1.attn_k.bias", "blk.1.attn_v.bias"];
    assert_eq!(
        names((&tiny!(Qwen2Config::new())).into()),
        [attn_norm, biases[0], biases[1], biases[2], ffn_norm]
    );
}
