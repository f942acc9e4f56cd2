//! A vocabulary of the right size: control tokens, the 256 bytes, made-up words, and padding where published files have it.
use super::Family;
use ember_loaders::gguf::{GgufWriteError, GgufWriter};
use std::io::Write;

const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const UNUSED: i32 = 5;

/// The contents of a family's vocabulary besides bytes and words; `bos` and `eos` are indices into `control`.
struct Tokens {
    control: &'static [&'static str],
    /// Unused tokens at the end: Qwen3's embedding has more rows than its tokenizer has tokens.
    padding: usize,
    pre: &'static str,
    bos: Option<usize>,
    eos: usize,
    template: &'static str,
}

const CHATML: &str = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n\
    {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
const INST: &str = "{{ bos_token }}{% for message in messages %}{% if message.role == 'assistant' %}\
    {{ message.content }}</s>{% elif message.role == 'system' %}[SYSTEM_PROMPT]{{ message.content }}[/SYSTEM_PROMPT]\
    {% elif message.content is string %}[INST]{{ message.content }}[/INST]{% else %}[INST]{% for part in \
    message.content %}{% if part.type == 'text' %}{{ part.text }}{% else %}[IMG]{% endif %}{% endfor %}[/INST]\
    {% endif %}{% endfor %}";
const HEADERS: &str = "{{ bos_token }}{% for message in messages %}<|start_header_id|>{{ message.role }}\
    <|end_header_id|>\n\n{{ message.content }}<|eot_id|>{% endfor %}{% if add_generation_prompt %}\
    <|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}";

fn tokens(family: Family) -> Tokens {
    match family {
        Family::Qwen3 => Tokens {
            control: &["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
            padding: 267,
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
            padding: 0,
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
            padding: 0,
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
    let fixed = about.control.len() + 256 + about.padding;
    let n_words = size.checked_sub(fixed).expect("a vocabulary holds at least its control tokens and bytes");
    let (words, merges) = words(n_words);
    let mut texts: Vec<String> = about.control.iter().map(ToString::to_string).collect();
    let mut types = vec![CONTROL; texts.len()];
    texts.extend((0..=255u8).map(byte_text));
    texts.extend(words);
    types.resize(texts.len(), NORMAL);
    texts.extend((texts.len()..size).map(|i| format!("[PAD{i}]")));
    types.resize(size, UNUSED);
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

/// `n` words over `a` to `z`, the shortest first, with and without a space before them, and the merge of each.
fn words(n: usize) -> (Vec<String>, Vec<String>) {
    let letters = || 'a'..='z';
    let mut texts: Vec<String> = letters().map(String::from).collect();
    texts.push(byte_text(b' '));
    let n_roots = texts.len();
    let mut merges = Vec::with_capacity(n);
    // Every text so far, in turn, gets each letter appended.
    for (i, letter) in letters().cycle().take(n).enumerate() {
        let prefix = &texts[i / letters().count()];
        merges.push(format!("{prefix} {letter}"));
        texts.push(format!("{prefix}{letter}"));
    }
    (texts.split_off(n_roots), merges)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_grow_letter_by_letter() {
        let (words, merges) = words(27 * 26 + 1);
        assert_eq!((words[0].as_str(), merges[0].as_str()), ("aa", "a a"));
        assert_eq!((words[26 * 26].as_str(), merges[26 * 26].as_str()), ("Ġa", "Ġ a"));
        assert_eq!((words[27 * 26].as_str(), merges[27 * 26].as_str()), ("aaa", "aa a"));
    }
}
