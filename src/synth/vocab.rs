//! A vocabulary of the right size: control tokens, the 256 bytes, pairs of letters, and unused tokens for the rest.
use super::Family;
use ember_loaders::gguf::{GgufWriteError, GgufWriter};
use std::io::Write;

const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const UNUSED: i32 = 5;

/// Control tokens, pre-tokenizer, index of the first and of the ending control token, and template of a family.
struct Tokens {
    control: &'static [&'static str],
    pre: &'static str,
    bos: Option<usize>,
    eos: usize,
    template: &'static str,
}

const CHATML: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n\
    {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
const INST: &str = "{{ bos_token }}{% for message in messages %}{% if message.role == 'assistant' %}\
    {{ message.content }}</s>{% elif message.role == 'system' %}[SYSTEM_PROMPT]{{ message.content }}[/SYSTEM_PROMPT]\
    {% else %}[INST]{{ message.content }}[/INST]{% endif %}{% endfor %}";
const HEADERS: &str = "{{ bos_token }}{% for message in messages %}<|start_header_id|>{{ message.role }}\
    <|end_header_id|>\n\n{{ message.content }}<|eot_id|>{% endfor %}{% if add_generation_prompt %}\
    <|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}";

fn tokens(family: Family) -> Tokens {
    match family {
        Family::Qwen3 => Tokens {
            control: &["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
            pre: "qwen2",
            bos: None,
            eos: 2,
            template: CHATML,
        },
        Family::Mistral3 => Tokens {
            control: &[
                "<unk>",
                "<s>",
                "</s>",
                "[INST]",
                "[/INST]",
                "[IMG]",
                "<pad>",
                "[IMG_BREAK]",
                "[IMG_END]",
                "[SYSTEM_PROMPT]",
                "[/SYSTEM_PROMPT]",
            ],
            pre: "tekken",
            bos: Some(1),
            eos: 2,
            template: INST,
        },
        Family::Llama => Tokens {
            control: &[
                "<|begin_of_text|>",
                "<|end_of_text|>",
                "<|start_header_id|>",
                "<|end_header_id|>",
                "<|eot_id|>",
            ],
            pre: "llama-bpe",
            bos: Some(0),
            eos: 4,
            template: HEADERS,
        },
    }
}

pub(super) fn write<W: Write>(
    header: &mut GgufWriter<W>,
    family: Family,
    size: usize,
) -> Result<(), GgufWriteError> {
    let about = tokens(family);
    let mut texts: Vec<String> = about.control.iter().map(ToString::to_string).collect();
    let mut types = vec![CONTROL; texts.len()];
    let letters = || 'a'..='z';
    let pairs = || letters().flat_map(move |a| letters().map(move |b| (a, b)));
    texts.extend((0..=255u8).map(byte_text));
    texts.extend(pairs().map(|(a, b)| format!("{a}{b}")));
    types.resize(texts.len(), NORMAL);
    texts.extend((texts.len()..size).map(|i| format!("[PAD{i}]")));
    types.resize(size, UNUSED);
    let merges: Vec<String> = pairs().map(|(a, b)| format!("{a} {b}")).collect();
    header.metadata("tokenizer.ggml.model", "gpt2")?;
    header.metadata("tokenizer.ggml.pre", about.pre)?;
    header.metadata("tokenizer.ggml.tokens", texts)?;
    header.metadata("tokenizer.ggml.token_type", types)?;
    header.metadata("tokenizer.ggml.merges", merges)?;
    header.metadata("tokenizer.ggml.eos_token_id", about.eos as u32)?;
    header.metadata("tokenizer.ggml.add_bos_token", about.bos.is_some())?;
    if let Some(bos) = about.bos {
        header.metadata("tokenizer.ggml.bos_token_id", bos as u32)?;
    }
    header.metadata("tokenizer.chat_template", about.template)
}

/// GPT-2's printable stand-in for a byte: itself where printable, else a character from U+0100 on.
fn byte_text(byte: u8) -> String {
    let printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
    if printable(byte) {
        return char::from(byte).to_string();
    }
    let before = (0..byte).filter(|&other| !printable(other)).count() as u32;
    char::from_u32(0x100 + before).expect("at most 68 characters from U+0100 on").to_string()
}
