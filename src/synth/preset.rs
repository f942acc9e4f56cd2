//! The shapes of published models.
use super::{Contents, vocab};
use ember_loaders::checkpoint::{
    Arch, ModelConfig, QueryScale, RopeConfig, RopeScaling, TensorRole, TensorSpec,
};
use ember_loaders::gguf::{GgmlType, GgufWriteError, GgufWriter};
use std::f32::consts::PI;
use std::io::Write;

/// Architectures that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Qwen3, dense.
    Qwen3,
    /// Ministral 3 (3b, 8b, 14b) and Mistral Small 3.x (24b).
    Mistral3,
    /// Llama 3.1 and 3.2.
    Llama,
}

impl Family {
    /// `general.architecture`.
    pub fn arch(self) -> &'static str {
        match self {
            Self::Qwen3 => "qwen3",
            Self::Mistral3 => "mistral3",
            Self::Llama => "llama",
        }
    }
}

/// Storage of the matrices, as llama.cpp's quantizer of that name mixes types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SynthType {
    /// 8.5 bits per weight.
    Q8_0,
    /// 4.5 bits per weight, output in Q6_K.
    Q4_0,
    /// 4.5 bits per weight, output and half of the value and down projections in Q6_K.
    Q4KM,
    /// 16 bits per weight.
    F16,
}

impl SynthType {
    /// Every type.
    pub const ALL: [Self; 4] = [Self::Q8_0, Self::Q4_0, Self::Q4KM, Self::F16];

    /// llama.cpp's name, in small letters.
    pub fn name(self) -> &'static str {
        match self {
            Self::Q8_0 => "q8_0",
            Self::Q4_0 => "q4_0",
            Self::Q4KM => "q4_k_m",
            Self::F16 => "f16",
        }
    }

    /// A line for people: bits per weight, and the types mixed in.
    pub fn description(self) -> &'static str {
        match self {
            Self::Q8_0 => "8.5 bits per weight",
            Self::Q4_0 => "4.5 bits per weight, output in Q6_K",
            Self::Q4KM => "4.5 bits per weight, output and half of the value and down projections in Q6_K",
            Self::F16 => "16 bits per weight",
        }
    }

    /// llama.cpp's number for the mix (`general.file_type`).
    pub(super) fn file_type(self) -> u32 {
        match self {
            Self::F16 => 1,
            Self::Q4_0 => 2,
            Self::Q8_0 => 7,
            Self::Q4KM => 15,
        }
    }

    /// The type of most matrices.
    pub(super) fn base(self) -> GgmlType {
        match self {
            Self::Q8_0 => GgmlType::Q8_0,
            Self::Q4_0 => GgmlType::Q4_0,
            Self::Q4KM => GgmlType::Q4_K,
            Self::F16 => GgmlType::F16,
        }
    }
}

/// Dimensions of one model.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Architecture.
    pub family: Family,
    /// The preset's name, such as `0.6b`.
    pub name: &'static str,
    /// Width of the residual stream.
    pub hidden: usize,
    /// Width of the feed-forward network.
    pub ffn: usize,
    /// Blocks.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads.
    pub kv_heads: usize,
    /// Tokens.
    pub vocab: usize,
    /// True when the output head is the embedding.
    pub tied: bool,
}

/// Every family's heads are this wide.
const HEAD_DIM: usize = 128;
const LLAMA_FREQ_BASE: f32 = 5e5;

/// `(name, hidden, ffn, layers, heads, tied)`; all have 8 key/value heads.
type Row = (&'static str, usize, usize, usize, usize, bool);

const QWEN3: [Row; 5] = [
    ("0.6b", 1024, 3072, 28, 16, true),
    ("1.7b", 2048, 6144, 28, 16, true),
    ("4b", 2560, 9728, 36, 32, true),
    ("8b", 4096, 12288, 36, 32, false),
    ("14b", 5120, 17408, 40, 40, false),
];
const MISTRAL3: [Row; 4] = [
    ("3b", 3072, 9216, 26, 32, true),
    ("8b", 4096, 14336, 34, 32, false),
    ("14b", 5120, 16384, 40, 32, false),
    ("24b", 5120, 32768, 40, 32, false),
];
const LLAMA: [Row; 2] = [("3b", 3072, 8192, 28, 24, true), ("8b", 4096, 14336, 32, 32, false)];

fn rows(family: Family) -> &'static [Row] {
    match family {
        Family::Qwen3 => &QWEN3,
        Family::Mistral3 => &MISTRAL3,
        Family::Llama => &LLAMA,
    }
}

/// The presets of a family, smallest first.
pub fn preset_names(family: Family) -> Vec<&'static str> {
    rows(family).iter().map(|row| row.0).collect()
}

/// The shape of a preset, if the family has one of that name.
pub fn shape(family: Family, preset: &str) -> Option<Shape> {
    let &(name, hidden, ffn, layers, heads, tied) = rows(family).iter().find(|row| row.0 == preset)?;
    let vocab = match family {
        Family::Qwen3 => 151_936,
        Family::Mistral3 => 131_072,
        Family::Llama => 128_256,
    };
    Some(Shape { family, name, hidden, ffn, layers, heads, kv_heads: 8, vocab, tied })
}

impl Contents for Shape {
    fn title(&self) -> String {
        format!("Synthetic {} {}", self.family.arch(), self.name)
    }

    fn write_metadata<W: Write>(&self, header: &mut GgufWriter<W>) -> Result<(), GgufWriteError> {
        let (arch, config) = (self.family.arch(), self.config());
        header.metadata("general.architecture", arch)?;
        let numbers = [
            ("context_length", config.context_length),
            ("embedding_length", config.hidden_size),
            ("feed_forward_length", config.ffn_size),
            ("block_count", config.n_layers),
            ("attention.head_count", config.n_heads),
            ("attention.head_count_kv", config.n_kv_heads),
            ("attention.key_length", config.head_dim),
            ("attention.value_length", config.head_dim),
            ("rope.dimension_count", config.rope.dim),
            ("vocab_size", config.vocab_size),
        ];
        for (key, value) in numbers {
            header.metadata(&format!("{arch}.{key}"), value as u32)?;
        }
        header.metadata(&format!("{arch}.rope.freq_base"), config.rope.freq_base)?;
        header.metadata(&format!("{arch}.attention.layer_norm_rms_epsilon"), config.norm_eps)?;
        if let RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, log_multiplier, .. } =
            config.rope.scaling
        {
            header.metadata(&format!("{arch}.rope.scaling.type"), "yarn")?;
            let key = format!("{arch}.rope.scaling.original_context_length");
            header.metadata(&key, original_context as u32)?;
            let scaling = [
                ("factor", factor),
                ("yarn_beta_fast", beta_fast),
                ("yarn_beta_slow", beta_slow),
                ("yarn_log_multiplier", log_multiplier),
            ];
            for (key, value) in scaling {
                header.metadata(&format!("{arch}.rope.scaling.{key}"), value)?;
            }
        }
        if let Some(scale) = config.query_scale {
            header.metadata(&format!("{arch}.attention.temperature_scale"), scale.beta)?;
        }
        vocab::write(header, self.family, self.vocab)
    }

    fn tensors(&self, ty: SynthType) -> Vec<(TensorSpec, GgmlType)> {
        let base = ty.base();
        let head = match ty {
            SynthType::Q4_0 | SynthType::Q4KM => GgmlType::Q6_K,
            SynthType::Q8_0 | SynthType::F16 => base,
        };
        let better = |tensor: &TensorSpec| {
            let kept = ["attn_v.weight", "ffn_down.weight"].iter().any(|name| tensor.name.ends_with(name));
            ty == SynthType::Q4KM && kept && tensor.layer.is_some_and(|layer| self.uses_more_bits(layer))
        };
        let ty_of = |tensor: &TensorSpec| match tensor.role {
            TensorRole::Head => head,
            TensorRole::Embedding if self.tied => head,
            TensorRole::Matrix if better(tensor) => GgmlType::Q6_K,
            TensorRole::Embedding | TensorRole::Matrix => base,
            TensorRole::Norm | TensorRole::Bias | TensorRole::RopeFactors => GgmlType::F32,
        };
        // Llama 3.1 and 3.2 have frequency factors, Mistral 3 has not.
        let written = |tensor: &TensorSpec| !tensor.optional || self.family == Family::Llama;
        let typed = |tensor: TensorSpec| {
            let ty = ty_of(&tensor);
            (tensor, ty)
        };
        self.config().tensors().into_iter().filter(written).map(typed).collect()
    }

    /// Ones, for norms.
    fn vector(&self, tensor: &TensorSpec) -> Vec<f32> {
        match tensor.role {
            TensorRole::RopeFactors => self.rope_freqs(),
            _ => vec![1.0; tensor.elements()],
        }
    }
}

impl Shape {
    /// The hyperparameters that a reader of the file will find.
    fn config(&self) -> ModelConfig {
        let arch = match self.family {
            Family::Qwen3 => Arch::Qwen3,
            Family::Mistral3 => Arch::Mistral3,
            Family::Llama => Arch::Llama,
        };
        let (context_length, freq_base, norm_eps) = match (self.family, self.name) {
            (Family::Qwen3, _) => (40_960, 1e6, 1e-6),
            (Family::Mistral3, "24b") => (131_072, 1e9, 1e-5),
            (Family::Mistral3, _) => (262_144, 1e6, 1e-5),
            (Family::Llama, _) => (131_072, LLAMA_FREQ_BASE, 1e-5),
        };
        let ministral = self.family == Family::Mistral3 && self.name != "24b";
        let original_context = 16_384;
        let yarn = RopeScaling::Yarn {
            factor: 16.0,
            original_context,
            beta_fast: 32.0,
            beta_slow: 1.0,
            ext_factor: 1.0,
            attn_factor: 1.0,
            log_multiplier: 1.0,
        };
        let scaling = if ministral { yarn } else { RopeScaling::None };
        ModelConfig {
            arch,
            name: None,
            n_layers: self.layers,
            hidden_size: self.hidden,
            ffn_size: self.ffn,
            n_heads: self.heads,
            n_kv_heads: self.kv_heads,
            head_dim: HEAD_DIM,
            vocab_size: self.vocab,
            context_length,
            norm_eps,
            rope: RopeConfig { dim: HEAD_DIM, freq_base, pairing: arch.rope_pairing(), scaling },
            query_scale: ministral.then_some(QueryScale { beta: 0.1, original_context }),
            attention_scale: None,
            qk_norm: arch.has_qk_norm(),
            qkv_bias: false,
            tied_embeddings: self.tied,
            relabelled_from: None,
        }
    }

    /// Llama 3's rule (`rope_type: llama3`, original context 8192): wavelengths beyond the original context are
    /// stretched by the factor, those below a quarter of it stay, those between change smoothly.
    fn rope_freqs(&self) -> Vec<f32> {
        // Llama 3.2 (1B and 3B) and 3.1 (8B and up).
        let factor = if self.name == "3b" { 32.0 } else { 8.0 };
        let (original, low, high) = (8192.0, 1.0, 4.0);
        let of_pair = |i: usize| {
            let wavelength = 2.0 * PI * LLAMA_FREQ_BASE.powf(2.0 * i as f32 / HEAD_DIM as f32);
            let kept = ((original / wavelength - low) / (high - low)).clamp(0.0, 1.0);
            1.0 / ((1.0 - kept) / factor + kept)
        };
        (0..HEAD_DIM / 2).map(of_pair).collect()
    }

    /// The layers in which llama.cpp's Q4_K_M keeps the value and down projections in Q6_K: the first and the last
    /// eighth, and every third between.
    fn uses_more_bits(&self, layer: usize) -> bool {
        let eighth = self.layers / 8;
        layer < eighth || layer >= 7 * self.layers / 8 || (layer - eighth) % 3 == 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q4_k_m_keeps_more_bits_where_llama_cpp_does() {
        let shape = shape(Family::Qwen3, "0.6b").unwrap();
        let better: Vec<usize> = (0..shape.layers).filter(|&layer| shape.uses_more_bits(layer)).collect();
        assert_eq!(better, [0, 1, 2, 5, 8, 11, 14, 17, 20, 23, 24, 25, 26, 27]);
    }

    /// The values are those of Hugging Face transformers (`ROPE_INIT_FUNCTIONS["llama3"]`, Llama 3.1's configuration).
    #[test]
    fn llama_frequencies_are_divided_by_llama_3s_rule() {
        let factors = shape(Family::Llama, "8b").unwrap().rope_freqs();
        assert_eq!(factors.len(), 64);
        let expected = [1.0, 1.2075, 1.5534, 2.0263, 2.6945, 3.6843, 5.2573, 8.0, 8.0];
        for (factor, expected) in factors[28..].iter().zip(expected) {
            assert!((factor - expected).abs() < 1e-4, "{factor} instead of {expected}");
        }
        assert_eq!((factors[0], factors[63]), (1.0, 8.0));
        assert_eq!(shape(Family::Llama, "3b").unwrap().rope_freqs()[63], 32.0);
    }
}
